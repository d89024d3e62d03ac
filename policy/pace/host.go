package pace

import (
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/wake"
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

// A waiter is a request that waits for a concurrency slot or for a permit to send.
type waiter struct {
	*request

	// fair is the queue in which the waiter waits for a concurrency slot. If it is nil, the waiter waits in queue.ready for
	// the permit.
	fair *fairQueue

	// rated means that the request waits for a rate, see Pacer.Wait.
	rated bool

	// since is when the wait began, and until is when the waiter is refused.
	since, until time.Time

	// index is the position in host.expiry.
	index int

	// ready is closed when the waiter is granted or refused.
	ready chan struct{}

	// done means that ready is closed. host.mu guards it.
	done bool

	// err is nil if the waiter was granted. It may be read once ready is closed.
	err error
}

// A fairQueue is a queue in which clients take turns. The waiters of one client go in the
// order in which they arrived. The zero value is empty.
type fairQueue struct {
	// lines has a line for each client that waits. The first one is next.
	lines []*line
}

// A line is the part of a fairQueue that belongs to one client.
type line struct {
	client string

	// waiters is never empty while the line is in a fairQueue.
	waiters []*waiter
}

// expiry is a heap of waiters, ordered by the time when they are refused.
type expiry []*waiter

// A reservation is what one request has reserved in the Store. host.mu guards it.
type reservation struct {
	*request

	// wake contains a value if something has changed for the waiting request. It is nil until the request waits for the
	// Store.
	wake wake.Signal

	// under is the outage in which the permit was given, see terms.alone.
	under *outage

	// lease is nil if the request has no concurrency slot of the Store.
	lease any

	// unsent means that the slot was not used yet.
	unsent bool

	// at is when the slot begins, and until is when it ends; a zero until means that it does not end.
	at, until time.Time

	// missed is how many slots ended before they were used.
	missed int

	// end is until when the present call of Slot.Ready may wait. Only that call uses end, poll and limiters.
	end time.Time

	// poll is the time until the Store is asked again, see firstPoll.
	poll time.Duration

	// limiters is the memory of SlotRequest.Limiters.
	limiters [2]Limiter
}

// contention is what the last slot that the Store gave to a queue tells about other processes.
type contention struct {
	// terms are those of the request's Limits. Under other terms, slots take another time.
	terms terms

	// slot is when the slot begins. A later request gets no earlier one.
	slot time.Time

	// at is when the slot was reserved.
	at time.Time

	// last is how many times longer the slot took than one of this process's own limiters.
	last float64

	// before is last of the slot before, if that was under the same terms, else 1.
	before float64
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

// inUse reports whether a request waits for h or holds a slot of it.
func (h *host) inUse() bool {
	return len(h.active)+len(h.yielded) > 0 || len(h.streams) > 0 || len(h.expiry) > 0 || h.pins.Load() > 0
}

// idle reports whether h can be forgotten without letting any request out sooner.
func (h *host) idle(now time.Time) bool {
	if h.inUse() || !h.backOff.idle(now) {
		return false
	}
	_, answered := h.latency.get(now)
	all := now.Sub(answered) >= slowFor
	h.queues(func(q *queue) { all = all && q.limiter.idle(now) })
	for _, r := range h.clients {
		all = all && r.idle(now)
	}
	return all
}
