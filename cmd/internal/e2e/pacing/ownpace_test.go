package pacing

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// A client whose own rate is slow keeps it, and nobody waits for it.
func TestAClientsOwnPace(t *testing.T) {
	t.Parallel()
	const slowly, others = 3, 12
	o := e2e.NewOrigin(t, "ownpace", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{
		"pace.requests_per_second": 4, "pace.adaptive": false, "open": true,
		"clients": []e2e.Entry{{"name": "slow", "networks": []string{"127.0.4.1/32"}, "pace": e2e.Entry{"requests_per_second": 0.25}}},
	})
	slow, other := e2e.From(t, p.Client(t, false), "127.0.4.1"), e2e.From(t, p.Client(t, false), "127.0.4.2")
	var all sync.WaitGroup
	ask := func(c *http.Client, query string, n int) {
		for range n {
			all.Go(func() {
				if got := e2e.Get(t, c, o.URL("http", "/a?"+query)); got.Status != http.StatusOK {
					t.Errorf("%s: %v", query, got)
				}
			})
		}
	}
	ask(slow, "slow", slowly)
	p.AwaitMetric(t, e2e.Waiting, slowly-1)
	ask(other, "other", others)
	all.Wait()
	pages := o.Pages("http")
	e2e.WantGaps(t, pages, time.Second/4)
	var slows []e2e.Hit
	for i, h := range pages {
		if h.Path == "/a?slow" {
			slows = append(slows, h)
			if len(slows) == slowly && i != len(pages)-1 {
				t.Errorf("the last of the slow client's is number %d: others waited for it", i)
			}
		}
	}
	if len(slows) != slowly || len(pages) != slowly+others {
		t.Fatalf("%d pages arrived, %d of them the slow client's", len(pages), len(slows))
	}
	e2e.WantGaps(t, slows, 4*time.Second)
}

// A browser's page is there at once where its client may have the assets so, and
// the site asks for no Crawl-delay. The next page waits as ever, and so do the
// assets of others.
func TestAssetsShareABurst(t *testing.T) {
	t.Parallel()
	const parts = 10
	const gap = 2500 * time.Millisecond // all parts are asked for in less
	easy, slow := e2e.NewOrigin(t, "assets", ""), e2e.NewOrigin(t, "slowassets", e2e.SlowRobots)
	for _, o := range []*e2e.Origin{easy, slow} {
		o.Handle("/a", e2e.TextPage("text/html", "a"))
		o.Handle("/part", e2e.TextPage("image/png", "part"))
	}
	p := e2e.StartProxy(t, e2e.Settings{
		"pace.requests_per_second": 1 / gap.Seconds(), "pace.adaptive": false, "open": true,
		"clients": []e2e.Entry{{"name": "browser", "networks": []string{"127.0.4.3/32"}, "pace": e2e.Entry{"asset_burst": parts}}},
	})
	browser, other := e2e.From(t, p.Client(t, false), "127.0.4.3"), e2e.From(t, p.Client(t, false), "127.0.4.4")
	visit := func(c *http.Client, o *e2e.Origin, parts int) {
		var all sync.WaitGroup
		ask := func(path, dest string) {
			all.Go(func() {
				if got := e2e.Get(t, c, o.URL("http", path), "Sec-Fetch-Dest", dest); got.Status != http.StatusOK {
					t.Errorf("%s for %s: %v", path, dest, got)
				}
			})
		}
		ask("/a", "document")
		all.Wait()
		ask("/a?next", "document")
		for i := range parts {
			ask("/part?"+strconv.Itoa(i), "image")
		}
		all.Wait()
	}
	visit(browser, easy, parts)
	pages := easy.Pages("http")
	if len(pages) != parts+2 || pages[parts+1].Path != "/a?next" {
		t.Fatalf("of %d arrivals the last is %s", len(pages), pages[len(pages)-1].Path)
	}
	e2e.WantGaps(t, []e2e.Hit{pages[0], pages[parts+1]}, gap)

	seen := len(pages)
	var both sync.WaitGroup
	both.Go(func() { visit(browser, slow, 2) })
	both.Go(func() { visit(other, easy, 2) })
	both.Wait()
	e2e.WantGaps(t, slow.Pages("http"), gap) // a burst never spends what Crawl-delay forbids
	e2e.WantGaps(t, easy.Pages("http")[seen:], gap)
}
