package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// sitePages is how many pages the crawled site has; every third is forbidden.
const sitePages = 200

// siteRobots forbids /private/ on line 4.
const siteRobots = "# A site of two hundred pages\n\nUser-agent: *\nDisallow: /private/\nAllow: /\n"

const siteRobotsLine = 4

// sitePath is the path of page i.
func sitePath(i int) string {
	if i%3 == 2 {
		return fmt.Sprintf("/private/p%d.html", i)
	}
	return fmt.Sprintf("/pages/p%d.html", i)
}

// newSite is an origin whose pages link to the ten that follow and the one
// before, so that allowed pages alone lead to all of them. None links to the
// first: Scrapy fetches the page it starts from again when it meets it.
func newSite(t testing.TB) *origin {
	o := newOrigin(t, "site", siteRobots)
	for i := range sitePages {
		var page strings.Builder
		fmt.Fprintf(&page, "<html><title>page %d</title><body>\n", i)
		for j := max(1, i-1); j < min(sitePages, i+11); j++ {
			fmt.Fprintf(&page, "<a href=\"%s\">%d</a>\n", sitePath(j), j)
		}
		page.WriteString("</body></html>\n")
		o.handle(sitePath(i), textPage("text/html; charset=utf-8", page.String()))
	}
	return o
}

// wantCrawled holds the origin's log and the audit against a whole polite crawl.
func wantCrawled(t testing.TB, o *origin, audit string) {
	t.Helper()
	times := map[string]int{}
	for _, h := range o.arrivals("https") {
		times[h.Path]++
	}
	if times["/robots.txt"] != 1 {
		t.Errorf("robots.txt was fetched %d times", times["/robots.txt"])
	}
	byURL := map[string][]record{}
	for _, r := range readAudit(t, audit) {
		byURL[r.URL] = append(byURL[r.URL], r)
	}
	for i := range sitePages {
		path := sitePath(i)
		url := o.url("https", path)
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
		wantBlocked(t, r, "rule", http.StatusForbidden)
		if r.Rule != "/private/" || r.Line != siteRobotsLine || r.Group != "*" || r.Agent != "Scrapy" {
			t.Errorf("record of a refusal: %+v", r)
		}
	}
}

func TestScrapyCrawlThroughServe(t *testing.T) {
	t.Parallel()
	scrapy := needScrapy("runspider", "--nolog", "testdata/crawl_spider.py")(t)
	o := newSite(t)
	p := startProxy(t, outOfTheWay)
	feed := filepath.Join(t.TempDir(), "feed.jsonl")
	runPeer(t, append(scrapy, "-a", "start="+o.url("https", sitePath(0)), "-O", feed), p.env(t)).want(t, 0)
	eventually(t, patience, "every page has its record", func() bool { return len(readAudit(t, p.audit)) >= sitePages })
	wantCrawled(t, o, p.audit)
}

func TestScrapyCrawlThroughRun(t *testing.T) {
	t.Parallel()
	scrapy := needScrapy("runspider", "--nolog", "testdata/crawl_spider.py")(t)
	o := newSite(t)
	h := newHouse(t, outOfTheWay)
	feed := filepath.Join(t.TempDir(), "feed.jsonl")
	args := append([]string{"run", "-c", h.config, "--"}, scrapy...)
	out := command(t, append(args, "-a", "start="+o.url("https", sitePath(0)), "-O", feed)...).want(t, 0)
	wantCrawled(t, o, h.runAudit(t))
	for _, want := range []string{"/private/", o.Name, "66"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("the summary does not name %q:\n%s", want, out.stderr)
		}
	}
}

// runAudit is the audit file of the one run in the state directory.
func (h *house) runAudit(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.state, "runs", "*", "audit.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("audit files of runs: %v, %v; want one", files, err)
	}
	return files[0]
}
