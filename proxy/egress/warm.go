package egress

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"robotsproxy/robots"
)

const (
	warmFor  = 30 * time.Second // a connection waits for its first request this long
	maxWarm  = 256              // connections that wait
	maxAhead = 16 << 10         // octets that an HTTP/2 peer says before it is asked; its settings take some 100
)

// A warmPool keeps connections from Reach until the Transport asks for one. A
// goroutine watches each: it takes in what TLS has to say after the handshake
// (session tickets), with HTTP/2 the peer's settings too, and sees when the
// peer hangs up.
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

// spotOf is where a connection to o waits.
func (d *Door) spotOf(o robots.Origin, conn net.Conn) spot {
	if d.bindings == nil {
		return spot{Origin: o}
	}
	return spot{o, addrOf(conn)}
}

type warmConn struct {
	net.Conn
	http2 *countedConn // the same under TLS, where HTTP/2 was agreed on; else nil
	since time.Time
	done  chan struct{} // closed when the watch has ended
	sound bool          // the peer neither spoke out of turn nor hung up; set before done is closed
}

func newWarmPool() *warmPool {
	return &warmPool{conns: make(map[spot]*warmConn)}
}

// put keeps conn, which is the pool's from now on. It takes the place of the
// one that is there for o, or, where the pool is full, of the oldest.
func (p *warmPool) put(o spot, conn net.Conn) {
	w := &warmConn{Conn: conn, since: time.Now(), done: make(chan struct{})}
	if c := counted(conn); c != nil && c.http2 {
		w.http2 = c
	}
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

func (p *warmPool) oldest() (o spot, oldest *warmConn) {
	for at, w := range p.conns {
		if oldest == nil || w.since.Before(oldest.since) {
			o, oldest = at, w
		}
	}
	return o, oldest
}

// watch reads until the deadline: warmFor, or take's.
func (p *warmPool) watch(o spot, w *warmConn) {
	w.sound = w.listen()
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

// listen says whether the connection was fit for a request all the while. A
// peer that speaks HTTP/1 before it was asked is not one to send a request to;
// one that speaks HTTP/2 begins with its settings (RFC 9113 3.4), which are
// kept, unread, for the Transport.
func (w *warmConn) listen() bool {
	if w.http2 == nil {
		var b [1]byte
		n, err := w.Read(b[:])
		return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	}
	ahead, err := io.ReadAll(io.LimitReader(w.http2, maxAhead))
	w.http2.ahead = ahead
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// take returns a connection to o that stands and speaks one of the protocols
// offered, or nil. It is the caller's.
func (p *warmPool) take(o spot, offered protocols) net.Conn {
	p.mu.Lock()
	w := p.conns[o]
	if w == nil || w.http2 != nil && !slices.Contains(offered, "h2") {
		p.mu.Unlock()
		return nil
	}
	delete(p.conns, o)
	p.mu.Unlock()
	err := w.SetReadDeadline(time.Unix(1, 0)) // long ago: ends the watch, and leaves TLS intact
	<-w.done
	if err != nil || !w.sound || w.SetReadDeadline(time.Time{}) != nil {
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
