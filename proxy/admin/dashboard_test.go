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

// TestDashboard drives the dashboard in a real browser, which has nothing to complain
// of: no violation of the policy, no error, no dialog.
func TestDashboard(t *testing.T) {
	testkit.Long(t, "a real browser")
	chromium := startChromium(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *browser)
	}{
		{"how lists look", testLook}, // those that take longest begin first
		{"how the pages of one thing look", testLookAtOne},
		{"how the page about the proxy looks", testLookAtAbout},
		{"decisions are live", testLive},
		{"a pause holds", testPause},
		{"a filter holds for what is there and what comes", testFilter},
		{"a record opens below its row", testRecord},
		{"by the keyboard alone", testKeyboard},
		{"strangers' worst is inert", testInert},
		{"a host is looked at, fetched again and forgotten", testHost},
		{"a request is explained", testExplain},
		{"light and dark are chosen", testTheme},
		{"a login", testLogin},
		{"nothing is lost where it is narrow", testNarrow},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			b := openTab(t, chromium)
			part.test(t, b)
			b.quiet(t)
			b.close() // before the server goes, which would wait for connections that have said nothing yet
		})
	}
}

// open loads a page, and on the overview waits until it is live.
func (b *browser) open(t testing.TB, address string) {
	t.Helper()
	b.do(t, chromedp.Navigate(address))
	b.until(t, `document.readyState === 'complete' && (!document.getElementById('line') || document.getElementById('line').textContent === 'Live')`)
}

// rows counts those of the decisions whose text has a part in it.
func rows(part string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#rows tr')].filter(tr => tr.textContent.includes(%q)).length`, part)
}

func cart(n int) visit {
	return visit{client: "lab-a", agent: "FooBot/1.0", url: fmt.Sprintf("https://shop.example.com/cart/%d", n)}
}

func testLive(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	w.come(t, cart(1))
	b.open(t, w.url)
	if got := value[string](t, b, `document.getElementById('rows').rows[0].cells[2].textContent`); got != "shop.example.com" {
		t.Errorf("host: %q", got)
	}
	w.come(t, visit{client: "lab-b", agent: "BarBot/2.0", url: "https://shop.example.com/x?<b>", status: 200, waited: 2100 * time.Millisecond})
	b.until(t, rows("/x?<b>")+` === 1`)
	// A row that a script has made is the row that the server makes of the same line.
	live := value[string](t, b, `[...document.getElementById('rows').rows[0].cells].map(c => c.textContent.trim().replace(/\s+/g, ' ')).join('|')`)
	links := value[string](t, b, `[...document.getElementById('rows').rows[0].querySelectorAll('a, form')].map(a => a.getAttribute('href') ?? a.getAttribute('action')).join('|')`)
	b.open(t, w.url)
	if got := value[string](t, b, `[...document.getElementById('rows').rows[0].cells].map(c => c.textContent.trim().replace(/\s+/g, ' ')).join('|')`); got != live {
		t.Errorf("rows differ:\n live %s\nstill %s", live, got)
	}
	still := value[string](t, b, `[...document.getElementById('rows').rows[0].querySelectorAll('a, form')].map(a => a.getAttribute('href') ?? a.getAttribute('action')).join('|')`)
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
		w.come(t, cart(i))
	}
	b.until(t, rows("/cart/599")+` === 1`)
	if n := value[int](t, b, `document.getElementById('rows').childElementCount`); n > 500 {
		t.Errorf("%d rows", n)
	}
	b.until(t, `document.querySelectorAll('#plot .uplot').length === 2`)
	b.until(t, `document.getElementById('figures').textContent.includes('601')`)
}

func testPause(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	w.come(t, cart(1))
	b.open(t, w.url)
	b.do(t, chromedp.Click(chromedp.CSS(`#pause`)))
	w.come(t, cart(2))
	w.come(t, cart(3))
	b.until(t, `document.getElementById('pause').textContent === 'Resume (2 new)'`)
	if n := value[int](t, b, rows("shop.example.com")); n != 1 {
		t.Errorf("%d rows while it is paused", n)
	}
	if value[string](t, b, `document.getElementById('pause').getAttribute('aria-pressed')`) != "true" {
		t.Error("it is not said to be pressed")
	}
	b.do(t, chromedp.Click(chromedp.CSS(`#pause`)))
	b.until(t, rows("shop.example.com")+` === 3`)
	b.until(t, `document.getElementById('rows').rows[0].textContent.includes('/cart/3')`)
}

func testFilter(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	for i := range 20 {
		w.come(t, cart(i))
	}
	w.come(t, visit{client: "lab-b", agent: "BarBot/2.0", url: "https://shop.example.com/other", status: 200})
	b.open(t, w.url)
	b.do(t, chromedp.SendKeys(chromedp.CSS(`[name=client]`), "lab-b"))
	b.until(t, `document.getElementById('rows').rows.length === 1 && document.getElementById('line').textContent === 'Live'`)
	if got := value[string](t, b, `location.search`); !strings.Contains(got, "client=lab-b") {
		t.Errorf("address: %q", got)
	}
	w.come(t, cart(30))
	w.come(t, visit{client: "lab-b", agent: "BarBot/2.0", url: "https://shop.example.com/more", status: 200})
	b.until(t, rows("/more")+` === 1`)
	if n := value[int](t, b, rows("/cart")); n != 0 {
		t.Errorf("%d rows do not fit", n)
	}
	b.open(t, w.url+value[string](t, b, `location.pathname + location.search`))
	if n := value[int](t, b, rows("lab-b")); n != 2 {
		t.Errorf("%d rows after the page was loaded again", n)
	}
	b.do(t, chromedp.Focus(chromedp.CSS(`[name=client]`)), chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`), chromedp.KeyEvent(kb.Backspace), chromedp.SendKeys(chromedp.CSS(`[name=decision]`), "Allowed"))
	b.until(t, `document.getElementById('rows').rows.length === 2 && location.search.includes('decision=allow')`)
}

func testRecord(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	w.come(t, cart(1))
	b.open(t, w.url)
	w.come(t, cart(2))
	b.until(t, rows("/cart/2")+` === 1`)
	for i, n := range []int{2, 1} { // of a script's row, and of the server's
		b.do(t, chromedp.Click(chromedp.CSS(fmt.Sprintf(`#rows > tr:not(.record):nth-of-type(%d) .more`, 2*i+1))))
		b.until(t, fmt.Sprintf(`document.querySelectorAll('#rows .record').length === %d`, i+1))
		if got := value[string](t, b, fmt.Sprintf(`document.querySelectorAll('#rows .record')[%d].textContent`, i)); !strings.Contains(got, fmt.Sprintf("cart/%d", n)) || !strings.Contains(got, "robots_sha256") {
			t.Errorf("record: %q", got)
		}
	}
	if value[string](t, b, `document.querySelector('.more').getAttribute('aria-expanded')`) != "true" {
		t.Error("it is not said to be open")
	}
	b.do(t, chromedp.Click(chromedp.CSS(`.more`)))
	b.until(t, `document.querySelectorAll('#rows .record').length === 1`)
}

func testKeyboard(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	w.come(t, cart(1))
	w.come(t, cart(2))
	b.open(t, w.url)
	b.until(t, `document.querySelectorAll('#plot .uplot').length === 2`)
	// All that can be used is reached, in the order of the page, and can be seen to be.
	const usable = `[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]')].filter(e => e.checkVisibility())`
	all := value[int](t, b, usable+`.length`)
	for i := range all {
		b.do(t, chromedp.KeyEvent(kb.Tab))
		at := value[struct {
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
	b.until(t, `document.activeElement.id === 'main'`)
	b.do(t, chromedp.KeyEvent("p"))
	b.until(t, `document.getElementById('pause').textContent === 'Resume' && document.getElementById('said').textContent === 'Paused'`)
	b.do(t, chromedp.KeyEvent(" "))
	b.until(t, `document.getElementById('pause').textContent === 'Pause'`)
	b.press(t, "/")
	b.do(t, chromedp.KeyEvent("cart/2 p"))
	b.until(t, `document.activeElement.id === 'q' && document.getElementById('q').value === 'cart/2 p' && document.getElementById('pause').textContent === 'Pause'`)
	b.do(t, chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Enter))
	b.until(t, `document.getElementById('rows').rows.length === 1`)
	b.do(t, chromedp.Focus(chromedp.CSS(`.more`)), chromedp.KeyEvent(" "))
	b.until(t, `document.querySelectorAll('#rows .record').length === 1`)
	b.do(t, chromedp.KeyEvent(kb.Enter))
	b.until(t, `document.querySelectorAll('#rows .record').length === 0`)
	// Keys of one letter can be turned off (WCAG 2.1.4).
	b.do(t, chromedp.Click(chromedp.CSS(`#keys`)), chromedp.KeyEvent("p"))
	if got := value[string](t, b, `document.getElementById('pause').textContent`); got != "Pause" {
		t.Errorf("keys are off, and it is %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS(`#keys`)))
}

func testInert(t *testing.T, b *browser) {
	w := evilWorld(t)
	b.open(t, w.url)
	for _, text := range evil { // by the stream too
		w.record(t, &audit.Record{
			Time: time.Now(), ID: text, Decision: policy.Decision{Reason: policy.ReasonRule, Rule: text, Token: text, Line: 1},
			Request: policy.Request{Client: text, Method: text, Origin: robots.Origin{Scheme: "https", Host: text, Port: 443}, PathQuery: text, UserAgent: text},
			Err:     errors.New(text),
		})
	}
	b.until(t, fmt.Sprintf(`document.getElementById('d%d') !== null`, w.feed.Newest()))
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelectorAll('#rows a.more').forEach(a => a.click())`))
	b.holds(t)
	for _, path := range []string{"/hosts", "/about", hostHref(evil["the page"]), hostHref(evil["an element"]), "/hosts/evil-0.example", "/hosts/evil-3.example",
		"/explain?url=" + url.QueryEscape(evil["an address"]) + "&agent=" + url.QueryEscape(evil["an attribute"])} {
		b.open(t, w.url+path)
		b.holds(t)
	}
}

// holds says whether all that the open page has is its own.
func (b *browser) holds(t *testing.T) {
	t.Helper()
	const strange = `[...document.querySelectorAll('xss-here, [xss-here], [onclick], [onerror], [onmouseover], [style], a[href^="javascript:"], main script, body > script')].filter(e => !e.closest('.plot')).map(e => e.outerHTML.slice(0, 100))`
	at := value[string](t, b, `location.pathname`)
	for _, e := range value[[]string](t, b, strange) {
		t.Errorf("%.60s: %s is a stranger's", at, e)
	}
	if over := value[float64](t, b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("%.60s is %v px too wide", at, over)
	}
	b.quiet(t)
}

func testHost(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	w.come(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/x"})
	b.open(t, w.url)
	b.do(t, chromedp.Click(chromedp.CSS(`#rows th a`)))
	b.until(t, `location.pathname === '/hosts/www.example.org' && document.getElementById('L4').className === 'rule block'`)
	b.do(t, chromedp.Click(chromedp.CSS(`#causes a`)))
	b.until(t, `location.hash === '#L4' && document.querySelector(':target').id === 'L4'`)
	w.come(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/search"})
	b.until(t, `document.getElementById('causes').textContent.includes('/search')`)
	asked := w.sites.count()
	b.do(t, chromedp.Click(chromedp.CSS(`button[value=refetch]`)))
	b.until(t, `location.search === '?done=refetch' && document.querySelector('.note.good') !== null`)
	if n := w.sites.count() - asked; n != 1 {
		t.Errorf("%d fetches", n)
	}
	b.do(t, chromedp.Click(chromedp.CSS(`button[value=purge]`)))
	b.until(t, `location.search === '?done=purge' && document.querySelector('.robots') === null`)
	o, err := robots.ParseOrigin("https", "www.example.org")
	check(t, err)
	if w.book.Peek(o) != nil {
		t.Error("it is known still")
	}
	b.open(t, w.url+"/hosts?q=example.org")
	b.until(t, `document.querySelectorAll('#hosts tbody tr').length === 1`)
	w.come(t, visit{client: "a", agent: "b", url: "https://api.example.org/"})
	b.until(t, `document.querySelectorAll('#hosts tbody tr').length === 2`)
}

func testExplain(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	w.come(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/x?a=b&c=d"})
	b.open(t, w.url)
	const answered = `document.getElementById('verdict')?.textContent === 'Blocked' && document.querySelector('#answer .robots .block').textContent.includes('Disallow: /private/')`
	b.do(t, chromedp.Click(chromedp.CSS(`[data-f=explain] button`))) // one step
	b.until(t, answered+` && document.querySelector('[name=url]').value === 'https://www.example.org/private/x?a=b&c=d' && document.querySelector('[name=agent]').value === 'Scrapy/2.11'`)
	b.do(t, chromedp.Focus(chromedp.CSS(`[name=url]`)), chromedp.KeyEvent(kb.Enter)) // and again from the form
	b.until(t, `location.search === '' && `+answered)
	b.open(t, w.url)
	w.malformed(t)
	b.until(t, rows("malformed")+` === 1`)
	w.come(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/y"})
	b.until(t, rows("/private/y")+` === 1`)
	if n := value[int](t, b, `document.querySelectorAll('#rows [data-f=explain]').length`); n != 2 {
		t.Errorf("%d of two requests and one that is none can be asked about", n)
	}
	b.do(t, chromedp.Click(chromedp.CSS(`[data-f=explain] button`))) // of a script's row
	b.until(t, answered+` && document.querySelector('[name=url]').value === 'https://www.example.org/private/y'`)
}

func testTheme(t *testing.T, b *browser) {
	w := newWorld(t, sample)
	b.open(t, w.url)
	b.emulate(t, "light")
	const paper = `getComputedStyle(document.body).backgroundColor`
	light := value[string](t, b, paper)
	b.do(t, chromedp.Click(chromedp.CSS(`#theme`)), chromedp.Click(chromedp.CSS(`#theme`)))
	b.until(t, `document.getElementById('theme').textContent === 'Theme: dark'`)
	if dark := value[string](t, b, paper); dark == light {
		t.Errorf("dark is %s too", dark)
	}
	b.open(t, w.url+"/about")
	b.until(t, `document.getElementById('theme').textContent === 'Theme: dark' && document.documentElement.dataset.theme === 'dark'`)
	b.do(t, chromedp.Click(chromedp.CSS(`#theme`)))
	if got := value[string](t, b, paper); got != light {
		t.Errorf("%s is not %s", got, light)
	}
}

func testLogin(t *testing.T, b *browser) {
	w := newWorld(t, sample, withToken("a token of some length"))
	w.come(t, cart(1))
	// In the clear and under a name, browsers send no Sec-Fetch-Site: Origin has to do.
	far := strings.Replace(w.url, "127.0.0.1", "dashboard.test", 1)
	b.do(t, chromedp.Navigate(far+"/?client=lab-a"))
	b.until(t, `location.pathname === '/login' && document.activeElement.name === 'token'`)
	b.shoot(t, "login")
	b.do(t, chromedp.KeyEvent("a token of some length"), chromedp.KeyEvent(kb.Enter))
	b.until(t, `location.search === '?client=lab-a' && document.getElementById('line')?.textContent === 'Live'`)
	w.come(t, cart(2))
	b.until(t, rows("/cart/2")+` === 1`)
	b.do(t, chromedp.Click(chromedp.CSS(`form[action="/logout"] button`)))
	b.until(t, `location.pathname === '/login'`)
}
