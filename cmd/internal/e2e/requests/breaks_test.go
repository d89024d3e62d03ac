package requests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// brokenPage sends part of the announced body and closes the connection.
func brokenPage(head string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		rw.WriteString(head)
		rw.Flush()
	}
}

// If the origin breaks off a body, the client's transfer breaks off too: a part never
// looks complete.
func TestTruncatedBodiesAreSeenAsSuch(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "truncated", "")
	o.Handle("/length", brokenPage("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"))
	o.Handle("/chunked", brokenPage("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		for _, h2 := range []bool{false, true} {
			for _, path := range []string{"/length", "/chunked"} {
				url := o.URL(scheme, fmt.Sprintf("%s?h2=%v", path, h2))
				resp, err := p.Client(t, h2).Get(url)
				if err != nil {
					continue // it broke off before the head was passed on
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil {
					t.Errorf("%s: %q came as a whole body", url, body)
				}
				if r := e2e.AwaitRecord(t, p.Audit, url); r.Error == "" {
					t.Errorf("%s: the record has no error: %+v", url, r)
				}
			}
		}
	}
}

// An origin that disconnects or sends invalid HTTP causes a 502 that says so.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "broken", "")
	o.Handle("/nothing", brokenPage(""))
	o.Handle("/nonsense", brokenPage("nonsense\r\n\r\n"))
	o.Handle("/half", brokenPage("HTTP/1.1 200 OK\r\nContent-Le"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		for _, path := range []string{"/nothing", "/nonsense", "/half"} {
			got := e2e.Get(t, p.Client(t, false), o.URL(scheme, path))
			if token, _ := e2e.ProxyStatus(t, got.Header); got.Status != http.StatusBadGateway || token == "" {
				t.Errorf("%s %s: %v", scheme, path, got)
			}
			if r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, path)); r.Error == "" || r.Status != http.StatusBadGateway {
				t.Errorf("%s %s: record %+v", scheme, path, r)
			}
		}
	}
}

// Data that an origin sends without a request is not a response, and is not logged.
func TestStrayBytesOfAnOrigin(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "stray", "")
	ended := make(chan struct{}, 4)
	o.Handle("/a", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray")
		rw.Flush()
		io.Copy(io.Discard, rw) // until the proxy disconnects
		ended <- struct{}{}
	})
	o.Handle("/b", e2e.TextPage("text/plain", "b"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		client := p.Client(t, false)
		if got := e2e.Get(t, client, o.URL(scheme, "/a")); got.Status != http.StatusNoContent {
			t.Errorf("%s: %v", scheme, got)
		}
		testkit.Within(t, "the proxy hangs up", ended)
		if got := e2e.Get(t, client, o.URL(scheme, "/b")); string(got.Body) != "b" {
			t.Errorf("%s: then %v", scheme, got)
		}
	}
	if strings.Contains(p.Stderr.String(), "stray") {
		t.Errorf("the log has what the origin sent")
	}
}

// If a client leaves, its request to the origin is ended.
func TestClientLeavesADownload(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "leaves", "")
	left := make(chan string, 4)
	o.Handle("/held", func(w http.ResponseWriter, r *http.Request) {
		e2e.HeldPage("application/octet-stream", "first\n", "second\n", nil)(w, r)
		left <- r.URL.RawQuery
	})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 1}))
	for _, scheme := range e2e.Schemes {
		for _, h2 := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			url := o.URL(scheme, fmt.Sprintf("/held?%s-%v", scheme, h2))
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := p.Client(t, h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			resp.Body.Close()
			testkit.Within(t, "the origin sees the client of "+url+" leave", left)
			if r := e2e.AwaitRecord(t, p.Audit, url); r.Decision != "allow" || r.Error == "" {
				t.Errorf("%s: record %+v", url, r)
			}
		}
	}
}

// No more than max_concurrent requests of one host are in flight.
func TestPlacesAreCounted(t *testing.T) {
	t.Parallel()
	const places, many = 2, 8
	var now, most atomic.Int32
	turn := make(chan struct{})
	o := e2e.NewOrigin(t, "places", "")
	o.Handle("/a", func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		<-turn
		now.Add(-1)
	})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": places}))
	var all sync.WaitGroup
	for i := range many {
		client := p.Client(t, i%2 == 0)
		all.Go(func() { e2e.Get(t, client, o.URL("https", "/a?"+strconv.Itoa(i))) })
	}
	for range many {
		testkit.Eventually(t, "a request is at the origin", func() bool { return now.Load() > 0 })
		turn <- struct{}{}
	}
	all.Wait()
	if most.Load() > places {
		t.Errorf("%d requests at once, want %d", most.Load(), places)
	}
}

// A changed robots.txt takes effect without delaying a request: during the fetch, the
// earlier file decides. While the origin fails, the earlier file stays in use.
func TestRobotsIsRefreshed(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	var rules atomic.Pointer[string]
	say := func(text string) { rules.Store(&text) }
	say("User-agent: *\nDisallow: /old\n")
	release := make(chan struct{})
	o := e2e.NewOrigin(t, "refreshed", "")
	fetches := func() int { return o.Fetches("http") }
	o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		if fetches() > 1 {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Cache-Control", "max-age=1")
		if text := *rules.Load(); text != "" {
			io.WriteString(w, text)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for _, path := range []string{"/old", "/new"} {
		o.Handle(path, e2e.TextPage("text/plain", path))
	}
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.min_age": "1s", "robots.max_age": "2s", "robots.unreachable_retry": "1s"}))
	client := p.Client(t, false)
	status := func(path string) int { return e2e.Get(t, client, o.URL("http", path)).Status }
	want := func(when string, old, now int) {
		if gotOld, gotNow := status("/old"), status("/new"); gotOld != old || gotNow != now {
			t.Fatalf("%s /old is %d, /new %d; want %d and %d", when, gotOld, gotNow, old, now)
		}
	}
	want("at first", 403, 200)
	say("User-agent: *\nDisallow: /new\n")
	testkit.Eventually(t, "a refresh is under way", func() bool { status("/old"); return fetches() > 1 })
	want("during the refresh", 403, 200)
	close(release)
	testkit.Eventually(t, "the new rules are in force", func() bool { return status("/old") == 200 && status("/new") == 403 })
	say("")
	failed := fetches() + 2
	testkit.Eventually(t, "two refreshes failed", func() bool {
		want("while robots.txt fails", 200, 403)
		return fetches() >= failed
	})
	records := e2e.ReadAudit(t, p.Audit)
	if last := records[len(records)-1]; !last.RobotsStale {
		t.Errorf("the record does not say that a held copy rules: %+v", last)
	}
}

// Whatever spelling a client uses, an origin has one robots.txt and one pace.
func TestSpellingsOfOneOrigin(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "spelling", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	port := ":" + strconv.Itoa(o.Ports["http"])
	for _, host := range []string{o.Name, strings.ToUpper(o.Name), o.Name + "."} {
		w := p.Dial(t)
		w.Send(t, "GET http://"+host+port+"/a HTTP/1.1", "Host: "+host+port)
		if got := w.Receive(t, http.MethodGet); got.Status != http.StatusOK {
			t.Errorf("%s: %v\n%s", host, got, got.Body)
		}
		w.Send(t, "GET HTTP://"+host+port+"/private HTTP/1.1", "Host: "+host+port)
		e2e.WantOwn(t, w.Receive(t, http.MethodGet), http.StatusForbidden, "http_request_denied")
	}
	e2e.WantPolite(t, o, "http", 3, 0)
	testkit.Eventually(t, "all records", func() bool { return len(e2e.ReadAudit(t, p.Audit)) == 6 })
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		if !strings.HasPrefix(r.Host, o.Name) || strings.HasPrefix(r.Host, o.Name+".") {
			t.Errorf("host %q, want %q", r.Host, o.Name)
		}
	}
}

// A head of megabytes is refused and not read to its end.
func TestOversizeHead(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "oversize", "")
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		w, target := p.Dial(t), o.URL("http", "/a")
		if scheme == "https" {
			w, target = p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name), "/a"
		}
		go io.WriteString(w, "GET "+target+" HTTP/1.1\r\nHost: "+o.Hostport(scheme)+"\r\nX-Long: "+strings.Repeat("x", 16<<20))
		line, err := w.R.ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "HTTP/1.1 4") {
			t.Errorf("%s: %q", scheme, line)
		}
		if n := len(o.Pages(scheme)); n != 0 {
			t.Errorf("%s: %d requests arrived", scheme, n)
		}
	}
	if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/b")); got.Status != http.StatusNotFound {
		t.Errorf("the next request: %v", got)
	}
}
