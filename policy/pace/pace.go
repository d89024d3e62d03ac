// Package pace says when a request may go: at most so many a second and so many
// at once for each host, with a bounded queue before each and a pause after the
// origin has asked for one.
//
// It is not a judge of what may be fetched (package policy) and sends nothing
// itself: its caller asks for a [Slot], tells it with [Slot.Sent] when the request
// is handed to a ready connection, and gives it back with [Slot.Release]. The gap
// to the next request counts from Sent, so that neither a slow dial nor a late
// timer can narrow it at the origin; a slot given back unsent costs nobody
// anything.
//
// Requests of one client go in the order they came; clients take turns. Each goes
// under the [Limits] that it brought, so those of one host may differ from call to
// call (a robots.txt read anew, another group); a change hands out nothing extra.
//
// How it fails: a wait that would be longer than Limits.MaxWait, a full queue, and
// a full table of hosts are a [BusyError], at once where it can be known at once;
// Limits with a zero in them are [ErrLimits] and let nothing through; a client that
// leaves gets its context's cause, and its place goes to the next.
//
// Any number of goroutines may share a Pacer and a Slot. The package starts no
// goroutine: a host with waiters has one timer, one without has none. Close sends
// away who waits; nothing is left to end. The state is this process's own.
package pace

import (
	"context"
	"errors"
	"fmt"
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
	defaultMaxHosts   = 1 << 16

	minRetry     = time.Second // the least that a BusyError says
	unknownRetry = time.Minute // what it says where nothing foretells the end
)

// A Reason says which bound a [BusyError] met. The set is closed.
type Reason uint8

const (
	WaitTooLong Reason = iota // the wait is, or turned out, longer than Limits.MaxWait
	QueueFull                 // Limits.MaxQueue are waiting
	StreamsFull               // Options.MaxStreams are open
	HostsFull                 // Options.MaxHosts are known and none can be forgotten
)

func (r Reason) String() string {
	switch r {
	case WaitTooLong:
		return "the wait is too long"
	case QueueFull:
		return "the queue is full"
	case StreamsFull:
		return "too many streams are open"
	case HostsFull:
		return "too many hosts at once"
	}
	return "busy"
}

// A BusyError is a refusal for now. It is [ErrTooBusy].
type BusyError struct {
	RetryAfter time.Duration // until one who asks now could go, as far as it can be known; at least a second
	Reason     Reason
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
	PerSecond     float64       // requests a second; must be positive
	Burst         int           // how many may go at once after a quiet time; must be positive; does not count where CrawlDelay rules
	CrawlDelay    time.Duration // the least time between two requests; zero: none; the slower of the two rules counts
	MaxConcurrent int           // places: requests under way at once; must be positive
	MaxWait       time.Duration // a longer wait is refused; zero: go at once or not at all
	MaxQueue      int           // how many may wait for the host; zero: none
}

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
	}
	return nil
}

// Options are a Pacer's own bounds.
type Options struct {
	MaxStreams int // upgraded connections and event streams of one key; zero or less: 64
	MaxHosts   int // keys remembered at once; zero or less: 65536
}

// A Pacer holds the queues and clocks of all hosts. New makes one.
type Pacer struct {
	maxStreams int
	hosts      *table
	closed     atomic.Bool
}

// New gives a Pacer that knows no host yet.
func New(o Options) *Pacer {
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	if o.MaxHosts <= 0 {
		o.MaxHosts = defaultMaxHosts
	}
	return &Pacer{maxStreams: o.MaxStreams, hosts: newTable(o.MaxHosts)}
}

// Wait gives a place and the right to send one request to l.Key, when it is the
// client's turn. The error is a *BusyError, ErrLimits, or the context's cause.
func (p *Pacer) Wait(ctx context.Context, client string, l Limits) (*Slot, error) {
	return p.take(ctx, client, l, true)
}

// Enter gives a place without the right to send: for a dial before a CONNECT is
// answered. It waits for no rate, only for a place and for the end of a pause; its
// errors are Wait's. [Slot.Again] makes the slot one that may send.
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
	h := p.hosts.lock(l.Key)
	if h == nil {
		return nil, busy(HostsFull, unknownRetry)
	}
	s := &Slot{host: h, limits: l, maxStreams: p.maxStreams}
	w, err := h.ask(s, client, rated)
	if w != nil && p.closed.Load() { // under the lock: Close comes by later, or has been heard of
		h.dismiss(ErrClosed)
	}
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if w != nil {
		if err := h.await(ctx, w); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close sends away all who wait, with ErrClosed, and from now on those who would
// have to. Slots that are held stay good.
func (p *Pacer) Close() {
	p.closed.Store(true)
	for i := range p.hosts.shards {
		sh := &p.hosts.shards[i]
		sh.mu.Lock()
		for _, h := range sh.hosts {
			h.mu.Lock()
			h.dismiss(ErrClosed)
			h.mu.Unlock()
		}
		sh.mu.Unlock()
	}
}

// BackOff says that the origin answered 429 or 503: nothing more is granted for key
// until retryAfter is over, one hour at most. Zero means that the origin named no
// time: then it is a minute, doubled up to an hour with each further incident, and
// forgiven after 30 quiet minutes. An answer is no further incident while nothing
// has been sent since the pause ended. Who would now wait longer than its MaxWait
// is refused.
func (p *Pacer) BackOff(key string, retryAfter time.Duration) {
	h := p.hosts.lock(key)
	if h == nil {
		return // the table is full: a host not in it gets nothing granted either
	}
	defer h.mu.Unlock()
	now := time.Now()
	if h.pause.begin(now, h.rates.last, retryAfter) {
		h.refuseLate(now)
		h.dispatch()
	}
}
