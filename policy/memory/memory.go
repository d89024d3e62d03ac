// Package memory bounds how much of the machine's memory one process has in use.
//
// A [Budget] compares its limit with what the Go runtime reports as in use. That includes cached and
// compiled robots.txt files, fetches in progress, the buffers of connections, and snapshots and records
// that are not on the disk yet. The Budget also estimates what the connections and the requests in flight
// of each client need. It refuses new work ([ErrShort]) to a client that holds more than is still free. So the
// greediest clients are refused first, every other client is served for as long as anything is left,
// and one client alone never holds more than half.
//
// A Budget frees nothing, and knows nothing of caches, which bound themselves. It fails only by refusing.
//
// A Budget may be shared by any number of goroutines. It starts none.
package memory

import (
	"errors"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// ErrShort is the error for new work of a client that has used its share while memory is
// short.
var ErrShort = errors.New("memory is short, and the client already uses its share")

const (
	// Default is the limit of a Budget, in bytes, if Options.Limit is zero.
	Default = 2 << 30

	// requestBytes is the estimate for one request in flight, in bytes: its goroutines' stacks, its head,
	// and the buffers of its connections (measured: 20 to 48 KiB).
	requestBytes = 32 << 10

	// connBytes is the estimate for one open connection of a client, in bytes: its goroutines' stacks, its
	// buffers, and the state of HTTP/2 or TLS (measured: 11 to 30 KiB).
	connBytes = 32 << 10

	// bodiesDivisor is the divisor of the limit for the bytes of all request bodies that are read before
	// a wait: a sixteenth.
	bodiesDivisor = 16

	// sampleEvery is the least time between two calls of the runtime, each of which takes some microseconds.
	sampleEvery = 100 * time.Millisecond

	// shortDivisor is the divisor of the limit that gives how few free bytes make the Budget run the garbage
	// collector: an eighth. Refused requests allocate so little that the collector may run by itself only
	// every two minutes, and all clients would be refused for what was in use at its last run.
	shortDivisor = 8

	// collectEvery is the least time between two of these runs, each of which takes some 100 ms of a processor.
	collectEvery = 5 * time.Second
	// clockSlack is how old the time of a caller may be: a request may wait before it asks for memory.
	clockSlack = time.Minute
)

// Options make a Budget.
type Options struct {
	// Limit is in bytes; zero: Default.
	Limit int64

	// InUse returns the bytes in use; nil: as the Go runtime reports.
	InUse func() int64
}

// A Budget bounds the memory of a process, and shares it between clients. Make one with New.
type Budget struct {
	limit atomic.Int64
	inUse func() int64

	// sampling is held while inUse is called, so that no result is replaced by an earlier one.
	sampling sync.Mutex

	// sampled is the last result of inUse, in bytes.
	sampled atomic.Int64

	// sampleAt is when inUse may be called next, and collectAt when the garbage collector may run next, in nanoseconds
	// since 1970.
	sampleAt, collectAt atomic.Int64

	refusedRequests, refusedConns, refusedBodies atomic.Uint64

	// mu guards the fields below.
	mu    sync.Mutex
	total held

	// clients are those that hold bytes.
	clients map[string]*share
}

// held has the estimated bytes of connections and requests in flight.
type held struct{ work, bodies int64 }

func (h *held) add(work, bodies int64) {
	h.work += work
	h.bodies += bodies
}

// A share has what one client holds.
type share struct {
	held
	name string
}

// New returns a Budget.
func New(o Options) *Budget {
	b := &Budget{inUse: o.InUse, clients: make(map[string]*share)}
	if b.inUse == nil {
		b.inUse = liveBytes
	}
	b.SetLimit(o.Limit)
	return b
}

// SetLimit changes the limit, in bytes; zero means Default.
func (b *Budget) SetLimit(limit int64) {
	if limit <= 0 {
		limit = Default
	}
	b.limit.Store(limit)
}

// liveBytes returns the bytes of the heap that the last garbage collection found in use, and of
// all stacks.
func liveBytes() int64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
}

// currentUse returns the bytes in use. They are at most sampleEvery old, unless another goroutine is about to find them.
func (b *Budget) currentUse(now time.Time) int64 {
	at := now.UnixNano()
	if isDue(at, b.sampleAt.Load(), sampleEvery) && b.sampling.TryLock() {
		defer b.sampling.Unlock()
		b.sample(at)
	}
	return b.sampled.Load()
}

// sample calls inUse if that is due at a time. If little is free, it runs the garbage collector and calls inUse again. The
// caller holds b.sampling.
func (b *Budget) sample(at int64) {
	if !isDue(at, b.sampleAt.Load(), sampleEvery) {
		// Another goroutine has just called inUse.
		return
	}
	b.sampleAt.Store(at + int64(sampleEvery))
	n, limit := b.inUse(), b.limit.Load()
	b.sampled.Store(n)
	if n > limit-limit/shortDivisor && isDue(at, b.collectAt.Load(), collectEvery) {
		b.collectAt.Store(at + int64(collectEvery))
		runtime.GC()
		b.sampled.Store(b.inUse())
	}
}

// isDue reports whether a task that runs once in every is due at a time, if its next run is planned for due. It is due too
// if that is further away than clockSlack allows: then the clock was set back.
func isDue(at, due int64, every time.Duration) bool {
	return at >= due || due-at > int64(every+clockSlack)
}

// Work is one open connection, or one request in flight. The zero Work holds nothing, and is
// refused everything. Any number of goroutines may use a Work, but it must not be copied then.
type Work struct {
	// budget is nil in the zero Work.
	budget *Budget

	// refusals is the one of the Budget's counters that counts refusals of this Work.
	refusals *atomic.Uint64

	// The budget's lock guards the fields below.
	held
	client *share
	ended  bool
}

// Begin counts a request in flight, against the share of client. The error is ErrShort. The caller
// calls [Work.End] once when the request ends.
func (b *Budget) Begin(client string, now time.Time) (Work, error) {
	return b.begin(client, requestBytes, &b.refusedRequests, now)
}

// Open counts an open connection in the same way, until [Work.End] is called.
func (b *Budget) Open(client string, now time.Time) (Work, error) {
	return b.begin(client, connBytes, &b.refusedConns, now)
}

func (b *Budget) begin(client string, n int64, refusals *atomic.Uint64, now time.Time) (Work, error) {
	b.currentUse(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.clients[client]
	known := of != nil
	if !known {
		of = &share{name: client}
	}
	w := Work{budget: b, refusals: refusals, client: of}
	if !w.reserve(n, 1) {
		refusals.Add(1)
		return Work{}, ErrShort
	}
	if !known {
		b.clients[client] = of
	}
	return w, nil
}

// lock locks the budget, and reports whether w may still change. If it returns false, the
// budget is not locked: w is the zero Work, or it has ended.
func (w *Work) lock() bool {
	if w.budget == nil {
		return false
	}
	w.budget.mu.Lock()
	if w.ended {
		w.budget.mu.Unlock()
		return false
	}
	return true
}

// Body reserves n bytes for the request's body. If it returns false, the body must not be read yet.
func (w *Work) Body(n int64) bool {
	if !w.lock() {
		return false
	}
	b := w.budget
	defer b.mu.Unlock()
	limit := b.limit.Load()
	if free := min(limit/bodiesDivisor-b.total.bodies, limit-b.sampled.Load()); w.client.bodies+n > free {
		b.refusedBodies.Add(1)
		return false
	}
	w.add(0, n)
	return true
}

// Hold counts n more bytes. The error is ErrShort.
func (w *Work) Hold(n int64) error {
	if !w.lock() {
		return ErrShort
	}
	defer w.budget.mu.Unlock()
	if !w.reserve(n, 1) {
		w.refusals.Add(1)
		return ErrShort
	}
	return nil
}

// Spare is Hold for bytes that w can do without. It leaves the client as much for new work as it holds, and reports
// whether it has counted the bytes.
func (w *Work) Spare(n int64) bool {
	if !w.lock() {
		return false
	}
	defer w.budget.mu.Unlock()
	return w.reserve(n, 2)
}

// Apart counts n bytes for the client of w in another Work, which may outlive w. The error is ErrShort.
func (w *Work) Apart(n int64) (Work, error) {
	if !w.lock() {
		return Work{}, ErrShort
	}
	defer w.budget.mu.Unlock()
	apart := Work{budget: w.budget, refusals: w.refusals, client: w.client}
	if !apart.reserve(n, 1) {
		w.refusals.Add(1)
		return Work{}, ErrShort
	}
	return apart, nil
}

// reserve reports whether there are n bytes for new work of the client, so that it holds at most one of so many parts of
// what is free, and counts them. The caller holds the budget's lock.
func (w *Work) reserve(n, parts int64) bool {
	b := w.budget
	free := b.limit.Load() - max(b.sampled.Load(), b.total.work+b.total.bodies)
	if parts*(w.client.work+n) > free {
		return false
	}
	w.add(n, 0)
	return true
}

// Free returns n of the bytes that Hold has counted.
func (w *Work) Free(n int64) {
	if w.lock() {
		defer w.budget.mu.Unlock()
		w.add(-n, 0)
	}
}

// End returns all bytes that w holds.
func (w *Work) End() {
	if !w.lock() {
		return
	}
	defer w.budget.mu.Unlock()
	w.add(-w.work, -w.bodies)
	w.ended = true
	if w.client.held == (held{}) {
		delete(w.budget.clients, w.client.name)
	}
}

// add adds to the bytes of w, of its client, and of all clients. The caller holds the budget's lock.
func (w *Work) add(work, bodies int64) {
	w.held.add(work, bodies)
	w.client.add(work, bodies)
	w.budget.total.add(work, bodies)
}

// Stats is the state of a Budget.
type Stats struct {
	// Limit is in bytes, and so is InUse, which is what the Go runtime reports.
	Limit, InUse int64

	// Held is the estimate for connections and requests in flight, in bytes.
	Held int64

	// Bodies is the size of the request bodies that were read ahead of a wait, in bytes.
	Bodies int64

	// Refused is how many requests were refused so far.
	Refused uint64

	// Closed is how many connections so far were refused, or closed because there was no memory for a long head.
	Closed uint64

	// Unread is how many bodies so far were not read ahead of a wait because there was no memory.
	Unread uint64
}

// Stats returns the present Stats. It calls the runtime if sampleEvery has passed.
func (b *Budget) Stats() Stats {
	inUse := b.currentUse(time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{
		Limit: b.limit.Load(), InUse: inUse, Held: b.total.work, Bodies: b.total.bodies,
		Refused: b.refusedRequests.Load(), Closed: b.refusedConns.Load(), Unread: b.refusedBodies.Load(),
	}
}
