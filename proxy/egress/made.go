package egress

import (
	"net"
	"net/netip"
	"sync"

	"robotsproxy/proxy/socket"
)

// madeConns are the local addresses of the open connections that a Client and its predecessors have
// made. A firewall may redirect such a connection back to the proxy.
type madeConns struct {
	mu   sync.Mutex
	open map[netip.AddrPort]int // number of connections; two of them may differ only in their remote addresses
}

func newMadeConns() *madeConns { return &madeConns{open: map[netip.AddrPort]int{}} }

// add registers a connection until it is closed, and returns it.
func (m *madeConns) add(conn net.Conn) net.Conn {
	c, ok := conn.(*socket.Conn)
	if !ok {
		return conn
	}
	local := c.LocalAddr().(*net.TCPAddr).AddrPort()
	local = netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port())
	m.count(local, 1)
	c.OnClose = func() { m.count(local, -1) }
	return c
}

func (m *madeConns) count(local netip.AddrPort, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[local] += n; m.open[local] == 0 {
		delete(m.open, local)
	}
}

// Made reports whether a connection from remote was made by c, or by a Client that c has
// replaced.
func (c *Client) Made(remote netip.AddrPort) bool {
	c.made.mu.Lock()
	defer c.made.mu.Unlock()
	return c.made.open[remote] > 0
}
