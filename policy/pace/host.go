package pace

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minWake is the least time until a host is checked again.
	minWake = time.Millisecond

	// A request starts to prepare its connection some time before its turn. That time is
	// what connections to the host recently took, within these bounds. minLead is longer
	// than minWake, so that minWake delays no request.
	minLead = 5 * time.Millisecond
	maxLead = 2 * time.Second
)

// A host is the state of one key: what was sent, and which requests are in flight or
// waiting.
type host struct {
	// pins is how many requests of other keys use this host's back-off. It grows only under mu.
	pins atomic.Int32

	// backOff and latency have locks of their own, because requests of other keys use them too.
	backOff hostBackOff
	latency hostLatency

	// mu guards all fields below. No other lock is taken while it is held, except those of backOffs and latencies.
	mu sync.Mutex

	// gone means that the host was removed from the table. Whoever has found it must look it up again.
	gone bool

	// owner is the client that the host counts against: the one whose request was sent last, else the first one that
	// requested the host. It is empty if the host was restored and no client has requested it since.
	owner string

	// pages is the queue of all requests but those for assets.
	pages queue

	// assets is the queue of requests for assets; nil if there was none yet.
	assets *queue

	// clients are the limiters of the clients that have a rate of their own.
	clients map[string]*rateLimiter

	// connects are the requests of Pacer.WaitConnect, which wait for no rate.
	connects fairQueue
	contacts contacts

	// last is the queue of the last request that had to wait for a concurrency slot; nil if none had to.
	last *fairQueue

	// shared means that hosts with other keys have sent requests here, see Limits.BackOffKey.
	shared bool

	// lead is the time that it recently took to prepare a connection.
	lead time.Duration

	// active are the requests that hold a concurrency slot, see Limits.MaxConcurrent.
	active []*request

	// yielded are the requests that returned their concurrency slot while their transfers continue.
	yielded []*request

	// streams are the requests that returned their concurrency slot and became streams, see Slot.Detach.
	streams []*request

	// sampleAt is when the active and the yielded transfers are sampled next. It is zero if no request waits for a
	// concurrency slot.
	sampleAt time.Time

	// expiry has all waiters, and timer wakes the host when one of them may continue.
	expiry expiry
	timer  *time.Timer

	// reserving are the requests that wait for a slot of the Store in Slot.Ready.
	reserving map[*request]bool
}

// A queue is one limiter of a host with the requests that it applies to. A request waits
// for its turn, prepares its connection, and then waits for the permit to send.
type queue struct {
	limiter rateLimiter

	// waiting are the requests that wait for their turn.
	waiting fairQueue

	// preparing are the requests that prepare their connections, in the order of their turns.
	preparing []*request

	// ready are the requests that have a connection. They go before all others.
	ready []*waiter

	// shared means that the next request may follow the last one without a gap, see Limits.Shared.
	shared bool

	// fetched is the lease of the last request if shared is true and there is a Store.
	fetched any

	// before is when the request before the last one was sent, if shared is true.
	before time.Time

	// contention is nil until the Store has given a slot.
	contention *contention
}

// A stage is how far a request has come.
type stage uint8

const (
	idle      stage = iota // the request only dials, or was sent
	preparing              // the request prepares its connection or waits for the permit; counted in rateLimiter.preparing
	granted                // the request has the permit and was not sent yet; counted in rateLimiter.unsent
)

// A request is one request that has or waits for a concurrency slot of a host.
type request struct {
	process *process
	host    *host

	// backOffHost is the host whose back-off applies, see Limits.BackOffKey; nil means host.
	backOffHost *host
	limits      Limits
	client      string

	// transfer is a Transfer, unset until Slot.Follow is called.
	transfer atomic.Value

	// host.mu guards all fields below.
	queue *queue

	// reservation is nil until the request asks a Store.
	reservation *reservation

	// own is the limiter of the client's own rate; nil if there is none.
	own *rateLimiter

	// waiter is set while the request waits for the permit.
	waiter *waiter
	stage  stage

	// strict means that the permit was given under a gap.
	strict   bool
	released bool

	// index is the position of the request in list.
	index int32

	// list is the list of the host that contains the request; nil if none does.
	list *[]*request

	// seen is nil until the request's transfer was sampled.
	seen *observation

	// deadline is until when the request may wait in its queue, and admitted is when it got its concurrency slot.
	deadline, admitted time.Time

	// sent is when the request was sent last; zero if it was not sent yet.
	sent time.Time

	// held is what Slot.Held returns.
	held Held
}

// origin returns the host that r is for, which may share its rate with others. Only its backOff and
// latency may be used without its lock.
func (r *request) origin() *host {
	if r.backOffHost != nil {
		return r.backOffHost
	}
	return r.host
}

// site returns the back-offs of the host that r is for.
func (r *request) site() *hostBackOff { return &r.origin().backOff }

// spacing returns the minimum time between two requests to the host that r is for because of its
// slow responses; zero: they are not slow.
func (r *request) spacing(now time.Time) time.Duration {
	if !r.limits.Adapt {
		return 0
	}
	return r.origin().latency.spacing(now)
}

// backOff returns the back-off that applies to r.
func (r *request) backOff() BackOff {
	held := r.site().get()
	if r.limits.fetch() {
		return held.host
	}
	return held.of(r.client)
}

// apartLeft returns how long r is delayed by what does not delay all requests of the same queue: a
// back-off of its client or, if hosts share a rate, a back-off and the slow responses of its host.
func (r *request) apartLeft(now time.Time) time.Duration {
	switch held := r.site().get(); {
	case r.host.shared && r.limits.Adapt:
		return max(r.backOff().left(now), r.origin().latency.turnLeft(r.admitted, now))
	case r.host.shared:
		return r.backOff().left(now)
	case len(held.clients) > 0 && !r.limits.fetch():
		if own := held.apart(r.client); own != nil {
			return own.left(now)
		}
	}
	return 0
}

// heldLeft returns how long r is delayed by a back-off, or as apartLeft says.
func (r *request) heldLeft(now time.Time) time.Duration {
	return max(r.backOff().left(now), r.apartLeft(now))
}

// isApart reports whether r is delayed as apartLeft says by what does not delay o.
func (r *request) isApart(o *request, now time.Time) bool {
	if r.backOffHost != o.backOffHost {
		return r.heldLeft(now) > 0
	}
	return r.backOff().left(now) > o.backOff().left(now)
}

// meetBackOff notes the back-off that delays r, for Held.
func (r *request) meetBackOff(now time.Time) {
	if b := r.backOff(); b.left(now) > r.held.BackOff {
		r.held.BackOff, r.held.By = b.left(now), b.By
	}
}

// isBackedOffTooLong reports whether the back-off lasts longer than Limits.MaxBackOff.
func (r *request) isBackedOffTooLong(now time.Time) bool {
	return r.limits.MaxBackOff > 0 && r.backOff().left(now) > r.limits.MaxBackOff
}

// unpin allows the host of the back-off to be forgotten. r is not used after that.
func (r *request) unpin() {
	if r.backOffHost != nil {
		r.backOffHost.pins.Add(-1)
	}
}

// limiters calls f for each limiter that applies to r.
func (r *request) limiters(f func(*rateLimiter)) {
	f(&r.queue.limiter)
	if r.own != nil {
		f(r.own)
	}
}

// terms returns the current terms of the host's limiter for r.
func (r *request) terms(now time.Time) terms {
	var spacing time.Duration
	// If hosts share the rate, the slow responses of one must not delay the others: see apartLeft.
	if !r.host.shared {
		spacing = r.spacing(now)
	}
	return r.process.share(r.limits.terms(spacing))
}

// ownTerms returns the terms of the client's own limiter.
func (r *request) ownTerms() terms { return r.process.share(r.limits.Client.terms()) }

// maxActive returns how many requests may be in flight at once under the limits of r.
func (r *request) maxActive() int { return r.process.shareOf(r.limits.MaxConcurrent) }

// interval returns how long r delays the next request of a long queue.
func (r *request) interval(now time.Time) time.Duration { return r.terms(now).interval() }

// apply applies the terms of r to its limiters.
func (r *request) apply(now time.Time) {
	r.queue.limiter.apply(r.terms(now), now)
	if r.own != nil {
		r.own.apply(r.ownTerms(), now)
	}
}

// due returns the time until r may get the permit to send.
func (r *request) due(now time.Time) time.Duration {
	d := r.queue.limiter.due(r.terms(now), now)
	if wait, ok := r.queue.follows(r, 0, now); ok {
		d = min(d, wait)
	}
	return max(d, r.ownDue(now))
}

// ownDue returns how long r is delayed by limits that do not delay the requests behind it:
// its client's own limiter, and what apartLeft describes.
func (r *request) ownDue(now time.Time) time.Duration {
	d := r.apartLeft(now)
	if r.own != nil {
		d = max(d, r.own.due(r.ownTerms(), now))
	}
	return d
}

// prepare marks r as preparing its connection.
func (r *request) prepare() {
	r.stage = preparing
	r.limiters(func(l *rateLimiter) { l.preparing++ })
}

// dropPermit takes back a permit, used or not, or ends the preparation for one.
func (r *request) dropPermit() {
	switch r.stage {
	case preparing:
		r.queue.prepared(r)
		r.limiters(func(l *rateLimiter) { l.preparing-- })
	case granted:
		r.limiters(func(l *rateLimiter) {
			l.unsent--
			if r.strict {
				l.strict--
			}
		})
	}
	r.stage = idle
}

// moveTo removes r from its list and adds it to another list of its host; nil means none.
func (r *request) moveTo(list *[]*request) {
	if was := r.list; was != nil {
		last := len(*was) - 1
		moved := (*was)[last]
		(*was)[r.index], moved.index = moved, r.index
		(*was)[last] = nil
		*was = (*was)[:last]
	}
	if r.list = list; list != nil {
		r.index = int32(len(*list))
		*list = append(*list, r)
	}
}

// follows reports whether r, with ahead requests before it, may follow the last request
// without a gap. wait is then the time until the gap to the request before that one has
// passed.
func (q *queue) follows(r *request, ahead int, now time.Time) (wait time.Duration, ok bool) {
	if !q.shared || !r.limits.followsFetch() || ahead > 0 || q.limiter.unsent > 0 {
		return 0, false
	}
	gap := r.terms(now).limit().Gap
	if gap == 0 {
		return 0, true
	}
	before := q.before
	if gap <= maxPresumed && q.limiter.presumed.After(before) {
		before = q.limiter.presumed
	}
	if before.IsZero() {
		return 0, true
	}
	return max(0, gap-now.Sub(before)), true
}

// sharesFetch reports whether r shares the slot of the fetch before it if r is sent at a time.
func (q *queue) sharesFetch(r *request, at time.Time) bool {
	return q.shared && r.limits.followsFetch() && at.Sub(q.limiter.last) < q.limiter.terms.interval()
}

// countSent counts a request that is sent now. If a request shares the slot of a fetch,
// both count as one, and the next gap begins with the request.
func (q *queue) countSent(r *request) {
	before := q.limiter.last
	if q.sharesFetch(r, r.sent) {
		q.limiter.followed(r.sent)
	} else {
		q.limiter.sent(r.sent)
	}
	if r.own != nil {
		r.own.sent(r.sent)
	}
	q.shared, q.before, q.fetched = r.limits.Shared, before, nil
	if r.process.store != nil {
		if v := r.reservation; v != nil {
			q.fetched = v.lease
		}
		q.shared = q.shared && q.fetched != nil
	}
}

// nextReady returns the waiter whose permit is due, or the time after which to check
// again. No waiter overtakes another, except one that is delayed by its client's own
// limiter or its host's back-off.
func (q *queue) nextReady(now time.Time) (*waiter, time.Duration) {
	wake := never
	for _, w := range q.ready {
		if d := max(w.backOff().left(now), w.ownDue(now)); d > 0 {
			wake = min(wake, d)
		} else if d := w.due(now); d > 0 {
			return nil, min(wake, d)
		} else {
			return w, 0
		}
	}
	return nil, wake
}

// readyAhead returns how many requests with a connection go before r, and how much longer
// these take than the same number of requests like r.
func (q *queue) readyAhead(r *request, now time.Time) (n int, more time.Duration) {
	for _, w := range q.ready {
		if w.ownDue(now) <= r.host.leadTime() {
			n++
			more += w.interval(now) - r.interval(now)
		}
	}
	return n, more
}

// ahead returns how many started requests will need a permit before a request that starts
// now and takes lead to connect. It does not count a request that has been connecting for
// twice that time, so that the others lose no slots, nor one that its client's own limiter
// delays. wake is the time until the next connecting request is no longer counted.
func (q *queue) ahead(now time.Time, lead time.Duration) (n int, wake time.Duration) {
	usual, late := 2*lead, 0
	for late < len(q.preparing) && now.Sub(q.preparing[late].admitted) >= usual {
		late++
	}
	wake = never
	if late < len(q.preparing) {
		wake = usual - now.Sub(q.preparing[late].admitted)
	}
	n = len(q.preparing) - late
	for _, w := range q.ready {
		if w.ownDue(now) <= lead {
			n++
		}
	}
	return n, wake
}

// prepared removes r from the requests that prepare their connections.
func (q *queue) prepared(r *request) {
	if i := slices.Index(q.preparing, r); i >= 0 {
		q.preparing = slices.Delete(q.preparing, i, i+1)
	}
}

// leadTime returns how long before its turn a request starts to prepare its connection: a
// quarter more than recently needed.
func (h *host) leadTime() time.Duration { return min(max(h.lead+h.lead/4, minLead), maxLead) }

// queueFor returns the queue for requests under l.
func (h *host) queueFor(l *Limits) *queue {
	if !l.asset() {
		return &h.pages
	}
	return h.assetQueue()
}

func (h *host) assetQueue() *queue {
	if h.assets == nil {
		h.assets = &queue{limiter: rateLimiter{presumed: h.pages.limiter.presumed}}
	}
	return h.assets
}

// queues calls f for the queue of pages and, if there is one, for that of assets.
func (h *host) queues(f func(*queue)) {
	f(&h.pages)
	if h.assets != nil {
		f(h.assets)
	}
}

// clientLimiter returns the limiter of a client that has a rate of its own, or nil.
func (h *host) clientLimiter(name string, l *Limits) *rateLimiter {
	if l.Client == (Rate{}) || l.asset() {
		return nil
	}
	r := h.clients[name]
	if r == nil {
		if h.clients == nil {
			h.clients = make(map[string]*rateLimiter)
		}
		r = new(rateLimiter)
		h.clients[name] = r
	}
	return r
}

// waiting returns how many requests wait for a concurrency slot, as Limits.MaxQueue counts
// them.
func (h *host) waiting() int {
	n := h.connects.size()
	h.queues(func(q *queue) {
		for _, ln := range q.waiting.lines {
			n += len(ln.waiters) - firsts(ln.waiters)
		}
	})
	return n
}

// inUse reports whether a request waits for h or holds a slot of it.
func (h *host) inUse() bool {
	return len(h.active)+len(h.yielded) > 0 || len(h.streams) > 0 || len(h.expiry) > 0 || h.pins.Load() > 0
}

// idle reports whether h can be forgotten without letting any request out sooner.
func (h *host) idle(now time.Time) bool {
	if h.inUse() || !h.backOff.idle(now) || !h.latency.forgotten(now) {
		return false
	}
	all := true
	h.queues(func(q *queue) { all = all && q.limiter.idle(now) })
	for _, r := range h.clients {
		all = all && r.idle(now)
	}
	return all
}
