package inbound

import (
	"cmp"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A place is what one connection takes of the limits.
type place struct {
	conn io.Closer

	// share is the key of the share for which the connection is counted, and closed says that it is not counted any more.
	// Both are guarded by the lock of clientConns.
	share  string
	closed bool

	// requests is the number of requests in progress, also in the tunnel that the connection has become. idleSince is when
	// the last of them ended, or the connection was accepted, in nanoseconds since 1970.
	requests  atomic.Int32
	idleSince atomic.Int64
}

// begin counts a request in progress, until end.
func (p *place) begin() { p.requests.Add(1) }

// end counts a request that has ended.
func (p *place) end() {
	p.idleSince.Store(time.Now().UnixNano())
	p.requests.Add(-1)
}

// isIdle reports whether the connection has carried no request since a time, in nanoseconds since 1970.
func (p *place) isIdle(since int64) bool {
	return p.requests.Load() == 0 && p.idleSince.Load() <= since
}

// minIdle is how long a connection must carry no request before it is closed to make room for another. A shorter time
// would hit clients that are about to send a request.
const minIdle = time.Second

// clientConns counts the open connections to the proxy's own ports: all of them, and those of each client. Its zero value
// has counted none. One goroutine of each listener waits for a free place.
type clientConns struct {
	// overMemory is the number of open connections that the memory budget has no space for.
	overMemory atomic.Int64

	// free has a value if a place may have become free; nil: nobody waits for one.
	free chan struct{}

	// mu guards what follows, and the share and closed of each place.
	mu sync.Mutex

	// taken is the number of places that are taken, by open connections and by those that are about to be added to all.
	taken int

	// all has the open connections, and of their number, by the key of their client's share.
	all map[*place]struct{}
	of  map[string]int
}

// take takes one more place, which forget frees, and returns true if fewer than most are taken.
func (c *clientConns) take(most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken >= most {
		return false
	}
	c.taken++
	return true
}

// notify wakes the goroutine of a listener that waits for a place.
func (c *clientConns) notify() {
	select {
	case c.free <- struct{}{}:
	default:
	}
}

// open adds a connection that has a place, and returns how many its client has.
func (c *clientConns) open(p *place) int {
	p.idleSince.Store(time.Now().UnixNano())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all, c.of = map[*place]struct{}{}, map[string]int{}
	}
	c.all[p] = struct{}{}
	return c.add(p.share, 1)
}

// roomDivisor is the divisor of the limit of all connections that gives how many idle ones are closed at once, so that the
// search for them is rare.
const roomDivisor = 256

// makeRoom returns connections to close for another one of a share. They are the ones that have been idle for the
// longest, of the client with the most connections that has idle ones. That must be the client of the new connection, or
// one with more connections. If there are none, fair reports whether the client of the new connection has no more than an
// equal division of the places gives.
func (c *clientConns) makeRoom(share string, most int) (idle []*place, fair bool) {
	since := time.Now().Add(-minIdle).UnixNano()
	c.mu.Lock()
	defer c.mu.Unlock()
	largest := share
	for p := range c.all {
		n := c.of[p.share] - c.of[largest]
		if n < 0 || n == 0 && p.share != largest || !p.isIdle(since) {
			continue
		}
		if p.share != largest {
			largest, idle = p.share, nil
		}
		idle = append(idle, p)
	}
	slices.SortFunc(idle, func(a, b *place) int { return cmp.Compare(a.idleSince.Load(), b.idleSince.Load()) })
	room := 1 + most/roomDivisor
	if largest != share {
		room = min(room, c.of[largest]-c.of[share])
	}
	return idle[:min(room, len(idle))], c.of[share]*len(c.of) <= most
}

// forget removes a closed connection from the counts.
func (c *clientConns) forget(p *place) {
	c.mu.Lock()
	p.closed = true
	delete(c.all, p)
	c.add(p.share, -1)
	c.taken--
	c.mu.Unlock()
	c.notify()
}

// move counts a connection for another share, that of its client, which may have at most most of them. It returns false if
// that client has as many.
func (c *clientConns) move(p *place, share string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// With HTTP/2, a request may outlive its connection.
	if p.closed || share == p.share {
		return true
	}
	if c.of[share] >= most {
		return false
	}
	c.add(p.share, -1)
	c.add(share, 1)
	p.share = share
	return true
}

// add adds n to the number of a client's connections and returns it. The caller holds c.mu.
func (c *clientConns) add(share string, n int) int {
	now := c.of[share] + n
	if c.of[share] = now; now == 0 {
		delete(c.of, share)
	}
	return now
}
