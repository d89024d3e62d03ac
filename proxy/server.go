package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/proxy/h1"
)

const (
	// Of a kept connection between requests.
	idleTimeout = 3 * time.Minute
	// Maximum number of requests at once on one HTTP/2 connection.
	maxStreams = 250
)

func (h *Handler) newServer() *http.Server {
	var spoken http.Protocols
	spoken.SetHTTP1(true)
	spoken.SetHTTP2(true)
	spoken.SetUnencryptedHTTP2(true)
	unused := new(unusedConns)
	s := &http.Server{
		Handler:           h,
		Protocols:         &spoken,
		ReadHeaderTimeout: h.o.HeadTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxStandIn,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, WriteByteTimeout: h.o.Silence},
		ConnState:         func(c net.Conn, state http.ConnState) { h.connState(unused, c, state) },
		ConnContext:       withConnInfo,
		ErrorLog:          slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),

		// OPTIONS * is judged like other requests.
		DisableGeneralOptionsHandler: true,
	}
	// When it runs, neither h1 nor net/http begins another HTTP/1 request.
	s.RegisterOnShutdown(unused.close)
	setUpHTTP2(s)
	return s
}

// Serve answers the clients of a listener until Shutdown. It may be called
// once.
func (h *Handler) Serve(l net.Listener) error {
	inner := make(chan error, 1)
	go func() { inner <- h.inner.Serve(h.handoff) }()
	err := h.outer.Serve(httpListener{h.newListener(l), h.rules.tlsConfig()})
	h.handoff.Close()
	if ierr := <-inner; err == nil {
		err = ierr
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("proxy: %w", err)
}

// Drain closes each connection after its next response, so that clients reconnect to another
// server behind their load balancer. Requests are served as before until Shutdown.
func (h *Handler) Drain() { h.draining.Store(true) }

// Shutdown accepts no more connections, refuses the requests that wait for a slot, and lets
// the requests in flight finish for as long as Linger and ctx allow. Then it closes tunnels,
// upgraded connections, and all others. It closes the Pacer.
func (h *Handler) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.o.Linger)
	defer cancel()
	h.handoff.Close()
	h.o.Pacer.Close()
	h.refusals.close()
	outer := make(chan error, 1)
	go func() { outer <- h.outer.Shutdown(ctx) }()
	err := h.inner.Shutdown(ctx)
	// Tunnels that are streams are requests of the outer server.
	h.hijacked.close()
	err = errors.Join(<-outer, err)
	if ctx.Err() != nil {
		h.o.Log.Warn("breaking off requests in flight")
		h.aborting.Store(true)
		err = errors.Join(h.outer.Close(), h.inner.Close())
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.rules.close()
	}()
	select {
	// And their records are written.
	case <-served:
	case <-time.After(lastWait):
		h.o.Log.Error("requests outlived their connections, records may be missing")
	}
	return err
}

// connState is the ConnState of a server. unused holds the unused connections of that server. The
// server calls it for every request. It does almost nothing except at the first one of a connection.
func (h *Handler) connState(unused *unusedConns, c net.Conn, state http.ConnState) {
	if p, ok := c.(*h2Conn); ok {
		c = p.Conn
	}
	switch state {
	// The response was sent.
	case http.StateIdle:
		if c, ok := c.(*httpConn); ok {
			c.requests.reset()
			c.serving.Store(false)
		}
	case http.StateNew:
		unused.add(c)
	case http.StateActive, http.StateHijacked, http.StateClosed:
		if unused.remove(c) && state == http.StateClosed {
			h.countUnused(connInfoOf(c).tunnel)
		}
	}
}

// countUnused counts an intercepted tunnel that has ended without a request; nil: it was no tunnel.
func (h *Handler) countUnused(t *tunnelConn) {
	if t == nil {
		return
	}
	if !t.secured.IsZero() {
		h.rules.active.Load().Authority.AddUnused(t.origin.Host, t.origin.Port)
		if time.Since(t.secured) < atOnce && !h.handoff.isEnded() {
			h.countFault(clientfault.MaybeDistrust, t.admitted.Load().client, t.authority)
		}
	}
	h.counts.unused.Add(1)
}

// New checks the options and creates a Handler.
func New(o Options) (*Handler, error) {
	for name, missing := range map[string]bool{
		"Pacer": o.Pacer == nil, "Audit": o.Audit == nil, "Keep": o.Keep == nil, "Begin": o.Begin == nil, "Ready": o.Ready == nil, "Log": o.Log == nil,
	} {
		if missing {
			return nil, fmt.Errorf("proxy: option %s is missing", name)
		}
	}
	rules, err := o.Rules.withDefaults()
	if err != nil {
		return nil, err
	}
	if min(o.Linger, o.Silence, o.HeadTimeout) < 0 {
		return nil, errors.New("proxy: a limit is negative")
	}
	if o.Memory == nil {
		o.Memory = memory.New(memory.Options{})
	}
	o.Rules, o.Limits = Rules{}, o.Limits.withDefaults()
	h := &Handler{
		o:         o,
		hijacked:  newHijackedConns(),
		handoff:   newHandoff(),
		connLimit: &connLimit{free: make(chan struct{}, 1)},

		refusals: newRefusalLimiter(),
	}
	h.sent.write = o.Begin
	h.via = []string{"1.1 " + rules.Egress.Pseudonym()}
	h.rules.install(rules, 1)
	h.pipeline = h.newPipeline()
	h.outer = h1.New(h.newServer())
	h.inner = h1.New(h.newServer())
	return h, nil
}

// Use makes r the active Rules for requests that begin from now on, including those in kept
// connections and tunnels. Requests that wait or are in flight keep the Rules under which they
// began. unused is closed when the last of these requests has ended and the earlier Rules are
// no longer used. After an error nothing has changed.
//
// A tunnel stays with its client as long as the client would still be admitted in the same way.
// If the client's password has changed, the next request in the tunnel is refused and asks for
// a login. Connections over a lowered limit stay open.
func (h *Handler) Use(r Rules) (unused <-chan struct{}, err error) {
	if unused, err = h.rules.replace(r); err == nil {
		h.connLimit.notify()
	}
	return unused, err
}

// Stats returns the counters, which may be of slightly different moments. It does not
// block.
func (h *Handler) Stats() Stats {
	c := &h.counts
	var fullAt time.Time
	if at := c.fullAt.Load(); at != 0 {
		fullAt = time.Unix(0, at)
	}
	return Stats{
		Requests: c.requests.flow(),
		Conns:    c.conns.flow(), MaxConns: h.rules.active.Load().MaxConns, Failed: c.failed.Load(), Answered: c.answered.Load(), Closed: c.closed.Load(),
		Evicted: c.evicted.Load(), FullAt: fullAt,
		Intercepted: c.intercepted.flow(), Unused: c.unused.Load(), PassedThrough: c.passedThrough.flow(), Upgraded: c.upgraded.flow(),
		Memory: h.o.Memory.Stats(),
		Faults: c.faults.Counts(),
	}
}
