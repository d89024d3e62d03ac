package socket

import (
	"net"
	"net/netip"
	"sync"
)

// A Set knows which open connections have been added to it, by their addresses. Its zero value is empty. Any number of
// goroutines may share it.
type Set struct {
	mu sync.Mutex

	// open is the number of connections with the addresses. The next one can be added before OnClose of the previous one
	// is called.
	open map[addrPair]int
}

// An addrPair is the local and the remote address of a connection.
type addrPair struct{ local, remote netip.AddrPort }

// Add adds a connection until it is closed, and returns it. It ignores a connection that is no *Conn.
func (s *Set) Add(conn net.Conn) net.Conn {
	c, ok := conn.(*Conn)
	if !ok {
		return conn
	}
	pair := addrPair{AddrPort(c.LocalAddr()), AddrPort(c.RemoteAddr())}
	s.count(pair, 1)
	c.OnClose = func() { s.count(pair, -1) }
	return c
}

func (s *Set) count(pair addrPair, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[addrPair]int)
	}
	if s.open[pair] += n; s.open[pair] == 0 {
		delete(s.open, pair)
	}
}

// Has reports whether the Set has an open connection from local to remote. It ignores the zone of remote; local must
// have none.
func (s *Set) Has(local, remote netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[addrPair{local, netip.AddrPortFrom(remote.Addr().WithZone(""), remote.Port())}] > 0
}
