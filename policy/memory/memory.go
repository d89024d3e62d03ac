// Package memory bounds what one process takes of the machine's memory.
//
// A [Budget] looks at what the Go runtime says is in use, which has everything in it: the robots.txt
// files that are kept and those on their way, compiled files, the buffers of connections, snapshots and
// records that are not on the disk yet. It counts besides what each client's requests under way are
// taken to need. New work is refused ([ErrShort]) to a client that holds more than is still free, so
// that the greediest clients are refused first, every other client is served for as long as there is
// anything left, and one client alone never takes more than half.
//
// It frees nothing, and knows nothing of caches: these bound themselves. It fails only by refusing.
//
// A Budget may be shared by any number of goroutines. It starts none.
package memory

import (
	"errors"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// ErrShort says that a client's new work is refused because memory is short.
var ErrShort = errors.New("memory is short, and the client has its share of it")

const (
	// Default is how many bytes a Budget has where nothing else is said.
	Default = 2 << 30

	// workBytes is what a request under way is taken to need: its goroutines' stacks, its head, and the
	// buffers of its connections (measured: 20 to 48 KiB).
	workBytes = 32 << 10

	// bodiesPart is which part of all are the request bodies that are read ahead of a wait.
	bodiesPart = 16

	// sampleEvery is how often the runtime is asked, at the most: that takes some microseconds.
	sampleEvery = 100 * time.Millisecond
)

// Options make a Budget.
type Options struct {
	Limit int64        // bytes; zero: Default
	InUse func() int64 // bytes that are in use; nil: what the runtime says
}

// A Budget is so many bytes. Make one with New.
type Budget struct {
	limit   atomic.Int64
	inUse   func() int64
	sampled atomic.Int64 // what that said last
	due     atomic.Int64 // when it is asked again, in nanoseconds since 1970

	refused, unread atomic.Uint64

	mu      sync.Mutex // guards what follows
	all     holding
	clients map[string]holding // those that hold anything
}

// A holding is what requests under way hold, in bytes.
type holding struct{ work, bodies int64 }

func (h *holding) add(work, bodies int64) {
	h.work += work
	h.bodies += bodies
}

// New makes a Budget.
func New(o Options) *Budget {
	b := &Budget{inUse: o.InUse, clients: make(map[string]holding)}
	if b.inUse == nil {
		b.inUse = liveBytes
	}
	b.SetLimit(o.Limit)
	return b
}

// SetLimit has the Budget be of limit bytes from now on; zero means Default.
func (b *Budget) SetLimit(limit int64) {
	if limit <= 0 {
		limit = Default
	}
	b.limit.Store(limit)
}

// liveBytes is what the last cycle of the garbage collector found in use, with all stacks.
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

// taken is what is in use at about now.
func (b *Budget) taken(now time.Time) int64 {
	at := now.UnixNano()
	if due := b.due.Load(); at >= due && b.due.CompareAndSwap(due, at+int64(sampleEvery)) {
		b.sampled.Store(b.inUse())
	}
	return b.sampled.Load()
}

// Work is one request under way. The zero Work holds nothing and is given nothing.
type Work struct {
	budget *Budget
	client string
	holding
}

// Begin counts a request of client, a name for whose fair share it counts against. The error is
// ErrShort. Whoever calls it calls [Work.End], once.
func (b *Budget) Begin(client string, now time.Time) (Work, error) {
	taken := b.taken(now)
	w := Work{budget: b, client: client}
	b.mu.Lock()
	defer b.mu.Unlock()
	if free := b.limit.Load() - max(taken, b.all.work+b.all.bodies); b.clients[client].work+workBytes > free {
		b.refused.Add(1)
		return Work{}, ErrShort
	}
	w.add(workBytes, 0)
	return w, nil
}

// Body asks for n bytes for the request's body. Where it says no, the body has to stay where it is.
func (w *Work) Body(n int64) bool {
	b := w.budget
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit.Load()
	if free := min(limit/bodiesPart-b.all.bodies, limit-b.sampled.Load()); b.clients[w.client].bodies+n > free {
		b.unread.Add(1)
		return false
	}
	w.add(0, n)
	return true
}

// End gives back all that w holds.
func (w *Work) End() {
	b := w.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w.add(-w.work, -w.bodies)
	w.budget = nil
}

// add adds to what w holds, and its client, and all. The budget's lock is held.
func (w *Work) add(work, bodies int64) {
	b := w.budget
	w.holding.add(work, bodies)
	b.all.add(work, bodies)
	c := b.clients[w.client]
	c.add(work, bodies)
	if c == (holding{}) {
		delete(b.clients, w.client)
	} else {
		b.clients[w.client] = c
	}
}

// Stats is what a Budget is at, to be shown.
type Stats struct {
	Limit  int64 // bytes
	InUse  int64 // bytes, as the runtime says
	Bodies int64 // bytes of request bodies that were read ahead of a wait

	Refused uint64 // requests so far
	Unread  uint64 // bodies so far that were not read ahead of a wait because there was no room
}

// Stats asks the runtime as well, if that is due.
func (b *Budget) Stats() Stats {
	s := Stats{Limit: b.limit.Load(), InUse: b.taken(time.Now()), Refused: b.refused.Load(), Unread: b.unread.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Bodies = b.all.bodies
	return s
}
