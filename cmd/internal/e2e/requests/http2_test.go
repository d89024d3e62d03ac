package requests

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// The proxy speaks HTTP/2 with origins that choose it, and applies their rules and pace.
func TestHTTP2Origin(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin2(t, "two", "User-agent: *\nDisallow: /private\nCrawl-delay: 0.3\n")
	o.Handle("/page", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": 1000, "pace.burst": 10, "pace.max_concurrent": 10})
	for _, h2 := range []bool{false, true} {
		if got := e2e.Get(t, p.Client(t, h2), o.URL("https", "/private")); got.Status != 403 {
			t.Errorf("a page that is disallowed: %v", got)
		}
	}
	var all sync.WaitGroup
	for i := range 4 {
		client := p.Client(t, i%2 == 0)
		all.Go(func() {
			if got := e2e.Get(t, client, o.URL("https", "/page")); got.Status != 200 || string(got.Body) != "HTTP/2.0" {
				t.Errorf("a page: %v", got)
			}
		})
	}
	all.Wait()
	e2e.WantGaps(t, o.Pages("https"), 300*time.Millisecond)
	if n := o.Connections(); n != 1 {
		t.Errorf("%d connections, want one for all", n)
	}
	if n := len(o.Pages("https")); n != 4 {
		t.Errorf("%d pages arrived, want 4", n)
	}
}

// The proxy's own port accepts HTTP/2 with prior knowledge.
func TestHTTP2Client(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "by-two", "User-agent: *\nDisallow: /private\n")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	var spoken http.Protocols
	spoken.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &spoken, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, p.Listen)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	for path, want := range map[string]int{"/page": 200, "/private": 403} {
		if got := e2e.Get(t, &http.Client{Transport: tr}, o.URL("http", path)); got.Status != want || got.Proto != "HTTP/2.0" {
			t.Errorf("%s: %v", path, got)
		}
	}
	if n := len(o.Pages("http")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
	t.Run("curl, in a tunnel in the clear", func(t *testing.T) {
		curl := e2e.NeedPeer(t, "curl")
		out := e2e.RunPeer(t, []string{curl, "-s", "-p", "-x", "http://" + p.Listen, "--http2-prior-knowledge", "-w", " %{http_version}", o.URL("http", "/page")}, nil)
		if out.Code != 0 || out.Stdout != "hello 2" {
			t.Errorf("%q, exit %d, %s", out.Stdout, out.Code, out.Stderr)
		}
		if n := len(o.Pages("http")); n != 2 {
			t.Errorf("%d pages arrived, want one more", n)
		}
	})
}
