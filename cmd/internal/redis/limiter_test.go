package redis

import (
	"math"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/robots/testkit"
)

// mirrorSlack is how far reserve.lua and package limiter may differ: the script counts in
// whole microseconds.
const mirrorSlack = 2 * time.Microsecond

// TestScriptsMirrorTheLimiter runs reserve.lua, push.lua and undo.lua and the functions of
// package limiter over the same generated cases.
func TestScriptsMirrorTheLimiter(t *testing.T) {
	s := miniredis.RunT(t)
	c := client(t, "redis://"+s.Addr())
	c.Set(t.Context(), epochKey, "epoch", 0)
	rnd := rand.New(rand.NewSource(1))
	for i := range testkit.Rounds(100) {
		m := mirror{T: t, rnd: rnd, key: "host-" + strconv.Itoa(i), now: time.Unix(1_700_000_000, 0)}
		for range 30 {
			m.now = m.now.Add(m.random(20 * time.Second))
			s.SetTime(m.now)
			switch k := rnd.Intn(8); {
			case k == 0:
				m.push(func(keys []string, args []any) (any, error) {
					return pushScript.Run(t.Context(), c, keys, args...).Result()
				})
			case k == 1 && m.slot != nil:
				m.undo(func(keys []string, args []any) (any, error) {
					return undoScript.Run(t.Context(), c, keys, args...).Result()
				})
			default:
				m.reserve(func(keys []string, args []any) ([]any, error) {
					return reserveScript.Run(t.Context(), c, keys, args...).Slice()
				})
			}
			m.compare(s.HGet(paceKey(m.key), "c:"))
		}
		if t.Failed() {
			return
		}
	}
}

// A mirror is one limiter, with the state of package limiter and that of the server.
type mirror struct {
	*testing.T
	rnd    *rand.Rand
	key    string
	now    time.Time
	state  limiter.State
	before limiter.State // state before the last slot
	slot   *lease        // likewise; nil: there is none to return
}

// random returns a time of at most most, in whole microseconds.
func (m *mirror) random(most time.Duration) time.Duration {
	return time.Duration(m.rnd.Int63n(int64(most/time.Microsecond)+1)) * time.Microsecond
}

// ask returns a random limit and the rest of a replica's request.
func (m *mirror) ask() pace.SlotRequest {
	limit := pace.Limiter{Limit: limiter.Limit{PerSecond: []float64{0.1, 0.3, 1, 1.0 / 3, 7, 1000}[m.rnd.Intn(6)], Burst: 1 + m.rnd.Intn(5)}}
	if m.rnd.Intn(2) == 0 {
		limit.Gap = m.random(10 * time.Second)
	}
	if m.rnd.Intn(4) == 0 {
		limit.Sent = m.now.Add(-m.random(10 * time.Second))
	}
	return pace.SlotRequest{Key: m.key, Limiters: []pace.Limiter{limit}, MaxConcurrent: 1000, MaxWait: m.random(30 * time.Second)}
}

func (m *mirror) reserve(run func([]string, []any) ([]any, error)) {
	m.Helper()
	a, width := m.ask(), m.random(100*time.Millisecond)
	next := &lease{key: m.key, name: strconv.Itoa(m.rnd.Int())}
	reply, err := run(next.keys(&a), next.args(&a, "epoch", width, nil, m.now))
	if err != nil {
		m.Fatal(err)
	}
	l := a.Limiters[0]
	state := limiter.Apply(m.state, l.Limit, l.Sent, m.now)
	at := state.Due(1, m.now)
	code, _ := element[int64](reply, 0)
	wait, _ := element[int64](reply, 1)
	if d := time.Duration(wait)*time.Microsecond - at.Sub(m.now); d.Abs() > mirrorSlack {
		m.Errorf("reserve.lua waits %v more under %+v", d, a)
	}
	if d := at.Sub(m.now) - a.MaxWait; d.Abs() > mirrorSlack && (code == 1) != (d <= 0) {
		m.Errorf("code %d for a wait %v beyond the longest", code, d)
	}
	if code != 1 {
		return
	}
	next.before[0], _ = element[string](reply, 5)
	next.after[0], _ = element[string](reply, 6)
	m.before, m.slot = m.state, next
	m.state = limiter.Take(state, m.now.Add(time.Duration(wait)*time.Microsecond+width))
}

// undo returns the last slot, which was not used.
func (m *mirror) undo(run func([]string, []any) (any, error)) {
	m.Helper()
	if _, err := run(m.slot.undoKeys(), m.slot.undoArgs()); err != nil {
		m.Fatal(err)
	}
	m.state, m.slot = m.before, nil
}

// push reports to the server what was sent without it.
func (m *mirror) push(run func([]string, []any) (any, error)) {
	m.Helper()
	c := pace.Clock{Key: m.key, Sent: m.now.Add(-m.random(10 * time.Second)), Gap: m.random(time.Minute)}
	if _, err := run(pushArgs([]pace.Clock{c}, "epoch", m.now)); err != nil {
		m.Fatal(err)
	}
	m.state, m.slot = limiter.Spend(m.state, c.Sent, c.Gap), nil
}

// compare compares the server's state with m.
func (m *mirror) compare(kept string) {
	m.Helper()
	f := strings.Fields(kept)
	if len(f) != 7 {
		if m.state != (limiter.State{}) {
			m.Errorf("the server keeps %q, and the limiter %+v", kept, m.state)
		}
		return
	}
	field := func(i int) float64 { n, _ := strconv.ParseFloat(f[i], 64); return n }
	near := func(what string, got float64, want time.Time) {
		m.Helper()
		if !want.IsZero() && math.Abs(got-float64(want.UnixMicro())) > float64(mirrorSlack/time.Microsecond) {
			m.Errorf("%s is %v us late in %q", what, got-float64(want.UnixMicro()), kept)
		}
	}
	near("STAMP", field(1), m.state.Stamp)
	near("LAST", field(4), m.state.Last)
	if d := field(0) - m.state.Tokens; math.Abs(d) > mirrorSlack.Seconds()*max(1, m.state.PerSecond) {
		m.Errorf("TOKENS differ by %v: %q, %+v", d, kept, m.state)
	}
	if d := time.Duration(field(5))*time.Microsecond - m.state.Longest; d.Abs() > mirrorSlack {
		m.Errorf("LONGEST differs by %v: %q, %+v", d, kept, m.state)
	}
}
