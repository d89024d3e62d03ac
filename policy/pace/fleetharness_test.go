package pace_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
)

// A replica is one Pacer with its Store.
type replica struct {
	*pace.Pacer
	store *storetest.Member
}

// A fleet is a set of replicas that share a Store, and what they have sent.
type fleet struct {
	t        *testing.T
	memory   *storetest.Memory
	replicas []*replica
	began    time.Time

	flaps [][2]time.Duration // from when to when the Store was unavailable for some replicas, in randomFleet

	mu   sync.Mutex
	sent []sending
}

// A sending is one request that was sent.
type sending struct {
	from  int
	at    time.Duration // since fleet.began
	alone bool
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{t: t, memory: storetest.NewMemory(n), began: time.Now()}
	for range n {
		f.add(f.memory.Join())
	}
	return f
}

func (f *fleet) add(s *storetest.Member) {
	r := &replica{pace.New(pace.Options{Store: s}), s}
	s.Notify(r.Pacer)
	f.replicas = append(f.replicas, r)
}

// limits returns Limits with a gap that never delay a request otherwise.
func limits(gap time.Duration) pace.Limits {
	return pace.Limits{
		Key: "a.test", PerSecond: 1 / gap.Seconds(), Burst: 1,
		MaxConcurrent: 1 << 20, MaxWait: 24 * time.Hour, MaxQueue: 1 << 20,
	}
}

func pass(d time.Duration) { <-time.After(d) }

// try sends one request from a replica. The request then takes the given time.
func (f *fleet) try(from int, client string, l pace.Limits, took time.Duration) error {
	s, err := f.replicas[from].Wait(f.t.Context(), client, l)
	if err != nil {
		return err
	}
	defer s.Release()
	if err := s.Ready(f.t.Context()); err != nil {
		return err
	}
	f.send(from, s)
	if took > 0 {
		pass(took)
	}
	return nil
}

func (f *fleet) send(from int, s *pace.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Sent()
	f.sent = append(f.sent, sending{from, time.Since(f.began), s.Held().StoreAway})
}

func (f *fleet) must(from int, client string, l pace.Limits) {
	if err := f.try(from, client, l, 0); err != nil {
		f.t.Errorf("replica %d: %v", from, err)
	}
}

// log returns what was sent from index one on, until the given time.
func (f *fleet) log(from, to time.Duration) []sending {
	f.mu.Lock()
	defer f.mu.Unlock()
	var some []sending
	for _, s := range f.sent {
		if s.at >= from && s.at < to {
			some = append(some, s)
		}
	}
	return some
}

// of returns what one replica sent.
func of(all []sending, from int) []sending {
	return slices.DeleteFunc(slices.Clone(all), func(s sending) bool { return s.from != from })
}

// spaced fails unless there is a gap between each two requests.
func (f *fleet) spaced(what string, all []sending, gap time.Duration) {
	f.t.Helper()
	for i := 1; i < len(all); i++ {
		if d := all[i].at - all[i-1].at; d < gap {
			f.t.Errorf("%s: sent at %v, %v after the one before", what, all[i].at, d)
		}
	}
}

// bounded fails if any period has more requests than one per gap, plus most, plus one for each flap in it: a replica that
// loses the Store counts from its own last request, and the replicas that find the Store again from the last one of all.
func (f *fleet) bounded(all []sending, gap time.Duration, most int) {
	f.t.Helper()
	for i := range all {
		for j := i; j < len(all); j++ {
			extra := 0
			for _, flap := range f.flaps {
				if flap[0] <= all[j].at && flap[1] >= all[i].at {
					extra++
				}
			}
			if d := all[j].at - all[i].at; float64(j-i+1) > float64(most+extra)+d.Seconds()/gap.Seconds()+1e-9 {
				f.t.Fatalf("%d sent from %v to %v", j-i+1, all[i].at, all[j].at)
			}
		}
	}
}

// leave disconnects all replicas from the Store.
func (f *fleet) leave() {
	for _, r := range f.replicas {
		r.store.Disconnect()
		r.Recheck()
	}
}

// comeBack reconnects all replicas, as an implementation of the Store does.
func (f *fleet) comeBack() {
	for _, r := range f.replicas {
		r.store.Return(time.Minute)
		r.Recheck()
		r.store.Push(r.Pacer, time.Time{})
	}
	for range 10 {
		since := time.Now()
		pass(100 * time.Millisecond)
		for _, r := range f.replicas {
			r.store.Push(r.Pacer, since)
		}
	}
	for _, r := range f.replicas {
		r.store.Reconnect()
		r.store.Push(r.Pacer, time.Time{})
	}
	for _, r := range f.replicas {
		r.Recheck() // the last reconnection also changed the Standing of the others
	}
}
