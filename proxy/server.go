package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	idleTimeout = 3 * time.Minute // of a kept connection between requests
	lastWait    = 5 * time.Second // for requests whose connections are closed
	maxHead     = 64 << 10        // bytes of a request's head
	maxStreams  = 250             // requests at once on one HTTP/2 connection
	maxFrame    = 16 << 10        // bytes of an HTTP/2 frame, the least that is allowed: net/http keeps a buffer for one frame with each connection
)

// net/http takes longer heads than http.Server.MaxHeaderBytes says, by so many bytes. In
// HTTP/1 these are what it adds, and what it looks at for HTTP/2's preface before it counts;
// a head that is pipelined may be longer by what came with the request before.
const (
	slopHTTP1 = 4<<10 + len("PRI * HTTP/2.0")
	slopHTTP2 = 10 * 32 // ten fields' overhead (RFC 9113 6.5.2)
)

func (h *Handler) newServer() *http.Server {
	var spoken http.Protocols
	spoken.SetHTTP1(true)
	spoken.SetHTTP2(true)
	spoken.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:           h,
		Protocols:         &spoken,
		ReadHeaderTimeout: h.o.HeadTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead - slopHTTP1,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, WriteByteTimeout: h.o.Silence},
		ConnState:         h.unused.note,
		ConnContext:       withArrival,
		ErrorLog:          slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // OPTIONS * is judged like the rest
	}
	serveHTTP2(s)
	return s
}

// Serve answers the clients of a listener until Shutdown. It may be called
// once.
func (h *Handler) Serve(l net.Listener) error {
	inner := make(chan error, 1)
	go func() { inner <- h.inner.Serve(h.handoff) }()
	err := h.outer.Serve(h.newListener(l))
	h.handoff.Close()
	if ierr := <-inner; err == nil {
		err = ierr
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("proxy: %w", err)
}

// Drain makes each answer its connection's last from now on, so that clients go to
// whoever else is behind their balancer, and loses none of them: what is in flight or
// comes is served as ever until Shutdown.
func (h *Handler) Drain() { h.draining.Store(true) }

// Shutdown takes no more connections, answers those who wait for their turn,
// lets the requests in flight finish for as long as Linger and ctx allow, and
// closes tunnels and upgraded connections, and what is left at the end. It closes
// the Pacer.
func (h *Handler) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.o.Linger)
	defer cancel()
	h.unused.close()
	h.handoff.Close()
	h.o.Pacer.Close()
	h.refusals.close()
	outer := make(chan error, 1)
	go func() { outer <- h.outer.Shutdown(ctx) }()
	err := h.inner.Shutdown(ctx)
	h.conns.close() // tunnels that are streams are requests of the outer server
	err = errors.Join(<-outer, err)
	if ctx.Err() != nil {
		h.o.Log.Warn("requests are broken off that are still in flight")
		h.cut.Store(true)
		err = errors.Join(h.outer.Close(), h.inner.Close())
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.endReign()
	}()
	select {
	case <-served: // and their records are written
	case <-time.After(lastWait):
		h.o.Log.Error("some requests did not end with their connections; their records may be missing")
	}
	return err
}

// unused are the connections that have not asked for anything yet. net/http
// would wait for them at a shutdown, and browsers make them ahead of need.
type unused struct {
	conns sync.Map
	n     atomic.Int64 // of conns, or more
	ended atomic.Bool

	tunnels *atomic.Uint64 // counts those of them that were intercepted tunnels, and ended so
}

// note is an http.Server's ConnState. It hears of every request, and has
// next to nothing to do but for a connection's first.
func (u *unused) note(c net.Conn, state http.ConnState) {
	if p, ok := c.(*h2Conn); ok {
		c = p.Conn
	}
	switch state {
	case http.StateIdle: // the answer is out
		if c, ok := c.(*httpConn); ok {
			c.head.next(c)
			c.serving.Store(false)
		}
	case http.StateNew:
		u.n.Add(1)
		u.conns.Store(c, nil)
		if u.ended.Load() {
			c.Close()
		}
	case http.StateActive, http.StateHijacked, http.StateClosed:
		if u.n.Load() == 0 {
			return
		}
		if _, was := u.conns.LoadAndDelete(c); was {
			u.n.Add(-1)
			if state == http.StateClosed && arrivalOf(c).tunnel != nil {
				u.tunnels.Add(1)
			}
		}
	}
}

// close closes them, and those that come from now on.
func (u *unused) close() {
	u.ended.Store(true)
	u.conns.Range(func(c, _ any) bool {
		c.(net.Conn).Close()
		return true
	})
}
