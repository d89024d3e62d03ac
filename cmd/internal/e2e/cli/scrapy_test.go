package cli

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// sitePages is the number of pages of the crawled site. Every third page is disallowed.
const sitePages = 100

// siteRobots disallows /private/ on line 4.
const siteRobots = "# A site of a hundred pages\n\nUser-agent: *\nDisallow: /private/\nAllow: /\n"

const siteRobotsLine = 4

// sitePath returns the path of page i.
func sitePath(i int) string {
	if i%3 == 2 {
		return fmt.Sprintf("/private/p%d.html", i)
	}
	return fmt.Sprintf("/pages/p%d.html", i)
}

// newSite starts an origin whose pages link to the next ten pages and the previous one,
// so that allowed pages lead to all pages. None links to the first page: Scrapy fetches
// its start page again if it finds a link to it.
func newSite(t testing.TB) *e2e.Origin {
	o := e2e.NewOrigin(t, "site", siteRobots)
	for i := range sitePages {
		var page strings.Builder
		fmt.Fprintf(&page, "<html><title>page %d</title><body>\n", i)
		for j := max(1, i-1); j < min(sitePages, i+11); j++ {
			fmt.Fprintf(&page, "<a href=\"%s\">%d</a>\n", sitePath(j), j)
		}
		page.WriteString("</body></html>\n")
		o.Handle(sitePath(i), e2e.TextPage("text/html; charset=utf-8", page.String()))
	}
	return o
}

// wantCrawled checks the origin's log and the audit for a complete polite crawl.
func wantCrawled(t testing.TB, o *e2e.Origin, audit string) {
	t.Helper()
	times := map[string]int{}
	for _, h := range o.Arrivals("https") {
		times[h.Path]++
	}
	if times["/robots.txt"] != 1 {
		t.Errorf("robots.txt was fetched %d times", times["/robots.txt"])
	}
	byURL := map[string][]e2e.Record{}
	for _, r := range e2e.ReadAudit(t, audit) {
		byURL[r.URL] = append(byURL[r.URL], r)
	}
	for i := range sitePages {
		path := sitePath(i)
		url := o.URL("https", path)
		if len(byURL[url]) != 1 {
			t.Errorf("%d records of %s, want 1", len(byURL[url]), url)
			continue
		}
		r := byURL[url][0]
		if i%3 != 2 {
			if times[path] != 1 || r.Decision != "allow" || r.Status != http.StatusOK || r.Rule != "/" || r.Line != siteRobotsLine+1 {
				t.Errorf("%s arrived %d times; record %+v", path, times[path], r)
			}
			continue
		}
		if times[path] != 0 {
			t.Errorf("%s arrived %d times", path, times[path])
		}
		e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
		if r.Rule != "/private/" || r.Line != siteRobotsLine || r.Group != "*" || r.Agent != "Scrapy" {
			t.Errorf("record of a refusal: %+v", r)
		}
	}
}

func TestScrapyCrawlThroughServe(t *testing.T) {
	t.Parallel()
	scrapy := e2e.NeedScrapy("runspider", "--nolog", e2e.Script("crawl_spider.py"))(t)
	o := newSite(t)
	p := e2e.StartProxy(t, e2e.Unpaced)
	feed := filepath.Join(t.TempDir(), "feed.jsonl")
	e2e.RunPeer(t, append(scrapy, "-a", "start="+o.URL("https", sitePath(0)), "-O", feed), p.Env(t)).Want(t, 0)
	testkit.Eventually(t, "every page has its record", func() bool { return len(e2e.ReadAudit(t, p.Audit)) >= sitePages })
	wantCrawled(t, o, p.Audit)
}

func TestScrapyCrawlThroughRun(t *testing.T) {
	t.Parallel()
	scrapy := e2e.NeedScrapy("runspider", "--nolog", e2e.Script("crawl_spider.py"))(t)
	o := newSite(t)
	h := e2e.NewSetup(t, e2e.Unpaced)
	feed := filepath.Join(t.TempDir(), "feed.jsonl")
	args := append([]string{"run", "-c", h.Config, "--"}, scrapy...)
	out := e2e.Command(t, append(args, "-a", "start="+o.URL("https", sitePath(0)), "-O", feed)...).Want(t, 0)
	wantCrawled(t, o, h.RunAudit(t))
	for _, want := range []string{"/private/", o.Name, "33"} {
		if !strings.Contains(out.Stderr, want) {
			t.Errorf("the summary does not name %q:\n%s", want, out.Stderr)
		}
	}
}
