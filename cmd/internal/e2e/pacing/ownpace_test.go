package pacing

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// A client with a slow rate of its own keeps it, and no other client waits for it.
func TestAClientsOwnPace(t *testing.T) {
	t.Parallel()
	const others, gap, slowGap = 12, 50 * time.Millisecond, 300 * time.Millisecond
	o := e2e.NewOrigin(t, "ownpace", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{
		"pace.requests_per_second": 1 / gap.Seconds(), "pace.adaptive": false, "open": true,
		"clients": []e2e.Entry{
			{"name": "slow", "networks": []string{"127.0.4.1/32"}, "pace": e2e.Entry{"requests_per_second": 1 / slowGap.Seconds()}},
			{"name": "slowest", "networks": []string{"127.0.4.2/32"}, "pace": e2e.Entry{"requests_per_second": 0.02}},
		},
	})
	client := p.Client(t, false)
	slow, slowest, other := e2e.From(t, client, "127.0.4.1"), e2e.From(t, client, "127.0.4.2"), e2e.From(t, client, "127.0.4.3")
	get := func(c *http.Client, query string) {
		if got := e2e.Get(t, c, o.URL("http", "/a?"+query)); got.Status != http.StatusOK {
			t.Errorf("%s: %v", query, got)
		}
	}
	get(slowest, "slowest")
	leave := abandon(t, slowest, o.URL("http", "/a?slowest"))
	p.AwaitMetric(t, e2e.Waiting, 1)
	var all sync.WaitGroup
	for i := range others {
		all.Go(func() { get(other, "other") })
		if i%4 == 0 {
			all.Go(func() { get(slow, "slow") })
		}
	}
	all.Wait()
	leave()
	pages := o.Pages("http")
	e2e.WantGaps(t, pages, gap)
	by := map[string][]e2e.Hit{}
	for _, h := range pages {
		by[h.Path] = append(by[h.Path], h)
	}
	if n, few, one := len(by["/a?other"]), len(by["/a?slow"]), len(by["/a?slowest"]); n != others || few != others/4 || one != 1 {
		t.Fatalf("of the clients %d, %d and %d pages arrived; want %d, %d and 1", n, few, one, others, others/4)
	}
	e2e.WantGaps(t, by["/a?slow"], slowGap)
}

// A browser's page loads at once if the configuration permits assets and the site has no
// Crawl-delay: as many assets as the burst are sent with the page. The next page, further assets
// and assets of other clients wait.
func TestAssetsShareABurst(t *testing.T) {
	t.Parallel()
	const parts = 10
	easy, slow := e2e.NewOrigin(t, "assets", ""), e2e.NewOrigin(t, "slowassets", hourRobots)
	for _, o := range []*e2e.Origin{easy, slow} {
		o.Handle("/a", e2e.TextPage("text/html", "a"))
		o.Handle("/part", e2e.TextPage("image/png", "part"))
	}
	p := e2e.StartProxy(t, refusing.With(e2e.Settings{
		"pace.adaptive": false, "open": true,
		"clients": []e2e.Entry{{"name": "browser", "networks": []string{"127.0.4.3/32"}, "pace": e2e.Entry{"asset_burst": parts}}},
	}))
	browser, other := e2e.From(t, p.Client(t, false), "127.0.4.3"), e2e.From(t, p.Client(t, false), "127.0.4.4")
	want := func(c *http.Client, o *e2e.Origin, path, dest string, status int) {
		t.Helper()
		if got := e2e.Get(t, c, o.URL("http", path), "Sec-Fetch-Dest", dest); got.Status != status {
			t.Errorf("%s of %s for %s: %v, want %d", path, o.Name, dest, got, status)
		}
	}
	want(browser, easy, "/a", "document", http.StatusOK)
	want(browser, easy, "/a?next", "document", http.StatusTooManyRequests)
	for i := range parts {
		want(browser, easy, "/part?"+strconv.Itoa(i), "image", http.StatusOK)
	}
	want(browser, easy, "/part?more", "image", http.StatusTooManyRequests)
	want(other, easy, "/part?other", "image", http.StatusTooManyRequests)
	want(browser, slow, "/a", "document", http.StatusOK)
	want(browser, slow, "/part", "image", http.StatusTooManyRequests) // with a Crawl-delay there is no burst
	if n, few := len(easy.Pages("http")), len(slow.Pages("http")); n != parts+1 || few != 1 {
		t.Errorf("%d and %d pages arrived, want %d and 1", n, few, parts+1)
	}
}
