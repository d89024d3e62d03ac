package pace

import (
	"context"
	"time"
)

// A Store is what the Pacers of several processes have in common: it gives out the
// turns of each key one after the other, whichever of them asks. Any number of
// goroutines may use it; policy/pace/storetest tells whether one keeps to this.
type Store interface {
	// Standing is how this process stands among the others at the moment. It waits
	// for nothing and calls no Pacer: it is asked under a lock.
	Standing() Standing

	// Reserve gives the next turn of a.Key, atomically for all who share the Store.
	// After an error, which may be the context's, nothing is known of what was
	// reserved; where it is the Store's fault, Standing says Alone before Reserve
	// returns.
	Reserve(ctx context.Context, a Ask) (Turn, error)

	// Report tells the others. It waits for nothing and calls no Pacer, but by
	// [Pacer.Pause] for a Backoff, which is reported under no lock. What of it is lost
	// ends by itself: a place after a short time, a pause when they are told one of
	// their own.
	Report(r Report)
}

// A Standing is how a process stands among those that share a Store. The zero
// Standing is that of one who shares with nobody.
type Standing struct {
	Alone bool      // the Store is away, or not to be relied on yet, and Reserve not to be asked
	Times float64   // how many times slower than permitted this process goes; less than 1 counts as 1
	Since time.Time // when it last became Alone, where it is; it has a monotonic reading
}

// An Ask is for one turn.
type Ask struct {
	Key        string
	BackOffKey string        // the host whose Backoff counts, if several hosts share Key: while that host is backed off, nothing is reserved; "": Key
	Clocks     []ClockTerms  // that it goes by, each of which has to permit it; one or two
	Places     int           // requests of Key that may be under way at once, all processes together; positive
	MaxWait    time.Duration // a turn that is later is not wanted
	Width      time.Duration // for how long the turn is to be good; zero where no gap rules
	Backoff    Backoff       // of BackOffKey, as it is known here
	Lease      any           // of an earlier Turn of the same request, whose place it keeps; nil: there is none
	Unsent     bool          // nor was that one used, see Report
}

// ClockTerms are what one clock of a key goes by. The first of an Ask is that which
// many share; no turn is booked at which it would stand idle for another's sake: then
// nothing is reserved, and Turn.Wait is how much later than the first the other is.
//
// A clock is a bucket of Burst tokens that fills by PerSecond; a turn takes one at its
// end. Between the end of a turn and the next is a Gap besides. Under new terms what
// the bucket holds stays, within the smaller burst, and time that is past has filled
// it by the old ones; a new Gap counts from the last turn. Where the clock was sent on
// later than its last turn's end, the Gap counts from then; and where nothing else is
// known of it, its bucket was empty then.
type ClockTerms struct {
	Name      string        // "": the host's; else any octets
	PerSecond float64       // positive
	Burst     int           // positive
	Gap       time.Duration // zero: none
	Sent      time.Time     // the last request that went by it from here; zero: none is remembered
}

// A Turn is the answer to an Ask. Its times are this process's.
type Turn struct {
	At      time.Time     // from when on the request may be sent; zero: nothing was reserved
	Until   time.Time     // after which it may not; zero: there is no such time
	Wait    time.Duration // where nothing was reserved: how long until it is worth asking again; longer than MaxWait: one would come that late
	Full    bool          // where nothing was reserved: it was for want of a place
	Backoff Backoff       // of the BackOffKey, as all know it
	Lease   any           // the Store's own, to be given back in a Report; nil where nothing was reserved
}

// A Backoff is a pause of a key, see [Slot.BackOff]; the zero Backoff is none. Of two
// that are known the later end and the greater length count. It is remembered for half
// an hour after its end, for its length.
type Backoff struct {
	Until  time.Time     // its end
	Length time.Duration // the last that we chose ourselves, which the next one doubles; zero: none
}

// A Report is what the others have to know of a key.
type Report struct {
	Key     string
	Lease   any     // of a Turn whose place is given back; nil: none is
	Unsent  bool    // nor was its turn used: where nobody has a later one it is anybody's
	Backoff Backoff // that has begun; zero: none
}
