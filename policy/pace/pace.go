// Package pace says when a request may go: so many requests a second and so many at once
// for each host, with a bounded queue before each host, and a back-off after the origin has
// asked for one.
//
// It does not judge what may be fetched (package policy does) and sends nothing itself. A
// request takes these steps: [Pacer.Wait] gives it a [Slot] a little before its turn,
// [Slot.Ready] gives the permit to send once its connection is ready, [Slot.Sent] says that
// it is written, [Slot.Answered] that the origin has answered, and [Slot.Release] gives
// back all that it held. The gap to the next request counts from Sent, so that neither a
// slow dial nor a late timer can narrow the gap at the origin. A request dials before its
// turn comes, so that dialling costs no slot. A slot given back unsent costs nobody
// anything, but its caller may count one whose connection was begun.
//
// Requests of one client go in the order in which they came, but a request whose connection
// takes long is not waited for. Clients take turns. Hosts may share a rate and have
// back-offs of their own ([Limits.BackOffKey]). Each request goes under the [Limits] that it
// brought, so those of one host may differ from call to call (a robots.txt read anew,
// another group, a client with a rate of its own); a change lets no additional request out.
// If answers take over a second on average, requests go no closer together than the answers
// take, 30 s at most.
//
// While other clients wait for a concurrency slot of a host, one client gets at most all
// slots but one. A [Transfer] that waits too long for its own client gives its concurrency
// slot back and goes on, or is ended: see [Slot.Follow].
//
// How it fails: a wait that would be longer than Limits.MaxWait, a full queue and a full
// table of hosts are a [BusyError], at once where they can be known at once. Limits with a
// zero in them are [ErrLimits] and let nothing through. If the client disconnects, Wait
// returns the context's cause and the next request moves up.
//
// Several processes that share a [Store] together keep the limits of one. Each process's
// own limiters come first; then Ready reserves the next slot among all processes, and a
// concurrency slot with it. A slot under a gap may be used for a short time, and the gap to
// the next slot counts from its end; a request that misses it takes another
// ([Slot.Timely]). A back-off counts for all processes. Concurrency slots of WaitConnect, streams,
// queues, and how slowly a host answers are known to each process alone. If the Store
// fails, nobody waits for it: each process goes as many times slower as there are
// processes, counted from its own last request, so that all of them together send no more
// than is permitted on average.
//
// Any number of goroutines may share a Pacer and a Slot. The package starts no goroutine: a
// host with waiters has one timer, a host without has none. Close refuses all waiters and
// leaves nothing to wait for. [Pacer.Clocks] returns what may still hold up a request, and
// [Pacer.Restore] takes it over in the next process; the caller stores it.
//
// The Pacer forgets a host when that can shorten nobody's wait. If more than
// Options.MaxHosts are known, it forgets hosts that are not in use earlier: those of the
// clients with the most hosts, and of these first the hosts that would keep a request
// waiting longest. One request may then come too soon to a forgotten host. Before the host
// can be forgotten again, a sixteenth of MaxHosts other new hosts have to be asked.
package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	defaultMaxStreams = 64
	defaultMaxHosts   = 1 << 18 // of about 700 bytes each
)

// Options are a Pacer's own bounds.
type Options struct {
	MaxStreams int // upgraded connections and event streams of one key; see Slot.Detach for one client's share; zero or less: 64
	MaxHosts   int // hosts remembered at once, see the package comment; zero or less: 262,144

	// Since is for a process whose predecessor may have sent requests that are not written
	// down. Every host counts as having been sent a request then, until it is known that
	// one was sent later. Since counts for gaps of at most a minute; the restored clocks
	// alone hold longer ones. Zero: no request was sent.
	Since time.Time

	// Store is what this process shares with others. The caller calls Recheck when its
	// Standing has changed, and MergeBackOff for back-offs of others. Nil: the process shares
	// with nobody.
	Store Store
}

// A Pacer holds the queues and limiters of all hosts. New makes one.
type Pacer struct {
	process
	hosts *table
}

// New returns a Pacer that knows no host yet.
func New(o Options) *Pacer {
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	if o.MaxHosts <= 0 {
		o.MaxHosts = defaultMaxHosts
	}
	now := time.Now()
	return &Pacer{
		process: process{began: now, maxStreams: o.MaxStreams, chance: rand.Float64, store: o.Store},
		hosts:   newTable(o.MaxHosts, localTime(o.Since, now, now)),
	}
}

// Wait gives a concurrency slot of l.Key, a little before it is the client's turn: in time
// to make a connection ready. [Slot.Ready] then gives the permit to send. The error is a
// *BusyError, ErrLimits, ErrClosed, or the context's cause.
func (p *Pacer) Wait(ctx context.Context, client string, l Limits) (*Slot, error) {
	return p.take(ctx, client, l, true)
}

// WaitConnect gives a concurrency slot for a dial alone, before a CONNECT is answered. It waits
// for no rate, only for a concurrency slot and for the end of a back-off. Its errors are
// Wait's.
func (p *Pacer) WaitConnect(ctx context.Context, client string, l Limits) (*Slot, error) {
	return p.take(ctx, client, l, false)
}

func (p *Pacer) take(ctx context.Context, client string, l Limits, rated bool) (*Slot, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := &Slot{request{process: &p.process, limits: l, client: client}}
	if key := l.backOffKey(); key != l.Key {
		if s.backOffHost = p.lock(key, client); s.backOffHost == nil {
			return nil, busy(HostsFull, unknownRetry)
		}
		s.backOffHost.pins.Add(1)
		s.backOffHost.mu.Unlock()
	}
	var err error
	if s.host = p.lock(l.Key, client); s.host == nil {
		err = busy(HostsFull, unknownRetry)
	} else {
		err = s.host.take(ctx, &s.request, rated)
	}
	if err != nil {
		s.unpin()
		return nil, err
	}
	return s, nil
}

// lock returns the host of key, locked, or nil if the table is full. A host that counts
// against no client counts against client from now on.
func (p *Pacer) lock(key, client string) *host {
	h := p.hosts.lock(key)
	if h != nil && h.owner == "" {
		h.owner = client
	}
	return h
}

// Close refuses all requests that wait with ErrClosed, and from now on those that would
// have to wait. Slots that are held stay good.
func (p *Pacer) Close() {
	p.closed.Store(true)
	p.hosts.each(func(_ string, h *host) { h.refuseAll(ErrClosed) })
}

// MergeBackOff takes over a back-off that another process has begun. If the host is not known
// here, nothing is kept: the Store tells of the back-off with the next slot.
func (p *Pacer) MergeBackOff(key string, b BackOff) {
	h := p.hosts.lockKnown(key)
	if h == nil {
		return
	}
	defer h.mu.Unlock()
	if now := time.Now(); h.backOff.merge(b, now) {
		h.backedOff(now)
	}
}

// Recheck is for when the Store's Standing has changed: all waiters are looked at anew.
// Without it they notice when their time comes.
func (p *Pacer) Recheck() {
	p.hosts.each(func(_ string, h *host) {
		h.dispatch()
		h.notifyReserving()
	})
}
