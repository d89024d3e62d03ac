package admin

import (
	"cmp"
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
	"robotsproxy/policy/stops"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// A testProxy is a Server over a real feed, audit log, cache, pacer and engine. Only the
// origins are fake.
type testProxy struct {
	*Server
	feed    *live.Feed
	log     *audit.Log
	pacer   *pace.Pacer
	cache   *cache.Cache
	engine  *policy.Engine
	origins *fakeOrigins
	url     string

	reloads chan error // results of the next reloads
	health  func() error
}

// fakeOrigins serves robots.txt files by host. The texts "404" and "503" are sent as statuses.
type fakeOrigins struct {
	mu       sync.Mutex
	texts    map[string]string
	requests int
}

func (f *fakeOrigins) set(host, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts[host] = text
}

func (f *fakeOrigins) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	text, known := f.texts[r.URL.Hostname()]
	resp := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"text/plain"}}, Request: r}
	switch {
	case !known:
		return nil, errors.New("connection refused")
	case text == "503":
		resp.StatusCode, text = http.StatusServiceUnavailable, ""
	case text == "404":
		resp.StatusCode, text = http.StatusNotFound, ""
	}
	resp.Body = io.NopCloser(strings.NewReader(text))
	return resp, nil
}

func newTestProxy(t testing.TB, texts map[string]string, change ...func(*Options)) *testProxy {
	t.Helper()
	w := &testProxy{origins: &fakeOrigins{texts: maps.Clone(texts)}, pacer: pace.New(pace.Options{}), reloads: make(chan error, 10), health: func() error { return nil }}
	t.Cleanup(w.pacer.Close)
	var err error
	client, err := fetch.New(fetch.Options{Sender: fetch.Unpaced(w.origins)})
	check(t, err)
	w.cache, err = cache.New(cache.Options{Fetcher: client})
	check(t, err)
	w.engine, err = policy.New(policy.Options{
		Cache: w.cache, Pace: pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 2, MaxWait: time.Minute, MaxQueue: 500},
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
		Healthy: func() error { return w.health() }, Ready: func() error { return nil }, Log: quiet,
		Live: w.feed, Cache: w.cache, Pacer: w.pacer, Dialect: robots.Standard, Explain: w.explain, Query: w.engine.Query,
		Engine:  func() *policy.Engine { return w.engine },
		Clients: func() []string { return []string{"lab-a", "lab-b", "a", "b"} },
		Reload:  func(context.Context) error { return <-w.reloads },
		CAPEM:   func() []byte { return []byte("-----BEGIN CERTIFICATE-----\n") }, Proxy: l.Addr(), Version: "1.2.3", BackOffEnded: w.log.BackOffEnded,
		Stops: stops.New(), Paused: w.log.Pause,
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
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // a browser may hold an unused connection, which net/http closes only after 5 s
		defer cancel()
		check(t, w.Shutdown(ctx))
		check(t, <-served)
	})
	return w
}

// explain decides a request, and says how long it would wait.
func (p *testProxy) explain(ctx context.Context, r policy.Request) (policy.Decision, time.Duration) {
	d := p.engine.Decide(ctx, r)
	wait, err := p.pacer.Forecast(r.Client, d.Pace)
	if d.Verdict == policy.Allow && err != nil {
		d.Err = err
	}
	return d, wait
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A visit is a request to the proxy.
type visit struct {
	client, agent, method, url string
	waited                     time.Duration
	status                     int
	monitor                    bool
}

// visit decides and records a request as the proxy would.
func (p *testProxy) visit(t testing.TB, v visit) {
	t.Helper()
	u, err := url.Parse(v.url)
	check(t, err)
	o, err := robots.ParseOrigin(u.Scheme, u.Host)
	check(t, err)
	q := policy.Request{Client: v.client, Method: cmp.Or(v.method, http.MethodGet), Target: robots.Target{Origin: o, PathQuery: u.RequestURI()}, UserAgent: v.agent}
	d := p.engine.Decide(t.Context(), q)
	r := &audit.Record{
		Time: time.Now(), ID: audit.NewID(), Request: q, Decision: d, Waited: v.waited, Status: v.status, Bytes: 5120,
		Took: v.waited + 80*time.Millisecond, Monitor: v.monitor,
	}
	if r.Blocked() && !v.monitor {
		r.Status = http.StatusForbidden
	}
	p.record(t, r)
}

// refuseUse records a refusal because of what a site states about uses of its content.
func (p *testProxy) refuseUse(t testing.TB) {
	t.Helper()
	stated := usage.FromRobots([]robots.UsageLine{{Number: 3, Text: "ai-train=no"}}, nil)
	p.record(t, &audit.Record{
		Time: time.Now(), ID: audit.NewID(), Status: http.StatusForbidden,
		Request: policy.Request{Client: "lab-a", Method: http.MethodGet, Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: "news.example.org", Port: 443}, PathQuery: "/reserved"}},
		Signed:  "key-1",
		Decision: policy.Decision{
			Reason: policy.ReasonUsage, Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI, usage.TDM)}, Licenses: "https://news.example.org/license.xml",
			Statements: append(stated, usage.FromResponse(http.Header{"Tdm-Reservation": {"1"}}, nil)...),
		},
	})
}

// record writes a record to the audit log and the feed.
func (p *testProxy) record(t testing.TB, r *audit.Record) {
	t.Helper()
	check(t, audit.Fanout(p.log, p.feed).Write(r))
}

// queueRequests makes requests wait for a host until the test ends.
func (p *testProxy) queueRequests(t testing.TB, host string, waiting int) {
	t.Helper()
	limits := pace.Limits{Key: host, PerSecond: .1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Hour, MaxQueue: 100}
	ctx, cancel := context.WithCancel(context.Background())
	slot, err := p.pacer.Wait(ctx, "a", limits)
	check(t, err)
	var all sync.WaitGroup
	for range waiting {
		all.Go(func() {
			if s, err := p.pacer.Wait(ctx, "b", limits); err == nil {
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

// requestCount returns the number of requests to the origins.
func (f *fakeOrigins) requestCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// sampleFiles are robots.txt files of ordinary sites.
var sampleFiles = map[string]string{
	"www.example.org": strings.Join([]string{
		"# robots.txt of example.org", "User-agent: *", "Crawl-delay: 2", "Disallow: /private/", "Disallow: /search", "Allow: /search/about", "Disallow: /*.php$", "",
		"User-agent: GPTBot", "User-agent: CCBot", "Disallow: /", "", "User-agent: FooBot", "Disallow: /drafts/", "Allow: /", "", "Sitemap: https://www.example.org/sitemap.xml", "Noindex: /old",
	}, "\n"),
	"api.example.org":  "404",
	"news.example.net": "User-agent: *\nDisallow: /archive/\nDisallow: /comments/\n",
	"flaky.example":    "503",
	"shop.example.com": "User-agent: *\nDisallow: /cart\nDisallow: /checkout\nAllow: /\n",
}
