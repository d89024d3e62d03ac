package egress

import (
	"net/http/httptrace"
	"slices"
	"sync"
	"time"
)

// unwatched is how long a connection rests, at least, before it gets a watch; at
// most it is twice that. One that requests follow each other on needs none: it is
// looked at right before each.
const unwatched = 100 * time.Millisecond

// A pool keeps the HTTP/1.1 connections that requests were sent over on their
// caller's own goroutine, while no request uses them. It knows besides how many the
// Transport keeps.
type pool struct {
	idle    time.Duration // a connection is closed after
	watches sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	shut    bool             // CloseIdle was called, and nothing asked for since
	resting map[spot][]*kept // the one that has rested longest first; a list may be empty until the next sweep
	count   int              // of all of these
	ends    kept             // of them in the order they came to rest in, linked by hand so that a put allocates nothing: newer is the first, older the last
	round   uint64           // of sweep
	timer   *time.Timer      // of the next sweep; nil: none is due
	lent    map[spot]int     // at rest with the Transport
}

// A rest is that of a connection of the Transport's. The pool's mu guards it.
type rest struct {
	at   spot
	is   bool
	over bool // the connection is closed
}

func newPool(idle time.Duration) *pool {
	p := &pool{idle: idle, resting: make(map[spot][]*kept), lent: make(map[spot]int)}
	p.ends.older, p.ends.newer = &p.ends, &p.ends
	return p
}

// put lays k to rest. Where there is no room, the one that has rested longest is
// closed: of its spot, or of all.
func (p *pool) put(k *kept) {
	out := k
	p.mu.Lock()
	if !p.closed && !p.shut {
		out = p.room(k.at)
		k.round = p.round
		k.older, k.newer = p.ends.older, &p.ends
		k.older.newer, p.ends.older = k, k
		p.resting[k.at] = append(p.resting[k.at], k)
		p.count++
		if p.timer == nil {
			p.timer = time.AfterFunc(p.beat(), p.sweep)
		}
	}
	p.mu.Unlock()
	if out != nil {
		out.conn.Close()
	}
}

// room takes one out where there has to be room for another. The lock is held.
func (p *pool) room(at spot) *kept {
	switch list := p.resting[at]; {
	case len(list) >= maxIdlePerHost:
		return p.remove(list[0])
	case p.count < maxIdle:
		return nil
	}
	return p.remove(p.ends.newer)
}

// remove takes k out; nil: it is not in. The lock is held.
func (p *pool) remove(k *kept) *kept {
	list := p.resting[k.at]
	i := slices.Index(list, k)
	if i < 0 {
		return nil
	}
	p.resting[k.at] = slices.Delete(list, i, i+1)
	p.unlink(k)
	return k
}

// unlink takes k, which is no longer among its spot's, out of the order of all. The lock is held.
func (p *pool) unlink(k *kept) {
	k.older.newer, k.newer.older = k.newer, k.older
	k.older, k.newer = nil, nil
	p.count--
}

// take gives the connection that has rested shortest, or nil. It is the caller's,
// who has to look at it yet.
func (p *pool) take(at spot) *kept {
	for {
		p.mu.Lock()
		p.shut = false
		list := p.resting[at]
		if len(list) == 0 {
			p.mu.Unlock()
			return nil
		}
		last := len(list) - 1
		k := list[last]
		list[last] = nil
		p.resting[at] = list[:last]
		p.unlink(k)
		w := k.watch
		k.watch = nil
		p.mu.Unlock()
		if w == nil {
			return k
		}
		k.until = time.Time{} // the watch leaves no deadline
		if w.end() {
			return k
		}
		k.conn.Close()
	}
}

// sweep has what has rested for a while watched.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if p.closed {
		return
	}
	fresh := false
	for at, list := range p.resting {
		if len(list) == 0 {
			delete(p.resting, at)
		}
		for _, k := range list {
			switch {
			case k.watch != nil:
			case k.round == p.round:
				fresh = true
			default:
				p.startWatch(k)
			}
		}
	}
	if p.round++; fresh {
		p.timer = time.AfterFunc(p.beat(), p.sweep)
	}
}

// beat is the time between two sweeps.
func (p *pool) beat() time.Duration { return min(unwatched, p.idle) }

// startWatch has k watched. The lock is held.
func (p *pool) startWatch(k *kept) {
	w, _ := newWatch(k.conn, time.Now().Add(p.idle)) // where the deadline cannot be set, the connection is closed already
	k.watch = w
	p.watches.Go(func() {
		w.run()
		p.mu.Lock()
		waits := k.watch == w && p.remove(k) != nil
		p.mu.Unlock()
		if waits { // else it is take's, or closed
			k.conn.Close()
		}
	})
}

// drop closes what rests, and what comes to rest until something is asked for.
func (p *pool) drop() {
	p.mu.Lock()
	all := p.resting
	p.resting, p.count, p.shut = make(map[spot][]*kept), 0, true
	p.ends.older, p.ends.newer = &p.ends, &p.ends
	p.mu.Unlock()
	for _, list := range all {
		for _, k := range list {
			k.conn.Close()
		}
	}
}

// close closes what rests and what comes to rest, and waits for the watches.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.drop()
	p.watches.Wait()
}

// lending is how the Transport tells which of its connections are at rest, but for
// HTTP/2's.
func (p *pool) lending(at spot) *httptrace.ClientTrace {
	var conn *countedConn
	return &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if conn = counted(got.Conn); conn != nil {
				p.rests(conn, at, false)
			}
		},
		PutIdleConn: func(err error) {
			if err == nil && conn != nil {
				p.rests(conn, at, true)
			}
		},
	}
}

// rests notes whether a connection is at rest with the Transport.
func (p *pool) rests(c *countedConn, at spot, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is && !c.rest.is && !c.rest.over {
		c.rest.at, c.rest.is = at, true
		p.lent[at]++
	}
	if !is {
		p.endRest(c)
	}
}

// gone notes that a connection is closed.
func (p *pool) gone(c *countedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endRest(c)
	c.rest.over = true
}

// endRest ends the rest of c, if it has one. The lock is held.
func (p *pool) endRest(c *countedConn) {
	if !c.rest.is {
		return
	}
	c.rest.is = false
	if p.lent[c.rest.at]--; p.lent[c.rest.at] == 0 {
		delete(p.lent, c.rest.at)
	}
}

// hasLent says whether the Transport has a connection at rest.
func (p *pool) hasLent(at spot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lent[at] > 0
}
