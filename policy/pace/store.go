package pace

import (
	"context"
	"time"

	"robotsproxy/policy/pace/limiter"
)

// A Store is shared by the Pacers of several processes. It reserves the slots of each key
// one after the other, whichever process asks. Any number of goroutines may use it.
// Package policy/pace/storetest tests implementations.
type Store interface {
	// Standing returns the state of this process among the others. It does not wait and
	// does not call the Pacer: the Pacer calls it while it holds a lock.
	Standing() Standing

	// Reserve reserves the next slot of a.Key, atomically for all processes that share the
	// Store. After an error, which may be the context's, it is unknown what was reserved.
	// If the error is the Store's fault, Standing says StoreAway before Reserve returns.
	Reserve(ctx context.Context, a SlotRequest) (Reservation, error)

	// Report informs the other processes. It does not wait, except that it may wait for a
	// disk to end a back-off. It does not call the Pacer,
	// except [Pacer.MergeBackOff] for a BackOff, which the Pacer reports without a lock.
	// A BackOff with Ended must reach all processes that way, this one too, when the Store
	// has ended the back-off itself.
	// A lost Report does no lasting harm: a lease expires after a short time, other
	// processes learn of a back-off when the host answers them in the same way, and an
	// operator can end a back-off again.
	Report(r Report)
}

// An AheadStore is a Store that reserves slots in advance where many requests a second are permitted.
type AheadStore interface {
	Store

	// ReserveAhead returns a slot that begins now, if one was reserved in advance for requests like a. Like Standing, it
	// does not wait and does not call the Pacer.
	ReserveAhead(a *SlotRequest) (Reservation, bool)
}

// A Standing is the state of a process among those that share a Store. The zero Standing
// belongs to a process that shares nothing.
type Standing struct {
	// StoreAway means that the Store is unavailable or not reliable yet, and that Reserve must not be called.
	StoreAway bool

	// Slowdown is how many times slower than the Limits this process is; less than 1 counts as 1.
	Slowdown float64

	// Since is when the process became StoreAway, if it is. It has a monotonic reading.
	Since time.Time

	// Turns are the turns of the processes that are StoreAway.
	Turns Turns
}

// A SlotRequest is a request for one slot.
type SlotRequest struct {
	Key string

	// BackOffKey is the host whose BackOff applies, if several hosts share Key: nothing is reserved during its back-off. Empty
	// means Key.
	BackOffKey string

	// Limiters are one or two limiters, which must all permit the slot. The Store must not keep the slice.
	Limiters []Limiter

	// MaxConcurrent is how many requests of Key may be in flight at once, of all processes together; positive.
	MaxConcurrent int

	// MaxWait is the longest wait for the slot. A slot that begins later is not reserved.
	MaxWait time.Duration

	// Window is how long the slot may be used; zero without a gap.
	Window time.Duration

	// BackOff is the back-off of BackOffKey, as this process knows it.
	BackOff BackOff

	// Lease is that of an earlier Reservation of the same request, which keeps its concurrency slot; nil if there was none.
	Lease any

	// Unused means that the slot of Lease was not used, see Report.
	Unused bool

	// Follows is the Lease of a fetch whose slot this request shares, see Limits.Shared; nil if it shares none. The request
	// follows the fetch without a gap unless a later slot is reserved.
	Follows any
}

// A Limiter is one limiter of a key and its limit from now on. Many requests share the
// first limiter of a SlotRequest. The Store reserves no slot that would leave the first
// limiter idle because of the second one. Reservation.Wait is then how much later the
// second one is.
//
// It computes as package limiter does. The request counts at the end of its slot. If this
// process sent a request after the end of the limiter's last slot, the Gap counts from
// that request. If nothing else is known of the limiter, its bucket was empty at that
// time.
type Limiter struct {
	// Name is empty for the host's limiter, otherwise any bytes.
	Name string
	limiter.Limit

	// Sent is when this process sent its last request under this limiter; zero if none is remembered.
	Sent time.Time
}

// A Reservation is the reply to a SlotRequest. Its times are this process's.
type Reservation struct {
	// At is when the slot begins; zero if nothing was reserved.
	At time.Time

	// Until is when the slot ends; zero if it does not.
	Until time.Time

	// Wait is the time until asking again is useful, if nothing was reserved. If it is more than MaxWait, a slot would begin
	// that late.
	Wait time.Duration

	// Full means that nothing was reserved because MaxConcurrent requests are in flight.
	Full bool

	// BackOff is the back-off of BackOffKey, as all processes know it.
	BackOff BackOff

	// Lease is a value of the Store, to be returned in a Report; nil if nothing was reserved.
	Lease any
}

// A BackOff is the back-off of a key, see [Slot.BackOff]. The zero BackOff means none. If
// two are known, the later end and the greater length count. Because of its length, it is
// remembered for BackOffMemory after its end.
type BackOff struct {
	// Until is the end of the back-off.
	Until time.Time

	// Length is the length of the last back-off that the proxy chose, which the next one doubles; zero if it chose none.
	Length time.Duration

	// By is the request whose response began the back-off or lengthened it last, as its caller named it; empty if unknown.
	By string

	// Ended means that an operator has ended all back-offs of the key. The other fields are zero.
	Ended bool
}

// A Report is what other processes must know of a key.
type Report struct {
	Key string

	// Lease is that of a Reservation whose concurrency slot is returned; nil if none is.
	Lease any

	// Unused means that the slot was not used. Unless a later one is reserved, any process may have it.
	Unused bool

	// BackOff is a back-off that has begun or ended; zero if none has.
	BackOff BackOff
}
