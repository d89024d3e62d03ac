// Package memory bounds how much of the machine's memory one process has in use.
//
// A [Budget] compares its limit with what the Go runtime reports as in use. That includes cached and
// compiled robots.txt files, fetches under way, the buffers of connections, and snapshots and records
// that are not on the disk yet. The Budget also estimates what the connections and the requests under way
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

// ErrShort is the error for new work of a client that has its share while memory is short.
var ErrShort = errors.New("memory is short, and the client has its share of it")

const (
	// Default is the limit of a Budget, in bytes, if Options.Limit is zero.
	Default = 2 << 30

	// workBytes is the estimate for one request under way, in bytes: its goroutines' stacks, its head,
	// and the buffers of its connections (measured: 20 to 48 KiB).
	workBytes = 32 << 10

	// connBytes is the estimate for one open connection of a client, in bytes: its goroutines' stacks, its
	// buffers, and the state of HTTP/2 or TLS (measured: 11 to 30 KiB).
	connBytes = 32 << 10

	// bodiesPart is the divisor of the limit that gives the bytes for all request bodies that are read
	// ahead of a wait: a sixteenth.
	bodiesPart = 16

	// sampleEvery is the least time between two questions to the runtime, each of which takes some microseconds.
	sampleEvery = 100 * time.Millisecond

	// shortPart is the divisor of the limit that gives how few free bytes make the Budget run the garbage
	// collector: an eighth. Refused requests allocate so little that the collector may run by itself only
	// every two minutes, and all clients would be refused for what was in use at its last run.
	shortPart = 8

	// collectEvery is the least time between two of these runs, each of which takes some 100 ms of a processor.
	collectEvery = 5 * time.Second
)

// Options make a Budget.
type Options struct {
	Limit int64        // bytes; zero: Default
	InUse func() int64 // bytes that are in use; nil: what the runtime says
}

// A Budget bounds the memory of a process, and shares it between clients. Make one with New.
type Budget struct {
	limit   atomic.Int64
	inUse   func() int64
	sampled atomic.Int64 // what inUse said last
	due     atomic.Int64 // when inUse is called again, in nanoseconds since 1970
	collect atomic.Int64 // when the collector may be run again, likewise

	refused, closed, unread atomic.Uint64

	mu      sync.Mutex // guards what follows
	all     holding
	clients map[string]*share // those that hold anything
}

// A holding is how many bytes connections and requests under way hold, by estimate.
type holding struct{ work, bodies int64 }

func (h *holding) add(work, bodies int64) {
	h.work += work
	h.bodies += bodies
}

// A share is what one client holds.
type share struct {
	holding
	name string
}

// New makes a Budget.
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

// liveBytes gives the bytes of the heap that the last garbage collection found in use, and of all stacks.
func liveBytes() int64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	var n uint64
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			n += s.Value.Uint64()
		}
	}
	return int64(n)
}

// taken gives the bytes in use, at most sampleEvery old.
func (b *Budget) taken(now time.Time) int64 {
	at := now.UnixNano()
	if due := b.due.Load(); at >= due && b.due.CompareAndSwap(due, at+int64(sampleEvery)) {
		n, limit := b.inUse(), b.limit.Load()
		if due := b.collect.Load(); n > limit-limit/shortPart && at >= due && b.collect.CompareAndSwap(due, at+int64(collectEvery)) {
			runtime.GC()
			n = b.inUse()
		}
		b.sampled.Store(n)
	}
	return b.sampled.Load()
}

// Work is one open connection, or one request under way. The zero Work holds nothing and is given
// nothing. Any number of goroutines may use a Work, but it must not be copied then.
type Work struct {
	budget  *Budget        // nil: the zero Work
	refused *atomic.Uint64 // counts refusals; one of the budget's

	holding // guarded by the budget's lock, as the rest is
	client  *share
	ended   bool
}

// Begin counts a request under way, against the share of client. The error is ErrShort. The caller
// calls [Work.End] once when the request ends.
func (b *Budget) Begin(client string, now time.Time) (Work, error) {
	return b.begin(client, workBytes, &b.refused, now)
}

// Open counts an open connection likewise, until [Work.End] is called.
func (b *Budget) Open(client string, now time.Time) (Work, error) {
	return b.begin(client, connBytes, &b.closed, now)
}

func (b *Budget) begin(client string, n int64, refused *atomic.Uint64, now time.Time) (Work, error) {
	b.taken(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.clients[client]
	known := of != nil
	if !known {
		of = &share{name: client}
	}
	w := Work{budget: b, refused: refused, client: of}
	if !w.hold(n) {
		return Work{}, ErrShort
	}
	if !known {
		b.clients[client] = of
	}
	return w, nil
}

// Body asks for n bytes for the request's body. If it returns false, the body must not be read yet.
func (w *Work) Body(n int64) bool {
	b := w.budget
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.ended {
		return false
	}
	limit := b.limit.Load()
	if free := min(limit/bodiesPart-b.all.bodies, limit-b.sampled.Load()); w.client.bodies+n > free {
		b.unread.Add(1)
		return false
	}
	w.add(0, n)
	return true
}

// Hold counts n bytes more. The error is ErrShort.
func (w *Work) Hold(n int64) error {
	b := w.budget
	if b == nil {
		return ErrShort
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.ended || !w.hold(n) {
		return ErrShort
	}
	return nil
}

// hold reports whether there are n bytes for new work of the client, and counts them. The caller holds the
// budget's lock.
func (w *Work) hold(n int64) bool {
	b := w.budget
	free := b.limit.Load() - max(b.sampled.Load(), b.all.work+b.all.bodies)
	if w.client.work+n > free {
		w.refused.Add(1)
		return false
	}
	w.add(n, 0)
	return true
}

// Free gives back n of the bytes that Hold has counted.
func (w *Work) Free(n int64) {
	b := w.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !w.ended {
		w.add(-n, 0)
	}
}

// End gives back all bytes that w holds.
func (w *Work) End() {
	b := w.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.ended {
		return
	}
	w.add(-w.work, -w.bodies)
	w.ended = true
	if w.client.holding == (holding{}) {
		delete(b.clients, w.client.name)
	}
}

// add adds to the bytes of w, of its client, and of all clients. The caller holds the budget's lock.
func (w *Work) add(work, bodies int64) {
	w.holding.add(work, bodies)
	w.client.add(work, bodies)
	w.budget.all.add(work, bodies)
}

// Stats is the state of a Budget, to be shown.
type Stats struct {
	Limit  int64 // bytes
	InUse  int64 // bytes, as the runtime says
	Held   int64 // bytes that connections and requests under way hold, by estimate
	Bodies int64 // bytes of request bodies that were read ahead of a wait

	Refused uint64 // requests so far
	Closed  uint64 // connections so far that were refused, or closed because a long head found no room
	Unread  uint64 // bodies so far that were not read ahead of a wait because there was no room
}

// Stats gives the present Stats. It asks the runtime if that is due.
func (b *Budget) Stats() Stats {
	s := Stats{Limit: b.limit.Load(), InUse: b.taken(time.Now()), Refused: b.refused.Load(), Closed: b.closed.Load(), Unread: b.unread.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Held, s.Bodies = b.all.work, b.all.bodies
	return s
}
