package robotstxt

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A refusal is recorded on the disk before its client reads it. It contains everything
// required, as JSON if the client accepts that.
func TestRefusalByRule(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "rule", strings.Repeat("# nothing\n", 16)+"User-agent: RuleBot\nUser-agent: Other\nDisallow: /pri*te$\nDisallow: /cgi?\n")
	p := e2e.StartProxy(t, e2e.Unpaced)
	asked := 100
	for _, scheme := range e2e.Schemes {
		for _, h2 := range []bool{false, true} {
			for accept, ctype := range map[string]string{
				"": "text/plain", "*/*": "text/plain", "text/html, application/json;q=0.9": "application/problem+json",
				"application/problem+json": "application/problem+json", "application/json": "application/problem+json",
			} {
				asked++
				url := o.URL(scheme, "/cgi?"+strconv.Itoa(asked))
				got := e2e.Get(t, p.Client(t, h2), url, "User-Agent", "Mozilla/5.0 (compatible; RuleBot/2.1; +https://rule.test)", "Accept", accept)
				r := e2e.OnlyRecord(t, p.Audit, url)
				e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
				if have := got.Header.Get("Content-Type"); !strings.HasPrefix(have, ctype) {
					t.Errorf("Accept %q: Content-Type %q, want %q", accept, have, ctype)
				}
				e2e.WantNames(t, got, "/cgi?", 20, "rulebot", o.URL(scheme, "/robots.txt"))
				e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
				if r.Agent != "RuleBot" || r.Group != "rulebot" || r.Rule != "/cgi?" || r.Line != 20 || r.Method != http.MethodGet {
					t.Errorf("record %+v", r)
				}
			}
		}
		if n := len(o.Pages(scheme)); n != 0 {
			t.Errorf("%s: %d pages arrived", scheme, n)
		}
	}
}

// All methods are judged alike. Everyone may request robots.txt itself.
func TestMethodsAndRobotsItself(t *testing.T) {
	t.Parallel()
	robots := "User-agent: *\nDisallow: /\n"
	o := e2e.NewOrigin(t, "methods", robots)
	o.Handle("/a", e2e.UploadPage)
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, false)
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"} {
		got := e2e.Do(t, client, method, o.URL("http", "/a"), strings.NewReader("body"))
		e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
	}
	if n := len(o.Pages("http")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	if got := e2e.Get(t, client, o.URL("http", "/robots.txt")); got.Status != http.StatusOK || string(got.Body) != robots {
		t.Errorf("robots.txt through the proxy: %v", got)
	}
	if r := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/robots.txt")); r.Decision != "allow" || r.WaitMS != 0 {
		t.Errorf("record of robots.txt: %+v", r)
	}
}

// An origin that was reached without a usable robots.txt: nothing is fetched for a while.
func TestUnreachableRobots(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests} {
		o := e2e.NewOrigin(t, "down", "")
		o.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
		for _, scheme := range e2e.Schemes {
			for i := range 3 {
				url := o.URL(scheme, "/a?"+strconv.Itoa(i))
				got := e2e.Get(t, p.Client(t, false), url)
				r := e2e.OnlyRecord(t, p.Audit, url)
				e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
				e2e.WantBlocked(t, r, "unreachable", http.StatusForbidden)
				if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < 1 || after > 31 {
					t.Errorf("robots.txt answers %d: Retry-After %q, want up to 30 s", status, got.Header.Get("Retry-After"))
				}
			}
			if pages, all := len(o.Pages(scheme)), len(o.Arrivals(scheme)); pages != 0 || all != 1 {
				t.Errorf("robots.txt answers %d: %d pages arrived, robots.txt was fetched %d times", status, pages, all-pages)
			}
		}
	}
}

// A missing file allows everything. Each such response applies to its own origin.
func TestMissingRobots(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusGone, http.StatusUnauthorized} {
		o := e2e.NewOrigin(t, "nofile", "")
		o.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
		if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/a")); got.Status != http.StatusOK {
			t.Errorf("robots.txt answers %d: %v", status, got)
		}
		if r := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/a")); r.Reason != "no-file" || r.Decision != "allow" {
			t.Errorf("robots.txt answers %d: record %+v", status, r)
		}
	}
}

// If robots.txt is redirected, even to another host, its rules apply to the host that was
// requested.
func TestRedirectedRobots(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced)
	other := e2e.NewOrigin(t, "elsewhere", "")
	other.Handle("/rules", e2e.TextPage("text/plain", "User-agent: *\nDisallow: /private\n"))
	o := e2e.NewOrigin(t, "moved", "")
	o.Handle("/robots.txt", http.RedirectHandler(other.URL("https", "/rules"), http.StatusMovedPermanently).ServeHTTP)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	client := p.Client(t, false)
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/private")), http.StatusForbidden, "http_request_denied")
	if got := e2e.Get(t, client, o.URL("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("%v", got)
	}
	if pages, all := len(other.Pages("https")), len(other.Arrivals("https")); pages != 1 || all != 2 {
		t.Errorf("the other host saw %d requests, %d of them for the file; want one, and one for its own robots.txt", all, pages)
	}
}

func TestWaitTooLong(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "toolong", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": 0.05, "pace.max_wait": "10s"})
	for _, scheme := range e2e.Schemes {
		client := p.Client(t, false)
		if got := e2e.Get(t, client, o.URL(scheme, "/a?first")); scheme == "http" && got.Status != http.StatusOK {
			t.Errorf("the first: %v", got)
		}
		got := e2e.Get(t, client, o.URL(scheme, "/a?second"))
		r := e2e.OnlyRecord(t, p.Audit, o.URL(scheme, "/a?second"))
		e2e.WantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
		e2e.WantBlocked(t, r, "pace", http.StatusTooManyRequests)
		if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < 1 || after > 21 {
			t.Errorf("Retry-After %q, want up to 20 s", got.Header.Get("Retry-After"))
		}
	}
	// One host has one pace for both schemes: the first request with http took the slot
	// of both.
	if n := len(o.Pages("http")) + len(o.Pages("https")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
}

// A client that leaves the queue costs nobody a slot. Otherwise the last request would wait
// longer than its client.
func TestLeavingTheQueue(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	const leavers, gap = 40, time.Second
	o := e2e.NewOrigin(t, "leave", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": 1 / gap.Seconds()})
	client := p.Client(t, false)
	e2e.Get(t, client, o.URL("http", "/a?first"))
	for i := range leavers {
		w := p.Dial(t)
		w.Send(t, "GET "+o.URL("http", "/a?gone"+strconv.Itoa(i))+" HTTP/1.1", "Host: "+o.Hostport("http"))
		w.Close()
	}
	if got := e2e.Get(t, client, o.URL("http", "/a?last")); got.Status != http.StatusOK {
		t.Errorf("%v", got)
	}
	if n := len(o.Pages("http")); n >= leavers/2 {
		t.Errorf("%d pages arrived, want little more than the 2 whose clients stayed", n)
	}
}

// mode: monitor records what it would have done, and refuses nothing.
func TestMonitor(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "monitor", "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n")
	o.Handle("/private", e2e.TextPage("text/plain", "shown"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"mode": "monitor"}))
	for _, scheme := range e2e.Schemes {
		got := e2e.Get(t, p.Client(t, true), o.URL(scheme, "/private"))
		if got.Status != http.StatusOK || string(got.Body) != "shown" || got.Header.Get("Proxy-Status") != "" {
			t.Errorf("%s: %v", scheme, got)
		}
		r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, "/private"))
		if r.Decision != "block" || r.Reason != "rule" || r.Enforced == nil || *r.Enforced || r.Rule != "/private" || r.Status != http.StatusOK {
			t.Errorf("%s: record %+v", scheme, r)
		}
	}
}

// Without allow_private, nothing on loopback can be reached, by any name.
func TestForbiddenAddresses(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "private", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": nil}))
	metadata, _ := e2e.NewName("metadata")
	e2e.Names.Point(metadata, netip.MustParseAddr("169.254.169.254"))
	mapped, _ := e2e.NewName("mapped")
	e2e.Names.Point(mapped, netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("64:ff9b::7f00:1"))
	for _, scheme := range e2e.Schemes {
		port := ":" + strconv.Itoa(o.Ports[scheme])
		for _, host := range []string{o.Name, o.Addr(), "localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", metadata, mapped, "10.1.2.3", "[fd00::1]"} {
			url := scheme + "://" + host + port + "/a"
			w := p.Dial(t)
			method := http.MethodGet
			if scheme == "https" {
				method = http.MethodConnect
				w.Send(t, "CONNECT "+host+port+" HTTP/1.1", "Host: "+host+port)
			} else {
				w.Send(t, "GET "+url+" HTTP/1.1", "Host: "+host+port)
			}
			got := w.Receive(t, method)
			if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
				e2e.WantOwn(t, got, http.StatusForbidden, "destination_ip_prohibited")
			} else {
				e2e.WantOwn(t, got, http.StatusBadGateway, "dns_error")
			}
			if t.Failed() {
				t.Fatalf("that was %s", url)
			}
		}
	}
	if n := o.Connections(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		e2e.WantBlocked(t, r, "address", r.Status)
	}
}

func TestForbiddenPorts(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "port", "")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.ports": []any{80, 443}}))
	for _, target := range []string{o.Name + ":22", o.Name + ":25", o.Addr() + ":6379"} {
		w := p.Dial(t)
		w.Send(t, "GET http://"+target+"/a HTTP/1.1", "Host: "+target)
		got := w.Receive(t, http.MethodGet)
		e2e.WantBlocked(t, e2e.OnlyRecord(t, p.Audit, "http://"+target+"/a"), "port", http.StatusForbidden)
		e2e.WantOwn(t, got, http.StatusForbidden, "destination_ip_prohibited")
		w = p.Dial(t)
		w.Send(t, "CONNECT "+target+" HTTP/1.1", "Host: "+target)
		e2e.WantOwn(t, w.Receive(t, http.MethodConnect), http.StatusForbidden, "destination_ip_prohibited")
	}
	if n := o.Connections(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}
