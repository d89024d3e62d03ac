package confine

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

const (
	// maxRelays is how many connections to ports of Options.AllowLocal there may be at once.
	maxRelays = 1000

	// maxResolverConns is how many TCP connections to each address of the resolver there may be at once.
	maxResolverConns = 100

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
	for _, l := range c.listeners[roleDNSStream] {
		servers = append(servers, &dns.Server{Listener: l, Handler: handler})
	}
	for _, s := range servers {
		g.Go(s.ActivateAndServe)
	}
	var relays errgroup.Group
	relays.SetLimit(maxRelays)
	for _, l := range c.listeners[roleLocal] {
		g.Go(func() error { return relay(failed, &relays, l) })
	}
	g.Go(func() error {
		<-failed.Done()
		c.closeServed()
		return nil
	})
	err := g.Wait()
	relays.Wait()
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
	for _, l := range slices.Concat(c.listeners[roleDNSStream], c.listeners[roleLocal]) {
		l.Close()
	}
}

// relay connects the clients of a listener with the service at the same port on loopback outside, until ctx ends. relays
// has the connections of all listeners, and bounds their number.
func relay(ctx context.Context, relays *errgroup.Group, l net.Listener) error {
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	for {
		inside, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		relays.Go(func() error {
			join(ctx, inside.(*net.TCPConn), port)
			return nil
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
		// The client sees a reset, as from a port where nobody listens.
		inside.SetLinger(0)
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
	if _, err := io.Copy(inside, outside); err != nil {
		// The client sees a reset too, and does not take what it got for complete.
		inside.SetLinger(0)
		inside.Close()
	} else {
		inside.CloseWrite()
	}
	up.Wait()
}
