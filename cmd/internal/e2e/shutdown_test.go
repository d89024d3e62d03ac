package e2e

import (
	"bufio"
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
)

// inFlight starts a download that the origin holds after its first line.
func inFlight(t *testing.T, p *proxy, o *origin, scheme string, h2 bool) *http.Response {
	t.Helper()
	client := p.client(t, h2)
	client.Timeout = heldFor
	resp, err := client.Get(o.url(scheme, "/held"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if line, err := bufio.NewReaderSize(io.LimitReader(resp.Body, 6), 16).ReadString('\n'); line != "first\n" {
		t.Fatalf("the download begins %q, %v", line, err)
	}
	return resp
}

// awaitClosed waits until the proxy takes no more connections.
func awaitClosed(t *testing.T, p *proxy) {
	t.Helper()
	eventually(t, patience, "the listener is closed", func() bool {
		c, err := net.Dial("tcp", p.listen)
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
				release := make(chan struct{})
				o := newOrigin(t, "flight", "")
				o.handle("/held", heldPage("application/octet-stream", "first\n", "second\n", release))
				p := startProxy(t, outOfTheWay)
				resp := inFlight(t, p, o, way.scheme, way.h2)
				p.signal(t, s)
				awaitClosed(t, p)
				select {
				case <-p.exited:
					t.Fatalf("ended with status %d under a request in flight", p.code)
				default:
				}
				close(release)
				if rest, err := io.ReadAll(resp.Body); string(rest) != "second\n" || err != nil {
					t.Errorf("after the signal came %q, %v", rest, err)
				}
				within(t, patience, "serve ends", p.exited)
				if p.code != 0 {
					t.Errorf("status %d, want 0", p.code)
				}
				found := recordsOf(readAudit(t, p.audit), o.url(way.scheme, "/held"))
				if len(found) != 1 || found[0].Status != http.StatusOK || found[0].Bytes != int64(len("first\nsecond\n")) {
					t.Errorf("records of the download: %+v", found)
				}
			})
		}
	}
}

// SIGTERM with all there can be in flight: requests finish, who waits is told,
// tunnels and WebSockets are closed, and each leaves its record.
func TestSignalWithAllInFlight(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	o := newOrigin(t, "all", "")
	o.handle("/held", heldPage("application/octet-stream", "first\n", "second\n", release))
	o.handle("/echo", echoPage(t))
	slow := newOrigin(t, "slow", "User-agent: *\nCrawl-delay: 10\n")
	slow.handle("/a", textPage("text/plain", "a"))
	slow.handle("/b", textPage("text/plain", "b"))
	sealed := newOrigin(t, "sealed", "")
	sealed.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"tls.tunnel": []string{sealed.Name}, "pace.max_queue": 1}))

	plain, h2 := inFlight(t, p, o, "http", false), inFlight(t, p, o, "https", true)
	p.connect(t, o.hostport("https")) // and nothing said in it
	idle := p.connect(t, o.hostport("https")).secure(t, p, o.Name, "h2")
	through := p.client(t, false)
	trustOrigins(t, through)
	if got := get(t, through, sealed.url("https", "/a")); got.Status != http.StatusOK { // its tunnel stays
		t.Fatalf("through a tunnel that is not opened: %v", got)
	}
	socket := p.dial(t)
	upgrade(t, socket, o.url("http", "/echo"), o.hostport("http"))
	get(t, p.client(t, false), slow.url("http", "/a"))
	waiting := make(chan result, 2) // two ask, one may wait: the refusal of the other says that it does
	for range 2 {
		client := p.client(t, false)
		go func() { waiting <- get(t, client, slow.url("http", "/b")) }()
	}
	wantOwn(t, within(t, patience, "the queue is full", waiting), http.StatusTooManyRequests, "connection_limit_reached")

	p.signal(t, syscall.SIGTERM)
	told := within(t, patience, "who waits is told", waiting)
	wantOwn(t, told, http.StatusServiceUnavailable, "proxy_internal_error")
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
	within(t, patience, "serve ends", p.exited)
	if p.code != 0 {
		t.Errorf("status %d, want 0", p.code)
	}
	for name, w := range map[string]*wireClient{"WebSocket": socket, "idle tunnel": idle} {
		if _, err := io.Copy(io.Discard, w.r); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s is still open", name)
		}
	}
	records := readAudit(t, p.audit)
	for url, want := range map[string]record{
		o.url("http", "/held"):  {Decision: "allow", Status: 200},
		o.url("https", "/held"): {Decision: "allow", Status: 200},
		o.url("http", "/echo"):  {Decision: "allow", Status: 101},
		slow.url("http", "/b"):  {Decision: "block", Status: 503, Reason: "shutdown"},
	} {
		found := slices.DeleteFunc(recordsOf(records, url), func(r record) bool { return r.Status == http.StatusTooManyRequests })
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
	if n := len(slow.pages("http")); n != 1 {
		t.Errorf("%d pages of the slow host arrived, want 1", n)
	}
}

// A second signal waits for nobody, but for the records.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			o := newOrigin(t, "second", "")
			o.handle("/held", heldPage("application/octet-stream", "first\n", "second\n", release))
			p := startProxy(t, outOfTheWay)
			inFlight(t, p, o, "https", false)
			p.signal(t, s)
			awaitClosed(t, p)
			start := time.Now()
			p.signal(t, s)
			within(t, patience, "serve ends", p.exited)
			if took := time.Since(start); took > patience/3 {
				t.Errorf("ended %v after the second signal", took)
			}
			if want := 128 + int(s); p.code != want {
				t.Errorf("ended with status %d, want %d", p.code, want)
			}
			found := recordsOf(readAudit(t, p.audit), o.url("https", "/held"))
			if len(found) != 1 || !strings.Contains(found[0].Error, "the proxy ended") {
				t.Errorf("records of the request that was broken off: %+v", found)
			}
		})
	}
}

// Idle tunnels and kept connections hold nothing up.
func TestIdleConnectionsDoNotHoldShutdown(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "idle", "")
	o.handle("/a", textPage("text/plain", "a"))
	o.handle("/echo", echoPage(t))
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		get(t, p.client(t, false), o.url(scheme, "/a"))
		get(t, p.client(t, true), o.url(scheme, "/a"))
	}
	p.connect(t, o.hostport("https"))
	p.dial(t)
	start := time.Now()
	p.signal(t, syscall.SIGTERM)
	within(t, patience, "serve ends", p.exited)
	if took := time.Since(start); p.code != 0 || took > 10*time.Second {
		t.Errorf("ended with status %d after %v", p.code, took)
	}
}

// With drain, SIGTERM takes nothing from anybody at first: /readyz says no, at the
// operator's side and the proxy's own address, and those who wait get their turn.
func TestDrainServesOn(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "drained", "User-agent: *\nCrawl-delay: 4\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{"drain": "30s"})
	get(t, p.client(t, false), o.url("http", "/a"))
	second := make(chan result, 1)
	client := p.client(t, false)
	go func() { second <- get(t, client, o.url("http", "/a")) }()
	eventually(t, patience, "the second waits", func() bool { return p.metrics(t)[waiting] == 1 })
	p.signal(t, syscall.SIGTERM)
	for _, at := range []string{p.admin, p.listen} {
		eventually(t, patience, at+" is not ready", func() bool {
			resp, err := http.Get("http://" + at + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusServiceUnavailable
		})
	}
	if got := within(t, patience, "who waits has an answer", second); got.Status != http.StatusOK {
		t.Errorf("who waited: %v", got)
	}
	if got := get(t, p.client(t, false), o.url("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("who comes while it drains: %v", got)
	}
	within(t, patience, "serve ends before the time is over, since nobody comes", p.exited)
}
