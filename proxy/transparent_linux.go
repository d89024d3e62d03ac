package proxy

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"robotsproxy/proxy/socket"
)

// ListenTransparent returns a listener for [Handler.ServeTransparent]. tproxy rules of nftables
// need CAP_NET_ADMIN when the listener is made; redirect and dnat rules do not.
func ListenTransparent(address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { // an error means that tproxy does not work
			unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
			unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
		})
	}}
	return lc.Listen(context.Background(), "tcp", address)
}

// originalDestination returns the address that the client of a connection connected to: that of
// connection tracking or, as with tproxy, the connection's local address.
func originalDestination(c *socket.Conn, local netip.AddrPort) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	to = local
	return to, raw.Control(func(fd uintptr) {
		if tracked, err := trackedDestination(int(fd), local.Addr().Is4()); err == nil {
			to = tracked
		}
	})
}

// trackedDestination returns the destination that connection tracking has for a socket.
func trackedDestination(fd int, is4 bool) (netip.AddrPort, error) {
	const originalDst = 80 // SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST
	if is4 {               // the value is a sockaddr_in, which is shorter than an IPv6Mreq
		v, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, originalDst)
		if err != nil {
			return netip.AddrPort{}, err
		}
		b := v.Multiaddr
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), nil
	}
	v, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, originalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.NativeEndian.AppendUint16(nil, v.Addr.Port)
	return netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), binary.BigEndian.Uint16(port)), nil
}

// peek waits until c has received more than have bytes, and copies what it has received into b
// without taking it.
func peek(c *socket.Conn, b []byte, have int) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var sysErr error
	err = raw.Read(func(fd uintptr) (done bool) {
		n, _, sysErr = unix.Recvfrom(int(fd), b, unix.MSG_PEEK)
		if sysErr == unix.EINTR || sysErr == unix.EAGAIN {
			return false
		}
		return sysErr != nil || n == 0 || n > have
	})
	switch {
	case err != nil || sysErr != nil:
		return have, cmp.Or(err, sysErr)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
