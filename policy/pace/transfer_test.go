package pace

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A flow is a Transfer with a constant rate since it began.
type flow struct {
	begun     time.Time
	perSecond int64
	waits     Party
	asked     atomic.Int32
	ended     chan struct{} // closed by End
	end       sync.Once
}

func (f *flow) Progress() (int64, Party) {
	f.asked.Add(1)
	return int64(time.Since(f.begun).Seconds() * float64(f.perSecond)), f.waits
}

func (f *flow) End() { f.end.Do(func() { close(f.ended) }) }

func (f *flow) isEnded() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// transfer sends a request of client whose bodies take time.
func transfer(t *testing.T, p *Pacer, client string, l Limits, perSecond int64, waits Party) (*Slot, *flow) {
	t.Helper()
	s := mustWait(t, p, client, l)
	s.Sent()
	f := &flow{begun: time.Now(), perSecond: perSecond, waits: waits, ended: make(chan struct{})}
	s.Follow(f)
	return s, f
}

// onlyPlaces returns Limits that never delay a request except by the concurrency limit.
func onlyPlaces(places int) Limits {
	l := rule(1e6, 1e6, 0)
	l.MaxConcurrent, l.MaxWait, l.MaxQueue = places, time.Minute, 100
	return l
}

// gets fails unless a request of client gets a concurrency slot after the given time, or
// one sample later.
func gets(t *testing.T, p *Pacer, client string, l Limits, after time.Duration) *Slot {
	t.Helper()
	begun := time.Now()
	s := mustWait(t, p, client, l)
	s.Sent()
	if d := time.Since(begun); d < after || d > after+3*sampleEvery {
		t.Errorf("%s got a place after %v, want %v", client, d, after)
	}
	return s
}

// TestOneClientLeavesAConcurrencySlotToOthers: while others wait, a client does not get the last
// slot, even if it is its turn.
func TestOneClientLeavesAConcurrencySlotToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), onlyPlaces(3)
		l.MaxWait = time.Hour
		var greedy []*Slot
		for range 3 {
			greedy = append(greedy, mustWait(t, p, "greedy", l)) // all slots: nobody else waits
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		held := map[string]int{"greedy": 3}
		count := func(client string, n int) {
			mu.Lock()
			defer mu.Unlock()
			if held[client] += n; n > 0 && client == "greedy" && held[client] > 2 && held["modest waits"] > 0 {
				t.Errorf("one client has %d places while others wait", held[client])
			}
		}
		ask := func(client string, n int, takes time.Duration) {
			for range n {
				all.Go(func() {
					count(client+" waits", 1)
					s := mustWait(t, p, client, l)
					count(client+" waits", -1)
					count(client, 1)
					s.Sent()
					pass(takes)
					count(client, -1)
					s.Release()
				})
				synctest.Wait()
			}
		}
		ask("greedy", 20, 10*time.Second)
		ask("modest", 20, time.Second)
		begun := time.Now()
		for _, s := range greedy {
			pass(100 * time.Millisecond)
			count("greedy", -1)
			s.Release()
		}
		for {
			pass(100 * time.Millisecond)
			mu.Lock()
			left := held["modest waits"]
			mu.Unlock()
			if left == 0 {
				break
			}
		}
		if d := time.Since(begun); d > 25*time.Second {
			t.Errorf("twenty requests of a second took %v", d)
		}
		all.Wait()
	})
}

// TestSlowClientYieldsItsConcurrencySlot: two transfers that wait for their client have all
// slots. Another client gets one of them, both transfers continue, and the first client gets no
// third.
func TestSlowClientYieldsItsConcurrencySlot(t *testing.T) {
	for _, waits := range []Party{Reader, Uploader} {
		t.Run(fmt.Sprint(waits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := New(Options{}), onlyPlaces(2)
				one, first := transfer(t, p, "slow", l, 2*minUpload, waits)
				two, second := transfer(t, p, "slow", l, 2*minUpload, waits)
				pass(time.Hour)
				if first.asked.Load() != 0 {
					t.Error("looked at while nobody waits")
				}
				gets(t, p, "other", l, holdSlow).Release()
				for range 50 {
					gets(t, p, "other", l, 0).Release()
				}
				if first.isEnded() || second.isEnded() {
					t.Error("a transfer was ended")
				}
				if s := p.Stats(); s.UnderWay != 1 || s.Streams != 1 {
					t.Errorf("%d have a place, %d gave theirs back", s.UnderWay, s.Streams)
				}
				_, err := wait(t.Context(), p, "slow", l)
				isBusy(t, err, ConcurrencyFull)
				one.Release()
				two.Release()
				for range 2 {
					mustWait(t, p, "slow", l)
				}
				if h := one.host; len(h.active) != 2 || len(h.yielded) != 0 {
					t.Errorf("%d places, %d gave theirs back", len(h.active), len(h.yielded))
				}
			})
		})
	}
}

// TestTransferThatWaitsForTheOriginKeepsItsConcurrencySlot: no transfer loses its slot while the clients
// read and send fast enough.
func TestTransferThatWaitsForTheOriginKeepsItsConcurrencySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), onlyPlaces(2)
		_, first := transfer(t, p, "a", l, 100, Origin)
		_, second := transfer(t, p, "b", l, 100, Origin)
		_, err := wait(t.Context(), p, "c", l)
		isBusy(t, err, ConcurrencyFull)
		if first.isEnded() || second.isEnded() {
			t.Error("a transfer was ended")
		}
		if s := p.Stats(); s.UnderWay != 2 {
			t.Errorf("%d have a place", s.UnderWay)
		}
	})
}

// TestSingleConcurrencySlotIsHeldForABoundedTime: a transfer loses the only slot after a time,
// even if its client is fast. The transfer continues, and its client's next request waits until
// it has ended.
func TestSingleConcurrencySlotIsHeldForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), onlyPlaces(1)
		s, f := transfer(t, p, "large", l, 1<<20, Origin)
		gets(t, p, "other", l, holdAll).Release()
		if f.isEnded() {
			t.Error("the transfer was ended")
		}
		var all sync.WaitGroup
		all.Go(func() { gets(t, p, "large", l, 10*time.Second).Release() })
		synctest.Wait()
		gets(t, p, "other", l, 0).Release()
		pass(10 * time.Second)
		s.Release()
		all.Wait()
	})
}

// TestSlowestOfTheLargestClientIsEnded: if the maximum number of transfers already
// continues without a slot, the slowest one of the client with the most is ended.
func TestSlowestOfTheLargestClientIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), onlyPlaces(3)
		var flows []*flow
		begin := func(client string, perSecond int64) {
			s, f := transfer(t, p, client, l, perSecond, Reader)
			flows = append(flows, f)
			go func() { <-f.ended; s.Release() }()
			pass(time.Minute) // the samples of the others no longer count
		}
		begin("greedy", 3000)
		begin("greedy", 2000)
		begin("slowest", 1000)
		gets(t, p, "other", l, holdSlow).Release() // one transfer of greedy continues without a slot
		begin("slowest", 5000)
		gets(t, p, "other", l, holdSlow).Release() // one transfer of slowest continues
		begin("third", 100)
		gets(t, p, "other", l, holdSlow).Release() // the transfer of third continues
		begin("fourth", 10)
		if s := p.Stats(); s.UnderWay != 3 || s.Streams != 3 {
			t.Fatalf("%d have a place, %d gave theirs back", s.UnderWay, s.Streams)
		}
		for _, f := range flows {
			if f.isEnded() {
				t.Fatal("ended too early")
			}
		}
		s := gets(t, p, "other", l, holdSlow)
		for i, f := range flows {
			if f.isEnded() != (i == 2) { // greedy and slowest have two each
				t.Errorf("transfer %d: ended %v", i, f.isEnded())
			}
		}
		s.Release()
		for _, f := range flows {
			f.End()
		}
		synctest.Wait()
	})
}

// TestALeastRateOfUploads: a slower upload is ended while other clients wait, but not
// while nobody waits or only the same client does.
func TestALeastRateOfUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), onlyPlaces(1)
		s, f := transfer(t, p, "slow", l, minUpload/2, Uploader)
		pass(time.Hour)
		_, err := wait(t.Context(), p, "slow", l)
		isBusy(t, err, ConcurrencyFull)
		if f.isEnded() {
			t.Fatal("ended while no other client waited")
		}
		go func() { <-f.ended; s.Release() }()
		gets(t, p, "other", l, holdSlow).Release()
		if !f.isEnded() {
			t.Error("not ended")
		}
	})
}

// TestAShortMaxWait: other requests get a slot before they are refused.
func TestAShortMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := New(Options{}), onlyPlaces(1)
		l.MaxWait = 8 * time.Second
		transfer(t, p, "slow", l, 1<<20, Reader)
		gets(t, p, "other", l, l.MaxWait/4).Release()
	})
}
