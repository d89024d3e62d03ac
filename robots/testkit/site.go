package testkit

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Site is an origin on loopback that logs each request before it answers. It may be shared by any
// number of goroutines. Serve, ServeTLS and ServeOn start one.
type Site struct {
	*httptest.Server

	mu   sync.Mutex // guards seen
	seen []*http.Request
}

// NewSite makes a Site with a robots.txt and pages, which is not started yet.
func NewSite(robotsTxt string, pages http.HandlerFunc) *Site {
	s := &Site{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r)
		s.mu.Unlock()
		if r.URL.Path == "/robots.txt" {
			io.WriteString(w, robotsTxt)
			return
		}
		pages(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	return s
}

// Serve starts a Site that speaks HTTP until the test ends.
func Serve(t testing.TB, robotsTxt string, pages http.HandlerFunc) *Site {
	t.Helper()
	s := NewSite(robotsTxt, pages)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// ServeTLS starts a Site that speaks HTTPS until the test ends.
func ServeTLS(t testing.TB, robotsTxt string, pages http.HandlerFunc) *Site {
	t.Helper()
	s := NewSite(robotsTxt, pages)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ServeOn is Serve on a listener of the caller's.
func ServeOn(t testing.TB, l net.Listener, robotsTxt string, pages http.HandlerFunc) *Site {
	t.Helper()
	s := NewSite(robotsTxt, pages)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// Arrived gives all requests so far, in their order.
func (s *Site) Arrived() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// Paths gives the paths of all requests so far with their queries, in their order.
func (s *Site) Paths() []string {
	var paths []string
	for _, r := range s.Arrived() {
		paths = append(paths, r.URL.RequestURI())
	}
	return paths
}

// HostPort gives the authority in the site's URLs.
func (s *Site) HostPort() string {
	_, hostPort, _ := strings.Cut(s.URL, "://")
	return hostPort
}
