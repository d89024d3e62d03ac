package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/proxy/socket"
)

const (
	// maxAddrs is the maximum number of addresses of a name that are dialled: the first
	// ones in the order of RFC 6724.
	maxAddrs = 16
	// fallbackDelay is the head start of the preferred address family (RFC 8305 5). The
	// value is that of net.Dialer.
	fallbackDelay = 300 * time.Millisecond
	// resolutionDelay is how long a name server may take for the addresses of both families before those of
	// IPv4 are requested alone.
	resolutionDelay = 500 * time.Millisecond
	// minAttempt is the minimum time for each address, whatever their number.
	minAttempt = 2 * time.Second
	// maxBindings is the maximum number of hosts that are bound to an address. Each takes
	// about 300 bytes.
	maxBindings = 10_000
)

// A dialer resolves names and makes TCP connections. No other code in this package makes
// connections, except to a DNS server.
type dialer struct {
	// ctx ends when the Client is closed; nil in a zero Client.
	ctx      context.Context
	guard    guard
	resolver *net.Resolver

	// server is Options.Resolver.
	server string

	// timeout is the total time for name resolution and TCP connection.
	timeout time.Duration

	// bindings hold the one address of each host; nil: any address of a host may be dialled.
	bindings *bindings

	// made has the connections that a Client and its predecessors have made; nil in a zero Client.
	made *socket.Set
}

// A dialError is the error of a dial to an address, as host:port.
type dialError struct {
	addr string
	err  error
}

// Error omits what a net.OpError repeats: the operation, and the address unless it is that of a name.
func (e *dialError) Error() string {
	return "dial " + e.addr + ": " + strings.NewReplacer("dial tcp "+e.addr+": ", "", "dial tcp ", "").Replace(e.err.Error())
}

func (e *dialError) Unwrap() error { return e.err }

// newDialError adds the operation to an error, and ErrExhausted if a resource was
// missing.
func newDialError(host string, port uint16, err error) error {
	if exhausted(err) {
		err = fmt.Errorf("%w: %w", ErrExhausted, err)
	}
	return &dialError{hostPort(host, port), err}
}

// dialTCP connects to host and port. It dials the address that addrFor returns. If there
// is none, it dials any address of the host and binds the host to it.
func (d *dialer) dialTCP(ctx context.Context, host string, port uint16, pinned netip.Addr) (conn net.Conn, err error) {
	defer func() {
		if err != nil {
			err = newDialError(host, port, err)
		}
	}()
	if err := d.check(host, port); err != nil {
		return nil, err
	}
	if addr := d.addrFor(host, pinned); addr.IsValid() {
		return d.dialBound(ctx, host, port, addr)
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	conn, err = d.race(ctx, addrs, port)
	if err == nil && d.bindings != nil {
		d.bindings.connected(host, addrs, socket.AddrPort(conn.RemoteAddr()).Addr())
	}
	return conn, err
}

// check returns an error if host and port must not be dialled: they are forbidden, or the
// Client is closed.
func (d *dialer) check(host string, port uint16) error {
	if err := d.guard.check(host, port); err != nil {
		return err
	}
	if d.ctx.Err() != nil {
		return errClosed
	}
	return nil
}

// dialBound dials the one address of a host. If that fails, another address is tried next
// time.
func (d *dialer) dialBound(ctx context.Context, host string, port uint16, addr netip.Addr) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.dialSerial(limited, []netip.Addr{addr}, port)
	if err == nil || exhausted(err) || ctx.Err() != nil {
		return conn, err
	}
	if d.bindings.fail(host, addr) {
		err = fmt.Errorf("%w (%w)", err, ErrElsewhere)
	}
	return nil, err
}

// addrFor returns the one address at which host is dialled: host itself if it is an
// address, otherwise pinned, otherwise the address that host is bound to. It returns the
// zero Addr if any address may be dialled.
func (d *dialer) addrFor(host string, pinned netip.Addr) netip.Addr {
	if d.bindings == nil {
		return netip.Addr{}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap()
	}
	if pinned.IsValid() {
		return pinned
	}
	return d.bindings.lookup(host)
}

// resolve returns the addresses of host that may be dialled. It returns an error if there
// are none.
func (d *dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		// guard.check has checked it, and guard.control checks it again.
		return []netip.Addr{addr}, nil
	}
	all, err := d.lookup(ctx, host)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && d.server != "" {
		named := *dns
		// Package net names the first of the system's servers.
		named.Server = d.server
		return nil, &named
	}
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
		return nil, fmt.Errorf("%w: %s", ErrForbiddenName, all[0].Unmap())
	}
	return allowed, nil
}

// lookup returns the addresses of a name, in the order of RFC 6724. Some name servers never answer for
// IPv6. Their IPv4 addresses alone are enough after a while (RFC 8305 3).
func (d *dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	type result struct {
		network string
		addrs   []netip.Addr
		err     error
	}
	results := make(chan result, 2)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := func(network string) {
		addrs, err := d.resolver.LookupNetIP(ctx, network, host)
		results <- result{network, addrs, err}
	}
	running.Go(func() { look("ip") })
	running.Go(func() {
		select {
		case <-time.After(resolutionDelay):
			look("ip4")
		case <-ctx.Done():
		}
	})
	for {
		if r := <-results; r.err == nil || r.network == "ip" {
			return r.addrs, r.err
		}
	}
}

// race dials the addresses of the preferred family (that of the first address). It dials
// the other family when those have failed or their head start is over. net.Dialer does
// the same for a name, but returns its first error. That would be the guard's error if a
// forbidden address comes first.
func (d *dialer) race(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	ofFamily := func(is4 bool) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return addr.Is4() != is4 })
	}
	preferred, others := ofFamily(addrs[0].Is4()), ofFamily(!addrs[0].Is4())
	if len(others) == 0 {
		return d.dialSerial(ctx, preferred, port)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	dial := func(addrs []netip.Addr) {
		conn, err := d.dialSerial(ctx, addrs, port)
		results <- result{conn, err}
	}
	go dial(preferred)
	timer := time.NewTimer(fallbackDelay)
	defer timer.Stop()
	var won net.Conn
	var first error
	// The loop waits for both goroutines. cancel ends the slower one at once.
	for running := 1; running > 0; {
		select {
		case <-timer.C:
		case r := <-results:
			running--
			switch {
			case r.err != nil:
				first = cmp.Or(first, r.err)
			case won != nil:
				r.conn.Close()
			default:
				won = r.conn
				cancel()
			}
		}
		if won == nil && others != nil {
			go dial(others)
			others = nil
			running++
		}
	}
	if won == nil {
		return nil, first
	}
	return won, nil
}

// dialSerial dials one address after the other, each within its share of the remaining
// time. It returns the first error if all fail.
func (d *dialer) dialSerial(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	guarded := net.Dialer{ControlContext: d.guard.control}
	var first error
	for i, addr := range addrs {
		share := d.timeout
		if deadline, ok := ctx.Deadline(); ok {
			share = max(time.Until(deadline)/time.Duration(len(addrs)-i), minAttempt)
		}
		attempt, cancel := context.WithTimeout(ctx, share)
		conn, err := guarded.DialContext(attempt, "tcp", netip.AddrPortFrom(addr, port).String())
		cancel()
		if err == nil {
			return d.made.Add(socket.New(conn)), nil
		}
		first = cmp.Or(first, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// newResolver returns a resolver that asks server (host:port) instead of the system's
// servers. The operator has chosen the server, so it may have a private address. In both
// cases the system's hosts file is used first.
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
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, server)
			if err == nil {
				// Package net would wait for the reply.
				context.AfterFunc(ctx, func() { conn.Close() })
			}
			return conn, err
		},
	}, nil
}

// bindings hold the one address at which each host is dialled if Options.OneAddress is
// set.
type bindings struct {
	// keep is the time until a name is resolved again.
	keep time.Duration

	// mu guards hosts.
	mu    sync.Mutex
	hosts map[string]binding
}

// A binding is the address of one host. An expired binding is kept, so that the host keeps
// its address while its name still has that address.
type binding struct {
	addr netip.Addr

	// expires is zero if addr has failed.
	expires time.Time

	// addrs are all addresses of the name, and failed those of them that could not be dialled.
	addrs, failed []netip.Addr
}

func newBindings(keep time.Duration) *bindings {
	return &bindings{keep: keep, hosts: make(map[string]binding)}
}

// lookup returns the address that host is bound to, or the zero Addr.
func (b *bindings) lookup(host string) netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.hosts[host]; time.Now().Before(e.expires) {
		return e.addr
	}
	return netip.Addr{}
}

// bind binds host to one of the current addresses of its name and returns that address.
// It prefers the last address, otherwise the first one, and skips addresses that have
// just failed. If another goroutine has bound the host in the meantime, that binding
// stays.
func (b *bindings) bind(host string, addrs []netip.Addr) netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, now := b.hosts[host], time.Now()
	if now.Before(old.expires) {
		return old.addr
	}
	e := binding{expires: now.Add(b.keep), addrs: addrs}
	if old.expires.IsZero() {
		e.failed = old.failed
	}
	usable := func(a netip.Addr) bool { return !slices.Contains(e.failed, a) }
	switch i := slices.IndexFunc(addrs, usable); {
	case slices.Contains(addrs, old.addr) && usable(old.addr):
		e.addr = old.addr
	case i >= 0:
		e.addr = addrs[i]
	default:
		e.addr, e.failed = addrs[0], nil
	}
	b.put(host, e)
	return e.addr
}

// connected binds host to the address that a connection was made to.
func (b *bindings) connected(host string, addrs []netip.Addr, addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); !now.Before(b.hosts[host].expires) {
		b.put(host, binding{addr: addr, expires: now.Add(b.keep), addrs: addrs})
	}
}

// fail ends the binding of host to an address that could not be dialled. It reports
// whether the host has another address.
func (b *bindings) fail(host string, addr netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known := b.hosts[host]
	if !known || e.addr != addr {
		// The host was bound again in the meantime.
		return e.addr.IsValid()
	}
	e.expires = time.Time{}
	if !slices.Contains(e.failed, addr) {
		e.failed = append(slices.Clip(e.failed), addr)
	}
	others := slices.ContainsFunc(e.addrs, func(a netip.Addr) bool { return !slices.Contains(e.failed, a) })
	if !others {
		// All addresses may be tried again.
		e = binding{}
	}
	b.hosts[host] = e
	return others
}

// put stores a binding. The caller holds b.mu.
func (b *bindings) put(host string, e binding) {
	if _, known := b.hosts[host]; !known && len(b.hosts) >= maxBindings {
		now := time.Now()
		maps.DeleteFunc(b.hosts, func(_ string, e binding) bool { return !now.Before(e.expires) })
		if len(b.hosts) >= maxBindings {
			// Each binding that is lost costs one more name resolution.
			clear(b.hosts)
		}
	}
	// The host may be part of a long URL.
	b.hosts[strings.Clone(host)] = e
}
