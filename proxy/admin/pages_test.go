package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// get asks for a page and inspects it.
func (w *world) get(t testing.TB, path string, status int) *html.Node {
	t.Helper()
	return w.page(t, w.ask(t, "GET", path, nil), status)
}

// ask sends a request as a browser on this machine would, and follows nothing.
func (w *world) ask(t testing.TB, method, path string, form url.Values) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(form.Encode()))
	check(t, err)
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", w.url)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (w *world) page(t testing.TB, resp *http.Response, status int) *html.Node {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	if resp.StatusCode != status {
		t.Fatalf("status %d, want %d: %.300s", resp.StatusCode, status, body)
	}
	if got := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'") {
		t.Errorf("policy: %q", got)
	}
	return inspect(t, string(body))
}

// evilWorld has strangers' worst in every place that a stranger reaches.
func evilWorld(t testing.TB) *world {
	t.Helper()
	texts := map[string]string{}
	for i, text := range evilTexts() {
		texts[fmt.Sprintf("evil-%d.example", i)] = text
	}
	w := newWorld(t, texts)
	for host := range texts {
		w.come(t, visit{client: "a", agent: "FooBot/1.0", url: "https://" + host + "/x"})
	}
	for name, text := range evil {
		r := &audit.Record{
			Time: time.Now(), ID: text, Target: text,
			Request: policy.Request{Client: text, Method: text, Origin: robots.Origin{Scheme: "https", Host: text, Port: 443}, PathQuery: text, UserAgent: text},
			Decision: policy.Decision{
				Reason: policy.ReasonRule, Rule: text, Line: 3, Group: text, Token: text, Entry: text, EntryReason: text, Dialect: text, Usage: text,
				Err: errors.New(text),
			},
			Preferences: audit.Preferences{RobotsTag: audit.Preference{Text: text, Bytes: len(text)}}, Err: errors.New(name + text),
		}
		r.Decision.Ruling.Result = &fetch.Result{URL: text, SHA256: text}
		w.record(t, r)
		slot, err := w.pacer.Wait(t.Context(), text, pace.Limits{Key: text, PerSecond: 1, Burst: 1, MaxConcurrent: 1, MaxQueue: 1})
		check(t, err)
		slot.Release()
	}
	w.unwell = func() error { return errors.New(evil["the page"] + evil["a line"]) }
	return w
}

func TestNothingBreaksOut(t *testing.T) {
	w := evilWorld(t)
	pages := []string{"/", "/?span=day", "/state", "/hosts", "/hosts?sort=host", "/about", "/explain"}
	for n := range uint64(len(evil) + 1) {
		pages = append(pages, fmt.Sprintf("/decisions/%d", w.feed.Newest()-n))
	}
	for i := range evilTexts() {
		pages = append(pages, fmt.Sprintf("/hosts/evil-%d.example", i))
	}
	for _, text := range evil {
		if len(text) < 1000 { // a head of 16 KiB is refused
			q := url.QueryEscape(text)
			pages = append(pages, hostHref(text), "/?q="+q+"&host="+q+"&client="+q+"&agent="+q+"&reason="+q, "/hosts?q="+q+"&sort="+q+"&from="+q,
				"/explain?url="+q+"&agent="+q+"&client="+q+"&method="+q, "/hosts/x?done="+q, "/?decision="+q, "/?span="+q)
		}
	}
	for _, path := range pages {
		t.Run(path[:min(len(path), 60)], func(t *testing.T) {
			resp := w.ask(t, "GET", path, nil)
			if resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusTemporaryRedirect {
				return // a path that is not clean
			}
			body, err := io.ReadAll(resp.Body)
			check(t, err)
			if path == "/state" { // parts of a page
				body = fmt.Appendf(nil, `<html lang="en"><title>x</title><main><h1>x</h1>%s</main></html>`, body)
			}
			inspect(t, string(body))
		})
	}
	for name, text := range evil {
		t.Run("asked about "+name, func(t *testing.T) {
			w.page(t, w.ask(t, "POST", "/explain", url.Values{"url": {text}, "agent": {text}, "client": {text}, "method": {text}}), http.StatusBadRequest)
			if resp := w.ask(t, "POST", "/hosts/x", url.Values{"origin": {text}, "do": {text}}); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d", resp.StatusCode)
			}
			w.reloads <- errors.New("line 1: " + text + "\nline 2: " + text)
			w.page(t, w.ask(t, "POST", "/reload", url.Values{}), http.StatusUnprocessableEntity)
		})
	}
}

// A line that is not of a request has no verdict, and nothing can be asked about it.
func TestRowOfAnotherKind(t *testing.T) {
	r := newDecisionRow(live.Line{Number: 1, JSON: []byte(`{"time":"2026-11-21T05:00:00Z","kind":"robots","url":"http://a.test/robots.txt","host":"a.test","status":200}`)})
	if r.Word != "robots" || r.Kind != "plain" || r.Host != "a.test" || r.Path != "/robots.txt" || r.Status != "200" || r.ExplainHref != "" {
		t.Errorf("%+v", r)
	}
}

func TestOverviewWithoutScripts(t *testing.T) {
	w := newWorld(t, sample)
	for i := range 130 {
		w.come(t, visit{client: "lab-a", agent: "FooBot/1.0", url: fmt.Sprintf("https://shop.example.com/cart/%d", i)})
	}
	w.come(t, visit{client: "lab-b", agent: "BarBot/1.0", url: "https://shop.example.com/x", status: 200, waited: 2100 * time.Millisecond})
	w.come(t, visit{client: "lab-b", agent: "BarBot/1.0", url: "https://shop.example.com/cart", status: 200, monitor: true})
	doc := w.get(t, "/", http.StatusOK)
	rows := find(one(t, doc, "id", "rows"), "role", "row")
	if len(rows) != maxRows {
		t.Errorf("%d rows", len(rows))
	}
	for i, want := range []string{"Would block", "Allowed", "Blocked"} {
		if got := words(rows[i]); !strings.Contains(got, want) {
			t.Errorf("row %d: %q", i, got)
		}
	}
	if got := words(rows[1]); !strings.Contains(got, "2.1 s") || !strings.Contains(got, "line 4") || !strings.Contains(got, "BarBot") {
		t.Errorf("row: %q", got)
	}
	figures := words(one(t, doc, "id", "figures"))
	if !strings.Contains(figures, "131") || !strings.Contains(figures, "99.2 %") {
		t.Errorf("figures: %q", figures)
	}
	if got := words(one(t, doc, "id", "blockers")); !strings.Contains(got, "/cart line 2") || !strings.Contains(got, "131") {
		t.Errorf("blockers: %q", got)
	}
	if got := words(one(t, doc, "id", "numbers")); !strings.Contains(got, "131") {
		t.Errorf("the table of the chart: %q", got)
	}
	doc = w.get(t, "/?client=lab-b&decision=allow", http.StatusOK)
	if rows := find(one(t, doc, "id", "rows"), "role", "row"); len(rows) != 1 {
		t.Errorf("%d rows fit the filter", len(rows))
	}
	if got := words(one(t, doc, "id", "shown")); got != "1 of the last 132 fit, 1 shown" {
		t.Errorf("shown: %q", got)
	}
	if got := attr(find(doc, "name", "client")[0], "value"); got != "lab-b" {
		t.Errorf("the field has %q", got)
	}
	if got := words(w.get(t, "/?decision=maybe", http.StatusOK)); !strings.Contains(got, "The filter could not be read") {
		t.Error("a filter that is none is not said to be")
	}
}

func TestARecordHasItsPage(t *testing.T) {
	w := newWorld(t, sample)
	w.come(t, visit{client: "lab-a", agent: "FooBot/1.0", url: "https://shop.example.com/cart/1"})
	doc := w.get(t, fmt.Sprintf("/decisions/%d", w.feed.Newest()), http.StatusOK)
	for _, want := range []string{"user_agent", "FooBot/1.0", "robots_sha256", "hash"} {
		if !strings.Contains(words(doc), want) {
			t.Errorf("no %q", want)
		}
	}
	for _, path := range []string{"/decisions/0", "/decisions/99", "/decisions/x", "/decisions/-1"} {
		w.get(t, path, http.StatusNotFound)
	}
}

func TestHostsAreListed(t *testing.T) {
	texts := map[string]string{}
	for i := range 120 {
		texts[fmt.Sprintf("host-%03d.example", i)] = "User-agent: *\nDisallow: /no\n"
	}
	w := newWorld(t, texts)
	for host := range texts {
		w.come(t, visit{client: "a", agent: "b", url: "https://" + host + "/"})
	}
	w.come(t, visit{client: "a", agent: "b", url: "https://host-077.example/no"})
	w.hold(t, "host-033.example", 2)
	first := func(path string) (host string, count int) {
		doc := w.get(t, path, http.StatusOK)
		rows := find(one(t, doc, "id", "hosts"), "role", "rowheader")
		if len(rows) == 0 {
			return "", 0
		}
		return words(rows[0]), len(rows)
	}
	for _, c := range []struct {
		path, host string
		count      int
	}{
		{"/hosts?sort=host", "host-000.example", 50},
		{"/hosts?sort=host&from=50", "host-050.example", 50},
		{"/hosts?sort=host&from=100", "host-100.example", 20},
		{"/hosts?sort=host&from=9999", "host-100.example", 20},
		{"/hosts?sort=host&from=-3", "host-000.example", 50},
		{"/hosts?sort=blocked", "host-077.example", 50},
		{"/hosts?sort=queue", "host-033.example", 50},
		{"/hosts", "host-077.example", 50},
		{"/hosts?sort=none", "host-077.example", 50},
		{"/hosts?q=-11", "", 10},
		{"/hosts?q=HOST-011", "host-011.example", 1},
		{"/hosts?q=elsewhere", "", 0},
	} {
		if host, count := first(c.path); count != c.count || c.host != "" && host != c.host {
			t.Errorf("%s: %q and %d, want %q and %d", c.path, host, count, c.host, c.count)
		}
	}
	if got := words(w.get(t, "/hosts?q=host-033", http.StatusOK)); !strings.Contains(got, "Queue") || !strings.Contains(got, "10 s") {
		t.Errorf("the pace of the host: %q", got)
	}
}

func TestAHostsPageMarksWhatDecided(t *testing.T) {
	w := newWorld(t, sample)
	for range 3 {
		w.come(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/x"})
	}
	w.come(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/search/about"})
	doc := w.get(t, "/hosts/www.example.org", http.StatusOK)
	for id, want := range map[string][2]string{"L4": {"rule block", "blocked 3"}, "L6": {"rule allow", "allowed 1"}, "L5": {"rule", "Disallow: /search"}, "L9": {"agent begins", "User-agent: GPTBot"}} {
		line := one(t, doc, "id", id)
		if attr(line, "class") != want[0] || !strings.Contains(words(line), want[1]) {
			t.Errorf("%s: class %q, %q", id, attr(line, "class"), words(line))
		}
	}
	if got := words(one(t, doc, "id", "causes")); !strings.Contains(got, "/private/ line 4") {
		t.Errorf("causes: %q", got)
	}
	if len(find(one(t, doc, "id", "causes"), "href", "#L4")) != 1 || len(find(doc, "href", "#L9")) < 2 {
		t.Error("no way to the lines")
	}
	w.sites.set("www.example.org", "User-agent: *\nDisallow: /a\nDisallow: /b\nDisallow: /other/\n")
	w.page(t, w.follow(t, "/hosts/www.example.org", url.Values{"origin": {"https://www.example.org"}, "do": {"refetch"}}), http.StatusOK)
	if got := one(t, w.get(t, "/hosts/www.example.org", http.StatusOK), "id", "L4"); attr(got, "class") != "rule" {
		t.Errorf("another rule stands there now, and is marked: %q", words(got))
	}
	w.get(t, "/hosts/nowhere.example", http.StatusNotFound)
}

// follow posts a form and asks for the page that its answer leads to.
func (w *world) follow(t testing.TB, path string, form url.Values) *http.Response {
	t.Helper()
	resp := w.ask(t, "POST", path, form)
	if resp.StatusCode != http.StatusSeeOther {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	return w.ask(t, "GET", resp.Header.Get("Location"), nil)
}

func TestALongFileIsShownInParts(t *testing.T) {
	text := "User-agent: *\n" + strings.Repeat("Disallow: /nothing\n", linesPerPage) + "Disallow: /far\n"
	w := newWorld(t, map[string]string{"long.example": text})
	w.come(t, visit{client: "a", agent: "b", url: "https://long.example/far"})
	doc := w.get(t, "/hosts/long.example", http.StatusOK)
	if len(find(doc, "id", "L3000")) != 1 || len(find(doc, "id", "L3001")) != 0 {
		t.Error("not cut where it should be")
	}
	if len(find(one(t, doc, "id", "causes"), "href", "?from=3001#L3002")) != 1 {
		t.Errorf("no way to the line that decided")
	}
	doc = w.get(t, "/hosts/long.example?from=3001", http.StatusOK)
	if got := words(one(t, doc, "id", "L3002")); !strings.Contains(got, "blocked 1") {
		t.Errorf("line 3002: %q", got)
	}
}

func TestOriginsArePurgedAndFetchedAgain(t *testing.T) {
	w := newWorld(t, map[string]string{"a.example": "User-agent: *\n"})
	w.come(t, visit{client: "a", agent: "b", url: "https://a.example/"})
	form := url.Values{"origin": {"https://a.example"}, "do": {"refetch"}}
	before := w.sites.count()
	if got := words(w.page(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "Fetched again.") || w.sites.count() != before+1 {
		t.Errorf("%d fetches; %q", w.sites.count()-before, got)
	}
	w.sites.set("a.example", "503")
	if got := words(w.page(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "without a usable answer") {
		t.Errorf("%q", got)
	}
	form.Set("do", "purge")
	if got := words(w.page(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "Forgotten.") {
		t.Errorf("%q", got)
	}
	o, err := robots.ParseOrigin("https", "a.example")
	check(t, err)
	if w.book.Peek(o) != nil {
		t.Error("it is known still")
	}
	if got := words(w.page(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "nothing to forget") {
		t.Errorf("%q", got)
	}
	for name, form := range map[string]url.Values{
		"another host's": {"origin": {"https://b.example"}, "do": {"purge"}},
		"no origin":      {"origin": {"a.example"}, "do": {"purge"}},
		"nothing":        {"origin": {"https://a.example"}, "do": {"dance"}},
	} {
		if resp := w.ask(t, "POST", "/hosts/a.example", form); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

func TestExplainAsksOnlyWhenItIsTold(t *testing.T) {
	w := newWorld(t, sample)
	doc := w.get(t, "/explain?url=https%3A%2F%2Fwww.example.org%2Fprivate%2Fx&agent=Scrapy%2F2.11&method=HEAD", http.StatusOK)
	if w.sites.count() != 0 || attr(find(doc, "name", "url")[0], "value") != "https://www.example.org/private/x" || len(find(doc, "selected", "")) != 1 {
		t.Error("not filled in, or asked already")
	}
	doc = w.page(t, w.ask(t, "POST", "/explain", url.Values{"url": {"https://www.example.org/private/x"}, "agent": {"Scrapy/2.11"}}), http.StatusOK)
	got := words(one(t, doc, "id", "answer"))
	for _, want := range []string{"Blocked", "/private/ (line 4)", "Scrapy", "2 s", "decides"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if len(find(doc, "href", "/hosts/www.example.org#L4")) != 1 {
		t.Error("no way to the rule")
	}
	w.hold(t, "news.example.net", 2)
	doc = w.page(t, w.ask(t, "POST", "/explain", url.Values{"url": {"https://news.example.net/"}}), http.StatusOK)
	if got := words(one(t, doc, "id", "answer")); !strings.Contains(got, "Allowed") || !strings.Contains(got, "Wait now") {
		t.Errorf("%q", got)
	}
	doc = w.page(t, w.ask(t, "POST", "/explain", url.Values{"url": {"www.example.org"}}), http.StatusBadRequest)
	if got := words(one(t, doc, "id", "wrong")); !strings.Contains(got, "scheme") {
		t.Errorf("%q", got)
	}
}

func TestAboutReloads(t *testing.T) {
	w := newWorld(t, sample)
	doc := w.get(t, "/about", http.StatusOK)
	for _, want := range []string{"1.2.3", "standard", "/api/v1/decisions/stream"} {
		if !strings.Contains(words(doc), want) {
			t.Errorf("no %q", want)
		}
	}
	w.reloads <- nil
	if got := words(w.page(t, w.follow(t, "/reload", url.Values{}), http.StatusOK)); !strings.Contains(got, "is in force") {
		t.Errorf("%q", got)
	}
	w.reloads <- errors.New("line 3: pace.burst: no number\nline 9: nonsense: no such key")
	doc = w.page(t, w.ask(t, "POST", "/reload", url.Values{}), http.StatusUnprocessableEntity)
	if got := words(doc); !strings.Contains(got, "line 3: pace.burst: no number\nline 9: nonsense") {
		t.Errorf("%q", got)
	}
	w.unwell = func() error { return errors.New("the audit cannot be written") }
	if got := words(one(t, w.get(t, "/", http.StatusOK), "id", "trouble")); !strings.Contains(got, "the audit cannot be written") {
		t.Errorf("%q", got)
	}
}

func TestAssetsMayBeKeptByTheirVersion(t *testing.T) {
	w := newWorld(t, sample)
	for name, kind := range map[string]string{"page.css": "text/css", "overview.js": "text/javascript", "uplot/uPlot.iife.min.js": "text/javascript", "icon.svg": "image/svg+xml", "uplot/LICENSE": "text/plain"} {
		resp := w.ask(t, "GET", ui().assetURL(name), nil)
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		if resp := w.ask(t, "GET", "/static/"+name, nil); resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s without a version may be kept", name)
		}
	}
	for _, name := range []string{"/static/", "/static/none.js", "/static/templates/about.html", "/static/../pages.go"} {
		if resp := w.ask(t, "GET", name, nil); resp.StatusCode == http.StatusOK {
			t.Errorf("%s is there", name)
		}
	}
}
