package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// A world is a Server over the real feed, audit, cache, pace and engine; only the
// sites are made up.
type world struct {
	*Server
	feed   *live.Feed
	log    *audit.Log
	pacer  *pace.Pacer
	book   *cache.Cache
	engine *policy.Engine
	sites  *origins
	ids    *audit.IDs
	url    string

	reloads chan error // what the next reload comes to
	unwell  func() error
}

// origins are robots.txt files by host; one that begins with a digit is a status alone.
type origins struct {
	mu    sync.Mutex
	texts map[string]string
	asked int
}

func (s *origins) set(host, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[host] = text
}

func (s *origins) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	text, known := s.texts[r.URL.Hostname()]
	answer := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"text/plain"}}, Request: r}
	switch {
	case !known:
		return nil, errors.New("connection refused")
	case text == "503":
		answer.StatusCode, text = http.StatusServiceUnavailable, ""
	case text == "404":
		answer.StatusCode, text = http.StatusNotFound, ""
	}
	answer.Body = io.NopCloser(strings.NewReader(text))
	return answer, nil
}

func newWorld(t testing.TB, texts map[string]string, change ...func(*Options)) *world {
	t.Helper()
	w := &world{sites: &origins{texts: maps.Clone(texts)}, ids: audit.NewIDs(), pacer: pace.New(pace.Options{}), reloads: make(chan error, 10), unwell: func() error { return nil }}
	t.Cleanup(w.pacer.Close)
	var err error
	client, err := fetch.New(fetch.Options{Sender: fetch.Unpaced(w.sites)})
	check(t, err)
	w.book, err = cache.New(cache.Options{Fetcher: client})
	check(t, err)
	w.engine, err = policy.New(policy.Options{
		Book: w.book, Pace: pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 2, MaxWait: time.Minute, MaxQueue: 500},
	})
	check(t, err)
	w.feed, err = live.New(live.Options{Waiting: func() int { return w.pacer.Stats().Waiting }})
	check(t, err)
	quiet := slog.New(slog.DiscardHandler)
	w.log, err = audit.Open(audit.Options{File: filepath.Join(t.TempDir(), "audit.jsonl"), Tap: w.feed.Tap, Log: quiet})
	check(t, err)
	t.Cleanup(func() { w.log.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	o := Options{
		Healthy: func() error { return w.unwell() }, Ready: func() error { return nil }, Log: quiet,
		Live: w.feed, Cache: w.book, Pacer: w.pacer, Dialect: robots.Standard, Explain: w.engine.Decide, Query: w.engine.Query,
		Clients: func() []string { return []string{"lab-a", "lab-b", "a", "b"} },
		Reload:  func(context.Context) error { return <-w.reloads },
		CAPEM:   func() []byte { return []byte("-----BEGIN CERTIFICATE-----\n") }, Proxy: l.Addr(), Version: "1.2.3",
	}
	for _, c := range change {
		c(&o)
	}
	w.Server, err = New(o)
	check(t, err)
	w.url = "http://" + l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- w.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // a browser may hold a connection on which it has said nothing yet: of net/http these have five
		defer cancel()
		check(t, w.Shutdown(ctx))
		check(t, <-served)
	})
	return w
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A visit is a request that came to the proxy.
type visit struct {
	client, agent, method, url string
	waited                     time.Duration
	status                     int
	monitor                    bool
}

// come has a visit judged and recorded, as the proxy would.
func (w *world) come(t testing.TB, v visit) {
	t.Helper()
	u, err := url.Parse(v.url)
	check(t, err)
	o, err := robots.ParseOrigin(u.Scheme, u.Host)
	check(t, err)
	q := policy.Request{Client: v.client, Method: orGet(v.method), Origin: o, PathQuery: u.RequestURI(), UserAgent: v.agent}
	d := w.engine.Decide(t.Context(), q)
	r := &audit.Record{
		Time: time.Now(), ID: w.ids.Next(), Request: q, Decision: d, Waited: v.waited, Status: v.status, Bytes: 5120,
		Took: v.waited + 80*time.Millisecond, Monitor: v.monitor,
	}
	if r.Blocked() && !v.monitor {
		r.Status = http.StatusForbidden
	}
	w.record(t, r)
}

func orGet(method string) string {
	if method == "" {
		return http.MethodGet
	}
	return method
}

// record hands a record to all that are told of it.
func (w *world) record(t testing.TB, r *audit.Record) {
	t.Helper()
	check(t, audit.Fanout(w.log, w.feed).Write(r))
}

// hold has a host paused and a request wait for it, until the test ends.
func (w *world) hold(t testing.TB, host string, waiting int) {
	t.Helper()
	limits := pace.Limits{Key: host, PerSecond: .1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Hour, MaxQueue: 100}
	ctx, cancel := context.WithCancel(context.Background())
	slot, err := w.pacer.Wait(ctx, "a", limits)
	check(t, err)
	var all sync.WaitGroup
	for range waiting {
		all.Go(func() {
			if s, err := w.pacer.Wait(ctx, "b", limits); err == nil {
				s.Release()
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		slot.Release()
		all.Wait()
	})
}

// count is how often sites were asked for a robots.txt.
func (s *origins) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// sample is what ordinary sites say.
var sample = map[string]string{
	"www.example.org": strings.Join([]string{
		"# robots.txt of example.org", "User-agent: *", "Crawl-delay: 2", "Disallow: /private/", "Disallow: /search", "Allow: /search/about", "Disallow: /*.php$", "",
		"User-agent: GPTBot", "User-agent: CCBot", "Disallow: /", "", "User-agent: FooBot", "Disallow: /drafts/", "Allow: /", "", "Sitemap: https://www.example.org/sitemap.xml", "Noindex: /old",
	}, "\n"),
	"api.example.org":  "404",
	"news.example.net": "User-agent: *\nDisallow: /archive/\nDisallow: /comments/\n",
	"flaky.example":    "503",
	"shop.example.com": "User-agent: *\nDisallow: /cart\nDisallow: /checkout\nAllow: /\n",
}
