package hostile

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// If no more files can be opened, the proxy reports it and blames no origin. It recovers
// when files can be opened again.
func TestOutOfFiles(t *testing.T) {
	o := e2e.NewOrigin(t, "files", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxyBy(t, e2e.Unpaced, "/bin/sh", "-c", `ulimit -n 40 && exec "$@"`, "sh")
	in := p.Dial(t)
	page := func() e2e.Result {
		in.Send(t, "GET "+o.URL("http", "/a")+" HTTP/1.1", "Host: "+o.Hostport("http"))
		got := in.Receive(t, http.MethodGet)
		if got.Status == http.StatusServiceUnavailable {
			// The request could not be recorded, so the connection ends.
			in = p.Dial(t)
		}
		return got
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

// TestIdleConnectionsMakeRoom: two clients that hold all connections of limits.connections without a request do not keep
// another client out, however often they connect again. That client's own idle connection stays open.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const most, pages = 60, 20
	o := e2e.NewOrigin(t, "full", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	held := map[string]int{"127.0.7.1": 40, "127.0.7.2": 19}
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Named("127.0.7.1", "127.0.7.2", "127.0.0.1")).With(e2e.Settings{"limits.connections": most}))
	page := []string{"GET " + o.URL("http", "/a") + " HTTP/1.1", "Host: " + o.Hostport("http")}
	kept := p.Dial(t)
	ask := func(w *e2e.RawClient) e2e.Result {
		w.Send(t, page...)
		return w.Receive(t, http.MethodGet)
	}
	if got := ask(kept); got.Status != http.StatusOK {
		t.Fatal(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	defer attackers.Wait()
	defer cancel()
	for address, n := range held {
		for i := range n {
			attackers.Go(func() { stayIdle(ctx, p.Listen, address, i, page, o.Hostport("https")) })
		}
	}
	testkit.Eventually(t, "all connections are open", func() bool { return p.Metrics(t)["robotsproxy_client_connections"] == most })
	testkit.Eventually(t, "health says so", func() bool {
		return strings.Contains(string(e2e.Get(t, e2e.Operator(t), "http://"+p.Admin+"/healthz").Body), "limits.connections (60) is reached")
	})
	status := e2e.API[struct{ Warnings []string }](t, p, http.MethodGet, "status", "", http.StatusOK)
	if len(status.Warnings) != 1 || !strings.Contains(status.Warnings[0], "limits.connections (60) is reached") {
		t.Errorf("status warns of %q", status.Warnings)
	}
	for range pages {
		w := p.Dial(t)
		if got := ask(w); got.Status != http.StatusOK {
			t.Errorf("a new connection: %v", got)
		}
		w.Close() // otherwise this client would soon have the most connections
	}
	if got := ask(kept); got.Status != http.StatusOK {
		t.Errorf("the client's idle connection: %v", got)
	}
	if n := p.Metrics(t)["robotsproxy_client_connections_refused_total evicted"]; n == 0 {
		t.Error("no connection was closed for another one")
	}
	if n := len(o.Pages("http")); n < pages+2 {
		t.Errorf("%d pages arrived, want %d at least", n, pages+2)
	}
}

// stayIdle keeps a connection open without a request, and opens another one when the proxy closes it, until ctx ends. Some
// have carried a request, some are a tunnel.
func stayIdle(ctx context.Context, proxy, address string, kind int, page []string, secure string) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	first := [][]string{nil, page, {"CONNECT " + secure + " HTTP/1.1", "Host: " + secure}}[kind%3]
	for ctx.Err() == nil {
		c, err := d.DialContext(ctx, "tcp", proxy)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { c.Close() })
		if first != nil {
			io.WriteString(c, strings.Join(first, "\r\n")+"\r\n\r\n")
		}
		io.Copy(io.Discard, c)
		stop()
		c.Close()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
