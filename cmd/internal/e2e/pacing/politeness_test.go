package pacing

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// slowRobots has a delay of slowDelay and disallows /private/ on line slowLine, a number that
// occurs nowhere else in a response.
var slowRobots = strings.Repeat("# nothing\n", slowLine-2) + "User-agent: *\nDisallow: /private/\nCrawl-delay: 0.3\n"

const (
	slowLine  = 41
	slowDelay = 300 * time.Millisecond
)

// quick is a pace that is limited only by robots.txt.
var quick = e2e.Settings{"pace.requests_per_second": 1000}

// hourRobots has a delay for which no test waits, and refusing is a configuration that applies
// it: a request that would have to wait is refused.
const hourRobots = "User-agent: *\nCrawl-delay: 3600\n"

var refusing = e2e.Settings{"pace.requests_per_second": 0.02, "pace.max_wait": "1s", "robots.max_crawl_delay": "1h"}

func TestPeersAreMadePolite(t *testing.T) {
	t.Parallel()
	for _, who := range e2e.Peers {
		t.Run(who.Name, func(t *testing.T) {
			t.Parallel()
			argv := who.Need(t)
			o := e2e.NewOrigin(t, who.Name, slowRobots)
			bodies := map[string][]byte{"/a": e2e.RandomBytes(1 << 10), "/b": e2e.RandomBytes(64 << 10), "/c?x=1&y=%2F": e2e.RandomBytes(99)}
			for path, body := range bodies {
				bare, _, _ := strings.Cut(path, "?")
				o.Handle(bare, e2e.SizedPage(body))
			}
			o.Handle("/private/x", e2e.TextPage("text/plain", "secret"))
			p := e2e.StartProxy(t, quick)
			t.Run("visit", func(t *testing.T) {
				for _, scheme := range e2e.Schemes {
					t.Run(scheme, func(t *testing.T) {
						t.Parallel() // two origins of one host
						politeVisit(t, who, argv, p, o, scheme, bodies)
					})
				}
			})
			e2e.WantGaps(t, append(o.Pages("http"), o.Pages("https")...), slowDelay)
		})
	}
}

// politeVisit makes the peer request allowed and disallowed pages of one scheme.
func politeVisit(t *testing.T, who e2e.Peer, argv []string, p *e2e.Proxy, o *e2e.Origin, scheme string, bodies map[string][]byte) {
	paths := []string{"/a", "/private/x", "/b", "/c?x=1&y=%2F"}
	var urls []string
	for _, path := range paths {
		urls = append(urls, o.URL(scheme, path))
	}
	for i, got := range who.Fetch(t, argv, p.Env(t), urls) {
		if paths[i] == "/private/x" {
			e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
			e2e.WantNames(t, got, "/private/", slowLine, "*", o.URL(scheme, "/robots.txt"))
			r := e2e.AwaitRecord(t, p.Audit, urls[i])
			e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
			if r.Rule != "/private/" || r.Line != slowLine || r.Group != "*" {
				t.Errorf("record names rule %q, line %d, group %q", r.Rule, r.Line, r.Group)
			}
			e2e.WantFile(t, r, o, scheme, slowRobots)
			continue
		}
		if got.Status != http.StatusOK || !bytes.Equal(got.Body, bodies[paths[i]]) {
			t.Errorf("%s %s: %v; want 200 and %d bytes, identical", scheme, paths[i], got, len(bodies[paths[i]]))
		}
		r := e2e.AwaitRecord(t, p.Audit, urls[i])
		// curl closes an HTTP/2 connection as soon as it has the announced bytes:
		// net/http may learn of that before it knows that it has written them.
		left := who.Name == "curl-h2" && scheme == "https" && r.Error == "client disconnected"
		if r.Decision != "allow" || r.Reason != "no-rule" || r.Status != http.StatusOK || r.Bytes != int64(len(bodies[paths[i]])) && !left {
			t.Errorf("record of an allowed page: %+v", r)
		}
		if want := slowDelay.Seconds(); r.CrawlDelay != want || r.CrawlAsked != want {
			t.Errorf("crawl_delay_s %v, asked %v, want %v", r.CrawlDelay, r.CrawlAsked, want)
		}
		e2e.WantFile(t, r, o, scheme, slowRobots)
	}
	e2e.WantPolite(t, o, scheme, len(bodies), slowDelay)
}

// Many connections to one host share one queue: the delay holds across clients, schemes
// of tunnels and protocol versions.
func TestOneHostOnePace(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "onepace", slowRobots)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, quick)
	var all sync.WaitGroup
	for i := range 4 {
		client := p.Client(t, i%2 == 0)
		all.Go(func() {
			if got := e2e.Get(t, client, o.URL("https", "/a?"+strconv.Itoa(i))); got.Status != http.StatusOK {
				t.Errorf("%v", got)
			}
		})
	}
	all.Wait()
	e2e.WantPolite(t, o, "https", 4, slowDelay)
}

// One HTTP/2 connection with many streams at once is paced in the same way.
func TestParallelStreamsArePaced(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "streams", slowRobots)
	var urls []string
	for _, path := range []string{"/a", "/b", "/c"} {
		o.Handle(path, e2e.TextPage("text/plain", path+"\n"))
		urls = append(urls, o.URL("https", path), o.URL("https", "/private"+path))
	}
	p := e2e.StartProxy(t, quick)
	out := e2e.RunPeer(t, append([]string{curl, "-q", "-sS", "--http2", "--parallel", "-w", "%{http_code}\\n", "--remote-name-all", "--output-dir", t.TempDir()}, urls...), p.Env(t))
	if got := strings.Count(out.Stdout, "403"); got != 3 {
		t.Errorf("%d refusals, want 3:\n%s%s", got, out.Stdout, out.Stderr)
	}
	e2e.WantPolite(t, o, "https", 3, slowDelay)
}

// The default pace is one request a second, and a host does not wait for another.
func TestHostsArePacedApart(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	one, held := e2e.NewOrigin(t, "apart", ""), e2e.NewOrigin(t, "apart", hourRobots)
	p := e2e.StartProxy(t, e2e.Settings{"pace.adaptive": false, "pace.max_wait": "2h", "robots.max_crawl_delay": "1h"})
	client := p.Client(t, false)
	e2e.Get(t, client, held.URL("http", "/a"))
	leave := abandon(t, client, held.URL("http", "/a?waits"))
	defer leave()
	p.AwaitMetric(t, e2e.Waiting, 1)
	for i := range 2 {
		e2e.Get(t, client, one.URL("http", "/a?"+strconv.Itoa(i)))
	}
	e2e.WantPolite(t, one, "http", 2, time.Second)
	e2e.WantPolite(t, held, "http", 1, 0)
}

// A Crawl-delay above the maximum is reduced to it, and the record has the one that the site
// asked for.
func TestCrawlDelayIsCapped(t *testing.T) {
	t.Parallel()
	const most = 500 * time.Millisecond
	o := e2e.NewOrigin(t, "capped", "User-agent: *\nCrawl-delay: 100\n")
	p := e2e.StartProxy(t, quick.With(e2e.Settings{"robots.max_crawl_delay": most.String()}))
	client := p.Client(t, false)
	var all sync.WaitGroup
	for i := range 2 { // a client waits at most testkit.Patience, which is less than 100 s
		all.Go(func() { e2e.Get(t, client, o.URL("http", "/a?"+strconv.Itoa(i))) })
	}
	all.Wait()
	e2e.WantPolite(t, o, "http", 2, most)
	var waited float64
	for i := range 2 {
		r := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/a?"+strconv.Itoa(i)))
		if r.CrawlDelay != most.Seconds() || r.CrawlAsked != 100 {
			t.Errorf("crawl_delay_s %v, asked %v; want %v and 100", r.CrawlDelay, r.CrawlAsked, most.Seconds())
		}
		waited = max(waited, r.WaitMS)
	}
	if waited == 0 {
		t.Error("no record says that its request had to wait")
	}
}
