package inbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"robotsproxy/proxy/h1"
)

// New returns a Server.
func New(o Options) *Server {
	s := &Server{o: o, handoff: h1.NewHandoff(noListener{}), conns: clientConns{free: make(chan struct{}, 1)}}
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
	// unused has the connections that have not carried a request yet. Browsers open them in advance, and net/http would wait
	// for them at a shutdown.
	unused := new(h1.Group[net.Conn])
	server := &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		Protocols:         &spoken,
		ReadHeaderTimeout: s.o.HeadTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxStandIn,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, WriteByteTimeout: s.o.WriteTimeout,
		},
		ConnState:   func(c net.Conn, state http.ConnState) { s.connState(unused, c, state) },
		ConnContext: withLayers,
		ErrorLog:    slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),

		// OPTIONS * is judged like other requests.
		DisableGeneralOptionsHandler: true,
	}
	// When it runs, neither h1 nor net/http begins another HTTP/1 request.
	server.RegisterOnShutdown(func() { unused.End(closeConn) })
	setUpHTTP2(server)
	return server
}

// connState is the ConnState of a server. unused holds the unused connections of that server. The
// server calls it for every request. It does almost nothing except at the first one of a connection.
func (s *Server) connState(unused *h1.Group[net.Conn], c net.Conn, state http.ConnState) {
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
		if !unused.Add(c) {
			c.Close()
		} else if c, ok := c.(*httpConn); ok {
			c.unused.Store(true)
		}
	case http.StateActive, http.StateHijacked, http.StateClosed:
		if c, ok := c.(*httpConn); ok && !c.unused.Swap(false) {
			return
		}
		if unused.Remove(c) {
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
	s.hijacked.End(func(r *Raw) { r.end(r.whole) })
	s.hijacked.Wait()
	return errors.Join(<-outer, err)
}

// Close closes all connections except hijacked ones, and waits for nothing.
func (s *Server) Close() error { return errors.Join(s.outer.Close(), s.inner.Close()) }

// IsEnding reports whether Shutdown was called.
func (s *Server) IsEnding() bool {
	select {
	case <-s.handoff.Closed():
		return true
	default:
		return false
	}
}

// LimitsChanged says that Rules may permit more connections than before.
func (s *Server) LimitsChanged() { s.conns.notify() }

// Stats returns the counters, which may be of slightly different moments. It does not block.
func (s *Server) Stats() Stats {
	c := &s.counts
	var fullAt time.Time
	if at := c.fullAt.Load(); at != 0 {
		fullAt = time.Unix(0, at)
	}
	return Stats{
		Conns: c.conns.Flow(), MaxConns: s.o.Rules().MaxConns,
		Failed: c.failed.Load(), Answered: c.answered.Load(), Closed: c.closed.Load(), Evicted: c.evicted.Load(), FullAt: fullAt,
		Intercepted: c.intercepted.Flow(), Unused: c.unused.Load(), Faults: c.faults.Counts(),
	}
}
