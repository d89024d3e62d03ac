package e2e

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// A client whose own rate is slow keeps it, and nobody waits for it.
func TestAClientsOwnPace(t *testing.T) {
	t.Parallel()
	const slowly, others = 3, 12
	o := newOrigin(t, "ownpace", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{
		"pace.requests_per_second": 4, "pace.adaptive": false, "open": true,
		"clients": []entry{{"name": "slow", "networks": []string{"127.0.4.1/32"}, "pace": entry{"requests_per_second": 0.25}}},
	})
	slow, other := from(t, p.client(t, false), "127.0.4.1"), from(t, p.client(t, false), "127.0.4.2")
	var all sync.WaitGroup
	ask := func(c *http.Client, query string, n int) {
		for range n {
			all.Go(func() {
				if got := get(t, c, o.url("http", "/a?"+query)); got.Status != http.StatusOK {
					t.Errorf("%s: %v", query, got)
				}
			})
		}
	}
	ask(slow, "slow", slowly)
	p.awaitMetric(t, waiting, slowly-1)
	ask(other, "other", others)
	all.Wait()
	pages := o.pages("http")
	wantGaps(t, pages, time.Second/4)
	var slows []hit
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
	wantGaps(t, slows, 4*time.Second)
}

// A browser's page is there at once where its client may have the assets so, and
// the site asks for no Crawl-delay. The next page waits as ever, and so do the
// assets of others.
func TestAssetsShareABurst(t *testing.T) {
	t.Parallel()
	const parts = 10
	const gap = 2500 * time.Millisecond // all parts are asked for in less
	easy, slow := newOrigin(t, "assets", ""), newOrigin(t, "slowassets", slowRobots)
	for _, o := range []*origin{easy, slow} {
		o.handle("/a", textPage("text/html", "a"))
		o.handle("/part", textPage("image/png", "part"))
	}
	p := startProxy(t, settings{
		"pace.requests_per_second": 1 / gap.Seconds(), "pace.adaptive": false, "open": true,
		"clients": []entry{{"name": "browser", "networks": []string{"127.0.4.3/32"}, "pace": entry{"asset_burst": parts}}},
	})
	browser, other := from(t, p.client(t, false), "127.0.4.3"), from(t, p.client(t, false), "127.0.4.4")
	visit := func(c *http.Client, o *origin, parts int) {
		var all sync.WaitGroup
		ask := func(path, dest string) {
			all.Go(func() {
				if got := get(t, c, o.url("http", path), "Sec-Fetch-Dest", dest); got.Status != http.StatusOK {
					t.Errorf("%s for %s: %v", path, dest, got)
				}
			})
		}
		ask("/a", "document")
		all.Wait()
		ask("/a?next", "document")
		for i := range parts {
			ask("/part?"+itoa(i), "image")
		}
		all.Wait()
	}
	visit(browser, easy, parts)
	pages := easy.pages("http")
	if len(pages) != parts+2 || pages[parts+1].Path != "/a?next" {
		t.Fatalf("of %d arrivals the last is %s", len(pages), pages[len(pages)-1].Path)
	}
	wantGaps(t, []hit{pages[0], pages[parts+1]}, gap)

	seen := len(pages)
	var both sync.WaitGroup
	both.Go(func() { visit(browser, slow, 2) })
	both.Go(func() { visit(other, easy, 2) })
	both.Wait()
	wantGaps(t, slow.pages("http"), gap) // a burst never spends what Crawl-delay forbids
	wantGaps(t, easy.pages("http")[seen:], gap)
}
