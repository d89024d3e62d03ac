// Package admin is the operator's side of the proxy, on a listener of its own:
// whether it is well (/healthz) and whether it takes requests (/readyz), what it
// counts (/metrics), a JSON API below /api/v1, and pages for people.
//
// It judges nothing itself: what it explains is asked of the code that decides, and
// what it shows is what others keep. It changes what is known of an origin's
// robots.txt, and has the configuration read anew, where it is asked to.
//
// Who may ask: with a token, who knows it ([Options].Token), as a Bearer or by the
// cookie of a login; all but health asks for it. Without a token, who is on this
// machine, under one of its own names, so that no page of a stranger's reaches it
// through a browser (DNS rebinding). What changes something is not taken from a page
// of another origin. A guard that cannot tell refuses.
//
// All that is told of strangers is escaped; an answer is never longer than its bounds
// have it, and never kept. A Server may be asked by any number of goroutines; streams
// and what has robots.txt fetched are bounded.
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

// maxConns bounds the connections that are open at once: whoever reaches the listener
// must not take from the proxy what files it may open.
const maxConns = 1000

// New makes a Server.
func New(o Options) (*Server, error) {
	if name := o.missing(); name != "" {
		return nil, fmt.Errorf("admin: option %s is missing", name)
	}
	if o.Token == nil {
		o.Token = func() string { return "" }
	}
	if o.Clients == nil {
		o.Clients = func() []string { return nil }
	}
	if o.About == nil {
		o.About = func() About { return About{} }
	}
	if o.PaceKey == nil {
		o.PaceKey = func(host string) string { return host }
	}
	s := &Server{
		opts: o, sessions: newSessions(),
		streamSlots: make(slots, maxStreams), waitSlots: make(slots, maxOriginWaits), streamsDone: make(chan struct{}),
	}
	s.stopStreams = sync.OnceFunc(func() { close(s.streamsDone) })
	s.apiMux = s.newAPIMux()
	s.rootMux = s.newRootMux()
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // or OPTIONS * would go past the guard
	}
	return s, nil
}

// handler is a request's way: the guard, the check of where it comes from, the answer.
func (s *Server) handler() http.Handler {
	from := http.NewCrossOriginProtection()
	from.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusForbidden, "A page of another origin may change nothing here.")
	}))
	return s.guard(from.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPIRequest(r) {
			s.serveAPI(w, r)
		} else {
			s.rootMux.ServeHTTP(w, r)
		}
	})))
}

// newOther knows what is no part of the API.
func (s *Server) newRootMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthHandler(s.opts.Healthy))
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.opts.Metrics != nil {
		mux.Handle("GET /metrics", s.opts.Metrics)
	}
	s.mountLogin(mux)
	s.pages(mux)
	return mux
}

// Serve answers until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(netutil.LimitListener(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Shutdown ends the Server, its streams at once. What has not ended with ctx is broken
// off: net/http waits for seconds for connections that browsers make ahead of need.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopStreams()
	err := s.http.Shutdown(ctx)
	if ctx.Err() != nil {
		return s.http.Close()
	}
	return err
}

// pages mounts what people look at. Every page shows what is known when it is asked
// for; scripts only keep it so.
func (s *Server) pages(mux *http.ServeMux) {
	mux.HandleFunc("GET /static/{name...}", serveAsset)
	mux.HandleFunc("GET /{$}", s.showOverview)
	mux.HandleFunc("GET /state", s.showState)
	mux.HandleFunc("GET /decisions/{number}", s.showRecord)
	mux.HandleFunc("GET /hosts", s.showHosts)
	mux.HandleFunc("GET /hosts/{host}", s.showHost)
	mux.HandleFunc("POST /hosts/{host}", s.changeOrigin)
	mux.HandleFunc("GET /explain", s.showExplain)
	mux.HandleFunc("POST /explain", s.postExplain)
	mux.HandleFunc("GET /about", s.showAbout)
	mux.HandleFunc("POST /reload", s.postReload)
}
