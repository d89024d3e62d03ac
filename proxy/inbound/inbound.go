// Package inbound serves the connections of a proxy's clients: it accepts them, reads their requests, with HTTP/1.1
// and HTTP/2, in the clear and over TLS, and hands each request over to the [Handler] of its connection. A Handler may
// turn the connection of a CONNECT into a tunnel ([Request.AcceptTunnel]) whose requests then arrive in the same way
// ([Tunnel.Serve]). Connections that a firewall redirects here are served too ([Server.ServeTransparent]).
//
// A request arrives with what the client has sent: its target byte for byte ([Request.Target]), and what is wrong with
// it. Requests that net/http would answer itself, or whose streams it would reset, arrive like all others. Package h1
// serves most HTTP/1.1 requests, which costs less, and net/http's server serves all others.
//
// Connections have a limit for all clients and one for each client, and count in the memory budget. What a client may
// request, how fast, and what is recorded of it is the business of the Handler.
package inbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
)

// A Handler answers the requests of one connection, or of one tunnel. Several goroutines may call ServeRequest at once.
type Handler interface {
	// ServeRequest answers a request.
	ServeRequest(*Request)
	// Refuse records what arrived on the connection and is no request that ServeRequest could get. It returns the
	// response, which is not sent if the Refusal is Silent.
	Refuse(Refusal) *http.Response
	// Closed is called once, when the connection or the tunnel is closed.
	Closed()
}

// A Refusal is what arrived on a connection in place of a request.
type Refusal struct {
	// Method and Sent are the method and the request target that the client has sent, as far as they could be read. For a
	// redirected connection that carries no request, Sent is its original destination, as host:port.
	Method, Sent string

	// Silent says that the client can get no response.
	Silent bool

	// Err says why it is refused: it is ErrConfined, ErrLoop, ErrMalformed, ErrTLSInTheClear, ErrPlainHTTP or memory.ErrShort.
	Err error
}

// Options are the parameters of New. All are required.
type Options struct {
	// Accept returns the Handler of a client's connection to the proxy's own port.
	Accept func(*Conn) Handler

	// Rules returns the present Rules.
	Rules func() Rules

	Memory *memory.Budget
	Log    *slog.Logger

	// HeadTimeout is for the head of a request or a TLS handshake, and twice that for the first byte in a tunnel.
	HeadTimeout time.Duration

	// WriteTimeout ends an HTTP/2 connection that accepts no bytes for so long.
	WriteTimeout time.Duration
}

// Rules are what may change while a Server serves.
type Rules struct {
	// TLS is for the proxy's own port; nil: no TLS. It cannot be turned on or off.
	TLS *tls.Config

	// MaxConns is the maximum number of open connections of all clients, MaxConnsPerClient that of one.
	MaxConns, MaxConnsPerClient int

	// ShareOf returns the key of the share of an address whose client is not known yet.
	ShareOf func(address string) string

	// CheckPort returns why a redirected connection to a host must not be served, and IsOwn reports whether the proxy has
	// made the connection itself.
	CheckPort func(host string, port uint16) error
	IsOwn     func(from, to netip.AddrPort) bool
}

// A Server serves the connections of clients. Make one with New and end it with Shutdown. Any number of goroutines may
// use it.
type Server struct {
	o     Options
	outer *h1.Server

	// inner serves the connections inside intercepted tunnels, which handoff passes to it.
	inner    *h1.Server
	handoff  *handoff
	hijacked *hijackedConns

	// limit and conns count the connections to the proxy's own port: all of them, and those of each client.
	limit connLimit
	conns clientConns

	// draining is set when each response is the last of its connection.
	draining atomic.Bool
	counts   counts
}

// New returns a Server.
func New(o Options) *Server {
	s := &Server{o: o, handoff: newHandoff(), hijacked: newHijackedConns(), limit: connLimit{free: make(chan struct{}, 1)}}
	s.outer, s.inner = h1.New(s.newServer()), h1.New(s.newServer())
	return s
}

const (
	// idleTimeout is for a kept connection between requests.
	idleTimeout = 3 * time.Minute

	// maxStreams is the maximum number of requests at once on one HTTP/2 connection.
	maxStreams = 250
)

func (s *Server) newServer() *http.Server {
	var spoken http.Protocols
	spoken.SetHTTP1(true)
	spoken.SetHTTP2(true)
	spoken.SetUnencryptedHTTP2(true)
	unused := new(unusedConns)
	server := &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		Protocols:         &spoken,
		ReadHeaderTimeout: s.o.HeadTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxStandIn,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, WriteByteTimeout: s.o.WriteTimeout},
		ConnState:         func(c net.Conn, state http.ConnState) { s.connState(unused, c, state) },
		ConnContext:       withLayers,
		ErrorLog:          slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),

		// OPTIONS * is judged like other requests.
		DisableGeneralOptionsHandler: true,
	}
	// When it runs, neither h1 nor net/http begins another HTTP/1 request.
	server.RegisterOnShutdown(unused.close)
	setUpHTTP2(server)
	return server
}

// connState is the ConnState of a server. unused holds the unused connections of that server. The
// server calls it for every request. It does almost nothing except at the first one of a connection.
func (s *Server) connState(unused *unusedConns, c net.Conn, state http.ConnState) {
	if p, ok := c.(*h2Conn); ok {
		c = p.Conn
	}
	switch state {
	case http.StateIdle:
		// The response was sent.
		if c, ok := c.(*httpConn); ok {
			c.requests.reset()
			c.serving.Store(false)
		}
	case http.StateNew:
		unused.add(c)
	case http.StateActive, http.StateHijacked, http.StateClosed:
		if unused.remove(c) {
			if t := layersOf(c).tunnel; t != nil {
				t.spoke.Store(state != http.StateClosed)
			}
		}
	}
}

// Serve answers the clients of a listener until Shutdown, and then returns http.ErrServerClosed. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	inner := make(chan error, 1)
	go func() { inner <- s.inner.Serve(s.handoff) }()
	err := s.outer.Serve(httpListener{s.newListener(l), s.tlsConfig()})
	s.handoff.Close()
	return cmp.Or(err, <-inner)
}

// tlsConfig returns the TLS configuration of the proxy's own port, or nil if there is none. It follows
// the Rules and resumes sessions of earlier ones.
func (s *Server) tlsConfig() *tls.Config {
	if s.o.Rules().TLS == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.o.Rules().TLS, nil },
	}
}

// Drain closes each connection after its next response, so that clients reconnect to another
// server behind their load balancer. Requests are served as before until Shutdown.
func (s *Server) Drain() { s.draining.Store(true) }

// Shutdown accepts no more connections, and lets the requests in flight finish until ctx ends. Then, or at once if
// there are none, it closes the tunnels and the upgraded connections, and waits until their owners have released them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.handoff.Close()
	outer := make(chan error, 1)
	go func() { outer <- s.outer.Shutdown(ctx) }()
	err := s.inner.Shutdown(ctx)
	// Tunnels that are streams are requests of the outer server.
	s.hijacked.close()
	return errors.Join(<-outer, err)
}

// Close closes all connections except hijacked ones, and waits for nothing.
func (s *Server) Close() error { return errors.Join(s.outer.Close(), s.inner.Close()) }

// IsEnding reports whether Shutdown was called.
func (s *Server) IsEnding() bool { return s.handoff.isEnded() }

// LimitsChanged says that Rules may permit more connections than before.
func (s *Server) LimitsChanged() { s.limit.notify() }
