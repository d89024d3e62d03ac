// Package pace decides when a request may be sent. It limits the rate and the concurrency of each
// host, keeps a bounded queue for each host, and backs off if the origin asks for it.
//
// It does not decide what may be fetched (package policy does) and sends nothing itself. A request
// takes these steps: [Pacer.Wait] gives it a [Slot] shortly before its turn. [Slot.Ready] gives
// the permit to send when the connection is ready. [Slot.Sent] reports that the request is
// written, and [Slot.Answered] that the origin has answered. [Slot.Release] returns everything
// that the request held.
//
// The gap to the next request counts from Sent. Therefore neither a slow dial nor a late timer can
// narrow the gap at the origin. A request dials before its turn, so that dialling takes no time
// from the rate. A slot that is released without a request delays nobody, but the caller may count
// it if a connection was begun.
//
// Requests of one client go in the order in which they arrived, but nobody waits for a request
// whose connection takes long. Clients take turns. Hosts may share a rate and have separate
// back-offs ([Limits.BackOffKey]). Each request has its own [Limits], so the limits of one host
// may differ from call to call, for example after a robots.txt changed. A change of limits lets no
// additional request out. If responses take more than a second, by the median of the latest
// paths, the gap between requests to the same host is at least that time, up to 30 s.
//
// While other clients wait for a concurrency slot of a host, one client gets at most all slots but
// one. A [Transfer] that waits too long for its own client returns its concurrency slot and
// continues without one, or is ended: see [Slot.Follow].
//
// Refusals: if the wait would be longer than Limits.MaxWait, or the queue or the table of hosts is
// full, the error is a [BusyError]. Wait returns it at once if it can know that at once. Limits
// with a zero in them are [ErrLimits] and permit nothing. If the client disconnects, Wait returns
// the context's cause and the next request moves up.
//
// Several processes that share a [Store] keep the limits of one together. Each process first
// applies its own limiters. Ready then reserves the next slot among all processes, with a
// concurrency slot. Under a gap, a slot may be used for a short time only, and the gap to the next
// slot counts from its end. A request that misses its slot takes another one ([Slot.Timely]). A
// back-off of a host applies to all processes. The concurrency slots of WaitConnect, streams, queues,
// response times and the back-offs of single clients are known to each process alone. If the Store
// fails, no request waits for it: each process divides its rate by the number of processes, and under a
// gap the processes take turns by the wall clock ([Turns]). All processes together then send no more than
// is permitted on average, and nothing within the gap if all notice the failure in time.
//
// Any number of goroutines may share a Pacer and a Slot. The package starts no goroutine: a host
// with waiters has one timer, other hosts have none. Close refuses all waiters. [Pacer.Clocks]
// returns the state that may still delay a request, and [Pacer.Restore] restores it in the next
// process. The caller stores it.
//
// The Pacer forgets a host when that can let no request out sooner. If there are more than
// Options.MaxHosts hosts, it also forgets other hosts that are not in use: those of the clients
// with the most hosts, and of these first the ones that would delay a request longest. One request
// may then be sent too soon to a forgotten host. Before the host can be forgotten again, a
// sixteenth of MaxHosts other new hosts must be requested.
package pace

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"time"
)

const (
	defaultMaxStreams = 64
	// Each host takes about 1,000 bytes.
	defaultMaxHosts = 1 << 18
)

// Options are the limits of a Pacer itself.
type Options struct {
	// MaxStreams is how many upgraded connections and event streams one key may have. See Slot.Detach for the share of one
	// client. Zero or less means 64.
	MaxStreams int

	// MaxHosts is how many hosts are remembered at once, see the package comment. Zero or less means 262,144.
	MaxHosts int

	// Since is for a process whose predecessor may have sent requests that were not
	// stored. Until a later request to a host is known, the host counts as having received
	// one at this time. Since applies to gaps of at most a minute; only restored clocks
	// keep longer ones. Zero means that no request was sent.
	Since time.Time

	// Store is what this process shares with others. The caller must call Recheck when the
	// Standing changes, and MergeBackOff for back-offs of other processes. Nil means that the
	// process shares nothing.
	Store Store
}

// A Pacer holds the queues and limiters of all hosts. Create one with New.
type Pacer struct {
	process
	hosts *table
}

// New returns a Pacer without hosts.
func New(o Options) *Pacer {
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	if o.MaxHosts <= 0 {
		o.MaxHosts = defaultMaxHosts
	}
	now := time.Now()
	p := &Pacer{
		process: process{began: now, maxStreams: o.MaxStreams, chance: rand.Float64, store: o.Store, seed: maphash.MakeSeed()},
		hosts:   newTable(o.MaxHosts, localTime(o.Since, now, now)),
	}
	return p
}

// Wait returns when the client has a concurrency slot of l.Key, shortly before its turn:
// early enough to prepare a connection. [Slot.Ready] then gives the permit to send. The
// error is a *BusyError, ErrLimits, ErrClosed, or the context's cause.
func (p *Pacer) Wait(ctx context.Context, client string, l Limits) (*Slot, error) {
	return p.take(ctx, client, l, true)
}

// WaitConnect gives a concurrency slot for a dial alone, before a CONNECT is answered. It waits
// for a concurrency slot and for the end of a back-off, but for no rate. It returns the same
// errors as Wait.
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
		var w *waiter
		w, err = s.host.ask(&s.request, rated)
		err = s.host.await(ctx, &s.request, w, err)
	}
	if err != nil {
		s.unpin()
		return nil, err
	}
	return s, nil
}

// lock returns the host of key, locked, or nil if the table is full. A host that counts
// against no client counts against client from then on.
func (p *Pacer) lock(key, client string) *host {
	h := p.hosts.lock(key)
	if h != nil && h.owner == "" {
		h.owner = client
	}
	return h
}

// Close refuses all waiting requests with ErrClosed, and later those that would have to
// wait. Slots that are held stay valid.
func (p *Pacer) Close() {
	p.closed.Store(true)
	p.hosts.each(func(_ string, h *host) { h.refuseAll(ErrClosed) })
}

// EndBackOff ends the back-off of a host, and those of single clients there. key is as
// [Limits.BackOffKey]. It reports whether this process knew of one. With a Store that is
// available, the back-off ends for all processes as soon as the Store has ended it.
func (p *Pacer) EndBackOff(key string) (known bool) {
	if h := p.hosts.lockKnown(key); h != nil {
		known = h.backOff.get().longest(time.Now()) > 0
		h.mu.Unlock()
	}
	ended := BackOff{Ended: true}
	if p.store == nil || p.store.Standing().StoreAway {
		p.MergeBackOff(key, ended)
	}
	if p.store != nil {
		p.store.Report(Report{Key: key, BackOff: ended})
	}
	return known
}

// MergeBackOff takes over a back-off that another process has begun, or that an operator has
// ended. It ignores a host that this process does not know: the Store reports the back-off with
// the next slot.
func (p *Pacer) MergeBackOff(key string, b BackOff) {
	h := p.hosts.lockKnown(key)
	if h == nil {
		return
	}
	now := time.Now()
	changed := h.backOff.change(func(held *backOffs) bool {
		if b.Ended {
			return held.end(now)
		}
		return held.merge(b, now)
	})
	if changed && !b.Ended {
		h.backedOff(now)
	}
	h.mu.Unlock()
	// If a back-off has ended, requests may wait at another host, see Limits.BackOffKey.
	if changed && b.Ended {
		p.Recheck()
	}
}

// Recheck must be called when the Standing of the Store has changed. It checks all
// waiters again. Without it, they notice the change when their time comes.
func (p *Pacer) Recheck() {
	p.hosts.each(func(_ string, h *host) {
		h.dispatch()
		h.notifyReserving()
	})
}

// WaitContact is WaitConnect for a connection that is made now, and that a request may or may not follow. If the client has
// caused freeContacts connections to the host that no request has followed, WaitContact also waits for the rate,
// and the connection takes the turn of a request. The errors are those of WaitConnect.
func (p *Pacer) WaitContact(ctx context.Context, client string, l Limits) (*Slot, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	h := p.lock(l.Key, client)
	if h == nil {
		return nil, busy(HostsFull, unknownRetry)
	}
	free := h.contacts.add(client, time.Now())
	h.mu.Unlock()
	s, err := p.take(ctx, client, l, !free)
	if err != nil && free {
		h.mu.Lock()
		h.contacts.use(client)
		h.mu.Unlock()
	}
	if err != nil || free {
		return s, err
	}
	if err := s.Ready(ctx); err != nil {
		s.Release()
		return nil, err
	}
	s.Sent()
	return s, nil
}
