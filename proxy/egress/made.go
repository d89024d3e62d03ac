package egress

import (
	"net"
	"net/netip"
	"sync"

	"robotsproxy/proxy/socket"
)

// madeConns are the open connections that a Client and its predecessors have made. A firewall may
// redirect such a connection back to the proxy.
type madeConns struct {
	mu   sync.Mutex
	open map[addrPair]int // number of connections; the next one can be added before OnClose of the previous one is called
}

// An addrPair is the local and the remote address of a connection.
type addrPair struct{ local, remote netip.AddrPort }

// add registers a connection until it is closed, and returns it.
func (m *madeConns) add(conn net.Conn) net.Conn {
	c, ok := conn.(*socket.Conn)
	if !ok {
		return conn
	}
	pair := addrPair{socket.AddrPort(c.LocalAddr()), socket.AddrPort(c.RemoteAddr())}
	m.count(pair, 1)
	c.OnClose = func() { m.count(pair, -1) }
	return c
}

func (m *madeConns) count(pair addrPair, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[pair] += n; m.open[pair] == 0 {
		delete(m.open, pair)
	}
}

// Made reports whether c, or a Client that c has replaced, made the connection from local to remote. The local
// address is not enough: a crawler's connection can have the same one, if it goes to another remote address or comes
// from another network namespace. Made ignores the zone of remote; local must have none.
func (c *Client) Made(local, remote netip.AddrPort) bool {
	remote = netip.AddrPortFrom(remote.Addr().WithZone(""), remote.Port())
	c.made.mu.Lock()
	defer c.made.mu.Unlock()
	return c.made.open[addrPair{local, remote}] > 0
}
