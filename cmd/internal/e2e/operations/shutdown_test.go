package operations

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// awaitClosed waits until the proxy accepts no more connections.
func awaitClosed(t *testing.T, p *e2e.Proxy) {
	t.Helper()
	testkit.Eventually(t, "the listener is closed", func() bool {
		c, err := net.Dial("tcp", p.Listen)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// SIGTERM and Ctrl-C: no more connections, requests in flight finish, their
// records are written, the status is 0.
func TestSignalLetsDownloadsFinish(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		for name, way := range map[string]struct {
			scheme string
			h2     bool
		}{"http": {"http", false}, "https h1": {"https", false}, "https h2": {"https", true}} {
			t.Run(s.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				release := make(chan struct{})
				o := e2e.NewOrigin(t, "flight", "")
				o.Handle("/held", e2e.HeldPage("application/octet-stream", "first\n", "second\n", release))
				p := e2e.StartProxy(t, e2e.Unpaced)
				resp := e2e.InFlight(t, p, o, way.scheme, way.h2)
				p.Signal(t, s)
				awaitClosed(t, p)
				select {
				case <-p.Exited:
					t.Fatalf("ended with status %d under a request in flight", p.Code)
				default:
				}
				close(release)
				if rest, err := io.ReadAll(resp.Body); string(rest) != "second\n" || err != nil {
					t.Errorf("after the signal came %q, %v", rest, err)
				}
				testkit.Within(t, "serve ends", p.Exited)
				if p.Code != 0 {
					t.Errorf("status %d, want 0", p.Code)
				}
				found := e2e.RecordsOf(e2e.ReadAudit(t, p.Audit), o.URL(way.scheme, "/held"))
				if len(found) != 1 || found[0].Status != http.StatusOK || found[0].Bytes != int64(len("first\nsecond\n")) {
					t.Errorf("records of the download: %+v", found)
				}
			})
		}
	}
}

// SIGTERM during all kinds of requests: requests in flight finish, a waiting request is refused,
// tunnels and WebSockets are closed, and each leaves its record.
func TestSignalWithAllInFlight(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	o := e2e.NewOrigin(t, "all", "")
	o.Handle("/held", e2e.HeldPage("application/octet-stream", "first\n", "second\n", release))
	o.Handle("/echo", e2e.EchoPage(t))
	slow := e2e.NewOrigin(t, "slow", "User-agent: *\nCrawl-delay: 10\n")
	slow.Handle("/a", e2e.TextPage("text/plain", "a"))
	slow.Handle("/b", e2e.TextPage("text/plain", "b"))
	sealed := e2e.NewOrigin(t, "sealed", "")
	sealed.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"tls.tunnel": []string{sealed.Name}, "pace.max_queue": 1}))

	plain, h2 := e2e.InFlight(t, p, o, "http", false), e2e.InFlight(t, p, o, "https", true)
	p.Connect(t, o.Hostport("https")) // a tunnel without data
	idle := p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name, "h2")
	through := p.Client(t, false)
	e2e.TrustOrigins(t, through)
	if got := e2e.Get(t, through, sealed.URL("https", "/a")); got.Status != http.StatusOK { // its tunnel stays open
		t.Fatalf("through a tunnel that is not opened: %v", got)
	}
	socket := p.Dial(t)
	e2e.Upgrade(t, socket, o.URL("http", "/echo"), o.Hostport("http"))
	e2e.Get(t, p.Client(t, false), slow.URL("http", "/a"))
	waiting := make(chan e2e.Result, 2) // two requests, of which one may wait: the refusal of the other shows that it does
	for range 2 {
		client := p.Client(t, false)
		go func() { waiting <- e2e.Get(t, client, slow.URL("http", "/b")) }()
	}
	e2e.WantOwn(t, testkit.Within(t, "the queue is full", waiting), http.StatusTooManyRequests, "connection_limit_reached")

	p.Signal(t, syscall.SIGTERM)
	told := testkit.Within(t, "the request that waits is refused", waiting)
	e2e.WantOwn(t, told, http.StatusServiceUnavailable, "proxy_internal_error")
	if told.Header.Get("Retry-After") == "" {
		t.Error("it is not told when to come again")
	}
	awaitClosed(t, p)
	close(release)
	for name, resp := range map[string]*http.Response{"http": plain, "https h2": h2} {
		if rest, err := io.ReadAll(resp.Body); string(rest) != "second\n" || err != nil {
			t.Errorf("%s: after the signal came %q, %v", name, rest, err)
		}
	}
	testkit.Within(t, "serve ends", p.Exited)
	if p.Code != 0 {
		t.Errorf("status %d, want 0", p.Code)
	}
	for name, w := range map[string]*e2e.RawClient{"WebSocket": socket, "idle tunnel": idle} {
		if _, err := io.Copy(io.Discard, w.R); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s is still open", name)
		}
	}
	wantRecordsOfAll(t, p, o, slow, sealed)
}

// wantRecordsOfAll compares the audit and the arrivals at the slow host with the requests that
// were in flight.
func wantRecordsOfAll(t *testing.T, p *e2e.Proxy, o, slow, sealed *e2e.Origin) {
	t.Helper()
	records := e2e.ReadAudit(t, p.Audit)
	for url, want := range map[string]e2e.Record{
		o.URL("http", "/held"):  {Decision: "allow", Status: 200},
		o.URL("https", "/held"): {Decision: "allow", Status: 200},
		o.URL("http", "/echo"):  {Decision: "allow", Status: 101},
		slow.URL("http", "/b"):  {Decision: "block", Status: 503, Reason: "shutdown"},
	} {
		found := slices.DeleteFunc(e2e.RecordsOf(records, url), func(r e2e.Record) bool { return r.Status == http.StatusTooManyRequests })
		if len(found) != 1 || found[0].Decision != want.Decision || found[0].Status != want.Status || want.Reason != "" && found[0].Reason != want.Reason {
			t.Errorf("%s: records %+v", url, found)
		}
	}
	tunnels := 0
	for _, r := range records {
		if r.Reason == "tunnel" && r.Bytes > 0 && r.Host == sealed.Name {
			tunnels++
		}
	}
	if tunnels != 1 {
		t.Errorf("%d records of the tunnel that was not opened, want 1", tunnels)
	}
	if n := len(slow.Pages("http")); n != 1 {
		t.Errorf("%d pages of the slow host arrived, want 1", n)
	}
}

// A second signal waits only for the records.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			o := e2e.NewOrigin(t, "second", "")
			o.Handle("/held", e2e.HeldPage("application/octet-stream", "first\n", "second\n", release))
			testkit.AtMost(t, shutdownTime/2, func() time.Duration {
				p := e2e.StartProxy(t, e2e.Unpaced)
				e2e.InFlight(t, p, o, "https", false)
				p.Signal(t, s)
				awaitClosed(t, p)
				took := endTime(t, p, s)
				if want := 128 + int(s); p.Code != want {
					t.Errorf("ended with status %d, want %d", p.Code, want)
				}
				found := e2e.RecordsOf(e2e.ReadAudit(t, p.Audit), o.URL("https", "/held"))
				if len(found) != 1 || !strings.Contains(found[0].Error, "the proxy shut down") {
					t.Errorf("records of the request that was broken off: %+v", found)
				}
				return took
			})
		})
	}
}

// shutdownTime is how long a shutdown waits for requests.
const shutdownTime = 20 * time.Second

// endTime returns how long serve runs after a signal.
func endTime(t *testing.T, p *e2e.Proxy, s syscall.Signal) time.Duration {
	t.Helper()
	began := time.Now()
	p.Signal(t, s)
	testkit.Within(t, "serve ends", p.Exited)
	return time.Since(began)
}

// Idle tunnels and kept connections do not delay the shutdown.
func TestIdleConnectionsDoNotHoldShutdown(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "idle", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	o.Handle("/echo", e2e.EchoPage(t))
	testkit.AtMost(t, shutdownTime/2, func() time.Duration {
		p := e2e.StartProxy(t, e2e.Unpaced)
		for _, scheme := range e2e.Schemes {
			e2e.Get(t, p.Client(t, false), o.URL(scheme, "/a"))
			e2e.Get(t, p.Client(t, true), o.URL(scheme, "/a"))
		}
		p.Connect(t, o.Hostport("https"))
		p.Dial(t)
		took := endTime(t, p, syscall.SIGTERM)
		if p.Code != 0 {
			t.Errorf("ended with status %d", p.Code)
		}
		return took
	})
}

// With drain, SIGTERM at first interrupts nothing: /readyz answers 503 on the admin
// listener and on the proxy's port, and waiting requests get their turn.
func TestDrainServesOn(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	o := e2e.NewOrigin(t, "drained", "User-agent: *\nCrawl-delay: 4\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{"drain": "30s"})
	e2e.Get(t, p.Client(t, false), o.URL("http", "/a"))
	second := make(chan e2e.Result, 1)
	client := p.Client(t, false)
	go func() { second <- e2e.Get(t, client, o.URL("http", "/a")) }()
	testkit.Eventually(t, "the second waits", func() bool { return p.Metrics(t)[e2e.Waiting] == 1 })
	p.Signal(t, syscall.SIGTERM)
	for _, at := range []string{p.Admin, p.Listen} {
		testkit.Eventually(t, at+" is not ready", func() bool {
			resp, err := http.Get("http://" + at + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusServiceUnavailable
		})
	}
	if got := testkit.Within(t, "the request that waits is answered", second); got.Status != http.StatusOK {
		t.Errorf("who waited: %v", got)
	}
	if got := e2e.Get(t, p.Client(t, false), e2e.NewOrigin(t, "late", "").URL("http", "/a")); got.Status != http.StatusNotFound {
		t.Errorf("a request while the proxy drains: %v", got)
	}
	testkit.Within(t, "serve ends before the time is over, since nobody comes", p.Exited)
}
