//go:build !linux

package proxy

import (
	"errors"
	"net"
	"net/netip"

	"robotsproxy/proxy/socket"
)

var errOnlyLinux = errors.New("a transparent listener needs Linux")

// ListenTransparent returns an error: only Linux tells where a redirected connection was going to.
func ListenTransparent(string) (net.Listener, error) { return nil, errOnlyLinux }

func originalDestination(*socket.Conn, netip.AddrPort) (netip.AddrPort, error) {
	return netip.AddrPort{}, errOnlyLinux
}

func peek(*socket.Conn, []byte, int) (int, error) { return 0, errOnlyLinux }
