package socket

import (
	"encoding/binary"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"
)

// OriginalDestination returns the address that the client of a redirected connection connected to: that
// of connection tracking or, as with tproxy, the connection's local address.
func (c *Conn) OriginalDestination() (to netip.AddrPort, err error) {
	to = AddrPort(c.LocalAddr())
	err = c.raw.Control(func(fd uintptr) {
		if tracked, err := trackedDestination(int(fd), to.Addr().Is4()); err == nil {
			to = tracked
		}
	})
	return to, err
}

// trackedDestination returns the destination that connection tracking has for a socket.
func trackedDestination(fd int, is4 bool) (netip.AddrPort, error) {
	// SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST have the same number.
	const originalDst = 80
	if is4 {
		// The value is a sockaddr_in, which is shorter than an IPv6Mreq.
		v, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, originalDst)
		if err != nil {
			return netip.AddrPort{}, err
		}
		b := v.Multiaddr
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), nil
	}
	// The value begins with a sockaddr_in6.
	v, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, originalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.NativeEndian.AppendUint16(nil, v.Addr.Port)
	return netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), binary.BigEndian.Uint16(port)), nil
}

// Peek waits until more than have bytes have been received, and copies what has been received into b
// without taking it.
func (c *Conn) Peek(b []byte, have int) (n int, err error) {
	var sysErr error
	err = c.raw.Read(func(fd uintptr) (done bool) {
		n, _, sysErr = unix.Recvfrom(int(fd), b, unix.MSG_PEEK)
		if sysErr == unix.EINTR || sysErr == unix.EAGAIN {
			return false
		}
		return sysErr != nil || n == 0 || n > have
	})
	switch {
	case err != nil || sysErr != nil:
		return have, c.failed("peek", err, sysErr)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
