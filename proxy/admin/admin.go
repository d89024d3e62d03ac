// Package admin is the operator's side of the proxy, on a listener of its own:
// whether it is well (/healthz) and whether it takes requests (/readyz), and what
// it counts (/metrics). The first two answer 200 with "ok", or 503 with the reason
// in words; whoever counts answers the third.
//
// It changes nothing and tells nothing of any client or origin.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Options make a Server; all are required but Metrics.
type Options struct {
	Healthy func() error // why the proxy is not well
	Ready   func() error // why it takes no requests
	Metrics http.Handler // answers GET /metrics; nil: nothing is there
	Log     *slog.Logger
}

// A Server answers the operator. Make one with New, end it with Shutdown.
type Server struct{ http http.Server }

// New makes a Server.
func New(o Options) (*Server, error) {
	if o.Healthy == nil || o.Ready == nil || o.Log == nil {
		return nil, errors.New("admin: an option is missing")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(o.Healthy))
	mux.HandleFunc("GET /readyz", answer(o.Ready))
	if o.Metrics != nil {
		mux.Handle("GET /metrics", plain(o.Metrics))
	}
	return &Server{http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}}, nil
}

func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		forOnce(w.Header())
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%v\n", err)
			return
		}
		io.WriteString(w, "ok\n")
	}
}

// plain has what h answers neither kept nor taken for a page.
func plain(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forOnce(w.Header())
		h.ServeHTTP(w, r)
	})
}

// forOnce says that an answer is what it says it is, and is not to be kept.
func forOnce(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// Serve answers until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Shutdown ends the Server.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }
