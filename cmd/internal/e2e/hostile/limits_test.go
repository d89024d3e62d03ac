package hostile

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// If no more files can be opened, the proxy reports it and blames no origin. It recovers
// when files can be opened again.
func TestOutOfFiles(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "files", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxyBy(t, e2e.Unpaced, "/bin/sh", "-c", `ulimit -n 40 && exec "$@"`, "sh")
	in := p.Dial(t)
	page := func() e2e.Result {
		in.Send(t, "GET "+o.URL("http", "/a")+" HTTP/1.1", "Host: "+o.Hostport("http"))
		return in.Receive(t, http.MethodGet)
	}
	in.Send(t, "GET http://127.0.0.1:1/ HTTP/1.1", "Host: x") // and its connection is accepted
	in.Receive(t, http.MethodGet)
	var held []net.Conn
	for range 60 {
		c, err := net.DialTimeout("tcp", p.Listen, time.Second)
		if err != nil {
			break
		}
		held = append(held, c)
	}
	testkit.Eventually(t, "it is said that no connection can be taken", func() bool {
		return strings.Contains(p.Stderr.String(), "accept failed") && strings.Contains(p.Stderr.String(), "too many open files")
	})
	got := page()
	e2e.WantOwn(t, got, http.StatusServiceUnavailable, "proxy_internal_error")
	if got.Header.Get("Retry-After") == "" {
		t.Error("it is not told when to come again")
	}
	for _, c := range held {
		c.Close()
	}
	testkit.Eventually(t, "the page is fetched", func() bool { return page().Status == http.StatusOK })
	if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("by a new connection: %v", got)
	}
}

// limits.connections_per_client with the real binary.
func TestConnectionsPerClient(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "busy", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Named("127.0.0.3")).With(e2e.Settings{"limits.connections_per_client": 2}))
	ask := func() e2e.Result {
		w := p.Dial(t)
		w.Send(t, "GET "+o.URL("http", "/a")+" HTTP/1.1", "Host: "+o.Hostport("http"))
		return w.Receive(t, http.MethodGet)
	}
	for range 2 {
		if got := ask(); got.Status != http.StatusOK {
			t.Fatalf("%v", got)
		}
	}
	e2e.WantOwn(t, ask(), http.StatusTooManyRequests, "connection_limit_reached")
	e2e.WantOwn(t, e2e.Get(t, e2e.From(t, p.Client(t, false), "127.3.2.1"), o.URL("http", "/a")), http.StatusTooManyRequests, "connection_limit_reached")
	if n := len(o.Pages("http")); n != 2 {
		t.Errorf("%d pages arrived, want 2", n)
	}
	// Data from other addresses is not the test's.
	if got := e2e.Get(t, e2e.From(t, p.Client(t, false), "127.0.0.3"), o.URL("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("another client: %v", got)
	}
}
