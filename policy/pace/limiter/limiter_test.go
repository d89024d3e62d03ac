package limiter

import (
	"math"
	"math/rand"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// in returns a time after start. A negative argument returns the zero time.
func in(seconds float64) time.Time {
	if seconds < 0 {
		return time.Time{}
	}
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func TestDue(t *testing.T) {
	var (
		strict  = Limit{PerSecond: 1, Burst: 1, Gap: time.Second}
		delay   = Limit{PerSecond: 10, Burst: 5, Gap: 10 * time.Second}
		burst   = Limit{PerSecond: 1, Burst: 5}
		quicker = Limit{PerSecond: 10, Burst: 5}
	)
	for _, c := range []struct {
		name  string
		taken []float64 // seconds after start at which requests were sent, under the limit before
		from  Limit
		limit Limit
		sent  float64 // the last request that the caller knows of; negative: none
		now   float64
		n     int
		want  float64
	}{
		{"nothing was sent", nil, strict, strict, -1, 3, 1, 3},
		{"a gap", []float64{0}, strict, strict, -1, 0.25, 1, 1},
		{"a gap that is over", []float64{0}, strict, strict, -1, 7, 1, 7},
		{"the third of a gap", []float64{0}, strict, strict, -1, 0.25, 3, 3},
		{"a burst", []float64{0}, burst, burst, -1, 0, 4, 0},
		{"more than is left of a burst", []float64{0, 0, 0}, burst, burst, -1, 0.5, 3, 1},
		{"more than a burst", nil, burst, burst, -1, 0, 8, 3},
		{"a quiet time fills no more than the burst", []float64{0}, burst, burst, -1, 100, 7, 102},
		{"a gap within a burst", []float64{0}, delay, delay, -1, 1, 1, 10},
		{"a new gap counts from the last request", []float64{0}, burst, delay, -1, 4, 1, 10},
		{"a gap that goes", []float64{0}, delay, burst, -1, 4, 1, 4},
		{"a smaller burst keeps what fits", []float64{0}, burst, Limit{PerSecond: 0.1, Burst: 2}, -1, 0, 3, 10},
		{"a larger burst hands out nothing", []float64{0}, strict, burst, -1, 0, 1, 1},
		{"a higher rate fills from now on", []float64{0, 0, 0, 0, 0}, burst, quicker, -1, 0.5, 1, 0.55},
		{"a request by another counts", nil, delay, delay, 2, 4, 1, 12},
		{"a request by another empties the bucket", nil, burst, burst, 2, 4, 4, 6},
		{"a later request by another", []float64{0}, delay, delay, 2, 4, 1, 12},
		{"a request before it was due", []float64{0, 0}, strict, strict, -1, 0, 1, 2},
		{"a debt of tokens", []float64{0, 0, 0, 0, 0, 0}, burst, burst, -1, 0, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s State
			for _, at := range c.taken {
				s = Take(Apply(s, c.from, time.Time{}, in(at)), in(at))
			}
			s = Apply(s, c.limit, in(c.sent), in(c.now))
			if d := s.Due(c.n, in(c.now)).Sub(in(c.want)); d < 0 || d > 1 {
				t.Errorf("due %v after what is wanted", d)
			}
		})
	}
}

func TestSpendAndIdleAt(t *testing.T) {
	slow := Limit{PerSecond: 0.1, Burst: 5, Gap: time.Second}
	s := Take(Apply(State{}, slow, time.Time{}, in(0)), in(0))
	if at := s.IdleAt(); !at.Equal(in(10)) {
		t.Errorf("rested at %v, want when the burst is whole", at)
	}
	s = Spend(s, in(3), time.Minute)
	if at := s.IdleAt(); !at.Equal(in(63)) {
		t.Errorf("rested at %v, want after the longest gap", at)
	}
	if at := Apply(s, slow, time.Time{}, in(3)); !at.Due(1, in(3)).Equal(in(13)) {
		t.Error("what another has sent did not empty the bucket")
	}
	s = Spend(State{}, in(3), time.Minute)
	if at := s.IdleAt(); !at.Equal(in(63)) {
		t.Errorf("rested at %v, where no limit is in force", at)
	}
	if s = (State{}); !s.IdleAt().IsZero() {
		t.Error("the zero State holds up a request")
	}
}

// TestBucketIsThatOfTheLibrary compares the bucket with that of golang.org/x/time/rate.
func TestBucketIsThatOfTheLibrary(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 300 {
		limit := func() Limit {
			return Limit{PerSecond: math.Exp(rnd.Float64()*20 - 8), Burst: 1 + rnd.Intn(20)}
		}
		l, now := limit(), start
		lib := rate.NewLimiter(rate.Limit(l.PerSecond), l.Burst)
		lib.AllowN(now, 0)
		s := Apply(State{}, l, time.Time{}, now)
		for range 100 {
			now = now.Add(time.Duration(rnd.ExpFloat64() / l.PerSecond * float64(time.Second)))
			switch rnd.Intn(10) {
			case 0:
				l = limit()
				lib.SetLimitAt(now, rate.Limit(l.PerSecond))
				lib.SetBurstAt(now, l.Burst)
				s = Apply(s, l, time.Time{}, now)
			default:
				s = Take(s, now)
				lib.ReserveN(now, 1)
			}
			if got, want := s.TokensAt(now), min(lib.TokensAt(now), float64(l.Burst)); math.Abs(got-want) > 1e-5*float64(l.Burst) {
				t.Fatalf("%v tokens, the library has %v, under %+v", got, want, l)
			}
		}
	}
}

func TestExtremes(t *testing.T) {
	s := Apply(State{}, Limit{PerSecond: math.SmallestNonzeroFloat64, Burst: 1, Gap: Never}, time.Time{}, start)
	s = Take(s, start)
	if d := s.Due(1, start).Sub(start); d < Never-time.Hour {
		t.Errorf("due in %v", d)
	}
	if d := s.Due(1000, start).Sub(start); d != Never {
		t.Errorf("the thousandth is due in %v", d)
	}
	s = Apply(State{}, Limit{PerSecond: 1e9, Burst: math.MaxInt}, time.Time{}, start)
	for range 1000 {
		s = Take(s, start)
	}
	if !s.Due(1, start).Equal(start) {
		t.Error("a boundless limit holds up a request")
	}
}
