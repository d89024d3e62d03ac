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
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// timeout is for a request to come and for its answer to be read, where nothing that
// takes longer is asked for.
const timeout = 10 * time.Second

// maxConns bounds the connections that are open at once: whoever reaches the listener
// must not take from the proxy what files it may open.
const maxConns = 1000

// Options make a Server. All are required but Metrics, Token, PaceKey, Reload,
// Reloads, Store, About, Clients and Version.
type Options struct {
	Healthy func() error  // why the proxy is not well
	Ready   func() error  // why it takes no requests
	Metrics http.Handler  // answers GET /metrics; nil: nothing is there
	Token   func() string // that all but health asks for; nil or "": none, and then only this machine's own names are answered for
	Log     *slog.Logger

	Live    *live.Feed
	Book    Book
	Pacer   *pace.Pacer
	Dialect func() robots.Dialect                                 // by which the files of the Book are shown
	PaceKey func(host string) string                              // what the pace of a host is kept under; nil: its name
	Explain func(context.Context, policy.Request) policy.Decision // what would be decided, by the code that decides
	Query   func(policy.Request) cache.Query                      // which robots.txt that code judges by
	Clients func() []string                                       // names of those of the configuration; nil: there are none
	Reload  func(context.Context) error                           // reads the configuration anew; its error has a line for each thing that is wrong; nil: it cannot be
	// Reloads says how often that came to something, how often it was refused, when it
	// last came to something, and why it did not the last time, line by line; nil: nothing
	// is reloaded.
	Reloads func() (ok, refused uint64, lastOK time.Time, lastErr error)
	Store   func() Store  // how this one of several replicas stands to the others; nil: it is on its own
	About   func() About  // nil: nothing is known
	CAPEM   func() []byte // the certificate that clients have to trust
	Proxy   net.Addr      // where the proxy listens
	Version string

	ProxyTLS bool // clients speak TLS to it there
}

// missing names the first that is required and not there.
func (o *Options) missing() string {
	for _, need := range []struct {
		name string
		is   bool
	}{
		{"Healthy", o.Healthy != nil}, {"Ready", o.Ready != nil}, {"Log", o.Log != nil}, {"Live", o.Live != nil},
		{"Book", o.Book != nil}, {"Pacer", o.Pacer != nil}, {"Dialect", o.Dialect != nil}, {"Explain", o.Explain != nil}, {"Query", o.Query != nil},
		{"CAPEM", o.CAPEM != nil}, {"Proxy", o.Proxy != nil},
	} {
		if !need.is {
			return need.name
		}
	}
	return ""
}

// A Book is what is known of origins; [cache.Cache] is one.
type Book interface {
	All() iter.Seq[*cache.Entry]
	Peek(robots.Origin) *cache.Entry
	Purge(robots.Origin) bool
	Refetch(ctx context.Context, q cache.Query) (*cache.Entry, error)
}

// A Server answers the operator. Make one with New, end it with Shutdown.
type Server struct {
	http    http.Server
	answers *server
}

// A server is what answers.
type server struct {
	o        Options
	sessions *sessions
	streams  chan struct{} // has an element for each that is open
	asking   chan struct{} // likewise for what may wait for an origin
	ending   chan struct{} // closed when no stream is to go on
	end      func()        // closes it
	api      *http.ServeMux
	other    *http.ServeMux
}

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
	s := &server{
		o: o, sessions: newSessions(),
		streams: make(chan struct{}, maxStreams), asking: make(chan struct{}, maxAsking), ending: make(chan struct{}),
	}
	s.end = sync.OnceFunc(func() { close(s.ending) })
	s.api = s.newAPI()
	s.other = s.newOther()
	return &Server{answers: s, http: http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: timeout,
		ReadTimeout:       timeout,
		WriteTimeout:      timeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // or OPTIONS * would go past the guard
	}}, nil
}

// handler is a request's way: the guard, the check of where it comes from, the answer.
func (s *server) handler() http.Handler {
	from := http.NewCrossOriginProtection()
	from.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusForbidden, "A page of another origin may change nothing here.")
	}))
	return s.guard(from.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPI(r) {
			s.serveAPI(w, r)
		} else {
			s.other.ServeHTTP(w, r)
		}
	})))
}

// isAPI says whether it is a program that asks, by where.
func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

// newOther knows what is no part of the API.
func (s *server) newOther() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(s.o.Healthy))
	mux.HandleFunc("GET /readyz", s.ready)
	if s.o.Metrics != nil {
		mux.Handle("GET /metrics", s.o.Metrics)
	}
	s.logins(mux)
	s.pages(mux)
	return mux
}

func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%v\n", err)
			return
		}
		io.WriteString(w, "ok\n")
	}
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
	s.answers.end()
	err := s.http.Shutdown(ctx)
	if ctx.Err() != nil {
		return s.http.Close()
	}
	return err
}
