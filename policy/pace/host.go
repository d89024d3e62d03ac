package pace

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minWake is the least time after which a host is looked at again.
	minWake = time.Millisecond

	// A request begins to make its connection ready so long before its turn, within these
	// bounds, by what that has lately taken at the host. minLead is longer than minWake,
	// so that minWake costs no request any time.
	minLead = 5 * time.Millisecond
	maxLead = 2 * time.Second
)

// A host is what is known of one key: what was sent, which requests are under way, and
// which wait.
type host struct {
	pins    atomic.Int32 // requests of other keys that follow this host's back-off; grows under mu
	backOff hostBackOff  // for any goroutine

	mu    sync.Mutex // guards all below; no other lock is taken under it
	gone  bool       // forgotten: to be looked up anew
	owner string     // the client that the host counts against: that of the last request sent, else the first to ask; "": none, the host is from before a restart

	pages    queue
	assets   *queue                  // nil: no request for an asset came
	clients  map[string]*rateLimiter // of the clients that have a rate of their own
	connects fairQueue               // requests that wait for no rate, see Pacer.WaitConnect
	last     *fairQueue              // of the last request that had to wait for a concurrency slot; nil: none had to
	latency  latency
	lead     time.Duration // how long it has lately taken to make a connection ready
	active   []*request    // that hold a concurrency slot; see Limits.MaxConcurrent
	yielded  []*request    // that gave their concurrency slot back while their transfers go on
	sampleAt time.Time     // when the transfers of both are sampled next; zero: nobody waits for a concurrency slot
	streams  []*request    // that gave their concurrency slot back to become a stream; see Slot.Detach
	expiry   expiry
	timer    *time.Timer
	sharing  *sharing // nil: no request has asked a Store for a slot
}

// A queue is one of a host's limiters and the requests that go by it. A request waits for
// its turn, makes its connection ready, and then waits for the permit to send.
type queue struct {
	limiter   rateLimiter
	waiting   fairQueue
	preparing []*request // that make their connections ready, in the order of their turns
	ready     []*waiter  // with a connection that is ready; these go before all others
	shared    bool       // the next request may follow the last one without a gap, see Limits.Shared
	before    time.Time  // with shared: when the request before the last one was sent
}

// A stage is how far a request is on its way to being sent.
type stage uint8

const (
	idle      stage = iota // it only dials, or is sent
	preparing              // it may soon ask for the permit; counted in rateLimiter.preparing
	granted                // it has the permit, and is not sent; counted in rateLimiter.unsent
)

// A request is a request that has, or waits for, a concurrency slot of a host.
type request struct {
	process     *process
	host        *host
	backOffHost *host // the host whose back-off counts, see Limits.BackOffKey; nil: host
	limits      Limits
	client      string

	transfer atomic.Value // a Transfer; none: Slot.Follow was not called

	// Guarded by host.mu.
	queue          *queue
	own            *rateLimiter // the client's, if it has a rate of its own
	waiter         *waiter      // for the permit
	stage          stage
	strict         bool // granted under a gap
	released       bool
	alone          bool        // see Held
	index          int32       // in list
	list           *[]*request // the list of the host that has the request; nil: none
	seen           *observation
	deadline       time.Time
	admitted       time.Time
	sent           time.Time // last; zero: not yet
	waited         time.Duration
	longestBackOff time.Duration // see Held.Paused
	slowed         time.Duration // see Held
}

// backOff returns the back-off that counts for r.
func (r *request) backOff() *hostBackOff {
	if r.backOffHost != nil {
		return &r.backOffHost.backOff
	}
	return &r.host.backOff
}

// isBackedOffTooLong reports whether the rest of the back-off is longer than Limits.MaxBackOff.
func (r *request) isBackedOffTooLong(now time.Time) bool {
	return r.limits.MaxBackOff > 0 && r.backOff().left(now) > r.limits.MaxBackOff
}

// unpin lets the host of the back-off be forgotten; r is not used any more.
func (r *request) unpin() {
	if r.backOffHost != nil {
		r.backOffHost.pins.Add(-1)
	}
}

// limiters calls f for the limiters that r goes by.
func (r *request) limiters(f func(*rateLimiter)) {
	f(&r.queue.limiter)
	if r.own != nil {
		f(r.own)
	}
}

// terms returns what r goes by now.
func (r *request) terms(now time.Time) terms {
	var spacing time.Duration
	if r.limits.Adapt {
		spacing = r.host.latency.spacing(now)
	}
	return r.process.share(r.limits.terms(spacing))
}

// ownTerms returns what the client's own limiter goes by.
func (r *request) ownTerms() terms { return r.process.share(r.limits.Client.terms()) }

// maxActive returns how many requests may be under way at once, by the limits of r.
func (r *request) maxActive() int { return r.process.shareOf(r.limits.MaxConcurrent) }

// interval returns how long r keeps the next request waiting in a long queue.
func (r *request) interval(now time.Time) time.Duration { return r.terms(now).interval() }

// apply puts the terms of r in force.
func (r *request) apply(now time.Time) {
	r.queue.limiter.apply(r.terms(now), now)
	if r.own != nil {
		r.own.apply(r.ownTerms(), now)
	}
}

// due returns how long until r may get the permit to send.
func (r *request) due(now time.Time) time.Duration {
	d := r.queue.limiter.due(r.terms(now), now)
	if wait, ok := r.queue.follows(r, 0, now); ok {
		d = min(d, wait)
	}
	return max(d, r.ownDue(now))
}

// ownDue returns how long r is held up by what does not hold up the requests behind it: its
// client's own limiter, and the back-off of its host if others do not share that.
func (r *request) ownDue(now time.Time) time.Duration {
	var d time.Duration
	if r.backOffHost != nil {
		d = r.backOffHost.backOff.left(now)
	}
	if r.own != nil {
		d = max(d, r.own.due(r.ownTerms(), now))
	}
	return d
}

// prepare has r make its connection ready.
func (r *request) prepare() {
	r.stage = preparing
	r.limiters(func(l *rateLimiter) { l.preparing++ })
}

// dropPermit takes back a permit that was used or will not be, or the prospect of one.
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

// moveTo moves r to a list of its host, out of the list that it was in; nil: to none.
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

// follows reports whether r, behind so many others, may follow the last request without a
// gap, and how long it then has to wait for the gap to the request before that.
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

// countSent counts a request that is sent now. A request that shares the slot of a fetch is
// counted together with the fetch, and the next gap begins with the request.
func (q *queue) countSent(r *request) {
	before := q.limiter.last
	if q.shared && r.limits.followsFetch() && r.sent.Sub(before) < q.limiter.terms.interval() {
		q.limiter.followed(r.sent)
	} else {
		q.limiter.sent(r.sent)
	}
	if r.own != nil {
		r.own.sent(r.sent)
	}
	q.shared, q.before = r.limits.Shared && r.process.store == nil, before
}

// nextReady returns the waiter whose permit is due, or after how long to look again. A
// waiter that its client's own limiter or its host's back-off holds up does not hold up
// others; otherwise no waiter overtakes another.
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

// readyAhead returns how many ready requests r would have to wait for, and how much longer
// they take than as many like r.
func (q *queue) readyAhead(r *request, now time.Time) (n int, more time.Duration) {
	for _, w := range q.ready {
		if w.ownDue(now) <= r.host.leadTime() {
			n++
			more += w.interval(now) - r.interval(now)
		}
	}
	return n, more
}

// ahead returns how many of the requests that had their turn will need a permit before one
// that gets its turn now, where the connection of each takes lead. A request whose
// connection takes twice that is not waited for: its turn comes when it is ready, and the
// others lose no slots. A request that its client's own limiter holds up is not waited for
// either. After wake the next connection takes too long.
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

// prepared says that r is not making its connection ready any more.
func (q *queue) prepared(r *request) {
	if i := slices.Index(q.preparing, r); i >= 0 {
		q.preparing = slices.Delete(q.preparing, i, i+1)
	}
}

// leadTime returns how long before its turn a request begins to make its connection ready:
// a fourth longer than was needed.
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

// queues calls f for each queue that there is.
func (h *host) queues(f func(*queue)) {
	f(&h.pages)
	if h.assets != nil {
		f(h.assets)
	}
}

// clientLimiter returns the limiter of a client that has a rate of its own, else nil.
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
	n := h.connects.n
	h.queues(func(q *queue) { n += q.waiting.n - q.waiting.firsts })
	return n
}

// inUse reports whether a request waits at h, or has a slot of it.
func (h *host) inUse() bool {
	return len(h.active)+len(h.yielded) > 0 || len(h.streams) > 0 || len(h.expiry) > 0 || h.pins.Load() > 0
}

// idle reports whether forgetting h can shorten nobody's wait.
func (h *host) idle(now time.Time) bool {
	if h.inUse() || !h.backOff.get().forgiven(now) || !h.latency.forgotten(now) {
		return false
	}
	all := true
	h.queues(func(q *queue) { all = all && q.limiter.idle(now) })
	for _, r := range h.clients {
		all = all && r.idle(now)
	}
	return all
}
