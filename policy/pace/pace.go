// Package pace says when a request may go: at most so many a second and so many
// at once for each host, with a bounded queue before each and a pause after the
// origin has asked for one.
//
// It is not a judge of what may be fetched (package policy) and sends nothing
// itself. A request's way: [Pacer.Wait] gives it a [Slot] a little before its turn,
// [Slot.Ready] the right to send once its connection is ready, [Slot.Sent] says that
// it is written, [Slot.Answered] that the origin has answered, and [Slot.Release]
// gives back all that it held. The gap to the next request counts from Sent, so that
// neither a slow dial nor a late timer can narrow it at the origin; and dialling is
// done before the turn comes, so that it costs no slot. A slot given back unsent costs
// nobody anything, but its caller may count one whose connection was begun.
//
// Requests of one client go in the order they came, but that who takes long to be
// ready is not waited for; clients take turns. Hosts may share a pace and have back-offs
// of their own ([Limits.BackOffKey]). Each goes under the [Limits] that it
// brought, so those of one host may differ from call to call (a robots.txt read anew,
// another group, a client with a rate of its own); a change hands out nothing extra.
// Where answers are slow on average (over a second),
// requests go no closer together than the answers take, at the most 30 s.
//
// While other clients wait for a place at a host, one client gets at most all places but
// one. A [Transfer] that waits too long for its own client gives its place back and goes
// on, or is ended: see [Slot.Follow].
//
// How it fails: a wait that would be longer than Limits.MaxWait, a full queue, and
// a full table of hosts are a [BusyError], at once where it can be known at once;
// Limits with a zero in them are [ErrLimits] and let nothing through; a client that
// leaves gets its context's cause, and its place goes to the next.
//
// Several processes that share a [Store] keep together what one keeps. The clocks of each
// come first; then Ready takes the turn that is next among all, and a place with it. A
// turn under a gap is a window, and the gap to the next counts from its end; who misses
// it takes another ([Slot.Timely]). A pause is everybody's. Places of Enter, streams, the
// queues, and how slowly a host answers are known to each alone. Where the Store fails
// nobody waits for it: each goes as many times slower as there are processes, counted
// from its own last request, so that all of them together send no more than is permitted
// on average; and who would wait too long by that is refused.
//
// Any number of goroutines may share a Pacer and a Slot. The package starts no
// goroutine: a host with waiters has one timer, one without has none. Close sends
// away who waits; nothing is left to end. What a process knows that may still hold up a
// request can be had ([Pacer.Clocks]) and taken over by the next one ([Pacer.Restore]);
// it is kept by whoever calls these.
//
// The Pacer forgets a host when that can shorten nobody's wait. If more than
// Options.MaxHosts are known, it forgets hosts that are not in use earlier: those of the
// clients that made it remember the most, the most patient hosts first. One request may
// then come too soon to a forgotten host. Before the host can be forgotten again, a
// sixteenth of MaxHosts other new hosts have to be asked.
package pace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// ErrTooBusy is what every [BusyError] is, for errors.Is.
var ErrTooBusy = errors.New("pace: too busy")

// ErrLimits is the error of Limits that permit nothing, as their zero value.
var ErrLimits = errors.New("pace: unusable limits")

// ErrClosed is the error of who waits, or would have to, when the Pacer is closed.
var ErrClosed = errors.New("pace: closed")

const (
	defaultMaxStreams = 64
	defaultMaxHosts   = 1 << 18 // of about 700 bytes each

	minRetry     = time.Second // the least that a BusyError says
	unknownRetry = time.Minute // what it says where nothing foretells the end
)

// A Reason says which bound a [BusyError] met. The set is closed.
type Reason uint8

const (
	WaitTooLong Reason = iota // the wait is, or turned out, longer than Limits.MaxWait
	QueueFull                 // Limits.MaxQueue are waiting
	StreamsFull               // the client has as many streams as are free of Options.MaxStreams, or more
	HostsFull                 // Options.MaxHosts are known, and all of them are in use
	BackedOff                 // the wait for the end of a pause is too long; see Slot.BackOff
	PlacesTaken               // Limits.MaxConcurrent requests were under way all the while
)

func (r Reason) String() string {
	switch r {
	case WaitTooLong:
		return "the wait is too long"
	case QueueFull:
		return "the queue is full"
	case StreamsFull:
		return "too many streams to the host are open"
	case HostsFull:
		return "too many hosts at once"
	case BackedOff:
		return "the host is left alone for a while"
	case PlacesTaken:
		return "all places stay taken"
	}
	return "busy"
}

// A BusyError is a refusal for now. It is [ErrTooBusy].
type BusyError struct {
	RetryAfter time.Duration // until one who asks now could go, as far as it can be known; at least a second
	Reason     Reason
	Alone      bool          // the Store was away, and it was this process's own part of the pace that had no room
	Pause      time.Duration // that is left of the host's, see Slot.BackOff; zero: there is none
	Slowed     time.Duration // the least time between two requests, since the host answers slowly; zero: it does not
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("pace: %s, retry after %s", e.Reason, e.RetryAfter)
}

// Is makes a BusyError ErrTooBusy.
func (e *BusyError) Is(target error) bool { return target == ErrTooBusy }

func busy(r Reason, after time.Duration) error {
	return &BusyError{RetryAfter: max(after, minRetry), Reason: r}
}

// Limits are what one request goes under. The zero value lets nothing through.
type Limits struct {
	Key           string        // whom the limits protect: the host; required
	BackOffKey    string        // the host whose back-off counts, where several hosts share Key; "": Key
	PerSecond     float64       // requests a second; must be positive
	Burst         int           // how many may go at once after a quiet time; must be positive; does not count where CrawlDelay rules
	CrawlDelay    time.Duration // the least time between two requests; zero: none; the slower of the two rules counts
	MaxConcurrent int           // places: requests under way at once; must be positive; as many transfers more may go on without a place, see Transfer
	MaxWait       time.Duration // a longer wait is refused; zero: go at once or not at all
	MaxQueue      int           // how many may wait for the host, of which the client with the most loses its last to one with fewer; zero: none

	Client     Rate // what this client alone may send to the host, beside all that; zero: no less than the others
	AssetBurst int  // a page's asset: goes by a clock of the host's assets, of PerSecond with this burst, where no CrawlDelay rules; zero: by the host's
	Adapt      bool // slow answers lower the rate

	// First is for the fetch of the host's own robots.txt. The fetch goes ahead of the other
	// requests of its client, outside MaxQueue, and under the CrawlDelay of the last
	// request if that is longer. With Shared the next request may follow the fetch without
	// a gap, unless the Pacer has a Store: both share one slot. A request with Unshared
	// keeps its gap to a fetch: it asks for the same file once more.
	First, Shared, Unshared bool
}

// A Rate is so many requests a second, and how many at once after a quiet time.
// The zero Rate is none.
type Rate struct {
	PerSecond float64
	Burst     int
}

// backOffKey gives the key of the host's back-off.
func (l *Limits) backOffKey() string { return cmp.Or(l.BackOffKey, l.Key) }

// follows reports whether the request may share the slot of a fetch before it.
func (l *Limits) follows() bool { return !l.First && !l.Unshared }

func (l *Limits) check() error {
	switch {
	case l.Key == "":
		return fmt.Errorf("%w: no key", ErrLimits)
	case !(l.PerSecond > 0): // NaN too
		return fmt.Errorf("%w: %q: %v requests a second", ErrLimits, l.Key, l.PerSecond)
	case l.Burst <= 0:
		return fmt.Errorf("%w: %q: burst %d", ErrLimits, l.Key, l.Burst)
	case l.MaxConcurrent <= 0:
		return fmt.Errorf("%w: %q: %d at once", ErrLimits, l.Key, l.MaxConcurrent)
	case l.CrawlDelay < 0:
		return fmt.Errorf("%w: %q: crawl delay %s", ErrLimits, l.Key, l.CrawlDelay)
	case l.Client != (Rate{}) && (!(l.Client.PerSecond > 0) || l.Client.Burst <= 0):
		return fmt.Errorf("%w: %q: %v a second, burst %d for the client", ErrLimits, l.Key, l.Client.PerSecond, l.Client.Burst)
	case l.AssetBurst < 0:
		return fmt.Errorf("%w: %q: a burst of %d assets", ErrLimits, l.Key, l.AssetBurst)
	}
	return nil
}

// Options are a Pacer's own bounds.
type Options struct {
	MaxStreams int // upgraded connections and event streams of one key; see Slot.Detach for one client's share; zero or less: 64
	MaxHosts   int // hosts remembered at once, see the package comment; zero or less: 262,144

	// Since is for a process whose predecessor may have sent what nobody has written
	// down: until it is known that something was sent later, every host counts as
	// having been sent a request then. It counts for gaps of at most a minute; longer
	// ones are held by the clocks that were restored alone. Zero: as never.
	Since time.Time

	// Store is what this process shares with others. Whoever runs it calls Recheck when
	// its Standing has changed, and Pause for what others have begun. Nil: it shares
	// with nobody.
	Store Store
}

// A Pacer holds the queues and clocks of all hosts. New makes one.
type Pacer struct {
	began      time.Time // see now
	maxStreams int
	chance     func() float64 // from 0 to 1
	hosts      *table
	closed     atomic.Bool
	store      Store                   // nil: none
	alone      atomic.Pointer[absence] // the latest, for terms.alone
	backOffs   atomic.Uint64
	missed     atomic.Uint64
}

// New gives a Pacer that knows no host yet.
func New(o Options) *Pacer {
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	if o.MaxHosts <= 0 {
		o.MaxHosts = defaultMaxHosts
	}
	now := time.Now()
	return &Pacer{began: now, maxStreams: o.MaxStreams, chance: rand.Float64, store: o.Store, hosts: newTable(o.MaxHosts, own(o.Since, now, now))}
}

// now is time.Now for half of its cost, a fourth of a request's way through here: of two
// clocks it reads the monotonic one alone. What a clock on the wall shows by it is wrong
// once that was set: see wallTime.
func (p *Pacer) now() time.Time { return p.began.Add(time.Since(p.began)) }

// Wait gives a place among those under way to l.Key, a little before it is the
// client's turn: in time to make a connection ready. [Slot.Ready] then gives the right
// to send. The error is a *BusyError, ErrLimits, ErrClosed, or the context's cause.
func (p *Pacer) Wait(ctx context.Context, client string, l Limits) (*Slot, error) {
	return p.take(ctx, client, l, true)
}

// Enter gives a place for a dial alone, before a CONNECT is answered. It waits for no
// rate, only for a place and for the end of a pause; its errors are Wait's.
func (p *Pacer) Enter(ctx context.Context, client string, l Limits) (*Slot, error) {
	return p.take(ctx, client, l, false)
}

func (p *Pacer) take(ctx context.Context, client string, l Limits, rated bool) (*Slot, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := &Slot{pacer: p, limits: l, client: client}
	if key := l.backOffKey(); key != l.Key {
		if s.apart = p.lock(key, client); s.apart == nil {
			return nil, busy(HostsFull, unknownRetry)
		}
		s.apart.pins.Add(1)
		s.apart.mu.Unlock()
	}
	if err := s.take(ctx, rated); err != nil {
		s.unpin()
		return nil, err
	}
	return s, nil
}

// take waits for the place of s at its host and, with rated, for its rate.
func (s *Slot) take(ctx context.Context, rated bool) error {
	h := s.pacer.lock(s.limits.Key, s.client)
	if h == nil {
		return busy(HostsFull, unknownRetry)
	}
	s.host = h
	w, err := h.ask(s, rated)
	if w != nil && s.pacer.closed.Load() { // under the lock: Close comes by later, or has been heard of
		h.dismiss(ErrClosed)
	}
	h.mu.Unlock()
	if err != nil || w == nil {
		return err
	}
	return h.await(ctx, w)
}

// lock gives the host of key, locked; nil if the table is full. A host that counts against
// no client counts against client from now on.
func (p *Pacer) lock(key, client string) *host {
	h := p.hosts.lock(key)
	if h != nil && h.owner == "" {
		h.owner = client
	}
	return h
}

// Close sends away all who wait, with ErrClosed, and from now on those who would
// have to. Slots that are held stay good.
func (p *Pacer) Close() {
	p.closed.Store(true)
	p.each(func(h *host) { h.dismiss(ErrClosed) })
}

// each calls f for each host, which is locked meanwhile.
func (p *Pacer) each(f func(*host)) {
	for i := range p.hosts.shards {
		sh := &p.hosts.shards[i]
		sh.mu.Lock()
		for _, h := range sh.hosts {
			h.mu.Lock()
			f(h)
			h.mu.Unlock()
		}
		sh.mu.Unlock()
	}
}
