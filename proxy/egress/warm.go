package egress

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/robots"
)

const (
	warmFor = 30 * time.Second // a connection waits for its first request this long
	maxWarm = 256              // connections that wait
)

// A warmPool keeps connections that no request has used yet, from Reach, until
// one is asked for. Each has its watch.
type warmPool struct {
	watches sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[spot]*warmConn
}

// A spot is an origin at one address; the zero Addr where any of its addresses
// will do.
type spot struct {
	robots.Origin
	at netip.Addr
}

// own gives a copy of s that may be kept: the host of s may be a part of a whole URL.
func (s spot) own() spot {
	s.Host = strings.Clone(s.Host)
	return s
}

// spotOf is where a connection to o waits.
func (d *Client) spotOf(o robots.Origin, conn net.Conn) spot {
	if d.bindings == nil {
		return spot{Origin: o}
	}
	return spot{o, addrOf(conn)}
}

type warmConn struct {
	net.Conn
	watch *watch
	since time.Time
}

func newWarmPool() *warmPool {
	return &warmPool{conns: make(map[spot]*warmConn)}
}

// put keeps conn, which is the pool's from now on. It takes the place of the
// one that is there for o, or, where the pool is full, of the oldest.
func (p *warmPool) put(o spot, conn net.Conn) {
	w := &warmConn{Conn: conn, since: time.Now()}
	var err error
	if w.watch, err = newWatch(conn, w.since.Add(warmFor)); err != nil {
		conn.Close()
		return
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		conn.Close()
		return
	}
	out, old := o, p.conns[o]
	if old == nil && len(p.conns) >= maxWarm {
		out, old = p.oldest()
	}
	delete(p.conns, out)
	p.conns[o] = w
	p.watches.Go(func() { p.look(o, w) })
	p.mu.Unlock()
	if old != nil {
		old.Close() // its watch ends by that
	}
}

func (p *warmPool) oldest() (o spot, oldest *warmConn) {
	for at, w := range p.conns {
		if oldest == nil || w.since.Before(oldest.since) {
			o, oldest = at, w
		}
	}
	return o, oldest
}

// look has w watched until its time is over, or take's.
func (p *warmPool) look(o spot, w *warmConn) {
	w.watch.run()
	p.mu.Lock()
	waits := p.conns[o] == w
	if waits {
		delete(p.conns, o)
	}
	p.mu.Unlock()
	if waits { // else it is take's, or closed
		w.Close()
	}
}

// take returns a connection to o that stands and speaks one of the protocols
// offered, or nil. It is the caller's.
func (p *warmPool) take(o spot, offered protocols) net.Conn {
	p.mu.Lock()
	w := p.conns[o]
	if w == nil || w.watch.http2 != nil && !slices.Contains(offered, "h2") {
		p.mu.Unlock()
		return nil
	}
	delete(p.conns, o)
	p.mu.Unlock()
	if !w.watch.end() {
		w.Close()
		return nil
	}
	return w.Conn
}

// drop closes what waits.
func (p *warmPool) drop() {
	p.mu.Lock()
	conns := p.conns
	p.conns = make(map[spot]*warmConn)
	p.mu.Unlock()
	for _, w := range conns {
		w.Close()
	}
}

// close closes what waits and what comes, and waits for the watches.
func (p *warmPool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drop()
	p.watches.Wait()
}
