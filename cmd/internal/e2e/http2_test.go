package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// HTTP/2 is spoken to origins that choose it, and their rules and pace hold.
func TestHTTP2Origin(t *testing.T) {
	t.Parallel()
	o := newOrigin2(t, "two", "User-agent: *\nDisallow: /private\nCrawl-delay: 3\n")
	o.handle("/page", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	p := startProxy(t, settings{"pace.requests_per_second": 1000, "pace.burst": 10, "pace.max_concurrent": 10})
	for _, h2 := range []bool{false, true} {
		if got := get(t, p.client(t, h2), o.url("https", "/private")); got.Status != 403 {
			t.Errorf("a page that is disallowed: %v", got)
		}
	}
	var all sync.WaitGroup
	for i := range 4 {
		client := p.client(t, i%2 == 0)
		all.Go(func() {
			if got := get(t, client, o.url("https", "/page")); got.Status != 200 || string(got.Body) != "HTTP/2.0" {
				t.Errorf("a page: %v", got)
			}
		})
	}
	all.Wait()
	wantGaps(t, o.pages("https"), 3*time.Second)
	if n := o.connections(); n != 1 {
		t.Errorf("%d connections, want one for all", n)
	}
	if n := len(o.pages("https")); n != 4 {
		t.Errorf("%d pages arrived, want 4", n)
	}
}

// HTTP/2 is understood on the proxy's own port, with prior knowledge.
func TestHTTP2Client(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "by-two", "User-agent: *\nDisallow: /private\n")
	o.handle("/page", textPage("text/plain", "hello"))
	p := startProxy(t, outOfTheWay)
	var spoken http.Protocols
	spoken.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &spoken, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, p.listen)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	for path, want := range map[string]int{"/page": 200, "/private": 403} {
		if got := get(t, &http.Client{Transport: tr}, o.url("http", path)); got.Status != want || got.Proto != "HTTP/2.0" {
			t.Errorf("%s: %v", path, got)
		}
	}
	curl := needPeer(t, "curl")
	out := runPeer(t, []string{curl, "-s", "-p", "-x", "http://" + p.listen, "--http2-prior-knowledge", "-w", " %{http_version}", o.url("http", "/page")}, nil)
	if out.code != 0 || out.stdout != "hello 2" {
		t.Errorf("curl, in a tunnel in the clear: %q, exit %d, %s", out.stdout, out.code, out.stderr)
	}
	if n := len(o.pages("http")); n != 2 {
		t.Errorf("%d pages arrived, want 2", n)
	}
}
