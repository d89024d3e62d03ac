package confine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// loopbackIndex is the index of the interface lo in every network namespace.
const loopbackIndex = 1

// nftablesStep begins the errors of nftables.
const nftablesStep = "set up nftables"

// A role says what a socket is for.
type role string

// The roles of the sockets.
const (
	// roleProxy is for programs that know a proxy.
	roleProxy role = "proxy"
	// roleTransparent is where all other TCP connections are redirected to.
	roleTransparent role = "transparent"
	roleDNSPacket   role = "dns-udp"
	roleDNSStream   role = "dns-tcp"
	// roleLocal is for one port of --allow-local.
	roleLocal role = "local"
)

// An insideSocket is one listening socket inside.
type insideSocket struct {
	Role role
	Port uint16
	conn interface{ File() (*os.File, error) }
}

// setUpNetwork sets up the new network namespace of this process: every address is a local one, every
// TCP connection but those to loopback goes to the transparent listener, DNS goes to the resolver,
// and nothing else is sent. It returns the sockets that do that, and whether there is IPv6.
func setUpNetwork(allowLocal []uint16) (sockets []insideSocket, ipv6 bool, err error) {
	if err := raiseLoopback(); err != nil {
		return nil, false, fmt.Errorf("set up the interface lo: %w", err)
	}
	if err := routeToLoopback(unix.AF_INET); err != nil {
		return nil, false, fmt.Errorf("add the IPv4 route: %w", err)
	}
	ipv6 = hasIPv6()
	if ipv6 {
		if err := routeToLoopback(unix.AF_INET6); err != nil {
			return nil, false, fmt.Errorf("add the IPv6 route: %w", err)
		}
	}
	sockets, err = listenInside(allowLocal, ipv6)
	if err != nil {
		return nil, false, err
	}
	ports := map[role]uint16{}
	for _, s := range sockets {
		ports[s.Role] = s.Port
	}
	if err := redirect(ports[roleTransparent], ports[roleDNSPacket]); err != nil {
		return nil, false, fmt.Errorf(nftablesStep+": %w", err)
	}
	return sockets, ipv6, nil
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// routeToLoopback makes all addresses of a family local ones.
func routeToLoopback(family byte) error {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	attributes := []netlink.Attribute{{Type: unix.RTA_OIF, Data: binary.NativeEndian.AppendUint32(nil, loopbackIndex)}}
	// Without a source, the source of each connection would be its destination; with IPv6 it is ::1.
	if family == unix.AF_INET {
		attributes = append(attributes, netlink.Attribute{Type: unix.RTA_PREFSRC, Data: []byte{127, 0, 0, 1}})
	}
	encoded, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		return err
	}
	// struct rtmsg: all addresses, in the table and with the scope and type of local ones.
	route := []byte{family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_NEWROUTE, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl},
		Data:   append(route, encoded...),
	})
	return err
}

// hasIPv6 reports whether sockets can use IPv6 here. Some systems are started without it.
func hasIPv6() bool {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// listenInside opens the sockets. Those of one role have the same port on both loopback addresses.
func listenInside(allowLocal []uint16, ipv6 bool) (all []insideSocket, err error) {
	hosts := []string{"127.0.0.1"}
	if ipv6 {
		hosts = append(hosts, "::1")
	}
	listen := func(r role, port uint16) (uint16, error) {
		for _, host := range hosts {
			s, err := listenOne(r, host, port)
			if err != nil {
				return 0, fmt.Errorf("listen inside: %w", err)
			}
			all, port = append(all, s), s.Port
		}
		return port, nil
	}
	// These come first, so that no other socket has one of the ports.
	for _, port := range allowLocal {
		if _, err := listen(roleLocal, port); err != nil {
			return nil, err
		}
	}
	packets, noDNS := listen(roleDNSPacket, 0)
	_, noStream := listen(roleDNSStream, packets)
	hosts = hosts[:1]
	_, noProxy := listen(roleProxy, 0)
	// Without a host, one socket serves both families.
	hosts = []string{""}
	_, noRedirect := listen(roleTransparent, 0)
	return all, errors.Join(noDNS, noStream, noRedirect, noProxy)
}

func listenOne(r role, host string, port uint16) (insideSocket, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(int(port)))
	if r == roleDNSPacket {
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			return insideSocket{}, err
		}
		return insideSocket{r, netip.MustParseAddrPort(c.LocalAddr().String()).Port(), c.(*net.UDPConn)}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return insideSocket{}, err
	}
	return insideSocket{r, netip.MustParseAddrPort(l.Addr().String()).Port(), l.(*net.TCPListener)}, nil
}

// redirect sets up nftables as said at setUpNetwork.
func redirect(transparent, resolver uint16) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: "robotsproxy", Family: nftables.TableFamilyINet})
	nat := c.AddChain(&nftables.Chain{
		Name: "redirect", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	drop := nftables.ChainPolicyDrop
	filter := c.AddChain(&nftables.Chain{
		Name: "others", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter, Policy: &drop,
	})
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	add := func(chain *nftables.Chain, parts ...[]expr.Any) {
		rule := &nftables.Rule{Table: table, Chain: chain}
		for _, p := range parts {
			rule.Exprs = append(rule.Exprs, p...)
		}
		c.AddRule(rule)
	}
	// What is sent to loopback inside stays there: 127.0.0.0/8 and ::1, each at the offset of the destination address.
	loopback6 := netip.IPv6Loopback().AsSlice()
	for _, chain := range []*nftables.Chain{nat, filter} {
		add(chain, meta(expr.MetaKeyNFPROTO, unix.NFPROTO_IPV4), header(expr.PayloadBaseNetworkHeader, 16, 127), accept)
		add(chain, meta(expr.MetaKeyNFPROTO, unix.NFPROTO_IPV6), header(expr.PayloadBaseNetworkHeader, 24, loopback6...), accept)
	}
	udp, tcp := meta(expr.MetaKeyL4PROTO, unix.IPPROTO_UDP), meta(expr.MetaKeyL4PROTO, unix.IPPROTO_TCP)
	toDNS := header(expr.PayloadBaseTransportHeader, 2, binaryutil.BigEndian.PutUint16(53)...)
	add(nat, udp, toDNS, redirectTo(resolver))
	add(nat, tcp, toDNS, redirectTo(resolver))
	add(nat, tcp, redirectTo(transparent))
	add(filter, tcp, accept)
	// The answers of the resolver go out, because they belong to the flow of a query.
	add(filter, established(), accept)
	return c.Flush()
}

// meta matches packets by their family or their protocol.
func meta(key expr.MetaKey, value byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{value}},
	}
}

// header matches packets whose header has a value at an offset.
func header(base expr.PayloadBase, offset uint32, value ...byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: uint32(len(value))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value},
	}
}

// established matches packets of a flow that exists already.
func established() []expr.Any {
	mask := binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// redirectTo sends packets to a port of loopback.
func redirectTo(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.Redir{RegisterProtoMin: 1},
	}
}
