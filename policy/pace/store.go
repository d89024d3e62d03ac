package pace

import (
	"context"
	"time"

	"robotsproxy/policy/pace/limiter"
)

// A Store is what the Pacers of several processes share: it reserves the slots of each key
// one after the other, whichever process asks. Any number of goroutines may use it.
// Package policy/pace/storetest tests whether an implementation keeps to this.
type Store interface {
	// Standing returns how this process stands among the others at the moment. It does
	// not wait and calls no Pacer: the Pacer calls it under a lock.
	Standing() Standing

	// Reserve reserves the next slot of a.Key, atomically for all processes that share the
	// Store. After an error, which may be the context's, it is unknown what was reserved.
	// If the error is the Store's fault, Standing says Alone before Reserve returns.
	Reserve(ctx context.Context, a SlotRequest) (Reservation, error)

	// Report tells the other processes. It does not wait and calls no Pacer, except
	// [Pacer.MergeBackOff] for a BackOff, which is reported under no lock. A lost Report
	// does no lasting harm: a lease ends by itself after a short time, and the other
	// processes learn of a back-off when the host answers them the same.
	Report(r Report)
}

// A Standing is how a process stands among those that share a Store. The zero Standing is
// that of a process that shares with nobody.
type Standing struct {
	Alone    bool      // the Store is away, or cannot be relied on yet, and Reserve is not to be called
	Slowdown float64   // how many times slower than the Limits this process goes; less than 1 counts as 1
	Since    time.Time // when the process last became Alone, if it is; it has a monotonic reading
}

// A SlotRequest is a request for one slot.
type SlotRequest struct {
	Key           string
	BackOffKey    string        // the host whose BackOff counts, if several hosts share Key: during its back-off nothing is reserved; "": Key
	Limiters      []Limiter     // one or two limiters, each of which has to permit the slot
	MaxConcurrent int           // requests of Key that may be under way at once, of all processes together; positive
	MaxWait       time.Duration // a later slot is not reserved
	Window        time.Duration // for how long the slot may be used; zero where no gap rules
	BackOff       BackOff       // of BackOffKey, as this process knows it
	Lease         any           // of an earlier Reservation of the same request, whose concurrency slot it keeps; nil: none
	Unused        bool          // the slot of Lease was not used, see Report
}

// A Limiter is one limiter of a key, and the limit that it is to keep from now on. The
// first of a SlotRequest is shared by many requests. No slot is reserved for which the
// first limiter would stand idle because of the second: then Reservation.Wait is how much
// later the second one is.
//
// It computes as package limiter does. The request counts at the end of its slot.
// Where this process sent a request later than the end of the limiter's last slot, the Gap
// counts from that request; where nothing else is known of the limiter, its bucket was
// empty then.
type Limiter struct {
	Name string // "": the host's limiter; else any bytes
	limiter.Limit
	Sent time.Time // the last request of this process by this limiter; zero: none is remembered
}

// A Reservation is the answer to a SlotRequest. Its times are this process's.
type Reservation struct {
	At      time.Time     // the slot's begin; zero: nothing was reserved
	Until   time.Time     // the slot's end; zero: it has none
	Wait    time.Duration // if nothing was reserved: time until it is worth asking again; more than MaxWait: a slot would come that late
	Full    bool          // nothing was reserved because MaxConcurrent requests are under way
	BackOff BackOff       // of the BackOffKey, as all processes know it
	Lease   any           // the Store's own value, to be given back in a Report; nil if nothing was reserved
}

// A BackOff is the back-off of a key, see [Slot.BackOff]; the zero BackOff is none. Of two
// that are known the later end and the greater length count. It is remembered for 30
// minutes after its end, because of its length.
type BackOff struct {
	Until  time.Time     // its end
	Length time.Duration // of the last that the proxy chose itself, which the next one doubles; zero: none
}

// A Report is what the other processes have to know of a key.
type Report struct {
	Key     string
	Lease   any     // of a Reservation whose concurrency slot is given back; nil: none
	Unused  bool    // the slot was not used: if no later one is reserved, anybody may have it
	BackOff BackOff // that has begun; zero: none
}
