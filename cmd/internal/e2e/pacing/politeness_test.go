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
)

const slowRobotsLine = 41

// One after the other: the pace is judged to the millisecond.
func TestPeersAreMadePolite(t *testing.T) {
	for _, who := range e2e.Peers {
		t.Run(who.Name, func(t *testing.T) {
			argv := who.Need(t)
			o := e2e.NewOrigin(t, who.Name, e2e.SlowRobots)
			bodies := map[string][]byte{"/a": e2e.Octets(1 << 10), "/b": e2e.Octets(64 << 10), "/c?x=1&y=%2F": e2e.Octets(99)}
			for path, body := range bodies {
				bare, _, _ := strings.Cut(path, "?")
				o.Handle(bare, e2e.SizedPage(body))
			}
			o.Handle("/private/x", e2e.TextPage("text/plain", "secret"))
			p := e2e.StartProxy(t, e2e.Settings{})
			t.Run("visit", func(t *testing.T) {
				for _, scheme := range e2e.Schemes {
					t.Run(scheme, func(t *testing.T) {
						t.Parallel() // with each other alone: two origins, one host
						politeVisit(t, who, argv, p, o, scheme, bodies)
					})
				}
			})
			e2e.WantGaps(t, append(o.Pages("http"), o.Pages("https")...), time.Second)
		})
	}
}

// politeVisit sends the peer to allowed and forbidden pages of one scheme.
func politeVisit(t *testing.T, who e2e.Peer, argv []string, p *e2e.Proxy, o *e2e.Origin, scheme string, bodies map[string][]byte) {
	paths := []string{"/a", "/private/x", "/b", "/c?x=1&y=%2F"}
	var urls []string
	for _, path := range paths {
		urls = append(urls, o.URL(scheme, path))
	}
	for i, got := range who.Fetch(t, argv, p.Env(t), urls) {
		if paths[i] == "/private/x" {
			e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
			e2e.WantNames(t, got, "/private/", slowRobotsLine, "*", o.URL(scheme, "/robots.txt"))
			r := e2e.AwaitRecord(t, p.Audit, urls[i])
			e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
			if r.Rule != "/private/" || r.Line != slowRobotsLine || r.Group != "*" {
				t.Errorf("record names rule %q, line %d, group %q", r.Rule, r.Line, r.Group)
			}
			e2e.WantFile(t, r, o, scheme, e2e.SlowRobots)
			continue
		}
		if got.Status != http.StatusOK || !bytes.Equal(got.Body, bodies[paths[i]]) {
			t.Errorf("%s %s: %v; want 200 and %d octets, identical", scheme, paths[i], got, len(bodies[paths[i]]))
		}
		r := e2e.AwaitRecord(t, p.Audit, urls[i])
		// curl closes an HTTP/2 connection as soon as it has the octets that it was
		// promised: net/http may hear of that before it hears that it has written them.
		left := who.Name == "curl-h2" && scheme == "https" && r.Error == "client disconnected"
		if r.Decision != "allow" || r.Reason != "no-rule" || r.Status != http.StatusOK || r.Bytes != int64(len(bodies[paths[i]])) && !left {
			t.Errorf("record of an allowed page: %+v", r)
		}
		if r.CrawlDelay != 1 || r.CrawlAsked != 1 {
			t.Errorf("crawl_delay_s %v, asked %v, want 1", r.CrawlDelay, r.CrawlAsked)
		}
		e2e.WantFile(t, r, o, scheme, e2e.SlowRobots)
	}
	e2e.WantPolite(t, o, scheme, len(bodies), time.Second)
}

// A herd of connections to one host stands in one queue: the delay holds
// across clients, schemes of tunnel and protocol versions.
func TestOneHostOnePace(t *testing.T) {
	o := e2e.NewOrigin(t, "onepace", e2e.SlowRobots)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{})
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
	e2e.WantPolite(t, o, "https", 4, time.Second)
}

// One HTTP/2 connection with many streams at once is paced no less.
func TestParallelStreamsArePaced(t *testing.T) {
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "streams", e2e.SlowRobots)
	var urls []string
	for _, path := range []string{"/a", "/b", "/c"} {
		o.Handle(path, e2e.TextPage("text/plain", path+"\n"))
		urls = append(urls, o.URL("https", path), o.URL("https", "/private"+path))
	}
	p := e2e.StartProxy(t, e2e.Settings{})
	out := e2e.RunPeer(t, append([]string{curl, "-q", "-sS", "--http2", "--parallel", "-w", "%{http_code}\\n", "--remote-name-all", "--output-dir", t.TempDir()}, urls...), p.Env(t))
	if got := strings.Count(out.Stdout, "403"); got != 3 {
		t.Errorf("%d refusals, want 3:\n%s%s", got, out.Stdout, out.Stderr)
	}
	e2e.WantPolite(t, o, "https", 3, time.Second)
}

// Two hosts do not wait for each other, and the default pace is one request a second.
func TestHostsArePacedApart(t *testing.T) {
	one, two := e2e.NewOrigin(t, "apart", ""), e2e.NewOrigin(t, "apart", "")
	p := e2e.StartProxy(t, e2e.Settings{"pace.adaptive": false})
	client := p.Client(t, false)
	start := time.Now()
	var all sync.WaitGroup
	for _, o := range []*e2e.Origin{one, two} {
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
		for i := range 3 {
			all.Go(func() { e2e.Get(t, client, o.URL("http", "/a?"+strconv.Itoa(i))) })
		}
	}
	all.Wait()
	if took := time.Since(start); took > 4900*time.Millisecond { // in one queue it were 5 s
		t.Errorf("three requests to each of two hosts took %v, want little over 2 s", took)
	}
	e2e.WantPolite(t, one, "http", 3, time.Second)
	e2e.WantPolite(t, two, "http", 3, time.Second)
}

// A site that asks for more than the maximum gets the maximum; what it asked is in the record.
func TestCrawlDelayIsCapped(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "capped", "User-agent: *\nCrawl-delay: 100\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{"robots.max_crawl_delay": "4s"})
	client := p.Client(t, false)
	for i := range 2 {
		e2e.Get(t, client, o.URL("http", "/a?"+strconv.Itoa(i)))
	}
	e2e.WantPolite(t, o, "http", 2, 4*time.Second)
	pages := o.Pages("http")
	if gap := pages[1].At.Sub(pages[0].At); gap > 8*time.Second {
		t.Errorf("the second came %v after the first, want 4 s", gap)
	}
	r := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/a?1"))
	if r.CrawlDelay != 4 || r.CrawlAsked != 100 {
		t.Errorf("crawl_delay_s %v, asked %v; want 4 and 100", r.CrawlDelay, r.CrawlAsked)
	}
	if r.WaitMS < 1000 {
		t.Errorf("wait_ms %v, want about 4000", r.WaitMS)
	}
}
