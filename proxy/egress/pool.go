package egress

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// maxIdle is the maximum number of idle connections of HTTP/1.1 to all origins. If there are as many of
	// HTTP/2, in use or not, a new one replaces one that no request uses.
	maxIdle        = 1024
	maxIdlePerHost = 256
	// Maximum number of idle connections of HTTP/1.1 that no request has used yet.
	maxUnused = 256

	// watchAfter is the minimum time that a connection is idle before it gets a watch; the
	// maximum is twice that. A connection that is reused earlier needs no watch, because it is
	// checked right before each request.
	watchAfter = 100 * time.Millisecond

	// How long a connection of HTTP/1.1 waits for its first request.
	unusedFor = 30 * time.Second
)

// A key says which requests may use an idle connection.
type key struct {
	endpoint

	// nil: requests of all clients.
	owner *Owner
}

// A pool keeps connections for further requests: those of HTTP/1.1 while they are idle, and those of
// HTTP/2 until they are closed.
type pool struct {
	// How long an idle connection is kept.
	keep time.Duration

	// Maximum number of idle connections of HTTP/1.1 to one endpoint.
	perHost int
	watches sync.WaitGroup

	mu     sync.Mutex
	closed bool

	// closeIdle was called, and take was not called since.
	draining bool

	// The connection that has been idle longest comes first; a list may be empty until the next sweep.
	idle map[key][]*persistConn

	// Number of all idle.
	count int

	// Number of those that no request has used.
	unused int

	// Number of sweeps.
	round uint64

	// timer of the next sweep; nil: none is due.
	timer  *time.Timer
	shared map[endpoint][]*http2Conn

	// Number of all shared.
	sharing int

	// order has all idle connections in a ring linked by idle.older and idle.newer, so that put does not
	// allocate. order.idle.newer is the oldest.
	order persistConn
}

func newPool(keep time.Duration) *pool {
	p := &pool{keep: keep, perHost: maxIdlePerHost, idle: make(map[key][]*persistConn), shared: make(map[endpoint][]*http2Conn)}
	p.order.idle.older, p.order.idle.newer = &p.order, &p.order
	return p
}

// put adds an idle connection of HTTP/1.1, or closes it if the pool or its Owner has ended. If the pool is full, put
// closes the connection that has been idle longest: one with the same key if possible, otherwise any.
func (p *pool) put(c *persistConn) {
	evicted := c
	p.mu.Lock()
	if !p.closed && !p.draining && !c.owner.isEnded() {
		evicted = p.evictFor(c)
		c.idle.round = p.round
		c.idle.older, c.idle.newer = p.order.idle.older, &p.order
		c.idle.older.idle.newer, p.order.idle.older = c, c
		p.idle[c.key] = append(p.idle[c.key], c)
		p.count++
		if !c.used {
			p.unused++
			p.startWatch(c, unusedFor)
		} else if c.socket == nil {
			// It cannot be checked without a watch.
			p.startWatch(c, p.keep)
		}
		if p.timer == nil {
			p.timer = time.AfterFunc(min(watchAfter, p.keep), p.sweep)
		}
	}
	p.mu.Unlock()
	if evicted != nil {
		evicted.conn.Close()
	}
}

// evictFor removes a connection if there is no space for c, and returns it. The caller holds p.mu.
func (p *pool) evictFor(c *persistConn) *persistConn {
	switch list := p.idle[c.key]; {
	case len(list) >= p.perHost:
		return p.remove(list[0])
	case !c.used && p.unused >= maxUnused:
		oldest := p.order.idle.newer
		for oldest.used {
			oldest = oldest.idle.newer
		}
		return p.remove(oldest)
	case c.owner != nil:
		if oldest, n := p.ownedBy(c.owner); n >= maxOwned {
			return p.remove(oldest)
		}
	}
	if p.count < maxIdle {
		return nil
	}
	return p.remove(p.order.idle.newer)
}

// ownedBy returns the oldest idle connection of an Owner, and their number. The caller holds p.mu.
func (p *pool) ownedBy(o *Owner) (oldest *persistConn, n int) {
	for c := p.order.idle.newer; c != &p.order; c = c.idle.newer {
		if c.owner == o {
			oldest = cmp.Or(oldest, c)
			n++
		}
	}
	return oldest, n
}

// remove removes a connection and returns it, or nil if it is not in the pool. The caller
// holds p.mu.
func (p *pool) remove(c *persistConn) *persistConn {
	list := p.idle[c.key]
	i := slices.Index(list, c)
	if i < 0 {
		return nil
	}
	p.idle[c.key] = slices.Delete(list, i, i+1)
	p.unlink(c)
	return c
}

// unlink removes a connection from the order of all. The caller holds p.mu.
func (p *pool) unlink(c *persistConn) {
	c.idle.older.idle.newer, c.idle.newer.idle.older = c.idle.newer, c.idle.older
	c.idle.older, c.idle.newer = nil, nil
	if p.count--; !c.used {
		p.unused--
	}
}

// take removes and returns the connection that has been idle for the shortest time, or nil. If fresh
// is set, no request has used it. The caller must check that it is alive.
func (p *pool) take(at key, fresh bool) *persistConn {
	for {
		c, w := p.pop(at, fresh)
		if c == nil || w == nil {
			return c
		}
		if w.stop() {
			// The watch leaves no deadline.
			c.until = time.Time{}
			return c
		}
		c.conn.Close()
	}
}

// closeAll closes the idle connections with a key that have no watch yet. It is called when one of them proves dead:
// an origin may have closed all.
func (p *pool) closeAll(at key) {
	p.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(p.idle[at]), func(c *persistConn) bool { return c.idle.watch != nil || p.remove(c) == nil })
	p.mu.Unlock()
	for _, c := range all {
		c.conn.Close()
	}
}

// pop is take for a connection that may be dead. w is its watch, if it has one.
func (p *pool) pop(at key, fresh bool) (c *persistConn, w *idleWatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = false
	list := p.idle[at]
	last := len(list) - 1
	for last >= 0 && fresh && list[last].used {
		last--
	}
	if last < 0 {
		return nil, nil
	}
	c = list[last]
	p.idle[at] = slices.Delete(list, last, last+1)
	p.unlink(c)
	w, c.idle.watch = c.idle.watch, nil
	return c, w
}

// sweep starts a watch for each connection that was already idle at the previous sweep.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if p.closed {
		return
	}
	again := false
	for at, list := range p.idle {
		if len(list) == 0 {
			delete(p.idle, at)
		}
		for _, c := range list {
			switch {
			case c.idle.watch != nil:
			case c.idle.round == p.round:
				again = true
			default:
				p.startWatch(c, p.keep)
			}
		}
	}
	if p.round++; again {
		p.timer = time.AfterFunc(min(watchAfter, p.keep), p.sweep)
	}
}

// startWatch starts a watch of c, which closes c after some time. The caller holds p.mu.
func (p *pool) startWatch(c *persistConn, keep time.Duration) {
	w := newIdleWatch(c.conn, time.Now().Add(keep))
	c.idle.watch = w
	p.watches.Go(func() {
		w.run()
		p.mu.Lock()
		waits := c.idle.watch == w && p.remove(c) != nil
		p.mu.Unlock()
		// Otherwise take has it, or it is closed.
		if waits {
			c.conn.Close()
		}
	})
}

// share adds a connection of HTTP/2. If the pool is full, it closes one that no request uses.
func (p *pool) share(c *http2Conn) {
	evicted := c
	p.mu.Lock()
	if !p.closed && !p.draining {
		if evicted = nil; p.sharing >= maxIdle {
			if evicted = p.oldestIdleHTTP2(); evicted != nil {
				p.drop(evicted)
			}
		}
		p.shared[c.endpoint] = append(p.shared[c.endpoint], c)
		p.sharing++
		c.last, c.timer = time.Now(), time.AfterFunc(min(p.keep, unusedFor), func() { p.expire(c) })
	}
	p.mu.Unlock()
	if evicted != nil {
		evicted.closeWhenIdle()
	}
	if c.client.Err() != nil {
		// It may have been closed before it was added.
		p.unshare(c)
	}
}

// expire closes a connection of HTTP/2 that no request has used for some time.
func (p *pool) expire(c *http2Conn) {
	p.mu.Lock()
	keep := p.keep
	if !c.used.Load() {
		keep = min(keep, unusedFor)
	}
	now := time.Now()
	if c.client.InFlight() > 0 {
		c.last = now
	}
	if left := keep - now.Sub(c.last); left > 0 {
		c.timer.Reset(left)
		p.mu.Unlock()
		return
	}
	p.drop(c)
	p.mu.Unlock()
	c.client.Close()
}

// oldestIdleHTTP2 returns the oldest connection of HTTP/2 that no request uses, or nil. The caller holds
// p.mu.
func (p *pool) oldestIdleHTTP2() (oldest *http2Conn) {
	for _, list := range p.shared {
		for _, c := range list {
			if c.client.InFlight() == 0 && (oldest == nil || c.made.Before(oldest.made)) {
				oldest = c
			}
		}
	}
	return oldest
}

// stream reserves a stream on a connection of HTTP/2, or returns nil.
func (p *pool) stream(at endpoint) *http2Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = false
	for _, c := range p.shared[at] {
		if c.client.Reserve() == nil {
			c.last = time.Now()
			return c
		}
	}
	return nil
}

// unshare removes a connection of HTTP/2 that is closed.
func (p *pool) unshare(c *http2Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(c)
}

// drop is unshare for a caller that holds p.mu.
func (p *pool) drop(c *http2Conn) {
	list := p.shared[c.endpoint]
	i := slices.Index(list, c)
	if i < 0 {
		return
	}
	c.timer.Stop()
	p.sharing--
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(p.shared, c.endpoint)
		return
	}
	p.shared[c.endpoint] = list
}

// closeIdle closes all idle connections, and those that become idle until the next take.
func (p *pool) closeIdle() {
	p.mu.Lock()
	idle, shared := p.idle, p.shared
	p.idle, p.count, p.unused, p.draining = make(map[key][]*persistConn), 0, 0, true
	p.shared, p.sharing = make(map[endpoint][]*http2Conn), 0
	p.order.idle.older, p.order.idle.newer = &p.order, &p.order
	p.mu.Unlock()
	for _, list := range idle {
		for _, c := range list {
			c.conn.Close()
		}
	}
	for _, list := range shared {
		for _, c := range list {
			c.timer.Stop()
			c.closeWhenIdle()
		}
	}
}

// release closes the idle connections of an owner that has ended.
func (p *pool) release(owner *Owner) {
	var all []*persistConn
	p.mu.Lock()
	for at, list := range p.idle {
		if at.owner == owner {
			all = append(all, list...)
		}
	}
	for _, c := range all {
		p.remove(c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.conn.Close()
	}
}

// close closes all connections and those that are added later, and waits for the watches.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.closeIdle()
	p.watches.Wait()
}
