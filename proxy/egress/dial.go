package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"robotsproxy/proxy/socket"
)

const (
	// maxAddrs of one name are tried: the first ones, as RFC 6724 sorts them.
	maxAddrs = 16
	// fallbackDelay is the head start of the family that is preferred
	// (RFC 8305 5; the value is net.Dialer's).
	fallbackDelay = 300 * time.Millisecond
	// minAttempt is the least time an address gets, however many there are.
	minAttempt = 2 * time.Second
)

// Dial connects to host (a name, or an IP address without brackets) and port
// for a tunnel that is passed unopened. The connection is a *socket.Conn, so
// that copying from one to another needs no buffer of ours, unless a parent
// stands between that TLS is spoken to, or that has sent octets ahead.
func (d *Client) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return d.At(netip.Addr{}).Dial(ctx, host, port)
}

func (d *Client) dial(ctx context.Context, host string, port uint16, at netip.Addr) (net.Conn, error) {
	if d.parent != nil {
		conn, err := d.through(ctx, host, port)
		if err != nil {
			return nil, fmt.Errorf("dial %s through the parent: %w", hostPort(host, port), err)
		}
		return conn, nil
	}
	return d.dialTCP(ctx, host, port, at)
}

// dialTCP is the only place that connects to anything but a DNS server.
func (d *Client) dialTCP(ctx context.Context, host string, port uint16, at netip.Addr) (net.Conn, error) {
	conn, err := d.tryTCP(ctx, host, port, at)
	if err != nil {
		return nil, dialError(host, port, err)
	}
	return conn, nil
}

// dialError says what failed, and whether for want of room.
func dialError(host string, port uint16, err error) error {
	if exhausted(err) {
		err = fmt.Errorf("%w: %w", ErrExhausted, err)
	}
	return fmt.Errorf("dial %s: %w", hostPort(host, port), err)
}

// tryTCP dials host at the one address that it has a place at; where it has
// none, at all that its name leads to, and the one that answers becomes it.
func (d *Client) tryTCP(ctx context.Context, host string, port uint16, at netip.Addr) (net.Conn, error) {
	if err := d.guard.check(host, port); err != nil {
		return nil, err
	}
	if d.isClosed() {
		return nil, errClosed
	}
	if at = d.place(host, at); at.IsValid() {
		return d.tryAt(ctx, host, port, at)
	}
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	conn, err := d.race(ctx, addrs, port)
	if err == nil && d.bindings != nil {
		d.bindings.won(host, addrs, addrOf(conn))
	}
	return conn, err
}

// tryAt dials one address. Where that fails, the host has to be tried at another.
func (d *Client) tryAt(ctx context.Context, host string, port uint16, at netip.Addr) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	conn, err := d.inTurn(limited, []netip.Addr{at}, port)
	if err == nil || exhausted(err) || ctx.Err() != nil {
		return conn, err
	}
	if d.bindings.failed(host, at) {
		err = fmt.Errorf("%w (%w)", err, ErrElsewhere)
	}
	return nil, err
}

// addrOf is where a connection leads.
func addrOf(conn net.Conn) netip.Addr {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// resolve returns the addresses of host that may be dialled: at least one, or
// an error.
func (d *Client) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil // judged by check, and by control
	}
	all, err := d.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var allowed []netip.Addr
	for _, addr := range all {
		if d.guard.allows(addr) && len(allowed) < maxAddrs {
			allowed = append(allowed, addr.Unmap())
		}
	}
	switch {
	case len(all) == 0:
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	case len(allowed) == 0:
		return nil, fmt.Errorf("%w %s", ErrForbiddenAddr, all[0].Unmap())
	}
	return allowed, nil
}

// race dials the addresses of the preferred family (the first address's), and,
// once those have failed or had their head start, the other family's besides.
// net.Dialer does the same for a name, but reports its first error, which
// would be the guard's wherever a forbidden address stands first.
func (d *Client) race(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	preferred, others := families(addrs)
	if len(others) == 0 {
		return d.inTurn(ctx, preferred, port)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn net.Conn
		err  error
	}
	outcomes := make(chan outcome)
	lane := func(addrs []netip.Addr) {
		conn, err := d.inTurn(ctx, addrs, port)
		outcomes <- outcome{conn, err}
	}
	go lane(preferred)
	timer := time.NewTimer(fallbackDelay)
	defer timer.Stop()
	var won net.Conn
	var first error
	// Both lanes are waited for: the one that lost ends at once, by cancel.
	for running := 1; running > 0; {
		select {
		case <-timer.C:
		case o := <-outcomes:
			running--
			switch {
			case o.err != nil:
				first = cmp.Or(first, o.err)
			case won != nil:
				o.conn.Close()
			default:
				won = o.conn
				cancel()
			}
		}
		if won == nil && others != nil {
			go lane(others)
			others = nil
			running++
		}
	}
	if won == nil {
		return nil, first
	}
	return won, nil
}

// families splits addrs into those of the first one's family and the rest.
func families(addrs []netip.Addr) (preferred, others []netip.Addr) {
	for _, addr := range addrs {
		if addr.Is4() == addrs[0].Is4() {
			preferred = append(preferred, addr)
		} else {
			others = append(others, addr)
		}
	}
	return preferred, others
}

// inTurn dials one address after the other, each within its share of the time
// that is left, and reports the first error if none answers.
func (d *Client) inTurn(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	dialer := net.Dialer{ControlContext: d.guard.control}
	var first error
	for i, addr := range addrs {
		share := d.dialTimeout
		if deadline, ok := ctx.Deadline(); ok {
			share = max(time.Until(deadline)/time.Duration(len(addrs)-i), minAttempt)
		}
		attempt, cancel := context.WithTimeout(ctx, share)
		conn, err := dialer.DialContext(attempt, "tcp", netip.AddrPortFrom(addr, port).String())
		cancel()
		if err == nil {
			return socket.New(conn), nil
		}
		first = cmp.Or(first, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// newResolver asks server (host:port) instead of those of the system. Whoever
// runs the proxy chose it, so it may be at a private address. Names in the
// system's hosts file are answered from there in either case.
func newResolver(server string) (*net.Resolver, error) {
	if server == "" {
		return &net.Resolver{}, nil
	}
	host, port, err := net.SplitHostPort(server)
	if err == nil && (host == "" || port == "") {
		err = errors.New("host or port is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("resolver %q is not host:port: %w", server, err)
	}
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, server)
		},
	}, nil
}
