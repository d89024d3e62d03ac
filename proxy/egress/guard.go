package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
)

// Refusals of the guard. They are about the destination; errors.Is finds them
// in whatever a Client returns.
var (
	ErrForbiddenAddr = errors.New("forbidden address")
	ErrForbiddenPort = errors.New("forbidden port")
)

// nonPublic are the addresses that a name of the public Internet has no
// business to lead to: the IANA special-purpose registries (RFC 6890), less
// what is globally reachable in them. IPv4 inside of IPv6 is judged as
// guard.allows says.
var nonPublic = prefixes(
	"0.0.0.0/8",        // this network (RFC 791 3.2); 0.0.0.0 connects to this host
	"10.0.0.0/8",       // private (RFC 1918)
	"100.64.0.0/10",    // carrier-grade NAT (RFC 6598); metadata at Alibaba Cloud
	"127.0.0.0/8",      // loopback (RFC 1122 3.2.1.3)
	"168.63.129.16/32", // public in form, the host's own services at Azure
	"169.254.0.0/16",   // link-local (RFC 3927); metadata at most clouds
	"172.16.0.0/12",    // private (RFC 1918)
	"192.0.0.0/24",     // IETF protocol assignments (RFC 6890); metadata at Oracle Cloud
	"192.0.2.0/24",     // documentation (RFC 5737)
	"192.88.99.0/24",   // 6to4 relay anycast, deprecated (RFC 7526)
	"192.168.0.0/16",   // private (RFC 1918)
	"198.18.0.0/15",    // benchmarking (RFC 2544)
	"198.51.100.0/24",  // documentation (RFC 5737)
	"203.0.113.0/24",   // documentation (RFC 5737)
	"224.0.0.0/4",      // multicast (RFC 5771)
	"240.0.0.0/4",      // reserved (RFC 1112 4); limited broadcast (RFC 919)

	"::/96",          // unspecified, loopback (RFC 4291), IPv4-compatible, deprecated
	"64:ff9b:1::/48", // NAT64 of local use (RFC 8215): where the IPv4 stands in it is the network's to choose
	"100::/64",       // discard-only (RFC 6666)
	"100:0:0:1::/64", // dummy (RFC 9780)
	"2001::/23",      // IETF protocol assignments (RFC 2928): Teredo, benchmarking, ORCHID
	"2001:db8::/32",  // documentation (RFC 3849)
	"2002::/16",      // 6to4 (RFC 3056): a way around every IPv4 line above
	"3fff::/20",      // documentation (RFC 9637)
	"5f00::/16",      // segment routing (RFC 9602)
	"fc00::/7",       // unique local (RFC 4193); metadata at AWS and Google Cloud
	"fe80::/10",      // link-local (RFC 4291)
	"fec0::/10",      // site-local, deprecated (RFC 3879)
	"ff00::/8",       // multicast (RFC 4291)

	// All that is not 2000::/3, the global unicast addresses (RFC 4291 2.4),
	// whoever it may be given to one day.
	"::/3", "4000::/2", "8000::/1",
)

// nat64 is the well-known prefix (RFC 6052 2.1): the last 32 bits are the IPv4
// address that a gateway connects to.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// A guard says what may be dialled. Its zero value allows no port.
type guard struct {
	private []netip.Prefix
	ports   []PortRange
	own     []netip.AddrPort
	names   bool // judge those that need no resolver: nobody here resolves the others
}

func newGuard(o Options) (guard, error) {
	g := guard{ports: slices.Clone(o.Ports), own: slices.Clone(o.Own), names: o.Parent != nil}
	for _, p := range o.AllowPrivate {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if !p.IsValid() {
			return guard{}, errors.New("a prefix of private addresses is not valid")
		}
		g.private = append(g.private, p)
	}
	for _, own := range g.own {
		if !own.IsValid() || own.Port() == 0 {
			return guard{}, fmt.Errorf("%v is no address that anybody listens on", own)
		}
	}
	for _, p := range g.ports {
		if p.First == 0 || p.First > p.Last {
			return guard{}, fmt.Errorf("%d-%d is not a range of ports", p.First, p.Last)
		}
	}
	if len(g.ports) == 0 {
		g.ports = DefaultPorts()
	}
	return g, nil
}

func (g guard) allowsPort(port uint16) bool {
	return slices.ContainsFunc(g.ports, func(p PortRange) bool { return p.First <= port && port <= p.Last })
}

// allows judges an address. IPv4-mapped addresses are judged as the IPv4 that
// they connect to, those of NAT64 as the one behind the gateway. A zone says
// which link, not whose address: it is set aside (a netip.Prefix contains no
// address with a zone, so it must be).
func (g guard) allows(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch {
	case !addr.IsValid():
		return false
	case slices.ContainsFunc(g.private, in):
		return true
	case nat64.Contains(addr):
		b := addr.As16()
		return g.allows(netip.AddrFrom4([4]byte(b[12:])))
	}
	return !slices.ContainsFunc(nonPublic, in)
}

// control is a net.Dialer's ControlContext: it judges the very address that
// the socket is about to connect to.
func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	switch {
	case err != nil || !g.allows(ap.Addr()):
		return fmt.Errorf("%w %s", ErrForbiddenAddr, address)
	case g.isOwn(ap.Addr(), ap.Port()):
		return fmt.Errorf("%w %s", ErrOwnListener, address)
	case !g.allowsPort(ap.Port()):
		return fmt.Errorf("%w %d", ErrForbiddenPort, ap.Port())
	}
	return nil
}

// check judges what can be judged without a network: the port, the address
// where host is one, and with a parent the names that mean one to everybody.
// Other spellings of addresses ("127.1", "0x7f.1", "2130706433") are names
// here, and judged when they are resolved; a parent gets none of them.
func (g guard) check(host string, port uint16) error {
	if !g.allowsPort(port) {
		return fmt.Errorf("%w %d", ErrForbiddenPort, port)
	}
	if host == "" { // net.Dial would take it for this host
		return fmt.Errorf("%w: no host", ErrForbiddenAddr)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil && g.names {
		addr = meantBy(host)
	}
	switch {
	case !addr.IsValid(): // a name
	case !g.allows(addr):
		return fmt.Errorf("%w %s", ErrForbiddenAddr, addr)
	case g.isOwn(addr, port):
		return fmt.Errorf("%w %s", ErrOwnListener, hostPort(host, port))
	}
	return nil
}

// Check says, without using the network, whether a dial to host and port is
// bound to be refused: ErrForbiddenPort, or ErrForbiddenAddr where host is an
// IP address (IPv6 without brackets). What a name resolves to is judged when
// it is dialled, by a parent if there is one.
func (d *Client) Check(host string, port uint16) error {
	if err := d.guard.check(host, port); err != nil {
		return fmt.Errorf("check %s: %w", hostPort(host, port), err)
	}
	return nil
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
