package egress

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxIdle is the maximum number of idle connections of HTTP/1.1 to all origins. If there are as many of
	// HTTP/2, in use or not, a new one replaces one that no request uses.
	maxIdle        = 1024
	maxIdlePerHost = 256
	// maxUnused is the maximum number of idle connections of HTTP/1.1 that no request has used yet.
	maxUnused = 256

	// watchAfter is the minimum time that a connection is idle before it gets a watch; the
	// maximum is twice that. A connection that is reused earlier needs no watch, because it is
	// checked right before each request.
	watchAfter = 100 * time.Millisecond

	// unusedFor is how long a connection waits for its first request.
	unusedFor = 30 * time.Second
)

// A key says which requests may use an idle connection.
type key struct {
	endpoint

	// owner is the only one whose requests may use the connection; nil: requests of all clients may.
	owner *Owner
}

// A pool keeps connections for further requests: those of HTTP/1.1 while they are idle, and those of
// HTTP/2 until they are closed.
type pool struct {
	// keep is how long an idle connection is kept.
	keep time.Duration

	// perHost is the maximum number of idle connections of HTTP/1.1 to one endpoint.
	perHost int
	watches sync.WaitGroup

	// mu guards what follows, the watches of idle connections, and last and timer of shared ones.
	mu     sync.Mutex
	closed bool

	// draining says that closeIdle was called, and take was not called since.
	draining bool

	// idle has the idle connections of HTTP/1.1 by key, and byAge has all of them. The connection that has been
	// idle longest comes first. A list of a key may be empty until the next sweep.
	idle  map[key][]*persistConn
	byAge []*persistConn

	// round is the number of sweeps, and timer starts the next one; nil: none is due.
	round uint64
	timer *time.Timer

	// shared has the connections of HTTP/2, whether requests use them or not.
	shared map[endpoint][]*http2Conn
}

func newPool(keep time.Duration) *pool {
	return &pool{keep: keep, perHost: maxIdlePerHost, idle: make(map[key][]*persistConn), shared: make(map[endpoint][]*http2Conn)}
}

// put adds an idle connection of HTTP/1.1, or closes it if the pool or its Owner has ended. If the pool is full, put
// closes the connection that has been idle longest: one with the same key if possible, otherwise any.
func (p *pool) put(c *persistConn) {
	evicted := c
	p.mu.Lock()
	if !p.closed && !p.draining && !c.owner.isEnded() {
		evicted = p.evictFor(c)
		c.round = p.round
		p.idle[c.key] = append(p.idle[c.key], c)
		p.byAge = append(p.byAge, c)
		if !c.used {
			p.startWatch(c, unusedFor)
		} else if c.socket == nil {
			// Such a connection cannot be checked without a watch.
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
	list, most := p.idle[c.key], p.perHost
	switch {
	case len(list) >= most:
	case !c.used:
		list, most = p.matching(func(other *persistConn) bool { return !other.used }), maxUnused
	case c.owner != nil:
		list, most = p.matching(func(other *persistConn) bool { return other.owner == c.owner }), maxOwned
	}
	if len(list) < most {
		list, most = p.byAge, maxIdle
	}
	if len(list) < most {
		return nil
	}
	oldest := list[0]
	p.remove(oldest)
	return oldest
}

// matching returns the idle connections that match. The one that has been idle longest comes first. The caller holds p.mu.
func (p *pool) matching(match func(*persistConn) bool) (all []*persistConn) {
	for _, c := range p.byAge {
		if match(c) {
			all = append(all, c)
		}
	}
	return all
}

// remove removes an idle connection. The caller holds p.mu.
func (p *pool) remove(c *persistConn) {
	p.idle[c.key] = without(p.idle[c.key], c)
	p.byAge = without(p.byAge, c)
}

// without returns list without c, which take finds near the end, and evictFor at the beginning.
func without(list []*persistConn, c *persistConn) []*persistConn {
	i := 0
	if list[0] != c {
		for i = len(list) - 1; list[i] != c; {
			i--
		}
	}
	return slices.Delete(list, i, i+1)
}

// take removes and returns the connection that has been idle for the shortest time, or nil. If fresh
// is set, no request has used it. The caller must check that it is alive.
func (p *pool) take(at key, fresh bool) *persistConn {
	for {
		c := p.pop(at, fresh)
		if c == nil || c.watch == nil {
			return c
		}
		if c.stopWatch() {
			// The watch leaves no deadline.
			c.until = time.Time{}
			return c
		}
		c.conn.Close()
	}
}

// pop is take for a connection that may be dead, and that may have a watch.
func (p *pool) pop(at key, fresh bool) *persistConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = false
	for _, c := range slices.Backward(p.idle[at]) {
		if !fresh || !c.used {
			p.remove(c)
			return c
		}
	}
	return nil
}

// closeMatching closes the idle connections that match.
func (p *pool) closeMatching(match func(*persistConn) bool) {
	p.mu.Lock()
	all := p.matching(match)
	for _, c := range all {
		p.remove(c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.conn.Close()
	}
}

// closeAll closes the idle connections with a key that have no watch yet. It is called when one of them proves dead:
// an origin may have closed all.
func (p *pool) closeAll(at key) {
	p.closeMatching(func(c *persistConn) bool { return c.key == at && c.watch == nil })
}

// release closes the idle connections of an owner that has ended.
func (p *pool) release(owner *Owner) {
	p.closeMatching(func(c *persistConn) bool { return c.owner == owner })
}

// sweep starts a watch for each connection that was already idle at the previous sweep.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if p.closed {
		return
	}
	maps.DeleteFunc(p.idle, func(_ key, list []*persistConn) bool { return len(list) == 0 })
	again := false
	for _, c := range p.byAge {
		switch {
		case c.watch != nil:
		case c.round == p.round:
			again = true
		default:
			p.startWatch(c, p.keep)
		}
	}
	if p.round++; again {
		p.timer = time.AfterFunc(min(watchAfter, p.keep), p.sweep)
	}
}

// startWatch starts a watch of c, which closes c after some time. The caller holds p.mu.
func (p *pool) startWatch(c *persistConn, keep time.Duration) {
	w := newIdleWatch(c.conn, time.Now().Add(keep))
	c.watch = w
	p.watches.Go(func() {
		w.run()
		p.mu.Lock()
		// Otherwise take has stopped the watch, or c is closed. Only the watch of an idle connection may be looked at.
		over := slices.Contains(p.byAge, c) && c.watch == w
		if over {
			p.remove(c)
		}
		p.mu.Unlock()
		if over {
			c.conn.Close()
		}
	})
}

// share adds a connection of HTTP/2. If the pool is full, it closes one that no request uses.
func (p *pool) share(c *http2Conn) {
	evicted := c
	p.mu.Lock()
	if !p.closed && !p.draining {
		evicted = p.evictHTTP2()
		p.shared[c.endpoint] = append(p.shared[c.endpoint], c)
		c.last, c.timer = time.Now(), time.AfterFunc(min(p.keep, unusedFor), func() { p.expire(c) })
	}
	p.mu.Unlock()
	if evicted != nil {
		evicted.closeWhenIdle()
	}
	if c.client.Err() != nil {
		// The connection may have been closed before it was added.
		p.unshare(c)
	}
}

// evictHTTP2 removes the oldest connection of HTTP/2 that no request uses, if there is no space for another one, and
// returns it. The caller holds p.mu.
func (p *pool) evictHTTP2() (oldest *http2Conn) {
	all := slices.Concat(slices.Collect(maps.Values(p.shared))...)
	if len(all) < maxIdle {
		return nil
	}
	for _, c := range all {
		if c.client.InFlight() == 0 && (oldest == nil || c.made.Before(oldest.made)) {
			oldest = c
		}
	}
	if oldest != nil {
		p.drop(oldest)
	}
	return oldest
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
	left := keep - now.Sub(c.last)
	if left > 0 {
		c.timer.Reset(left)
	} else {
		p.drop(c)
	}
	p.mu.Unlock()
	if left <= 0 {
		c.client.Close()
	}
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
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(p.shared, c.endpoint)
		return
	}
	p.shared[c.endpoint] = list
}

// closeIdle closes all idle connections, and those that become idle until the next take.
func (p *pool) closeIdle() {
	p.mu.Lock()
	shared := p.shared
	p.shared, p.draining = make(map[endpoint][]*http2Conn), true
	p.mu.Unlock()
	p.closeMatching(func(*persistConn) bool { return true })
	for _, list := range shared {
		for _, c := range list {
			c.timer.Stop()
			c.closeWhenIdle()
		}
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
