package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// robotsSite starts an origin whose robots.txt is served by h.
func robotsSite(t *testing.T, h http.HandlerFunc) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/robots.txt", asked
}

// oneSlot allows only the first request.
var oneSlot = pace.Limits{PerSecond: 0.001, Burst: 1, MaxConcurrent: 1, MaxWait: time.Millisecond}

// TestRobotsTxtFromTheCache checks that many client requests for robots.txt cause one fetch.
func TestRobotsTxtFromTheCache(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nDisallow: /\nCrawl-delay: 10\n"
	const modified = "Tue, 20 Oct 2026 07:28:00 GMT"
	url, asked := robotsSite(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=iso-8859-1")
		h.Set("ETag", `"v1"`)
		h.Set("Last-Modified", modified)
		h.Set("Cache-Control", "max-age=3600")
		h.Set("Age", "100")
		h.Set("Set-Cookie", "a=b")
		io.WriteString(w, text)
	})
	r := start(t, setup{limits: oneSlot})
	c := r.client(false)
	for n, ask := range []struct {
		name, method, header, value string
		status                      int
		body                        string
	}{
		{"the first", "GET", "", "", 200, text},
		{"once more", "GET", "", "", 200, text},
		{"its head", "HEAD", "", "", 200, ""},
		{"RFC 9110 13.1.2: the same", "GET", "If-None-Match", `"v1"`, 304, ""},
		{"RFC 9110 13.1.2: another", "GET", "If-None-Match", `"v0"`, 200, text},
		{"RFC 9110 13.1.3: not modified", "GET", "If-Modified-Since", modified, 304, ""},
		{"RFC 9110 14.2: a range", "GET", "Range", "bytes=0-9", 206, text[:10]},
		{"Cache-Control: no-cache", "GET", "Cache-Control", "no-cache", 200, text},
	} {
		req, err := http.NewRequestWithContext(t.Context(), ask.method, url, nil)
		testkit.Must(t, err)
		if ask.header != "" {
			req.Header.Set(ask.header, ask.value)
		}
		resp, err := c.Do(req)
		testkit.Must(t, err)
		body, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		resp.Body.Close()
		if resp.StatusCode != ask.status || string(body) != ask.body {
			t.Errorf("%s: %s %q", ask.name, resp.Status, body)
		}
		h := resp.Header
		if h.Get("ETag") != `"v1"` || h.Get("Age") < "100" || h.Get("Proxy-Status") != "robotsproxy; hit" || h.Get("Via") == "" || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", ask.name, h)
		}
		if ask.status == 200 && (h.Get("Content-Type") != "text/plain; charset=iso-8859-1" || h.Get("Last-Modified") != modified || h.Get("Cache-Control") != "max-age=3600") {
			t.Errorf("%s: %v", ask.name, h)
		}
		rec := r.records.last(t, n+1)
		if !rec.Cached || rec.Slot || rec.Status != ask.status || rec.Bytes != int64(len(ask.body)) || rec.Decision.Reason != policy.ReasonRobotsTxt || rec.Decision.Ruling.Result == nil {
			t.Errorf("%s: record %+v", ask.name, rec)
		}
	}
	if got := asked.Load(); got != 1 {
		t.Errorf("the origin was asked %d times", got)
	}
}

// TestMissingRobotsTxtIsCached checks that the error response for a missing robots.txt is cached too.
func TestMissingRobotsTxtIsCached(t *testing.T) {
	t.Parallel()
	url, asked := robotsSite(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no such page", http.StatusGone) })
	r := start(t, setup{limits: oneSlot})
	c := r.client(false)
	for range 3 {
		if resp, body, err := get(c, url); err != nil || resp.StatusCode != http.StatusGone || len(body) != 0 || resp.Header.Get("Proxy-Status") != "robotsproxy; hit" {
			t.Errorf("%v, %q, %v", resp, body, err)
		}
	}
	if got := asked.Load(); got != 1 {
		t.Errorf("the origin was asked %d times", got)
	}
}

// TestRobotsTxtFromTheCacheIsPaced checks that a client gets 1,000 responses, then 100 a second.
func TestRobotsTxtFromTheCacheIsPaced(t *testing.T) {
	url, _ := robotsSite(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, rules) })
	r := start(t, setup{limits: oneSlot})
	c, began := r.client(false), time.Now()
	for range 1000 + 50 {
		if resp, _, err := get(c, url); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	if took := time.Since(began); took < 490*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

// TestRobotsTxtNotFromTheCache covers files that the cache cannot serve: the requests go out, and are paced.
func TestRobotsTxtNotFromTheCache(t *testing.T) {
	t.Parallel()
	const robotsRule = "User-agent: *\nDisallow: /\n"
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		status   int
		host     policy.Host
		arrivals int
	}{
		"the origin fails": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, 500, policy.Host{}, 3},
		"possibly truncated": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, robotsRule+strings.Repeat("#", robots.MaxBytes))
		}, 200, policy.Host{}, 3},
		"redirects without a target": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) }, 302, policy.Host{}, 3},
		"an override skips robots.txt": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, robotsRule) }, 200,
			policy.Host{Match: "*", Robots: policy.Ignore, Reason: "ours"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			const gap = 100 * time.Millisecond
			var mu sync.Mutex
			var arrived []time.Time
			url, _ := robotsSite(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				arrived = append(arrived, time.Now())
				mu.Unlock()
				c.answer(w, r)
			})
			limits := pace.Limits{PerSecond: float64(time.Second / gap), Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 9}
			r := start(t, setup{limits: limits, policyOptions: func(o *policy.Options) {
				if c.host.Match != "" {
					o.Hosts = []policy.Host{c.host}
				}
			}})
			client := r.client(false)
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			begun := time.Now()
			for range 2 {
				resp, _, err := get(client, url)
				testkit.Must(t, err)
				if resp.StatusCode != c.status || resp.Header.Get("Proxy-Status") != "" {
					t.Errorf("%s, %v", resp.Status, resp.Header)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(arrived) != c.arrivals {
				t.Errorf("the origin was asked %d times, want %d", len(arrived), c.arrivals)
			}
			checkPace(t, begun, arrived, gap)
		})
	}
}

// TestRobotsTxtKeepsTheCrawlDelay checks that a request for robots.txt keeps the crawl delay of the file.
func TestRobotsTxtKeepsTheCrawlDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ method, upgrade, padding string }{
		"another method":            {"POST", "", ""},
		"a WebSocket handshake":     {"GET", "websocket", ""},
		"a possibly truncated file": {"GET", "", strings.Repeat("#", robots.MaxBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			url, asked := robotsSite(t, func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "User-agent: *\nDisallow: /\nCrawl-delay: 10\n"+c.padding)
			})
			r := start(t, setup{limits: pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 9}})
			client := r.client(false)
			for n := range 2 {
				req, err := http.NewRequestWithContext(t.Context(), c.method, url, nil)
				testkit.Must(t, err)
				if c.upgrade != "" {
					req.Header.Set("Connection", "Upgrade")
					req.Header.Set("Upgrade", c.upgrade)
				}
				resp, err := client.Do(req)
				testkit.Must(t, err)
				resp.Body.Close()
				if resp.StatusCode != http.StatusTooManyRequests {
					t.Errorf("request %d: %s", n, resp.Status)
				}
				if rec := r.records.last(t, n+1); rec.Decision.Pace.CrawlDelay != 10*time.Second {
					t.Errorf("request %d: %v active", n, rec.Decision.Pace.CrawlDelay)
				}
			}
			if got := asked.Load(); got != 1 { // the fetch, which shares no slot with these requests
				t.Errorf("the origin was asked %d times", got)
			}
		})
	}
}
