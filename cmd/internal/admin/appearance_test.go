package admin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit/testca"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// testNarrow checks that all columns are there at every width, with the important ones not cut
// off.
func testNarrow(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, visit{client: "crawler-eu-1", agent: "FooBot/1.0", method: "CONNECT", url: "https://shop.example.com/", status: 200, waited: 2100 * time.Millisecond})
	w.visit(t, visit{client: "lab-a", agent: "FooBot/1.0", method: "OPTIONS", url: "https://www.example.org/private/a-long-path/that-goes-on/and-on", monitor: true})
	const cut = `[...document.querySelectorAll('#rows :is([data-f=method], [data-f=client], [data-f=agent], [data-f=is], [data-f=status], [data-f=explain])')].
		filter(e => e.textContent && (!e.checkVisibility() || e.getBoundingClientRect().right > e.closest('td').getBoundingClientRect().right + 1)).map(e => e.textContent)`
	for _, width := range []int64{1440, 1439, 1280, 1000, 800, 420} {
		b.do(t, chromedp.EmulateViewport(width, 900))
		b.open(t, w.url)
		for _, text := range evaluate[[]string](t, b, cut) {
			t.Errorf("at %d px %q is not there, or cut", width, text)
		}
		if over := evaluate[float64](t, b, `document.querySelector('.scroll:has(.live)').scrollWidth - document.querySelector('.scroll:has(.live)').clientWidth`); over > 0 {
			t.Errorf("at %d px the decisions are %v px too wide", width, over)
		}
		b.open(t, w.url+"/about")
		if over := evaluate[float64](t, b, `document.querySelector('pre.code').scrollWidth - document.querySelector('pre.code').clientWidth`); over > 0 {
			t.Errorf("at %d px the example is %v px too wide", width, over)
		}
	}
	b.do(t, chromedp.EmulateViewport(1280, 900))
}

// fakeSeries is a script that replaces the series of a new process with a full one.
const fakeSeries = `(() => { const real = fetch; window.fetch = async (url, ...more) => {
	if (!String(url).startsWith('/api/v1/series')) return real(url, ...more);
	const step = String(url).includes('day') ? 120 : 5, n = 720, allowed = [], disallowed = [], deferred = [], failed = [], not_enforced = [], waiting = [];
	for (let i = 0; i < n; i++) {
		const wave = 1 + Math.sin(i / 60) + .5 * Math.sin(i / 17);
		allowed.push(Math.max(0, Math.round(9 * wave + 3 * Math.sin(i * 7.7)))); disallowed.push(Math.max(0, Math.round(2 * wave * Math.abs(Math.sin(i / 29)))));
		deferred.push(i % 9 < 2 ? 2 : 0); failed.push(i % 31 < 3 ? 1 : 0); not_enforced.push(i < 200 ? 1 : 0);
		waiting.push(Math.max(0, Math.round(4 * wave * Math.sin(i / 40))));
	}
	return new Response(JSON.stringify({start: new Date(Date.now() - n * step * 1000).toISOString(), step_s: step, allowed, disallowed, deferred, failed, not_enforced, waiting}));
}; })()`

// A screenshotPage is a page to check, and the name of its screenshots.
type screenshotPage struct{ name, path string }

// testListAppearance checks the colours and widths of the pages with lists, and saves
// screenshots.
func testListAppearance(t *testing.T, b *browser) {
	w := newBusyProxy(t)
	w.visitAwkwardHosts(t)
	call(t, b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fakeSeries})
	for _, p := range []screenshotPage{{"overview", "/"}, {"hosts", "/hosts"}, {"exceptions", "/exceptions"}, {"clients", "/clients"}, {"decisions", "/?outcome=disallowed#decisions"}} {
		b.open(t, w.url+p.path)
		if p.name == "overview" {
			b.waitFor(t, `document.querySelectorAll('#plot .uplot').length === 2`)
		}
		if p.name == "decisions" {
			b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector('.more').click()`))
		}
		b.checkAppearance(t, p.name)
	}
}

// testDetailAppearance does the same for the pages about one host, record or request.
func testDetailAppearance(t *testing.T, b *browser) {
	w := newBusyProxy(t)
	w.visitAwkwardHosts(t)
	for _, p := range []screenshotPage{{"host", "/hosts/www.example.org"}, {"longest", "/hosts/" + longestHost}, {"back-off", "/hosts/wiki.example.org"}, {"record", fmt.Sprintf("/decisions/%d", w.feed.Newest())}} {
		b.open(t, w.url+p.path)
		b.checkAppearance(t, p.name)
	}
	b.open(t, w.url+"/explain?url=https%3A%2F%2Fwww.example.org%2Fprivate%2Fx&agent=Scrapy%2F2.11")
	b.do(t, chromedp.Click(chromedp.CSS(`button.first`)))
	b.waitFor(t, `!!document.getElementById('answer')`)
	b.checkAppearance(t, "explain")
}

// testAboutAppearance does the same for the page about the proxy, also when it is not healthy.
func testAboutAppearance(t *testing.T, b *browser) {
	var refused error
	w := newTestProxy(t, sampleFiles, withAllStatus(t, &refused))
	for _, p := range []screenshotPage{{"empty", "/"}, {"about", "/about"}, {"config", "/config"}} {
		b.open(t, w.url+p.path)
		b.checkAppearance(t, p.name)
	}
	refused = errors.New("/etc/robotsproxy/config.yaml:3: pace.burst: not a number\n/etc/robotsproxy/config.yaml:17: listen: needs a restart")
	b.open(t, w.url+"/about")
	b.checkAppearance(t, "refused")
	w.opts.Monitor = func() bool { return true }
	b.open(t, w.url+"/")
	b.checkAppearance(t, "monitor")
	w.health = func() error { return errors.New("the audit cannot be written: no space left on device") }
	b.open(t, w.url+"/about")
	b.checkAppearance(t, "trouble")
}

// testReportAppearance does the same for a report with every table and long texts, also as it is
// printed on A4.
func testReportAppearance(t *testing.T, b *browser) {
	file, err := filepath.Abs("../../../policy/audit/report/testdata/report.html")
	check(t, err)
	_, err = os.Stat(file) // so that go test knows the file that Chromium opens
	check(t, err)
	b.tallest = 10_000
	b.do(t, chromedp.Navigate("file://"+filepath.ToSlash(file)))
	evaluate[bool](t, b, fmt.Sprintf(`(() => {
		const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
		while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace('down.test', %q).replace('/search', %q).replace('/private', '/a/path/with/a/few/segments');
		for (const number of document.querySelectorAll('td.num')) number.textContent = number.textContent.replace(/^\d+$/, '1,234,567').replace(/^\d+ s$/, '59 min 59 s');
		for (const closed of document.querySelectorAll('details')) closed.open = true;
		return true;
	})()`, longestHost, strings.Repeat("/a-long-rule", 20)))
	b.checkAppearance(t, "report")
	b.emulateMedia(t, "print", "light")
	b.fitViewport(t, 688) // pixels between the margins of A4
	b.checkLayout(t, "report-print")
	b.savePDF(t, "report.pdf")
}

// withAllStatus sets everything that the page about the proxy can show. The last reload fails
// with *refused.
func withAllStatus(t *testing.T, refused *error) func(*Options) {
	ca, _ := testca.New(t, time.Now().Add(1000*time.Hour))
	return func(o *Options) {
		o.CAPEM = func() []byte { return ca }
		e := newFakeEvidence()
		e.places = []notary.Place{{Name: "anchor", At: "/mnt/anchors/robotsproxy", Newest: time.Now().Add(-time.Hour)}}
		e.option(o)
		o.Config = func() []byte {
			return []byte("mode: enforce                     # enforce or monitor\nlisten: 127.0.0.1:8080\n")
		}
		o.About = func() About {
			return About{Commit: "3fc2a34f21dea0fb288abf1e8d21815b8b62114d", Started: time.Now().Add(-time.Hour), Config: "/etc/robotsproxy/config.yaml", State: "/var/lib/robotsproxy", Audit: "/var/lib/robotsproxy/audit.jsonl"}
		}
		o.Reloads = func() (uint64, uint64, time.Time, error) { return 3, 1, time.Now().Add(-time.Minute), *refused }
	}
}

// newBusyProxy returns a testProxy with records of all kinds.
func newBusyProxy(t *testing.T) *testProxy {
	w := newTestProxy(t, sampleFiles, withAllStatus(t, new(error)))
	w.configure(t)
	w.queueRequests(t, "news.example.net", 7)
	agents := []string{"FooBot/1.0 (+https://foo.example/bot)", "Mozilla/5.0 (compatible; GPTBot/1.1; +https://openai.com/gptbot)", "Scrapy/2.11 (+https://scrapy.org)", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}
	urls := []string{"https://www.example.org/", "https://www.example.org/private/notes?id=7", "https://www.example.org/search?q=robots", "https://www.example.org/search/about", "https://api.example.org/v1/items?page=2&sort=desc",
		"https://news.example.net/2026/11/a-rather-long-headline-that-does-not-fit", "https://news.example.net/archive/2019", "http://flaky.example/", "https://shop.example.com/cart/add?sku=9981", "https://shop.example.com/products/blue-widget", "https://www.example.org/drafts/x"}
	for i := range 160 {
		v := visit{client: []string{"lab-a", "127.0.0.1", "crawler-eu-1"}[i%3], agent: agents[i%4], url: urls[(i*7)%len(urls)], status: 200, monitor: i%23 == 0}
		if i%5 == 0 {
			v.waited = time.Duration(i*137) * time.Millisecond
		}
		w.visit(t, v)
	}
	return w
}

// longestHost has as many bytes as the name of a host can have.
var longestHost = strings.Repeat("a-label-that-is-as-long-as-can-be-because-it-has-63-characters1.", 4)[:253]

// visitAwkwardHosts records requests to a host that sends an HTML page as its robots.txt, and to
// longestHost, where requests wait.
func (p *testProxy) visitAwkwardHosts(t *testing.T) {
	p.origins.set("wiki.example.org", "<!DOCTYPE html><title>Not found</title>")
	p.origins.set(longestHost, "User-agent: *\nDisallow: /"+strings.Repeat("a-long-rule/", 12))
	p.queueRequests(t, longestHost, 3)
	slot, err := p.pacer.Wait(t.Context(), "a", pace.Limits{Key: "wiki.example.org", PerSecond: 1, Burst: 1, MaxConcurrent: 1, MaxQueue: 1})
	check(t, err)
	slot.BackOff(time.Hour, "https://wiki.example.org/robots.txt")
	slot.Release()
	for _, host := range []string{"wiki.example.org", longestHost} {
		for range 2 {
			p.visit(t, visit{client: "crawler-eu-1.with-a-name-that-nobody-cut-short", agent: "ResearchCrawlerOfTheUniversity/1.0", url: "https://" + host + "/" + strings.Repeat("a-long-rule/", 13), waited: 95 * time.Second, status: 200})
		}
	}
}
