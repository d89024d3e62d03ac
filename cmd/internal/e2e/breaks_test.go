package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// brokenPage sends a part of what its head promises, and hangs up.
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

// A body that breaks off at the origin breaks off at the client: no part is
// ever handed on as the whole.
func TestTruncatedBodiesAreSeenAsSuch(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "truncated", "")
	o.handle("/length", brokenPage("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"))
	o.handle("/chunked", brokenPage("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"))
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		for _, h2 := range []bool{false, true} {
			for _, path := range []string{"/length", "/chunked"} {
				url := o.url(scheme, fmt.Sprintf("%s?h2=%v", path, h2))
				resp, err := p.client(t, h2).Get(url)
				if err != nil {
					continue // the break came before the head was passed on
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil {
					t.Errorf("%s: %q came as a whole body", url, body)
				}
				if r := awaitRecord(t, p.audit, url); r.Error == "" {
					t.Errorf("%s: the record has no error: %+v", url, r)
				}
			}
		}
	}
}

// An origin that hangs up or talks nonsense is a 502 that says so.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "broken", "")
	o.handle("/nothing", brokenPage(""))
	o.handle("/nonsense", brokenPage("nonsense\r\n\r\n"))
	o.handle("/half", brokenPage("HTTP/1.1 200 OK\r\nContent-Le"))
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		for _, path := range []string{"/nothing", "/nonsense", "/half"} {
			got := get(t, p.client(t, false), o.url(scheme, path))
			if token, _ := proxyStatus(t, got.Header); got.Status != http.StatusBadGateway || token == "" {
				t.Errorf("%s %s: %v", scheme, path, got)
			}
			if r := awaitRecord(t, p.audit, o.url(scheme, path)); r.Error == "" || r.Status != http.StatusBadGateway {
				t.Errorf("%s %s: record %+v", scheme, path, r)
			}
		}
	}
}

// What an origin sends unasked is no answer, and does not come to the log.
func TestStrayOctetsOfAnOrigin(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "stray", "")
	ended := make(chan struct{}, 4)
	o.handle("/a", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray")
		rw.Flush()
		io.Copy(io.Discard, rw) // until the proxy hangs up
		ended <- struct{}{}
	})
	o.handle("/b", textPage("text/plain", "b"))
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		client := p.client(t, false)
		if got := get(t, client, o.url(scheme, "/a")); got.Status != http.StatusNoContent {
			t.Errorf("%s: %v", scheme, got)
		}
		within(t, patience, "the proxy hangs up", ended)
		if got := get(t, client, o.url(scheme, "/b")); string(got.Body) != "b" {
			t.Errorf("%s: then %v", scheme, got)
		}
	}
	if strings.Contains(p.stderr.String(), "stray") {
		t.Errorf("the log has what the origin sent")
	}
}

// A client that leaves takes its request at the origin with it.
func TestClientLeavesADownload(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "leaves", "")
	left := make(chan string, 4)
	o.handle("/held", func(w http.ResponseWriter, r *http.Request) {
		heldPage("application/octet-stream", "first\n", "second\n", nil)(w, r)
		left <- r.URL.RawQuery
	})
	p := startProxy(t, outOfTheWay.with(settings{"pace.max_concurrent": 1}))
	for _, scheme := range schemes {
		for _, h2 := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			url := o.url(scheme, fmt.Sprintf("/held?%s-%v", scheme, h2))
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := p.client(t, h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			resp.Body.Close()
			within(t, patience/3, "the origin sees the client of "+url+" leave", left)
			if r := awaitRecord(t, p.audit, url); r.Decision != "allow" || r.Error == "" {
				t.Errorf("%s: record %+v", url, r)
			}
		}
	}
}

// No more requests of one host at once than max_concurrent says.
func TestPlacesAreCounted(t *testing.T) {
	t.Parallel()
	const places, crowd = 2, 8
	var now, most atomic.Int32
	turn := make(chan struct{})
	o := newOrigin(t, "places", "")
	o.handle("/a", func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		<-turn
		now.Add(-1)
	})
	p := startProxy(t, outOfTheWay.with(settings{"pace.max_concurrent": places}))
	var all sync.WaitGroup
	for i := range crowd {
		client := p.client(t, i%2 == 0)
		all.Go(func() { get(t, client, o.url("https", "/a?"+itoa(i))) })
	}
	for range crowd {
		eventually(t, patience, "a request is at the origin", func() bool { return now.Load() > 0 })
		turn <- struct{}{}
	}
	all.Wait()
	if most.Load() > places {
		t.Errorf("%d requests at once, want %d", most.Load(), places)
	}
}

// A rule file that changes comes into force without anybody's waiting for it;
// while its origin fails, the copy held from before stays.
func TestRobotsIsRefreshed(t *testing.T) {
	t.Parallel()
	var rules atomic.Pointer[string]
	say := func(text string) { rules.Store(&text) }
	say("User-agent: *\nDisallow: /old\n")
	const slow = 3 * time.Second // more than a machine stands still
	var fetches atomic.Int64
	o := newOrigin(t, "refreshed", "")
	o.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		if fetches.Add(1) > 1 {
			<-time.After(slow)
		}
		w.Header().Set("Cache-Control", "max-age=1")
		if text := *rules.Load(); text != "" {
			io.WriteString(w, text)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for _, path := range []string{"/old", "/new"} {
		o.handle(path, textPage("text/plain", path))
	}
	p := startProxy(t, outOfTheWay.with(settings{"robots.min_age": "1s", "robots.max_age": "2s", "robots.unreachable_retry": "1s"}))
	client := p.client(t, false)
	status := func(path string) int { return get(t, client, o.url("http", path)).Status }
	if old, now := status("/old"), status("/new"); old != 403 || now != 200 {
		t.Fatalf("/old %d, /new %d; want 403 and 200", old, now)
	}
	say("User-agent: *\nDisallow: /new\n")
	eventually(t, patience, "the new rules are in force", func() bool { return status("/old") == 200 && status("/new") == 403 })
	say("")
	failed := len(o.arrivals("http")) - len(o.pages("http")) + 2
	eventually(t, patience, "two refreshes failed", func() bool {
		if old, now := status("/old"), status("/new"); old != 200 || now != 403 {
			t.Fatalf("while robots.txt fails /old is %d, /new %d; want the copy's 200 and 403", old, now)
		}
		return len(o.arrivals("http"))-len(o.pages("http")) >= failed
	})
	records := readAudit(t, p.audit)
	if last := records[len(records)-1]; !last.RobotsStale {
		t.Errorf("the record does not say that a held copy rules: %+v", last)
	}
	for _, r := range records[1:] { // the first had to wait for the file
		if r.DurationMS >= slow.Seconds()*1000-500 {
			t.Errorf("a request took %v ms: %+v", r.DurationMS, r)
		}
	}
}

// However a client writes it, it is one origin: one file, one clock.
func TestSpellingsOfOneOrigin(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "spelling", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	port := ":" + itoa(o.ports["http"])
	for _, host := range []string{o.Name, strings.ToUpper(o.Name), o.Name + "."} {
		w := p.dial(t)
		w.send(t, "GET http://"+host+port+"/a HTTP/1.1", "Host: "+host+port)
		if got := w.receive(t, http.MethodGet); got.Status != http.StatusOK {
			t.Errorf("%s: %v\n%s", host, got, got.Body)
		}
		w.send(t, "GET HTTP://"+host+port+"/private HTTP/1.1", "Host: "+host+port)
		wantOwn(t, w.receive(t, http.MethodGet), http.StatusForbidden, "http_request_denied")
	}
	wantPolite(t, o, "http", 3, 0)
	eventually(t, patience, "all records", func() bool { return len(readAudit(t, p.audit)) == 6 })
	for _, r := range readAudit(t, p.audit) {
		if !strings.HasPrefix(r.Host, o.Name) || strings.HasPrefix(r.Host, o.Name+".") {
			t.Errorf("host %q, want %q", r.Host, o.Name)
		}
	}
}

// A head of megabytes is refused, not read to its end.
func TestOversizeHead(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "oversize", "")
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		w, target := p.dial(t), o.url("http", "/a")
		if scheme == "https" {
			w, target = p.connect(t, o.hostport("https")).secure(t, p, o.Name), "/a"
		}
		go io.WriteString(w, "GET "+target+" HTTP/1.1\r\nHost: "+o.hostport(scheme)+"\r\nX-Long: "+strings.Repeat("x", 16<<20))
		line, err := w.r.ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "HTTP/1.1 4") {
			t.Errorf("%s: %q", scheme, line)
		}
		if n := len(o.pages(scheme)); n != 0 {
			t.Errorf("%s: %d requests arrived", scheme, n)
		}
	}
	start := time.Now()
	if get(t, p.client(t, false), o.url("http", "/b")); time.Since(start) > patience/2 {
		t.Errorf("the next request took %v", time.Since(start))
	}
}
