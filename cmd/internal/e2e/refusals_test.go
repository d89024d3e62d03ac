package e2e

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A refusal is on disk before its client reads it, names all it must, and says
// it in the client's own language: JSON where it is accepted.
func TestRefusalByRule(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "rule", strings.Repeat("# nothing\n", 16)+"User-agent: RuleBot\nUser-agent: Other\nDisallow: /pri*te$\nDisallow: /cgi?\n")
	p := startProxy(t, outOfTheWay)
	asked := 100
	for _, scheme := range schemes {
		for _, h2 := range []bool{false, true} {
			for accept, ctype := range map[string]string{
				"": "text/plain", "*/*": "text/plain", "text/html, application/json;q=0.9": "application/problem+json",
				"application/problem+json": "application/problem+json", "application/json": "application/problem+json",
			} {
				asked++
				url := o.url(scheme, "/cgi?"+strconv.Itoa(asked))
				got := get(t, p.client(t, h2), url, "User-Agent", "Mozilla/5.0 (compatible; RuleBot/2.1; +https://rule.test)", "Accept", accept)
				r := onlyRecord(t, p.audit, url)
				wantOwn(t, got, http.StatusForbidden, "http_request_denied")
				if have := got.Header.Get("Content-Type"); !strings.HasPrefix(have, ctype) {
					t.Errorf("Accept %q: Content-Type %q, want %q", accept, have, ctype)
				}
				wantNames(t, got, "/cgi?", 20, "rulebot", o.url(scheme, "/robots.txt"))
				wantBlocked(t, r, "rule", http.StatusForbidden)
				if r.Agent != "RuleBot" || r.Group != "rulebot" || r.Rule != "/cgi?" || r.Line != 20 || r.Method != http.MethodGet {
					t.Errorf("record %+v", r)
				}
			}
		}
		if n := len(o.pages(scheme)); n != 0 {
			t.Errorf("%s: %d pages arrived", scheme, n)
		}
	}
}

// All methods are judged alike; robots.txt itself is allowed to everyone.
func TestMethodsAndRobotsItself(t *testing.T) {
	t.Parallel()
	robots := "User-agent: *\nDisallow: /\n"
	o := newOrigin(t, "methods", robots)
	o.handle("/a", uploadPage)
	p := startProxy(t, outOfTheWay)
	client := p.client(t, false)
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"} {
		got := do(t, client, method, o.url("http", "/a"), strings.NewReader("body"))
		wantOwn(t, got, http.StatusForbidden, "http_request_denied")
	}
	if n := len(o.pages("http")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	if got := get(t, client, o.url("http", "/robots.txt")); got.Status != http.StatusOK || string(got.Body) != robots {
		t.Errorf("robots.txt through the proxy: %v", got)
	}
	if r := awaitRecord(t, p.audit, o.url("http", "/robots.txt")); r.Decision != "allow" || r.WaitMS != 0 {
		t.Errorf("record of robots.txt: %+v", r)
	}
}

// Reached, and no usable robots.txt: nothing is fetched, for a while.
func TestUnreachableRobots(t *testing.T) {
	t.Parallel()
	p := startProxy(t, outOfTheWay)
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests} {
		o := newOrigin(t, "down", "")
		o.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		o.handle("/a", textPage("text/plain", "a"))
		for _, scheme := range schemes {
			for i := range 3 {
				url := o.url(scheme, "/a?"+strconv.Itoa(i))
				got := get(t, p.client(t, false), url)
				r := onlyRecord(t, p.audit, url)
				wantOwn(t, got, http.StatusForbidden, "http_request_denied")
				wantBlocked(t, r, "unreachable", http.StatusForbidden)
				if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < 1 || after > 31 {
					t.Errorf("robots.txt answers %d: Retry-After %q, want up to 30 s", status, got.Header.Get("Retry-After"))
				}
			}
			if pages, all := len(o.pages(scheme)), len(o.arrivals(scheme)); pages != 0 || all != 1 {
				t.Errorf("robots.txt answers %d: %d pages arrived, robots.txt was fetched %d times", status, pages, all-pages)
			}
		}
	}
}

// A missing file allows all; each such answer is a file of its own origin.
func TestMissingRobots(t *testing.T) {
	t.Parallel()
	p := startProxy(t, outOfTheWay)
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusGone, http.StatusUnauthorized} {
		o := newOrigin(t, "nofile", "")
		o.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		o.handle("/a", textPage("text/plain", "a"))
		if got := get(t, p.client(t, false), o.url("http", "/a")); got.Status != http.StatusOK {
			t.Errorf("robots.txt answers %d: %v", status, got)
		}
		if r := awaitRecord(t, p.audit, o.url("http", "/a")); r.Reason != "no-file" || r.Decision != "allow" {
			t.Errorf("robots.txt answers %d: record %+v", status, r)
		}
	}
}

// robots.txt moved, to another host even: its rules stay with who was asked first.
func TestRedirectedRobots(t *testing.T) {
	t.Parallel()
	p := startProxy(t, outOfTheWay)
	other := newOrigin(t, "elsewhere", "")
	other.handle("/rules", textPage("text/plain", "User-agent: *\nDisallow: /private\n"))
	o := newOrigin(t, "moved", "")
	o.handle("/robots.txt", http.RedirectHandler(other.url("https", "/rules"), http.StatusMovedPermanently).ServeHTTP)
	o.handle("/a", textPage("text/plain", "a"))
	client := p.client(t, false)
	wantOwn(t, get(t, client, o.url("http", "/private")), http.StatusForbidden, "http_request_denied")
	if got := get(t, client, o.url("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("%v", got)
	}
	if pages, all := len(other.pages("https")), len(other.arrivals("https")); pages != 1 || all != 2 {
		t.Errorf("the other host saw %d requests, %d of them for the file; want one, and one for its own robots.txt", all, pages)
	}
}

func TestWaitTooLong(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "toolong", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{"pace.requests_per_second": 0.05, "pace.max_wait": "10s"})
	for _, scheme := range schemes {
		client := p.client(t, false)
		if got := get(t, client, o.url(scheme, "/a?first")); scheme == "http" && got.Status != http.StatusOK {
			t.Errorf("the first: %v", got)
		}
		start := time.Now()
		got := get(t, client, o.url(scheme, "/a?second"))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("refused after %v, want at once", took)
		}
		r := onlyRecord(t, p.audit, o.url(scheme, "/a?second"))
		wantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
		wantBlocked(t, r, "pace", http.StatusTooManyRequests)
		if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < 1 || after > 21 {
			t.Errorf("Retry-After %q, want up to 20 s", got.Header.Get("Retry-After"))
		}
	}
	// One host, one pace, whatever the scheme: the first of http took the slot of both.
	if n := len(o.pages("http")) + len(o.pages("https")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
}

// A full queue is refused at once, and those that stand in it are served.
func TestQueueIsFull(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "full", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{"pace.requests_per_second": 0.3, "pace.max_queue": 2})
	answers := make(chan int, 8)
	get(t, p.client(t, false), o.url("http", "/a")) // takes the first slot
	for range cap(answers) {
		client := p.client(t, false)
		go func() { answers <- get(t, client, o.url("http", "/a")).Status }()
	}
	count := map[int]int{}
	for range cap(answers) {
		count[within(t, patience, "an answer", answers)]++
	}
	if count[http.StatusOK] < 2 || count[http.StatusOK] > 3 || count[http.StatusOK]+count[http.StatusTooManyRequests] != cap(answers) {
		t.Errorf("answers by status: %v; want 2 that waited, the rest 429", count)
	}
}

// A client that leaves the queue costs nobody a slot.
func TestLeavingTheQueue(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "leave", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{"pace.requests_per_second": 0.25})
	client := p.client(t, false)
	get(t, client, o.url("http", "/a?first"))
	for i := range 5 {
		w := p.dial(t)
		w.send(t, "GET "+o.url("http", "/a?gone"+strconv.Itoa(i))+" HTTP/1.1", "Host: "+o.hostport("http"))
		w.Close()
	}
	start := time.Now()
	if got := get(t, client, o.url("http", "/a?last")); got.Status != http.StatusOK {
		t.Errorf("%v", got)
	}
	if took := time.Since(start); took > 7*time.Second {
		t.Errorf("behind five that left, one waited %v", took)
	}
	if n := len(o.pages("http")); n != 2 {
		t.Errorf("%d pages arrived, want the 2 whose clients stayed", n)
	}
}

// mode: monitor records what it would have done, and does nothing.
func TestMonitor(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "monitor", "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n")
	o.handle("/private", textPage("text/plain", "shown"))
	p := startProxy(t, outOfTheWay.with(settings{"mode": "monitor"}))
	for _, scheme := range schemes {
		got := get(t, p.client(t, true), o.url(scheme, "/private"))
		if got.Status != http.StatusOK || string(got.Body) != "shown" || got.Header.Get("Proxy-Status") != "" {
			t.Errorf("%s: %v", scheme, got)
		}
		r := awaitRecord(t, p.audit, o.url(scheme, "/private"))
		if r.Decision != "block" || r.Reason != "rule" || r.Enforced == nil || *r.Enforced || r.Rule != "/private" || r.Status != http.StatusOK {
			t.Errorf("%s: record %+v", scheme, r)
		}
	}
}

// Without allow_private nothing on loopback is reached, by whatever name.
func TestForbiddenAddresses(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "private", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"egress.allow_private": nil}))
	metadata, _ := newName("metadata")
	names.point(metadata, netip.MustParseAddr("169.254.169.254"))
	mapped, _ := newName("mapped")
	names.point(mapped, netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("64:ff9b::7f00:1"))
	for _, scheme := range schemes {
		port := ":" + strconv.Itoa(o.ports[scheme])
		for _, host := range []string{o.Name, o.addr(), "localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", metadata, mapped, "10.1.2.3", "[fd00::1]"} {
			url := scheme + "://" + host + port + "/a"
			w := p.dial(t)
			method := http.MethodGet
			if scheme == "https" {
				method = http.MethodConnect
				w.send(t, "CONNECT "+host+port+" HTTP/1.1", "Host: "+host+port)
			} else {
				w.send(t, "GET "+url+" HTTP/1.1", "Host: "+host+port)
			}
			got := w.receive(t, method)
			wantOwn(t, got, http.StatusForbidden, "destination_ip_prohibited")
			if t.Failed() {
				t.Fatalf("that was %s", url)
			}
		}
	}
	if n := o.connections(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
	for _, r := range readAudit(t, p.audit) {
		wantBlocked(t, r, "address", http.StatusForbidden)
	}
}

func TestForbiddenPorts(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "port", "")
	p := startProxy(t, outOfTheWay.with(settings{"egress.ports": []any{80, 443}}))
	for _, target := range []string{o.Name + ":22", o.Name + ":25", o.addr() + ":6379"} {
		w := p.dial(t)
		w.send(t, "GET http://"+target+"/a HTTP/1.1", "Host: "+target)
		got := w.receive(t, http.MethodGet)
		wantBlocked(t, onlyRecord(t, p.audit, "http://"+target+"/a"), "port", http.StatusForbidden)
		wantOwn(t, got, http.StatusForbidden, "destination_ip_prohibited")
		w = p.dial(t)
		w.send(t, "CONNECT "+target+" HTTP/1.1", "Host: "+target)
		wantOwn(t, w.receive(t, http.MethodConnect), http.StatusForbidden, "destination_ip_prohibited")
	}
	if n := o.connections(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}
