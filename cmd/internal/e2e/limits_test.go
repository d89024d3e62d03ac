package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// No more files may be opened: it is said, no origin is blamed, and when there
// are some again all is as it was.
func TestOutOfFiles(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "files", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startBy(t, outOfTheWay, "/bin/sh", "-c", `ulimit -n 40 && exec "$@"`, "sh")
	in := p.dial(t)
	page := func() result {
		in.send(t, "GET "+o.url("http", "/a")+" HTTP/1.1", "Host: "+o.hostport("http"))
		return in.receive(t, http.MethodGet)
	}
	in.send(t, "GET http://127.0.0.1:1/ HTTP/1.1", "Host: x") // and so its connection is taken
	in.receive(t, http.MethodGet)
	var held []net.Conn
	for range 60 {
		c, err := net.DialTimeout("tcp", p.listen, time.Second)
		if err != nil {
			break
		}
		held = append(held, c)
	}
	eventually(t, patience, "it is said that no connection can be taken", func() bool {
		return strings.Contains(p.stderr.String(), "connections cannot be taken at present") && strings.Contains(p.stderr.String(), "too many open files")
	})
	got := page()
	wantOwn(t, got, http.StatusServiceUnavailable, "proxy_internal_error")
	if got.Header.Get("Retry-After") == "" {
		t.Error("it is not told when to come again")
	}
	for _, c := range held {
		c.Close()
	}
	eventually(t, patience, "the page is fetched", func() bool { return page().Status == http.StatusOK })
	if got := get(t, p.client(t, false), o.url("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("by a new connection: %v", got)
	}
}

// limits.connections_per_client, met by the real binary.
func TestConnectionsPerClient(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "crowd", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"limits.connections_per_client": 2}))
	ask := func() result {
		w := p.dial(t)
		w.send(t, "GET "+o.url("http", "/a")+" HTTP/1.1", "Host: "+o.hostport("http"))
		return w.receive(t, http.MethodGet)
	}
	for range 2 {
		if got := ask(); got.Status != http.StatusOK {
			t.Fatalf("%v", got)
		}
	}
	wantOwn(t, ask(), http.StatusTooManyRequests, "connection_limit_reached")
	if n := len(o.pages("http")); n != 2 {
		t.Errorf("%d pages arrived, want 2", n)
	}
	// What comes from elsewhere is somebody else's.
	if got := get(t, from(t, p.client(t, false), "127.0.0.3"), o.url("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("another client: %v", got)
	}
}
