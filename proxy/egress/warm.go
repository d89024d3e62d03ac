package egress

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"robotsproxy/robots"
)

const (
	warmFor = 30 * time.Second // a connection waits for its first request this long
	maxWarm = 256              // connections that wait
)

// A warmPool keeps connections from Reach until the Transport asks for one. A
// goroutine watches each: it takes in what TLS has to say after the handshake
// (session tickets) and sees when the peer hangs up.
type warmPool struct {
	watches sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[robots.Origin]*warmConn
}

type warmConn struct {
	net.Conn
	since time.Time
	done  chan struct{} // closed when the watch has ended
	quiet bool          // the peer neither spoke nor hung up; set before done is closed
}

func newWarmPool() *warmPool {
	return &warmPool{conns: make(map[robots.Origin]*warmConn)}
}

// put keeps conn, which is the pool's from now on. It takes the place of the
// one that is there for o, or, where the pool is full, of the oldest.
func (p *warmPool) put(o robots.Origin, conn net.Conn) {
	w := &warmConn{Conn: conn, since: time.Now(), done: make(chan struct{})}
	if conn.SetReadDeadline(w.since.Add(warmFor)) != nil {
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
	p.watches.Go(func() { p.watch(o, w) })
	p.mu.Unlock()
	if old != nil {
		old.Close() // its watch ends by that
	}
}

func (p *warmPool) oldest() (o robots.Origin, oldest *warmConn) {
	for at, w := range p.conns {
		if oldest == nil || w.since.Before(oldest.since) {
			o, oldest = at, w
		}
	}
	return o, oldest
}

// watch reads until the deadline: warmFor, or take's. A peer that speaks
// before it was asked is not one to send a request to.
func (p *warmPool) watch(o robots.Origin, w *warmConn) {
	var b [1]byte
	n, err := w.Read(b[:])
	w.quiet = n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	close(w.done)
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

// take returns a connection to o that stands, or nil. It is the caller's.
func (p *warmPool) take(o robots.Origin) net.Conn {
	p.mu.Lock()
	w := p.conns[o]
	delete(p.conns, o)
	p.mu.Unlock()
	if w == nil {
		return nil
	}
	err := w.SetReadDeadline(time.Unix(1, 0)) // long ago: ends the watch, and leaves TLS intact
	<-w.done
	if err != nil || !w.quiet || w.SetReadDeadline(time.Time{}) != nil {
		w.Close()
		return nil
	}
	return w.Conn
}

// close closes what waits, and waits for the watches.
func (p *warmPool) close() {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = make(map[robots.Origin]*warmConn)
	p.mu.Unlock()
	for _, w := range conns {
		w.Close()
	}
	p.watches.Wait()
}
