package inbound

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenTransparent returns a listener for [Handler.ServeTransparent]. tproxy rules of nftables
// need CAP_NET_ADMIN when the listener is made; redirect and dnat rules do not.
func ListenTransparent(address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// An error means that tproxy does not work.
		return c.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
			unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
		})
	}}
	return lc.Listen(context.Background(), "tcp", address)
}
