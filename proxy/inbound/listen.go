package inbound

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"robotsproxy/proxy/socket"
)

// maxRefusedConns limits the connections that stay open only so that their requests are refused:
// those over a client's limit, and those that the memory budget has no space for. Further ones
// are closed at once.
const maxRefusedConns = 16

// logInterval is the minimum time between two log lines with the same message.
const logInterval = 10 * time.Second

// A listener accepts connections up to a limit for all clients together and a limit for each
// client. At the first limit, idle connections of the client with the most connections make room for further ones; see
// clientConns.makeRoom. Over the second limit, requests are refused. Both limits hold for all listeners of a Server
// together. Until the client's name is known, its connections count by address (Rules.ShareOf).
// The memory budget always counts them so. A connection that it has no space for
// is closed, except for a few whose requests are refused.
type listener struct {
	net.Listener
	s        *Server
	fullLog  rate.Sometimes
	errorLog rate.Sometimes

	ended chan struct{}
	end   sync.Once
}

func (s *Server) newListener(l net.Listener) *listener {
	return &listener{
		Listener: l, s: s, ended: make(chan struct{}),
		fullLog: rate.Sometimes{Interval: logInterval}, errorLog: rate.Sometimes{Interval: logInterval},
	}
}

// errNoPlace says that all places are taken, and that the client has more than its share of them.
var errNoPlace = errors.New("no place for another connection of the client")

// waitForPlace waits until a connection that counts for share may be served. The error is errNoPlace, or net.ErrClosed if the
// listener is closed.
func (l *listener) waitForPlace(share string) error {
	for waited := false; ; waited = true {
		most := l.s.o.Rules().MaxConns
		if l.s.conns.take(most) {
			if waited {
				// Another listener may wait too, and there may be more places.
				l.s.conns.notify()
			}
			return nil
		}
		l.s.counts.fullAt.Store(time.Now().UnixNano())
		l.fullLog.Do(func() { l.s.o.Log.Warn("limits.connections reached", "connections", most) })
		idle, fair := l.s.conns.makeRoom(share, most)
		if len(idle) == 0 && !fair {
			return errNoPlace
		}
		for _, c := range idle {
			l.s.counts.evicted.Add(1)
			c.conn.Close()
		}
		if len(idle) > 0 {
			continue
		}
		select {
		case <-l.s.conns.free:
		case <-time.After(minIdle):
			// Some may have become idle.
		case <-l.ended:
			return net.ErrClosed
		}
	}
}

// Accept waits for a connection, then for a place for it. It logs and returns an error of the
// system, for example too many open files. net/http then tries again after a while.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.s.counts.failed.Add(1)
				l.errorLog.Do(func() { l.s.o.Log.Warn("accept failed", "error", err) })
			}
			return nil, err
		}
		share := l.s.o.Rules().ShareOf(AddressOf(conn.RemoteAddr().String()))
		switch err := l.waitForPlace(share); err {
		case nil:
			if c := l.s.newConn(conn, share); c != nil {
				return c, nil
			}
		case errNoPlace:
			l.s.counts.closed.Add(1)
			conn.Close()
		default:
			conn.Close()
			return nil, err
		}
	}
}

// AddressOf returns the host of a host:port. If remote has another form, it returns remote.
func AddressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// Close closes the listener.
func (l *listener) Close() error {
	l.end.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

// newConn returns the Conn of a connection that has a place and counts for share. It returns nil, and closes the
// connection, if not even its requests may be refused.
func (s *Server) newConn(conn net.Conn, share string) *Conn {
	c := &Conn{Conn: socket.New(conn), server: s}
	c.place.conn, c.place.share = c, share
	c.handler = s.o.Accept(c)
	s.counts.conns.Begin()
	n := s.conns.open(&c.place)
	var err error
	if c.memory, err = s.o.Memory.Open(share, time.Now()); err != nil {
		if c.unbudgeted = s.conns.overMemory.Add(1) <= maxRefusedConns; !c.unbudgeted {
			s.conns.overMemory.Add(-1)
			c.Close()
			return nil
		}
	}
	switch over := n - s.o.Rules().MaxConnsPerClient; {
	case over > maxRefusedConns:
		s.counts.closed.Add(1)
		c.Close()
		return nil
	case over > 0:
		s.counts.answered.Add(1)
		c.OverLimit = true
	}
	return c
}
