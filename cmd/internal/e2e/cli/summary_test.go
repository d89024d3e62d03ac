package cli

import (
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// The summary says by which setting requests were sent more often than the site asks for, and which one delayed the others.
func TestRunSaysHowItWasPaced(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	hasty, plain := e2e.NewOrigin(t, "hasty", "User-agent: *\nCrawl-delay: 30\n"), e2e.NewOrigin(t, "plain", "")
	for _, o := range []*e2e.Origin{hasty, plain} {
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
	}
	shortened := "robotsproxy: " + hasty.Name + " asks for 30 s between requests; sent every 1.2 s (robots.max_crawl_delay)\n"
	const rate = "robotsproxy: paced at 1 request/s: pace.requests_per_second\n"
	for _, c := range []struct {
		name            string
		origin          *e2e.Origin
		shortened, rate int // how often the summary says so
		delay           time.Duration
	}{
		{"a Crawl-delay over the maximum", hasty, 1, 0, 1200 * time.Millisecond},
		{"the default rate", plain, 0, 1, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := e2e.NewSetup(t, e2e.Settings{"robots.max_crawl_delay": "1200ms"})
			out := e2e.Command(t, h.RunArgs(curl, "-q", "-sS", c.origin.URL("http", "/a?1"), c.origin.URL("http", "/a?2"))...).Want(t, 0)
			if n, m := strings.Count(out.Stderr, shortened), strings.Count(out.Stderr, rate); n != c.shortened || m != c.rate {
				t.Errorf("%d times the Crawl-delay, %d times the rate:\n%s", n, m, out.Stderr)
			}
			e2e.WantPolite(t, c.origin, "http", 2, c.delay)
		})
	}
}
