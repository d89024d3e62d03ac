package confine

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"robotsproxy/proxy/socket"
)

const (
	// maxRelays is how many connections to ports of Options.AllowLocal there may be at once.
	maxRelays = 1000

	// localTimeout limits a connection to a service on loopback outside.
	localTimeout = 10 * time.Second
)

// Serve answers DNS queries and relays the connections to ports of Options.AllowLocal, until ctx ends.
func (c *Confinement) Serve(ctx context.Context) error {
	g, failed := errgroup.WithContext(ctx)
	handler := &resolver{pool: c.pool, ipv6: c.ipv6}
	var servers []*dns.Server
	for _, p := range c.packets {
		servers = append(servers, &dns.Server{PacketConn: p, Handler: handler})
	}
	for _, l := range c.streams {
		servers = append(servers, &dns.Server{Listener: l, Handler: handler})
	}
	for _, s := range servers {
		g.Go(s.ActivateAndServe)
	}
	r := &relay{free: make(chan struct{}, maxRelays)}
	for port, listeners := range c.local {
		for _, l := range listeners {
			g.Go(func() error { return r.serve(failed, l, port) })
		}
	}
	g.Go(func() error {
		<-failed.Done()
		c.closeServed()
		return nil
	})
	err := g.Wait()
	r.open.Wait()
	if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
		return nil
	}
	return err
}

// closeServed closes the sockets that Serve serves.
func (c *Confinement) closeServed() {
	for _, p := range c.packets {
		p.Close()
	}
	for _, l := range slices.Concat(c.streams, slices.Concat(slices.Collect(maps.Values(c.local))...)) {
		l.Close()
	}
}

// A relay connects clients inside with services on loopback outside.
type relay struct {
	free chan struct{} // has an element for each open connection
	open sync.WaitGroup
}

// serve relays the connections of one listener until ctx ends.
func (r *relay) serve(ctx context.Context, l net.Listener, port uint16) error {
	for {
		r.free <- struct{}{}
		inside, err := l.Accept()
		if err != nil {
			<-r.free
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		r.open.Go(func() {
			defer func() { <-r.free }()
			join(ctx, inside.(*net.TCPConn), port)
		})
	}
}

// join copies between a client and the service at a port until both have ended or ctx ends.
func join(ctx context.Context, inside *net.TCPConn, port uint16) {
	defer inside.Close()
	dialer := net.Dialer{Timeout: localTimeout}
	var outside net.Conn
	err := errors.New("no address")
	for _, host := range []string{"127.0.0.1", "::1"} {
		if outside, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err == nil {
			break
		}
	}
	if err != nil {
		inside.SetLinger(0) // the client sees a reset, as from a port where nobody listens
		return
	}
	defer outside.Close()
	stop := context.AfterFunc(ctx, func() {
		inside.Close()
		outside.Close()
	})
	defer stop()
	var up sync.WaitGroup
	up.Go(func() {
		io.Copy(outside, inside)
		outside.(*net.TCPConn).CloseWrite()
	})
	io.Copy(inside, outside)
	inside.CloseWrite()
	up.Wait()
}

// A holdingListener accepts connections that keep the name of their original destination in the pool.
type holdingListener struct {
	*net.TCPListener
	pool *pool
}

// Accept returns the next connection.
func (l *holdingListener) Accept() (net.Conn, error) {
	tcp, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	conn, ok := socket.New(tcp).(*socket.Conn)
	if !ok {
		return tcp, nil // it is closed already
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return conn, nil
	}
	if to, ok := originalAddr(raw, conn.LocalAddr()); ok {
		conn.OnClose = l.pool.hold(to)
	}
	return conn, nil
}

// originalDestination is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST.
const originalDestination = 80

// originalAddr returns the address that a redirected connection was made to; ok is false if it was
// not redirected.
func originalAddr(c syscall.RawConn, local net.Addr) (addr netip.Addr, ok bool) {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	c.Control(func(fd uintptr) { // fails only for a closed connection
		if tcp.IP.To4() == nil { // the value is a sockaddr_in6, with which an IPv6MTUInfo begins
			if v, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, originalDestination); err == nil {
				addr = netip.AddrFrom16(v.Addr.Addr)
			}
		} else if v, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, originalDestination); err == nil { // a sockaddr_in
			addr = netip.AddrFrom4([4]byte(v.Multiaddr[4:8]))
		}
	})
	return addr, addr.IsValid()
}
