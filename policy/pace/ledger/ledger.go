// Package ledger computes which slot a [pace.Store] reserves for a request, from what the Store knows of the
// request's key. It is the one place for this in Go: the in-memory store (policy/pace/storetest) and the file that the
// processes of one machine share (cmd/internal/pacefile) call it, and the script reserve.lua of cmd/internal/redis
// mirrors it. It is pure: it reads no clock and takes no lock.
package ledger

import (
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
)

// maxIdle is how long the first limiter may be idle because of the second.
const maxIdle = 5 * time.Millisecond

// A Limiter is a limiter after its last slot. The zero value had no slot.
type Limiter struct {
	// Slot is the number of the last slot; zero if there was none.
	Slot uint64
	limiter.State
}

// A Slot is what a Store remembers of a slot that it has reserved, so that the slot can be given back. N is what the Store calls
// a limiter.
type Slot[N comparable] struct {
	// Number is the number of the slot.
	Number uint64

	// Limiters are those of SlotRequest.Limiters, in the same order. Without them, the slot cannot be given back.
	Limiters []N

	// before are the limiters without the slot.
	before []Limiter
}

// Add adds a limiter in the given state. It returns the state from which the slot is computed: if the request shares the slot of
// fetch, which may be nil, and the limiter has no later slot, that is the state without the slot of fetch.
func (s *Slot[N]) Add(name N, state Limiter, fetch *Slot[N]) Limiter {
	isFirst := len(s.Limiters) == 0
	s.Limiters, s.before = append(s.Limiters, name), append(s.before, state)
	if isFirst && fetch != nil && len(fetch.Limiters) > 0 && fetch.Limiters[0] == name && state.Slot == fetch.Number {
		return fetch.before[0]
	}
	return state
}

// Undo gives the slot back to each limiter that has no later slot. get returns a limiter, and set replaces it.
func (s *Slot[N]) Undo(get func(N) Limiter, set func(N, Limiter)) {
	for i, name := range s.Limiters {
		if get(name).Slot == s.Number {
			set(name, s.before[i])
		}
	}
}

// A Key is what a Store knows of the key of a request.
type Key struct {
	// Limiters are those of SlotRequest.Limiters, in the same order.
	Limiters []Limiter

	// BackOff is that of SlotRequest.BackOffKey.
	BackOff pace.BackOff

	// InUse is how many concurrency slots are in use, without that of SlotRequest.Lease.
	InUse int
}

// Reserve reserves the slot with the given number for a, or says in the Reservation why there is none. It changes the
// Limiters only if it reserves a slot, and merges a.BackOff in either case. The Reservation has no Lease.
func (k *Key) Reserve(a *pace.SlotRequest, number uint64, now time.Time) pace.Reservation {
	if now.Sub(k.BackOff.Until) >= pace.BackOffMemory {
		k.BackOff = pace.BackOff{}
	}
	k.BackOff = Merge(k.BackOff, a.BackOff)
	r := pace.Reservation{BackOff: k.BackOff}
	start := limiter.Later(now, k.BackOff.Until)
	// If hosts share the key, a slot after the back-off of one would delay the others.
	if a.BackOffKey != "" && a.BackOffKey != a.Key && start.After(now) {
		r.Wait = start.Sub(now)
		return r
	}
	states := make([]limiter.State, len(a.Limiters))
	var first, at time.Time
	for i, l := range a.Limiters {
		states[i] = limiter.Apply(k.Limiters[i].State, l.Limit, l.Sent, now)
		at = limiter.Later(at, states[i].Due(1, start))
		if i == 0 {
			first = at
		}
	}
	switch {
	case at.Sub(now) > a.MaxWait:
		r.Wait = at.Sub(now)
		return r
	case at.Sub(first) > maxIdle:
		r.Wait = at.Sub(first)
		return r
	case k.InUse >= a.MaxConcurrent:
		r.Full = true
		return r
	}
	end := at.Add(a.Window)
	for i := range states {
		k.Limiters[i] = Limiter{number, limiter.Take(states[i], end)}
	}
	r.At = at
	if a.Window > 0 {
		r.Until = end
	}
	return r
}

// Merge returns a back-off of a key after b was reported: the later end and the greater length count, unless an operator has
// ended all back-offs of the key.
func Merge(a, b pace.BackOff) pace.BackOff {
	if b.Ended {
		return pace.BackOff{}
	}
	if b.Until.After(a.Until) {
		a.Until, a.By = b.Until, b.By
	}
	a.Length = max(a.Length, b.Length)
	return a
}
