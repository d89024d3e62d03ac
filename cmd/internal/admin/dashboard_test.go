package admin

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// TestDashboard drives the dashboard in a real browser. No page may violate its policy, raise
// an error or open a dialog.
func TestDashboard(t *testing.T) {
	testkit.Long(t, "a real browser")
	chromium := startChromium(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *browser)
	}{
		{"appearance of lists", testListAppearance}, // the longest first
		{"appearance of pages about one thing", testDetailAppearance},
		{"appearance of the page about the proxy", testAboutAppearance},
		{"appearance of the report", testReportAppearance},
		{"picture of the documentation", testPicture},
		{"decisions are live", testLive},
		{"pause", testPause},
		{"a filter applies to old and new rows", testFilter},
		{"a record opens below its row", testRecord},
		{"by the keyboard alone", testKeyboard},
		{"injected text is inert", testInjection},
		{"a host is shown, refetched and purged", testHost},
		{"a request is explained", testExplain},
		{"light and dark are chosen", testTheme},
		{"a login", testLogin},
		{"narrow windows lose nothing", testNarrow},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			b := openTab(t, chromium)
			part.test(t, b)
			b.checkNoComplaints(t)
			b.close() // before the server shuts down, which would wait for unused connections
		})
	}
}

// open loads a page. On the overview it waits until the stream is open.
func (b *browser) open(t testing.TB, address string) {
	t.Helper()
	b.do(t, chromedp.Navigate(address))
	b.waitFor(t, `document.readyState === 'complete' && (!document.getElementById('line') || document.getElementById('line').textContent === 'Live')`)
}

// countRows counts the rows of decisions whose text contains part.
func countRows(part string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#rows tr')].filter(tr => tr.textContent.includes(%q)).length`, part)
}

func cartVisit(n int) visit {
	return visit{client: "lab-a", agent: "FooBot/1.0", url: fmt.Sprintf("https://shop.example.com/cart/%d", n)}
}

func testLive(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, cartVisit(1))
	b.open(t, w.url)
	if got := evaluate[string](t, b, `document.getElementById('rows').rows[0].cells[2].textContent`); got != "shop.example.com" {
		t.Errorf("host: %q", got)
	}
	w.visit(t, visit{client: "lab-b", agent: "BarBot/2.0", url: "https://shop.example.com/x?<b>", status: 200, waited: 2100 * time.Millisecond})
	b.waitFor(t, countRows("/x?<b>")+` === 1`)
	w.refuseUse(t)
	b.waitFor(t, countRows("not for train-ai (robots.txt line 3), tdm (header tdm-reservation)")+` === 1`)
	// The script and the server make the same rows of the same lines.
	const firstRows = `[...document.getElementById('rows').rows].slice(0, 3).map(r => [...r.cells].map(c => c.textContent.trim().replace(/\s+/g, ' ')).join('|')).join('\n')`
	live := evaluate[string](t, b, firstRows)
	links := evaluate[string](t, b, `[...document.getElementById('rows').rows[0].querySelectorAll('a, form')].map(a => a.getAttribute('href') ?? a.getAttribute('action')).join('|')`)
	b.open(t, w.url)
	if got := evaluate[string](t, b, firstRows); got != live {
		t.Errorf("rows differ:\n live %s\nstill %s", live, got)
	}
	still := evaluate[string](t, b, `[...document.getElementById('rows').rows[0].querySelectorAll('a, form')].map(a => a.getAttribute('href') ?? a.getAttribute('action')).join('|')`)
	a, err := url.QueryUnescape(still)
	check(t, err)
	c, err := url.QueryUnescape(links)
	check(t, err)
	if fields := func(s string) []string {
		return slices.Sorted(strings.FieldsFuncSeq(s, func(r rune) bool { return r == '&' || r == '|' || r == '?' }))
	}; !slices.Equal(fields(a), fields(c)) {
		t.Errorf("links differ:\n live %s\nstill %s", c, a)
	}
	for i := range 600 {
		w.visit(t, cartVisit(i))
	}
	b.waitFor(t, countRows("/cart/599")+` === 1`)
	if n := evaluate[int](t, b, `document.getElementById('rows').childElementCount`); n > 500 {
		t.Errorf("%d rows", n)
	}
	b.waitFor(t, `document.querySelectorAll('#plot .uplot').length === 2`)
	b.waitFor(t, `document.getElementById('figures').textContent.includes('602')`)
}

func testPause(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, cartVisit(1))
	b.open(t, w.url)
	b.do(t, chromedp.Click(chromedp.CSS(`#pause`)))
	w.visit(t, cartVisit(2))
	w.visit(t, cartVisit(3))
	b.waitFor(t, `document.getElementById('pause').textContent === 'Resume (2 new)'`)
	if n := evaluate[int](t, b, countRows("shop.example.com")); n != 1 {
		t.Errorf("%d rows while it is paused", n)
	}
	if evaluate[string](t, b, `document.getElementById('pause').getAttribute('aria-pressed')`) != "true" {
		t.Error("it is not said to be pressed")
	}
	b.do(t, chromedp.Click(chromedp.CSS(`#pause`)))
	b.waitFor(t, countRows("shop.example.com")+` === 3`)
	b.waitFor(t, `document.getElementById('rows').rows[0].textContent.includes('/cart/3')`)
}

func testFilter(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	for i := range 20 {
		w.visit(t, cartVisit(i))
	}
	w.visit(t, visit{client: "lab-b", agent: "BarBot/2.0", url: "https://shop.example.com/other", status: 200})
	b.open(t, w.url)
	b.do(t, chromedp.SendKeys(chromedp.CSS(`[name=client]`), "lab-b"))
	b.waitFor(t, `document.getElementById('rows').rows.length === 1 && document.getElementById('line').textContent === 'Live'`)
	if got := evaluate[string](t, b, `location.search`); !strings.Contains(got, "client=lab-b") {
		t.Errorf("address: %q", got)
	}
	w.visit(t, cartVisit(30))
	w.visit(t, visit{client: "lab-b", agent: "BarBot/2.0", url: "https://shop.example.com/more", status: 200})
	b.waitFor(t, countRows("/more")+` === 1`)
	if n := evaluate[int](t, b, countRows("/cart")); n != 0 {
		t.Errorf("%d rows do not fit", n)
	}
	b.open(t, w.url+evaluate[string](t, b, `location.pathname + location.search`))
	if n := evaluate[int](t, b, countRows("lab-b")); n != 2 {
		t.Errorf("%d rows after the page was loaded again", n)
	}
	b.do(t, chromedp.Focus(chromedp.CSS(`[name=client]`)), chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`), chromedp.KeyEvent(kb.Backspace), chromedp.SendKeys(chromedp.CSS(`[name=outcome]`), kb.ArrowDown)) // one key: of letters that come slowly, each would select an option
	b.waitFor(t, `document.getElementById('rows').rows.length === 2 && location.search.includes('outcome=allowed')`)
}

func testRecord(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, cartVisit(1))
	b.open(t, w.url)
	w.visit(t, cartVisit(2))
	b.waitFor(t, countRows("/cart/2")+` === 1`)
	for i, n := range []int{2, 1} { // from the script's row, and from the server's
		b.do(t, chromedp.Click(chromedp.CSS(fmt.Sprintf(`#rows > tr:not(.record):nth-of-type(%d) .more`, 2*i+1))))
		b.waitFor(t, fmt.Sprintf(`document.querySelectorAll('#rows .record').length === %d`, i+1))
		if got := evaluate[string](t, b, fmt.Sprintf(`document.querySelectorAll('#rows .record')[%d].textContent`, i)); !strings.Contains(got, fmt.Sprintf("cart/%d", n)) || !strings.Contains(got, "robots_sha256") {
			t.Errorf("record: %q", got)
		}
	}
	if evaluate[string](t, b, `document.querySelector('.more').getAttribute('aria-expanded')`) != "true" {
		t.Error("it is not said to be open")
	}
	b.do(t, chromedp.Click(chromedp.CSS(`.more`)))
	b.waitFor(t, `document.querySelectorAll('#rows .record').length === 1`)
}

func testKeyboard(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, cartVisit(1))
	w.visit(t, cartVisit(2))
	b.open(t, w.url)
	b.waitFor(t, `document.querySelectorAll('#plot .uplot').length === 2`)
	// The Tab key reaches all controls in the order of the page, and their focus is visible.
	const usable = `[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]')].filter(e => e.checkVisibility())`
	all := evaluate[int](t, b, usable+`.length`)
	for i := range all {
		b.do(t, chromedp.KeyEvent(kb.Tab))
		at := evaluate[struct {
			Index   int
			What    string
			Outline string
		}](t, b, `(() => { const e = document.activeElement; return {Index: `+usable+`.indexOf(e), What: e.outerHTML.slice(0, 80), Outline: getComputedStyle(e).outlineStyle}; })()`)
		if at.Index != i || at.Outline == "none" {
			t.Fatalf("key %d leads to %d (%s), outline %s", i, at.Index, at.What, at.Outline)
		}
	}
	b.open(t, w.url)
	b.do(t, chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.waitFor(t, `document.activeElement.id === 'main'`)
	b.do(t, chromedp.KeyEvent("p"))
	b.waitFor(t, `document.getElementById('pause').textContent === 'Resume' && document.getElementById('said').textContent === 'Paused'`)
	b.do(t, chromedp.KeyEvent(" "))
	b.waitFor(t, `document.getElementById('pause').textContent === 'Pause'`)
	b.pressKey(t, "/")
	b.do(t, chromedp.KeyEvent("cart/2 p"))
	b.waitFor(t, `document.activeElement.id === 'q' && document.getElementById('q').value === 'cart/2 p' && document.getElementById('pause').textContent === 'Pause'`)
	b.do(t, chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Enter))
	b.waitFor(t, `document.getElementById('rows').rows.length === 1 && document.getElementById('line').textContent === 'Live'`)
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector('.more').focus()`), chromedp.KeyEvent(" "))
	b.waitFor(t, `document.querySelectorAll('#rows .record').length === 1`)
	b.do(t, chromedp.KeyEvent(kb.Enter))
	b.waitFor(t, `document.querySelectorAll('#rows .record').length === 0`)
	// Shortcuts of one letter can be turned off (WCAG 2.1.4).
	b.do(t, chromedp.Click(chromedp.CSS(`#keys`)), chromedp.KeyEvent("p"))
	if got := evaluate[string](t, b, `document.getElementById('pause').textContent`); got != "Pause" {
		t.Errorf("keys are off, and it is %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS(`#keys`)))
}

func testInjection(t *testing.T, b *browser) {
	w := newHostileProxy(t)
	b.open(t, w.url)
	for _, text := range injections { // by the stream too
		w.record(t, &audit.Record{
			Time: time.Now(), ID: text, Decision: policy.Decision{Reason: policy.ReasonRule, Rule: text, Token: text, Line: 1},
			Request: policy.Request{Client: text, Method: text, Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: text, Port: 443}, PathQuery: text}, UserAgent: text},
			Err:     errors.New(text),
		})
	}
	b.waitFor(t, fmt.Sprintf(`document.getElementById('d%d') !== null`, w.feed.Newest()))
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelectorAll('#rows a.more').forEach(a => a.click())`))
	b.checkNoInjection(t)
	for _, path := range []string{"/hosts", "/about", hostHref(injections["the page"]), hostHref(injections["an element"]), "/hosts/evil-0.example", "/hosts/evil-3.example",
		"/explain?url=" + url.QueryEscape(injections["an address"]) + "&agent=" + url.QueryEscape(injections["an attribute"])} {
		b.open(t, w.url+path)
		b.checkNoInjection(t)
	}
}

// checkNoInjection fails the test if the open page has an element that only injected text can
// have made.
func (b *browser) checkNoInjection(t *testing.T) {
	t.Helper()
	const injected = `[...document.querySelectorAll('xss-here, [xss-here], [onclick], [onerror], [onmouseover], [style], a[href^="javascript:"], main script, body > script')].filter(e => !e.closest('.plot')).map(e => e.outerHTML.slice(0, 100))`
	at := evaluate[string](t, b, `location.pathname`)
	for _, e := range evaluate[[]string](t, b, injected) {
		t.Errorf("%.60s: %s was injected", at, e)
	}
	if over := evaluate[float64](t, b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("%.60s is %v px too wide", at, over)
	}
	b.checkNoComplaints(t)
}

func testHost(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/x"})
	b.open(t, w.url)
	b.do(t, chromedp.Click(chromedp.CSS(`#rows th a`)))
	b.waitFor(t, `location.pathname === '/hosts/www.example.org' && document.getElementById('L4').className === 'rule block'`)
	b.do(t, chromedp.Click(chromedp.CSS(`#causes a`)))
	b.waitFor(t, `location.hash === '#L4' && document.querySelector(':target').id === 'L4'`)
	w.visit(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/search"})
	b.waitFor(t, `document.getElementById('causes').textContent.includes('/search')`)
	before := w.origins.requestCount()
	b.do(t, chromedp.Click(chromedp.CSS(`button[value=refetch]`)))
	b.waitFor(t, `location.search === '?done=refetch' && document.querySelector('.note.good') !== null`)
	if n := w.origins.requestCount() - before; n != 1 {
		t.Errorf("%d fetches", n)
	}
	b.do(t, chromedp.Click(chromedp.CSS(`button[value=purge]`)))
	b.waitFor(t, `location.search === '?done=purge' && document.querySelector('.robots') === null`)
	o, err := robots.ParseOrigin("https", "www.example.org")
	check(t, err)
	if w.cache.Peek(o) != nil {
		t.Error("it is known still")
	}
	b.open(t, w.url+"/hosts?q=example.org")
	b.waitFor(t, `document.querySelectorAll('#hosts tbody tr').length === 1`)
	w.visit(t, visit{client: "a", agent: "b", url: "https://api.example.org/"})
	b.waitFor(t, `document.querySelectorAll('#hosts tbody tr').length === 2`)
}

func testExplain(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/x?a=b&c=d"})
	b.open(t, w.url)
	const answered = `document.getElementById('verdict')?.textContent === 'Disallowed' && document.querySelector('#answer .robots .block').textContent.includes('Disallow: /private/')`
	b.do(t, chromedp.Click(chromedp.CSS(`[data-f=explain] button`))) // in one step
	b.waitFor(t, answered+` && document.querySelector('[name=url]').value === 'https://www.example.org/private/x?a=b&c=d' && document.querySelector('[name=agent]').value === 'Scrapy/2.11'`)
	b.do(t, chromedp.Focus(chromedp.CSS(`[name=url]`)), chromedp.KeyEvent(kb.Enter)) // again, from the form
	b.waitFor(t, `location.search === '' && `+answered)
	b.open(t, w.url)
	w.malformed(t)
	b.waitFor(t, countRows("malformed")+` === 1`)
	w.visit(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/y"})
	b.waitFor(t, countRows("/private/y")+` === 1`)
	if n := evaluate[int](t, b, `document.querySelectorAll('#rows [data-f=explain]').length`); n != 2 {
		t.Errorf("%d of two requests and one that is none can be asked about", n)
	}
	b.do(t, chromedp.Click(chromedp.CSS(`[data-f=explain] button`))) // from a script's row
	b.waitFor(t, answered+` && document.querySelector('[name=url]').value === 'https://www.example.org/private/y'`)
}

func testTheme(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles)
	b.open(t, w.url)
	b.setColorScheme(t, "light")
	const paper = `getComputedStyle(document.body).backgroundColor`
	light := evaluate[string](t, b, paper)
	b.do(t, chromedp.Click(chromedp.CSS(`#theme`)), chromedp.Click(chromedp.CSS(`#theme`)))
	b.waitFor(t, `document.getElementById('theme').textContent === 'Theme: dark'`)
	if dark := evaluate[string](t, b, paper); dark == light {
		t.Errorf("dark is %s too", dark)
	}
	b.open(t, w.url+"/about")
	b.waitFor(t, `document.getElementById('theme').textContent === 'Theme: dark' && document.documentElement.dataset.theme === 'dark'`)
	b.do(t, chromedp.Click(chromedp.CSS(`#theme`)))
	if got := evaluate[string](t, b, paper); got != light {
		t.Errorf("%s is not %s", got, light)
	}
}

func testLogin(t *testing.T, b *browser) {
	w := newTestProxy(t, sampleFiles, withToken("a token of some length"))
	w.visit(t, cartVisit(1))
	// Over plain HTTP to a host name, browsers send no Sec-Fetch-Site, so the check uses
	// Origin.
	far := strings.Replace(w.url, "127.0.0.1", "dashboard.test", 1)
	b.do(t, chromedp.Navigate(far+"/?client=lab-a"))
	b.waitFor(t, `location.pathname === '/login' && document.activeElement.name === 'token'`)
	b.checkAppearance(t, "login")
	b.do(t, chromedp.KeyEvent("a token of some length"), chromedp.KeyEvent(kb.Enter))
	b.waitFor(t, `location.search === '?client=lab-a' && document.getElementById('line')?.textContent === 'Live'`)
	w.visit(t, cartVisit(2))
	b.waitFor(t, countRows("/cart/2")+` === 1`)
	b.do(t, chromedp.Click(chromedp.CSS(`form[action="/logout"] button`)))
	b.waitFor(t, `location.pathname === '/login'`)
}
