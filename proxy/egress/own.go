package egress

import (
	"fmt"
	"net"
	"net/netip"
)

// ErrOwnListener is the ErrForbiddenAddr of the proxy's own listeners: a
// request for them would come back, and the operator's side is not for clients.
var ErrOwnListener = fmt.Errorf("%w: a listener of the proxy's own", ErrForbiddenAddr)

// isOwn says whether a connection to addr and port would end at a listener of
// the proxy's own. A listener on all addresses is met at any of this host's,
// which are asked for each time: they come and go.
func (g guard) isOwn(addr netip.Addr, port uint16) bool {
	addr = addr.WithZone("").Unmap()
	for _, own := range g.own {
		if own.Port() != port {
			continue
		}
		at := own.Addr().WithZone("").Unmap()
		// To connect to 0.0.0.0 or :: is to connect to this host.
		if at == addr || addr.IsUnspecified() || at.IsUnspecified() && ofThisHost(addr) {
			return true
		}
	}
	return false
}

// ofThisHost errs on the side of refusal where the system does not say.
func ofThisHost(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range all {
		ip, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if here, ok := netip.AddrFromSlice(ip.IP); ok && here.Unmap() == addr {
			return true
		}
	}
	return false
}
