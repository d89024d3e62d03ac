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
	headTimeout = 30 * time.Second // for a request's head, a TLS handshake
	idleTimeout = 3 * time.Minute  // of a kept connection between requests
	lastWait    = 5 * time.Second  // for requests whose connections are closed
	maxHead     = 64 << 10         // octets of a request's head
	maxStreams  = 250              // requests at once on one HTTP/2 connection
)

func (h *Handler) newServer(log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ConnState:         h.unused.note,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // OPTIONS * is judged like the rest
	}
}

// Serve answers the clients of a listener until Shutdown. It may be called
// once.
func (h *Handler) Serve(l net.Listener) error {
	inner := make(chan error, 1)
	go func() { inner <- h.inner.Serve(h.handoff) }()
	err := h.outer.Serve(l)
	h.handoff.Close()
	if ierr := <-inner; err == nil {
		err = ierr
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("proxy: %w", err)
}

// Shutdown takes no more connections, lets the requests in flight finish for
// as long as Linger and ctx allow, then closes what is left: tunnels, upgraded
// connections, transfers.
func (h *Handler) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.o.Linger)
	defer cancel()
	h.unused.close()
	h.handoff.Close()
	inner := make(chan error, 1)
	go func() { inner <- h.inner.Shutdown(ctx) }()
	err := errors.Join(h.outer.Shutdown(ctx), <-inner)
	if ctx.Err() != nil {
		h.o.Log.Warn("some requests were still in flight when the time to finish was over")
		err = errors.Join(h.outer.Close(), h.inner.Close())
	}
	h.conns.close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.serving.Wait()
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
}

// note is an http.Server's ConnState. It hears of every request, and has
// something to do for a connection's first alone.
func (u *unused) note(c net.Conn, state http.ConnState) {
	switch state {
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
