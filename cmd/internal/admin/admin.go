// Package admin serves the operator's listener: health (/healthz), readiness (/readyz),
// metrics (/metrics), a JSON API below /api/v1, and pages for people. [NewMonitor] serves
// the first three alone.
//
// It decides nothing itself. Explanations come from the code that decides requests, and what
// it shows is kept by other packages. It changes something only on request: it purges and
// refetches an origin's robots.txt, ends back-offs, pauses hosts, and reloads the configuration.
//
// With a token ([Options].Token), everything but health and the login page requires it, as a
// bearer token or by the session cookie of a login. Without a token, only requests from this
// machine to one of its own names are answered, so that no web site can reach the listener
// through a browser (DNS rebinding). Requests from pages of other origins cannot change
// anything. Whenever the guard cannot tell, it refuses.
//
// All untrusted text is escaped. Responses have bounded sizes and are not cached. A [Server]
// may be used by any number of goroutines. It bounds its connections, its streams and the
// requests that wait for an origin.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// maxConns bounds the open connections, so that clients of this listener cannot use up the
// file descriptors of the proxy.
const maxConns = 1000

// New makes a Server. It fails if a required option is missing.
func New(o Options) (*Server, error) {
	if name := o.missing(); name != "" {
		return nil, fmt.Errorf("admin: option %s is missing", name)
	}
	o.Token, o.Clients, o.Monitor = orZero(o.Token), orZero(o.Clients), orZero(o.Monitor)
	o.NeedRestart = orZero(o.NeedRestart)
	o.Warnings, o.Faults = orZero(o.Warnings), orZero(o.Faults)
	o.Space, o.About, o.Checkpoint = orZero(o.Space), orZero(o.About), orZero(o.Checkpoint)
	if o.PaceKey == nil {
		o.PaceKey = func(host string) string { return host }
	}
	if o.SaveStops == nil {
		o.SaveStops = func(context.Context) error { return nil }
	}
	s := &Server{
		opts: o, sessions: newSessions(), streamsDone: make(chan struct{}),
		streamSlots: make(slots, maxStreams), waitSlots: make(slots, maxOriginWaits), reportSlots: make(slots, 1),
	}
	s.stopStreams = sync.OnceFunc(func() { close(s.streamsDone) })
	s.apiMux = s.newAPIMux()
	s.rootMux = s.newRootMux()
	s.http = newHTTPServer(s.handler(), o.Log)
	return s, nil
}

// orZero returns f, or a function that returns the zero value if f is nil.
func orZero[T any](f func() T) func() T {
	if f == nil {
		return func() (zero T) { return zero }
	}
	return f
}

// newHTTPServer returns a server with the bounds of this package's listeners.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),

		// The general handler of net/http would answer OPTIONS * before the guard.
		DisableGeneralOptionsHandler: true,
	}
}

// handler returns the handler of all requests: the guard, the check for cross-origin requests,
// then the API or the pages.
func (s *Server) handler() http.Handler {
	from := http.NewCrossOriginProtection()
	from.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusForbidden, "Requests from pages of other origins cannot change anything.")
	}))
	return s.guard(from.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPIRequest(r) {
			s.serveAPI(w, r)
		} else {
			s.rootMux.ServeHTTP(w, r)
		}
	})))
}

// newRootMux returns the handler of everything outside the API.
func (s *Server) newRootMux() *http.ServeMux {
	mux := http.NewServeMux()
	s.opts.mountMonitoring(mux)
	s.mountLogin(mux)
	s.pages(mux)
	return mux
}

// mountMonitoring adds what monitoring systems request.
func (o *Options) mountMonitoring(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", o.healthz)
	mux.HandleFunc("GET /readyz", o.readyz)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
}

// Serve serves connections on l until Shutdown. Call it once.
func (s *Server) Serve(l net.Listener) error { return serve(s.http, l) }

func serve(s *http.Server, l net.Listener) error {
	if err := s.Serve(netutil.LimitListener(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Shutdown ends all streams and a verification of the audit, and waits for other requests until
// ctx is done. Then it closes the remaining connections without an error: net/http would wait
// several seconds for connections that browsers open in advance.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopStreams()
	s.chain.stop()
	return shutdown(ctx, s.http)
}

func shutdown(ctx context.Context, s *http.Server) error {
	err := s.Shutdown(ctx)
	if ctx.Err() != nil {
		return s.Close()
	}
	return err
}

// pages adds the handlers of the pages. Every page is complete without scripts; scripts only
// keep it up to date.
func (s *Server) pages(mux *http.ServeMux) {
	mux.HandleFunc("GET /static/{name...}", serveAsset)
	mux.HandleFunc("GET /{$}", s.showOverview)
	mux.HandleFunc("GET /state", s.showState)
	mux.HandleFunc("GET /decisions/{number}", s.showRecord)
	mux.HandleFunc("GET /hosts", s.showHosts)
	mux.HandleFunc("GET /hosts/{host}", s.showHost)
	mux.HandleFunc("POST /hosts/{host}", s.changeOrigin)
	mux.HandleFunc("POST /pause", s.changePause)
	mux.HandleFunc("GET /exceptions", s.showExceptions)
	mux.HandleFunc("GET /clients", s.showClients)
	mux.HandleFunc("GET /explain", s.showExplain)
	mux.HandleFunc("POST /explain", s.postExplain)
	mux.HandleFunc("GET /about", s.showAbout)
	mux.HandleFunc("POST /reload", s.postReload)
	mux.HandleFunc("GET /config", s.showConfig)
	mux.HandleFunc("POST /verify", s.postVerify)
	mux.HandleFunc("POST /report", s.postReport)
}
