package egress

import (
	"net"
	"slices"
	"sync"
	"time"
)

const (
	maxIdle        = 1024 // maximum number of idle connections to all origins, for an idlePool and for each Transport
	maxIdlePerHost = 256

	// watchAfter is the minimum time that a connection is idle before it gets a watch; the
	// maximum is twice that. A connection that is reused earlier needs no watch, because it is
	// checked right before each request.
	watchAfter = 100 * time.Millisecond

	unusedFor = 30 * time.Second // how long a connection waits for its first request
	maxUnused = 256              // maximum number of connections that wait for their first request
)

// An idlePool keeps the idle persistConns. It also knows which endpoints the Transport has
// idle connections to.
type idlePool struct {
	keep    time.Duration // how long an idle connection is kept
	watches sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	draining  bool                        // closeIdle was called, and take was not called since
	conns     map[endpoint][]*persistConn // the connection that has been idle longest comes first; a list may be empty until the next sweep
	count     int                         // number of all conns
	order     persistConn                 // all conns, in a ring linked by idle.older and idle.newer, so that put does not allocate; order.idle.newer is the oldest
	round     uint64                      // number of sweeps
	timer     *time.Timer                 // timer of the next sweep; nil: none is due
	transport map[endpoint]int            // number of idle connections of the Transport
}

func newIdlePool(keep time.Duration) *idlePool {
	p := &idlePool{keep: keep, conns: make(map[endpoint][]*persistConn), transport: make(map[endpoint]int)}
	p.order.idle.older, p.order.idle.newer = &p.order, &p.order
	return p
}

// put adds an idle connection. If the pool is full, it closes the connection that has
// been idle longest: one to the same endpoint if possible, otherwise any.
func (p *idlePool) put(c *persistConn) {
	evicted := c
	p.mu.Lock()
	if !p.closed && !p.draining {
		evicted = p.evictFor(c.endpoint)
		c.idle.round = p.round
		c.idle.older, c.idle.newer = p.order.idle.older, &p.order
		c.idle.older.idle.newer, p.order.idle.older = c, c
		p.conns[c.endpoint] = append(p.conns[c.endpoint], c)
		p.count++
		if p.timer == nil {
			p.timer = time.AfterFunc(p.interval(), p.sweep)
		}
	}
	p.mu.Unlock()
	if evicted != nil {
		evicted.conn.Close()
	}
}

// evictFor removes a connection if there is no space for another, and returns it. The
// caller holds p.mu.
func (p *idlePool) evictFor(at endpoint) *persistConn {
	switch list := p.conns[at]; {
	case len(list) >= maxIdlePerHost:
		return p.remove(list[0])
	case p.count < maxIdle:
		return nil
	}
	return p.remove(p.order.idle.newer)
}

// remove removes a connection and returns it, or nil if it is not in the pool. The caller
// holds p.mu.
func (p *idlePool) remove(c *persistConn) *persistConn {
	list := p.conns[c.endpoint]
	i := slices.Index(list, c)
	if i < 0 {
		return nil
	}
	p.conns[c.endpoint] = slices.Delete(list, i, i+1)
	p.unlink(c)
	return c
}

// unlink removes a connection from the order of all. The caller holds p.mu.
func (p *idlePool) unlink(c *persistConn) {
	c.idle.older.idle.newer, c.idle.newer.idle.older = c.idle.newer, c.idle.older
	c.idle.older, c.idle.newer = nil, nil
	p.count--
}

// take removes and returns the connection that has been idle for the shortest time, or nil.
// The caller must check that it is alive.
func (p *idlePool) take(at endpoint) *persistConn {
	for {
		p.mu.Lock()
		p.draining = false
		list := p.conns[at]
		if len(list) == 0 {
			p.mu.Unlock()
			return nil
		}
		last := len(list) - 1
		c := list[last]
		list[last] = nil
		p.conns[at] = list[:last]
		p.unlink(c)
		w := c.idle.watch
		c.idle.watch = nil
		p.mu.Unlock()
		if w == nil {
			return c
		}
		c.until = time.Time{} // the watch leaves no deadline
		if w.stop() {
			return c
		}
		c.conn.Close()
	}
}

// sweep starts a watch for each connection that was already idle at the previous sweep.
func (p *idlePool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if p.closed {
		return
	}
	again := false
	for at, list := range p.conns {
		if len(list) == 0 {
			delete(p.conns, at)
		}
		for _, c := range list {
			switch {
			case c.idle.watch != nil:
			case c.idle.round == p.round:
				again = true
			default:
				p.startWatch(c)
			}
		}
	}
	if p.round++; again {
		p.timer = time.AfterFunc(p.interval(), p.sweep)
	}
}

// interval is the time between two sweeps.
func (p *idlePool) interval() time.Duration { return min(watchAfter, p.keep) }

// startWatch starts a watch of c. The caller holds p.mu.
func (p *idlePool) startWatch(c *persistConn) {
	w, _ := newIdleWatch(c.conn, time.Now().Add(p.keep)) // setting the deadline fails only if the connection is closed
	c.idle.watch = w
	p.watches.Go(func() {
		w.run()
		p.mu.Lock()
		waits := c.idle.watch == w && p.remove(c) != nil
		p.mu.Unlock()
		if waits { // otherwise take has it, or it is closed
			c.conn.Close()
		}
	})
}

// closeIdle closes all connections, and those that are added until the next take.
func (p *idlePool) closeIdle() {
	p.mu.Lock()
	all := p.conns
	p.conns, p.count, p.draining = make(map[endpoint][]*persistConn), 0, true
	p.order.idle.older, p.order.idle.newer = &p.order, &p.order
	p.mu.Unlock()
	for _, list := range all {
		for _, c := range list {
			c.conn.Close()
		}
	}
}

// close closes all connections and those that are added later, and waits for the watches.
func (p *idlePool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.closeIdle()
	p.watches.Wait()
}

// setTransportIdle notes whether a connection is idle in the Transport, or in use by user. net/http
// may report that the connection is idle after another user has taken it, which is ignored.
func (p *idlePool) setTransportIdle(c *trackedConn, at endpoint, user *sending, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !is:
		c.idle.user = user
		p.endTransportIdle(c)
	case c.idle.user == user:
		c.idle.user = nil // it keeps no request in memory
		if !c.idle.closed {
			c.idle.endpoint, c.idle.is = at, true
			p.transport[at]++
		}
	}
}

// connClosed notes that a connection is closed.
func (p *idlePool) connClosed(c *trackedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endTransportIdle(c)
	c.idle.closed = true
}

// endTransportIdle notes that c is not idle in the Transport. The caller holds p.mu.
func (p *idlePool) endTransportIdle(c *trackedConn) {
	if !c.idle.is {
		return
	}
	c.idle.is = false
	if p.transport[c.idle.endpoint]--; p.transport[c.idle.endpoint] == 0 {
		delete(p.transport, c.idle.endpoint)
	}
}

// transportHasIdle reports whether the Transport has an idle connection.
func (p *idlePool) transportHasIdle(at endpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.transport[at] > 0
}

// An unusedPool keeps connections of Reach that no request has used yet, at most one for
// each endpoint. Each of them has a watch.
type unusedPool struct {
	watches sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[endpoint]*unusedConn
}

type unusedConn struct {
	net.Conn
	watch *idleWatch
	since time.Time
}

func newUnusedPool() *unusedPool {
	return &unusedPool{conns: make(map[endpoint]*unusedConn)}
}

// put adds a connection, which then belongs to the pool. It closes an earlier connection
// to the same endpoint. If the pool is full, it closes the oldest one.
func (p *unusedPool) put(at endpoint, conn net.Conn) {
	c := &unusedConn{Conn: conn, since: time.Now()}
	var err error
	if c.watch, err = newIdleWatch(conn, c.since.Add(unusedFor)); err != nil {
		conn.Close()
		return
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		conn.Close()
		return
	}
	key, old := at, p.conns[at]
	if old == nil && len(p.conns) >= maxUnused {
		key, old = p.oldest()
	}
	delete(p.conns, key)
	p.conns[at] = c
	p.watches.Go(func() { p.watch(at, c) })
	p.mu.Unlock()
	if old != nil {
		old.Close() // this ends its watch
	}
}

func (p *unusedPool) oldest() (at endpoint, oldest *unusedConn) {
	for key, c := range p.conns {
		if oldest == nil || c.since.Before(oldest.since) {
			at, oldest = key, c
		}
	}
	return at, oldest
}

// watch runs the watch of a connection. It then closes the connection if that is still in
// the pool.
func (p *unusedPool) watch(at endpoint, c *unusedConn) {
	c.watch.run()
	p.mu.Lock()
	waits := p.conns[at] == c
	if waits {
		delete(p.conns, at)
	}
	p.mu.Unlock()
	if waits { // otherwise take has it, or it is closed
		c.Close()
	}
}

// take removes and returns a connection that is alive and speaks one of the offered
// protocols, or returns nil.
func (p *unusedPool) take(at endpoint, offered protocols) net.Conn {
	p.mu.Lock()
	c := p.conns[at]
	if c == nil || c.watch.http2 != nil && !slices.Contains(offered, http2) {
		p.mu.Unlock()
		return nil
	}
	delete(p.conns, at)
	p.mu.Unlock()
	if !c.watch.stop() {
		c.Close()
		return nil
	}
	return c.Conn
}

// closeAll closes all connections.
func (p *unusedPool) closeAll() {
	p.mu.Lock()
	conns := p.conns
	p.conns = make(map[endpoint]*unusedConn)
	p.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// close closes all connections and those that are added later, and waits for the watches.
func (p *unusedPool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closeAll()
	p.watches.Wait()
}
