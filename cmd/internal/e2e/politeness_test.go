package e2e

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowRobots asks for a second between requests and forbids /private/ on a
// line that no other number of an answer is like.
var slowRobots = strings.Repeat("# nothing\n", 39) + "User-agent: *\nDisallow: /private/\nCrawl-delay: 1\n"

const slowRobotsLine = 41

// early is how much closer than the delay two arrivals may come: the time
// between the proxy's clock and the wire on a machine that has other work.
const early = 5 * time.Millisecond

// One after the other: the pace is judged to the millisecond.
func TestPeersAreMadePolite(t *testing.T) {
	for _, who := range peers {
		t.Run(who.name, func(t *testing.T) {
			argv := who.need(t)
			o := newOrigin(t, who.name, slowRobots)
			bodies := map[string][]byte{"/a": octets(1 << 10), "/b": octets(64 << 10), "/c?x=1&y=%2F": octets(99)}
			for path, body := range bodies {
				bare, _, _ := strings.Cut(path, "?")
				o.handle(bare, sizedPage(body))
			}
			o.handle("/private/x", textPage("text/plain", "secret"))
			p := startProxy(t, settings{})
			t.Run("visit", func(t *testing.T) {
				for _, scheme := range schemes {
					t.Run(scheme, func(t *testing.T) {
						t.Parallel() // with each other alone: two origins, one host
						politeVisit(t, who, argv, p, o, scheme, bodies)
					})
				}
			})
			wantGaps(t, append(o.pages("http"), o.pages("https")...), time.Second)
		})
	}
}

// politeVisit sends the peer to allowed and forbidden pages of one scheme.
func politeVisit(t *testing.T, who peer, argv []string, p *proxy, o *origin, scheme string, bodies map[string][]byte) {
	paths := []string{"/a", "/private/x", "/b", "/c?x=1&y=%2F"}
	var urls []string
	for _, path := range paths {
		urls = append(urls, o.url(scheme, path))
	}
	for i, got := range who.fetch(t, argv, p.env(t), urls) {
		if paths[i] == "/private/x" {
			wantOwn(t, got, http.StatusForbidden, "http_request_denied")
			wantNames(t, got, "/private/", slowRobotsLine, "*", o.url(scheme, "/robots.txt"))
			r := awaitRecord(t, p.audit, urls[i])
			wantBlocked(t, r, "rule", http.StatusForbidden)
			if r.Rule != "/private/" || r.Line != slowRobotsLine || r.Group != "*" {
				t.Errorf("record names rule %q, line %d, group %q", r.Rule, r.Line, r.Group)
			}
			wantFile(t, r, o, scheme, slowRobots)
			continue
		}
		if got.Status != http.StatusOK || !bytes.Equal(got.Body, bodies[paths[i]]) {
			t.Errorf("%s %s: %v; want 200 and %d octets, identical", scheme, paths[i], got, len(bodies[paths[i]]))
		}
		r := awaitRecord(t, p.audit, urls[i])
		// curl closes an HTTP/2 connection as soon as it has the octets that it was
		// promised: net/http may hear of that before it hears that it has written them.
		left := who.name == "curl-h2" && scheme == "https" && r.Error == "client disconnected"
		if r.Decision != "allow" || r.Reason != "no-rule" || r.Status != http.StatusOK || r.Bytes != int64(len(bodies[paths[i]])) && !left {
			t.Errorf("record of an allowed page: %+v", r)
		}
		if r.CrawlDelay != 1 || r.CrawlAsked != 1 {
			t.Errorf("crawl_delay_s %v, asked %v, want 1", r.CrawlDelay, r.CrawlAsked)
		}
		wantFile(t, r, o, scheme, slowRobots)
	}
	wantPolite(t, o, scheme, len(bodies), time.Second)
}

// wantFile holds a record against the robots.txt it must rest on.
func wantFile(t testing.TB, r record, o *origin, scheme, text string) {
	t.Helper()
	if r.RobotsURL != o.url(scheme, "/robots.txt") || r.RobotsSHA256 != digest([]byte(text)) {
		t.Errorf("record rests on %q, %s", r.RobotsURL, r.RobotsSHA256)
	}
	at, err := time.Parse(time.RFC3339Nano, r.RobotsFetched)
	if err != nil || at.After(time.Now()) || time.Since(at) > 2*patience {
		t.Errorf("robots_fetched %q: %v", r.RobotsFetched, err)
	}
}

// wantPolite holds an origin's log against what the proxy promises it:
// robots.txt first and once, n pages, nothing forbidden, and the delay kept.
func wantPolite(t testing.TB, o *origin, scheme string, n int, delay time.Duration) {
	t.Helper()
	all := o.arrivals(scheme)
	if len(all) == 0 || all[0].Path != "/robots.txt" {
		t.Errorf("%s: the first of %d arrivals is not robots.txt", scheme, len(all))
	}
	pages := o.pages(scheme)
	if len(all)-len(pages) != 1 {
		t.Errorf("%s: robots.txt was fetched %d times", scheme, len(all)-len(pages))
	}
	if len(pages) != n {
		t.Errorf("%s: %d pages arrived, want %d", scheme, len(pages), n)
	}
	for _, h := range pages {
		if strings.HasPrefix(h.Path, "/private") {
			t.Errorf("%s: %s arrived", scheme, h.Path)
		}
	}
	wantGaps(t, pages, delay)
}

// wantGaps holds the arrivals of one host, whatever their scheme, against the delay.
func wantGaps(t testing.TB, pages []hit, delay time.Duration) {
	t.Helper()
	slices.SortFunc(pages, func(a, b hit) int { return a.At.Compare(b.At) })
	for i := 1; i < len(pages); i++ {
		if gap := pages[i].At.Sub(pages[i-1].At); gap < delay-early {
			t.Errorf("%s %s arrived %v after %s, want %v", pages[i].Scheme, pages[i].Path, gap, pages[i-1].Path, delay)
		}
	}
}

// A herd of connections to one host stands in one queue: the delay holds
// across clients, schemes of tunnel and protocol versions.
func TestOneHostOnePace(t *testing.T) {
	o := newOrigin(t, "onepace", slowRobots)
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{})
	var all sync.WaitGroup
	for i := range 4 {
		client := p.client(t, i%2 == 0)
		all.Go(func() {
			if got := get(t, client, o.url("https", "/a?"+itoa(i))); got.Status != http.StatusOK {
				t.Errorf("%v", got)
			}
		})
	}
	all.Wait()
	wantPolite(t, o, "https", 4, time.Second)
}

// One HTTP/2 connection with many streams at once is paced no less.
func TestParallelStreamsArePaced(t *testing.T) {
	curl := needPeer(t, "curl")
	o := newOrigin(t, "streams", slowRobots)
	var urls []string
	for _, path := range []string{"/a", "/b", "/c"} {
		o.handle(path, textPage("text/plain", path+"\n"))
		urls = append(urls, o.url("https", path), o.url("https", "/private"+path))
	}
	p := startProxy(t, settings{})
	out := runPeer(t, append([]string{curl, "-q", "-sS", "--http2", "--parallel", "-w", "%{http_code}\\n", "--remote-name-all", "--output-dir", t.TempDir()}, urls...), p.env(t))
	if got := strings.Count(out.stdout, "403"); got != 3 {
		t.Errorf("%d refusals, want 3:\n%s%s", got, out.stdout, out.stderr)
	}
	wantPolite(t, o, "https", 3, time.Second)
}

// Two hosts do not wait for each other, and the default pace is one request a second.
func TestHostsArePacedApart(t *testing.T) {
	one, two := newOrigin(t, "apart", ""), newOrigin(t, "apart", "")
	p := startProxy(t, settings{"pace.adaptive": false})
	client := p.client(t, false)
	start := time.Now()
	var all sync.WaitGroup
	for _, o := range []*origin{one, two} {
		o.handle("/a", textPage("text/plain", "a"))
		for i := range 3 {
			all.Go(func() { get(t, client, o.url("http", "/a?"+itoa(i))) })
		}
	}
	all.Wait()
	if took := time.Since(start); took > 4900*time.Millisecond { // in one queue it were 5 s
		t.Errorf("three requests to each of two hosts took %v, want little over 2 s", took)
	}
	wantPolite(t, one, "http", 3, time.Second)
	wantPolite(t, two, "http", 3, time.Second)
}

// A site that asks for more than the maximum gets the maximum; what it asked is in the record.
func TestCrawlDelayIsCapped(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "capped", "User-agent: *\nCrawl-delay: 100\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{"robots.max_crawl_delay": "4s"})
	client := p.client(t, false)
	for i := range 2 {
		get(t, client, o.url("http", "/a?"+itoa(i)))
	}
	wantPolite(t, o, "http", 2, 4*time.Second)
	pages := o.pages("http")
	if gap := pages[1].At.Sub(pages[0].At); gap > 8*time.Second {
		t.Errorf("the second came %v after the first, want 4 s", gap)
	}
	r := awaitRecord(t, p.audit, o.url("http", "/a?1"))
	if r.CrawlDelay != 4 || r.CrawlAsked != 100 {
		t.Errorf("crawl_delay_s %v, asked %v; want 4 and 100", r.CrawlDelay, r.CrawlAsked)
	}
	if r.WaitMS < 1000 {
		t.Errorf("wait_ms %v, want about 4000", r.WaitMS)
	}
}
