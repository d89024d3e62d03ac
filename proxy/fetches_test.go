package proxy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// TestFetchesTakeSlots checks that robots.txt fetches for many ports of one host are paced by host.
func TestFetchesTakeSlots(t *testing.T) {
	t.Parallel()
	const ports, gap = 4, 100 * time.Millisecond
	var mu sync.Mutex
	var arrived []time.Time
	r := start(t, setup{limits: pace.Limits{PerSecond: float64(time.Second / gap), Burst: 1, MaxConcurrent: 9, MaxWait: time.Minute, MaxQueue: 99}})
	c := r.client(false)
	var wg sync.WaitGroup
	begun := time.Now()
	for range ports {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path == "/robots.txt" {
				arrived = append(arrived, time.Now())
			}
		}))
		t.Cleanup(s.Close)
		wg.Go(func() {
			if resp, _, err := get(c, s.URL+"/page"); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%v, %v", resp, err)
			}
		})
	}
	wg.Wait()
	checkPace(t, begun, arrived, gap)
	if len(arrived) != ports {
		t.Errorf("%d fetches arrived, want %d", len(arrived), ports)
	}
}

// checkPace checks when requests arrived that are sent at least gap apart, from begun on. Two can arrive closer
// together, but none before it was sent.
func checkPace(t *testing.T, begun time.Time, arrived []time.Time, gap time.Duration) {
	t.Helper()
	for i, at := range arrived {
		if d := at.Sub(begun); d < time.Duration(i)*gap-time.Millisecond {
			t.Errorf("request %d arrived after %v", i, d)
		}
	}
}

// TestFetchOfABackedOffHost checks that clients get a Retry-After, no result is cached, and nothing is sent.
func TestFetchOfABackedOffHost(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	limits := pace.Limits{PerSecond: 1000, Burst: 1, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 99}
	r := start(t, setup{limits: limits, change: func(o *proxy.Options) { o.BackOff = true }})
	c := r.client(false)
	for i, want := range []int{http.StatusForbidden, http.StatusForbidden} { // unreachable (RFC 9309 2.3.1.4), and not fetched again
		if resp, _, err := get(c, s.URL+"/page"); err != nil || resp.StatusCode != want {
			t.Errorf("%d: %v, %v", i, resp, err)
		}
	}
	other := strings.Replace(s.URL, "127.0.0.1", "localhost", 1) // another host has its own back-off
	if resp, _, err := get(c, other+"/page"); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v", resp, err)
	}
	mu.Lock()
	if fmt.Sprint(asked) != "[/robots.txt /robots.txt]" {
		t.Errorf("asked for %q", asked)
	}
	mu.Unlock()
	// second is another origin of the host in back-off.
	second := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(second.Close)
	for range 2 {
		resp, body, err := get(c, second.URL+"/page")
		testkit.Must(t, err)
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || strings.Contains(body, "fetched") {
			t.Errorf("%s, Retry-After %q, %s", resp.Status, resp.Header.Get("Retry-After"), body)
		}
	}
	if rec := r.records.of(t, policy.ReasonPace); rec.BackOff == 0 || rec.BackOffBy != s.URL+"/robots.txt" || rec.Decision.Ruling.Result.UserAgent != "" {
		t.Errorf("record: %+v", rec)
	}
}

// TestRetryAfterOfAFailedFetch: Retry-After is the later of the next fetch and the end of the back-off.
func TestRetryAfterOfAFailedFetch(t *testing.T) {
	t.Parallel()
	for origin, atLeast := range map[string]int{"": 1, "5": 20, "600": 590} { // the file is fetched again after 30 s
		t.Run("Retry-After: "+origin, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if origin != "" {
					w.Header().Set("Retry-After", origin)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(s.Close)
			r := start(t, setup{change: func(o *proxy.Options) { o.BackOff = true }})
			resp, _, err := get(r.client(false), s.URL+"/page")
			testkit.Must(t, err)
			after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if err != nil || after < atLeast || after > max(atLeast+10, 30) {
				t.Errorf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
			}
		})
	}
}

// TestFetchThatMayNotBeRepeated checks that a fetch that failed without a retry is in the record.
func TestFetchThatMayNotBeRepeated(t *testing.T) {
	t.Parallel()
	var fetches proxy.Fetches
	limits := pace.Limits{PerSecond: 1e6, Burst: 1, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 99}
	start(t, setup{limits: limits, change: func(o *proxy.Options) {
		o.Pacer = pace.New(pace.Options{})
		fetches.Pacer, fetches.Rules = o.Pacer, &o.Rules
	}})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.Redirect(w, r, "/moved", http.StatusFound)
			return
		}
		limits.Key = "127.0.0.1"
		slot, err := fetches.Pacer.Wait(t.Context(), "", limits)
		if err != nil {
			t.Error(err)
		}
		slot.BackOff(time.Hour, "id")
		slot.Release()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	var hops []string
	client, err := fetch.New(fetch.Options{Sender: &fetches, IsOwnFailure: proxy.FetchFailedHere, Record: func(r fetch.Report) error {
		hops = r.Hops
		return nil
	}})
	testkit.Must(t, err)
	o, err := robots.ParseOrigin("http", strings.TrimPrefix(s.URL, "http://"))
	testkit.Must(t, err)
	if a := client.Fetch(t.Context(), fetch.Request{Origin: o}); a.Err == nil || !a.OwnFailure {
		t.Errorf("answer: %+v", a)
	}
	if want := []string{s.URL + "/robots.txt", s.URL + "/moved"}; !slices.Equal(hops, want) {
		t.Errorf("recorded %q, want %q", hops, want)
	}
}

// TestRedirectedFetchKeepsTheCrawlDelay checks that a site cannot have the proxy request another host's robots.txt sooner
// than the Crawl-delay of that host permits.
func TestRedirectedFetchKeepsTheCrawlDelay(t *testing.T) {
	t.Parallel()
	_, l := testkit.ListenTwice(t, "127.0.0.1", "127.0.0.2")
	slow := route{}.serveOn(t, l, "User-agent: *\nCrawl-delay: 10\n", hello)
	from := httptest.NewServer(http.RedirectHandler(slow.URL+"/robots.txt", http.StatusFound))
	t.Cleanup(from.Close)
	c := start(t, setup{limits: pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 9}}).client(false)
	for _, visit := range []struct {
		url  string
		want int
	}{{slow.URL, http.StatusOK}, {from.URL, http.StatusForbidden}} {
		if resp, body, err := get(c, visit.url+"/page"); err != nil || resp.StatusCode != visit.want {
			t.Errorf("%v, %s, %v; want %d", resp, body, err, visit.want)
		}
	}
	if got := slow.paths(); !slices.Equal(got, []string{"/robots.txt", "/page"}) {
		t.Errorf("the slow host saw %q", got)
	}
}
