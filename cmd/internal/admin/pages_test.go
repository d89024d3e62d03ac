package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// get requests a page and inspects it.
func (p *testProxy) get(t testing.TB, path string, status int) *html.Node {
	t.Helper()
	return p.inspectResponse(t, p.do(t, "GET", path, nil), status)
}

// do sends a request as a browser on this machine would, and follows no redirect.
func (p *testProxy) do(t testing.TB, method, path string, form url.Values) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(form.Encode()))
	check(t, err)
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", p.url)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (p *testProxy) inspectResponse(t testing.TB, resp *http.Response, status int) *html.Node {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	if resp.StatusCode != status {
		t.Fatalf("status %d, want %d: %.300s", resp.StatusCode, status, body)
	}
	if got := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'") {
		t.Errorf("policy: %q", got)
	}
	return inspectPage(t, string(body))
}

// newHostileProxy returns a testProxy with injections in every field that clients and origins
// control.
func newHostileProxy(t testing.TB) *testProxy {
	t.Helper()
	texts := map[string]string{}
	for i, text := range injectionFiles() {
		texts[fmt.Sprintf("evil-%d.example", i)] = text
	}
	w := newTestProxy(t, texts, func(o *Options) {
		o.Faults = func() (all []clientfault.Fault) {
			for _, text := range injections {
				all = append(all, clientfault.Fault{Client: text, Host: text, Count: 1, Last: time.Now()})
			}
			return all
		}
	})
	for host := range texts {
		w.visit(t, visit{client: "a", agent: "FooBot/1.0", url: "https://" + host + "/x"})
	}
	for name, text := range injections {
		r := &audit.Record{
			Time: time.Now(), ID: text, Target: text,
			Request: policy.Request{Client: text, Method: text, Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: text, Port: 443}, PathQuery: text}, UserAgent: text},
			Decision: policy.Decision{
				Reason: policy.ReasonRule, Rule: text, Line: 3, Group: text, Token: text, Entry: text, EntryReason: text, Dialect: text, ContentUsage: text,
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
	w.health = func() error { return errors.New(injections["the page"] + injections["a line"]) }
	return w
}

func TestUntrustedTextIsEscaped(t *testing.T) {
	w := newHostileProxy(t)
	pages := []string{"/", "/?span=day", "/state", "/hosts", "/hosts?sort=host", "/exceptions", "/clients", "/about", "/explain"}
	for n := range uint64(len(injections) + 1) {
		pages = append(pages, fmt.Sprintf("/decisions/%d", w.feed.Newest()-n))
	}
	for i := range injectionFiles() {
		pages = append(pages, fmt.Sprintf("/hosts/evil-%d.example", i))
	}
	for _, text := range injections {
		if len(text) < 1000 { // a larger request head is refused
			q := url.QueryEscape(text)
			pages = append(pages, hostHref(text), "/?q="+q+"&host="+q+"&client="+q+"&agent="+q+"&reason="+q+"&entry="+q, "/hosts?q="+q+"&sort="+q+"&from="+q,
				"/explain?url="+q+"&agent="+q+"&client="+q+"&method="+q, "/hosts/x?done="+q, "/?decision="+q, "/?span="+q)
		}
	}
	for _, path := range pages {
		t.Run(path[:min(len(path), 60)], func(t *testing.T) {
			resp := w.do(t, "GET", path, nil)
			if resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusTemporaryRedirect {
				return // a redirect to the clean path
			}
			body, err := io.ReadAll(resp.Body)
			check(t, err)
			if path == "/state" { // parts of a page
				body = fmt.Appendf(nil, `<html lang="en"><title>x</title><main><h1>x</h1>%s</main></html>`, body)
			}
			inspectPage(t, string(body))
		})
	}
	for name, text := range injections {
		t.Run("asked about "+name, func(t *testing.T) {
			w.inspectResponse(t, w.do(t, "POST", "/explain", url.Values{"url": {text}, "agent": {text}, "client": {text}, "method": {text}}), http.StatusBadRequest)
			if resp := w.do(t, "POST", "/hosts/x", url.Values{"origin": {text}, "do": {text}}); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d", resp.StatusCode)
			}
			w.reloads <- errors.New("line 1: " + text + "\nline 2: " + text)
			w.inspectResponse(t, w.do(t, "POST", "/reload", url.Values{}), http.StatusUnprocessableEntity)
		})
	}
}

// A line that is not about a request has no verdict and cannot be explained.
func TestDecisionRowOfOtherKind(t *testing.T) {
	r := newDecisionRow(live.Line{Number: 1, JSON: []byte(`{"time":"2026-11-21T05:00:00Z","kind":"robots","url":"http://a.test/robots.txt","host":"a.test","status":200}`)})
	if r.Word != "robots" || r.Kind != "plain" || r.Host != "a.test" || r.Path != "/robots.txt" || r.Status != "200" || r.ExplainHref != "" {
		t.Errorf("%+v", r)
	}
}

func TestOverviewWithoutScripts(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	for i := range 130 {
		w.visit(t, visit{client: "lab-a", agent: "FooBot/1.0", url: fmt.Sprintf("https://shop.example.com/cart/%d", i)})
	}
	w.visit(t, visit{client: "lab-b", agent: "BarBot/1.0", url: "https://shop.example.com/x", status: 200, waited: 2100 * time.Millisecond})
	w.visit(t, visit{client: "lab-b", agent: "BarBot/1.0", url: "https://shop.example.com/cart", status: 200, monitor: true})
	doc := w.get(t, "/", http.StatusOK)
	rows := findAll(findOne(t, doc, "id", "rows"), "role", "row")
	if len(rows) != maxRows {
		t.Errorf("%d rows", len(rows))
	}
	for i, want := range []string{"Would be disallowed", "Allowed", "Disallowed"} {
		if got := textOf(rows[i]); !strings.Contains(got, want) {
			t.Errorf("row %d: %q", i, got)
		}
	}
	if got := textOf(rows[1]); !strings.Contains(got, "2.1 s") || !strings.Contains(got, "line 4") || !strings.Contains(got, "BarBot") {
		t.Errorf("row: %q", got)
	}
	figures := textOf(findOne(t, doc, "id", "figures"))
	if !strings.Contains(figures, "Disallowed13098.5 %") || !strings.Contains(figures, "Would be disallowed10.8 %") {
		t.Errorf("figures: %q", figures)
	}
	if got := textOf(findOne(t, doc, "id", "blockers")); !strings.Contains(got, "Disallowed /cart line 2130") || !strings.Contains(got, "Would be disallowed /cart line 21") {
		t.Errorf("blockers: %q", got)
	}
	if got := textOf(findOne(t, doc, "id", "numbers")); !strings.Contains(got, "Would be disallowed") || !strings.Contains(got, "130") {
		t.Errorf("the table of the chart: %q", got)
	}
	doc = w.get(t, "/?client=lab-b&decision=allow", http.StatusOK)
	if rows := findAll(findOne(t, doc, "id", "rows"), "role", "row"); len(rows) != 1 {
		t.Errorf("%d rows fit the filter", len(rows))
	}
	if got := textOf(findOne(t, doc, "id", "shown")); got != "1 of the last 132 match, 1 shown" {
		t.Errorf("shown: %q", got)
	}
	if got := attr(findAll(doc, "name", "client")[0], "value"); got != "lab-b" {
		t.Errorf("the field has %q", got)
	}
	for _, query := range []string{"decision=maybe", "outcome=blocked"} {
		if got := textOf(w.get(t, "/?"+query, http.StatusOK)); !strings.Contains(got, "The filter is invalid") {
			t.Errorf("%s: no error", query)
		}
	}
}

// Each figure leads to the decisions that it counts.
func TestFiguresLinkToTheirDecisions(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, cartVisit(1))
	w.visit(t, cartVisit(2))
	w.visit(t, visit{client: "a", agent: "b", url: "https://flaky.example/"})
	w.visit(t, visit{client: "a", agent: "b", url: "https://shop.example.com/cart", monitor: true})
	w.visit(t, visit{client: "a", agent: "b", url: "https://shop.example.com/"})
	for page, c := range map[string]struct {
		id   string
		want map[string]int
	}{
		"/":                       {"figures", map[string]int{"Allowed": 1, "Disallowed": 2, "Deferred": 0, "Failed": 1, "Would be disallowed": 1}},
		"/hosts/shop.example.com": {"host-figures", map[string]int{"Allowed": 1, "Disallowed": 2, "Deferred": 0, "Failed": 0, "Would be disallowed": 1}},
	} {
		links := map[string]string{}
		for a := range findOne(t, w.get(t, page, http.StatusOK), "id", c.id).Descendants() {
			if a.Data == "a" {
				links[textOf(a)] = attr(a, "href")
			}
		}
		for name, want := range c.want {
			path, _, _ := strings.Cut(links[name], "#")
			if path == "" {
				t.Errorf("%s: %s has no link", page, name)
				continue
			}
			if rows := findAll(findOne(t, w.get(t, path, http.StatusOK), "id", "rows"), "role", "row"); len(rows) != want {
				t.Errorf("%s: %s leads to %d decisions, want %d", page, path, len(rows), want)
			}
		}
	}
}

// The table shows when requests ended, since its rows are in that order.
func TestRowsShowWhenRequestsEnded(t *testing.T) {
	r := newDecisionRow(live.Line{Number: 1, JSON: []byte(`{"time":"2026-11-21T05:00:00.9995Z","duration_ms":61000.7,"decision":"block","reason":"pace","enforced":true}`)})
	if r.Clock != "05:01:01" || r.Stamp != "2026-11-21T05:01:01.999Z" || r.Word != "Deferred" || r.Reason != "wait too long" {
		t.Errorf("%+v", r)
	}
}

func TestRecordPage(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, visit{client: "lab-a", agent: "FooBot/1.0", url: "https://shop.example.com/cart/1"})
	doc := w.get(t, fmt.Sprintf("/decisions/%d", w.feed.Newest()), http.StatusOK)
	for _, want := range []string{"user_agent", "FooBot/1.0", "robots_sha256", "hash"} {
		if !strings.Contains(textOf(doc), want) {
			t.Errorf("no %q", want)
		}
	}
	for _, path := range []string{"/decisions/0", "/decisions/99", "/decisions/x", "/decisions/-1"} {
		w.get(t, path, http.StatusNotFound)
	}
}

// The pages say which use a site does not permit, and where it says so.
func TestPagesShowRefusedUses(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	w.refuseUse(t)
	overview := w.get(t, "/", http.StatusOK)
	for id, want := range map[string]string{
		"d1":       "not for train-ai (robots.txt line 3), tdm (header tdm-reservation)",
		"blockers": "Content-Signal: ai-train=no",
	} {
		if got := textOf(findOne(t, overview, "id", id)); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in %q", id, want, got)
		}
	}
	record := textOf(w.get(t, "/decisions/1", http.StatusOK))
	for _, want := range []string{
		"does not permit the use of this content for train-ai", "disallowed (robots.txt line 3: Content-Signal: ai-train=no)",
		"disallowed (response header: tdm-reservation: 1)", "https://news.example.org/license.xml", "Signedkey-1",
	} {
		if !strings.Contains(record, want) {
			t.Errorf("no %q in %q", want, record)
		}
	}
}

func TestHostList(t *testing.T) {
	texts := map[string]string{}
	for i := range 120 {
		texts[fmt.Sprintf("host-%03d.example", i)] = "User-agent: *\nDisallow: /no\n"
	}
	w := newTestProxy(t, texts)
	for host := range texts {
		w.visit(t, visit{client: "a", agent: "b", url: "https://" + host + "/"})
	}
	w.visit(t, visit{client: "a", agent: "b", url: "https://host-077.example/no"})
	w.queueRequests(t, "host-033.example", 2)
	first := func(path string) (host string, count int) {
		doc := w.get(t, path, http.StatusOK)
		rows := findAll(findOne(t, doc, "id", "hosts"), "role", "rowheader")
		if len(rows) == 0 {
			return "", 0
		}
		return textOf(rows[0]), len(rows)
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
		{"/hosts?sort=disallowed", "host-077.example", 50},
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
	if got := textOf(w.get(t, "/hosts?q=host-033", http.StatusOK)); !strings.Contains(got, "Queue") || !strings.Contains(got, "10 s") {
		t.Errorf("the pace of the host: %q", got)
	}
}

func TestHostPageMarksDecidingRules(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	for range 3 {
		w.visit(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/private/x"})
	}
	w.visit(t, visit{client: "a", agent: "Scrapy/2.11", url: "https://www.example.org/search/about"})
	doc := w.get(t, "/hosts/www.example.org", http.StatusOK)
	for id, want := range map[string][2]string{"L4": {"rule block", "disallowed 3"}, "L6": {"rule allow", "allowed 1"}, "L5": {"rule", "Disallow: /search"}, "L9": {"agent begins", "User-agent: GPTBot"}} {
		line := findOne(t, doc, "id", id)
		if attr(line, "class") != want[0] || !strings.Contains(textOf(line), want[1]) {
			t.Errorf("%s: class %q, %q", id, attr(line, "class"), textOf(line))
		}
	}
	if got := textOf(findOne(t, doc, "id", "causes")); !strings.Contains(got, "/private/ line 4") {
		t.Errorf("causes: %q", got)
	}
	if len(findAll(findOne(t, doc, "id", "causes"), "href", "#L4")) != 1 || len(findAll(doc, "href", "#L9")) < 2 {
		t.Error("no way to the lines")
	}
	w.origins.set("www.example.org", "User-agent: *\nDisallow: /a\nDisallow: /b\nDisallow: /other/\n")
	w.inspectResponse(t, w.follow(t, "/hosts/www.example.org", url.Values{"origin": {"https://www.example.org"}, "do": {"refetch"}}), http.StatusOK)
	if got := findOne(t, w.get(t, "/hosts/www.example.org", http.StatusOK), "id", "L4"); attr(got, "class") != "rule" {
		t.Errorf("another rule stands there now, and is marked: %q", textOf(got))
	}
	w.get(t, "/hosts/nowhere.example", http.StatusNotFound)
}

// follow posts a form and requests the page that the response redirects to.
func (p *testProxy) follow(t testing.TB, path string, form url.Values) *http.Response {
	t.Helper()
	resp := p.do(t, "POST", path, form)
	if resp.StatusCode != http.StatusSeeOther {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	return p.do(t, "GET", resp.Header.Get("Location"), nil)
}

func TestLongFileIsPaginated(t *testing.T) {
	text := "User-agent: *\n" + strings.Repeat("Disallow: /nothing\n", linesPerPage) + "Disallow: /far\n"
	w := newTestProxy(t, map[string]string{"long.example": text})
	w.visit(t, visit{client: "a", agent: "b", url: "https://long.example/far"})
	doc := w.get(t, "/hosts/long.example", http.StatusOK)
	if len(findAll(doc, "id", "L3000")) != 1 || len(findAll(doc, "id", "L3001")) != 0 {
		t.Error("not cut where it should be")
	}
	if len(findAll(findOne(t, doc, "id", "causes"), "href", "?from=3001#L3002")) != 1 {
		t.Errorf("no way to the line that decided")
	}
	doc = w.get(t, "/hosts/long.example?from=3001", http.StatusOK)
	if got := textOf(findOne(t, doc, "id", "L3002")); !strings.Contains(got, "disallowed 1") {
		t.Errorf("line 3002: %q", got)
	}
}

// TestRefetchFormOfAToken: with fetch_as: client, the button beside the file of a product token fetches that file.
func TestRefetchFormOfAToken(t *testing.T) {
	w := newTestProxy(t, map[string]string{"a.example": "User-agent: *\nDisallow: /old\n"})
	o, err := robots.ParseOrigin("https", "a.example")
	check(t, err)
	q := cache.Query{Origin: o, Token: "FooBot"}
	_, err = w.cache.Lookup(t.Context(), q, robots.Standard())
	check(t, err)
	w.origins.set("a.example", "User-agent: *\nDisallow: /new\n")
	form := url.Values{"do": {"refetch"}}
	for _, name := range []string{"origin", "token"} {
		form.Set(name, attr(findOne(t, w.get(t, "/hosts/a.example", http.StatusOK), "name", name), "value"))
	}
	w.inspectResponse(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)
	e, err := w.cache.Lookup(t.Context(), q, robots.Standard())
	check(t, err)
	if v := e.Under(robots.Standard()).File.For("FooBot").Match("/new"); v.Allow {
		t.Error("the file of the token is still the old one")
	}
	if w.cache.Peek(o) != nil {
		t.Error("the proxy's own file was fetched, which no client uses")
	}
}

func TestPurgeAndRefetchForms(t *testing.T) {
	w := newTestProxy(t, map[string]string{"a.example": "User-agent: *\n"})
	w.visit(t, visit{client: "a", agent: "b", url: "https://a.example/"})
	form := url.Values{"origin": {"https://a.example"}, "do": {"refetch"}}
	before := w.origins.requestCount()
	if got := textOf(w.inspectResponse(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "robots.txt was fetched.") || w.origins.requestCount() != before+1 {
		t.Errorf("%d fetches; %q", w.origins.requestCount()-before, got)
	}
	w.origins.set("a.example", "503")
	if got := textOf(w.inspectResponse(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "gave no usable robots.txt") {
		t.Errorf("%q", got)
	}
	form.Set("do", "purge")
	if got := textOf(w.inspectResponse(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "was removed from the cache") {
		t.Errorf("%q", got)
	}
	o, err := robots.ParseOrigin("https", "a.example")
	check(t, err)
	if w.cache.Peek(o) != nil {
		t.Error("it is known still")
	}
	if got := textOf(w.inspectResponse(t, w.follow(t, "/hosts/a.example", form), http.StatusOK)); !strings.Contains(got, "has no robots.txt of this origin") {
		t.Errorf("%q", got)
	}
	for name, form := range map[string]url.Values{
		"another host's": {"origin": {"https://b.example"}, "do": {"purge"}},
		"no origin":      {"origin": {"a.example"}, "do": {"purge"}},
		"nothing":        {"origin": {"https://a.example"}, "do": {"dance"}},
	} {
		if resp := w.do(t, "POST", "/hosts/a.example", form); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

func TestExplainPage(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	doc := w.get(t, "/explain?url=https%3A%2F%2Fwww.example.org%2Fprivate%2Fx&agent=Scrapy%2F2.11&method=HEAD", http.StatusOK)
	if w.origins.requestCount() != 0 || attr(findAll(doc, "name", "url")[0], "value") != "https://www.example.org/private/x" || len(findAll(doc, "selected", "")) != 1 {
		t.Error("not filled in, or asked already")
	}
	doc = w.inspectResponse(t, w.do(t, "POST", "/explain", url.Values{"url": {"https://www.example.org/private/x"}, "agent": {"Scrapy/2.11"}}), http.StatusOK)
	got := textOf(findOne(t, doc, "id", "answer"))
	for _, want := range []string{"Disallowed", "/private/ (line 4)", "Scrapy", "2 s", "decides"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if len(findAll(doc, "href", "/hosts/www.example.org#L4")) != 1 {
		t.Error("no way to the rule")
	}
	w.queueRequests(t, "news.example.net", 2)
	doc = w.inspectResponse(t, w.do(t, "POST", "/explain", url.Values{"url": {"https://news.example.net/"}}), http.StatusOK)
	if got := textOf(findOne(t, doc, "id", "answer")); !strings.Contains(got, "Allowed") || !strings.Contains(got, "Wait now") {
		t.Errorf("%q", got)
	}
	doc = w.inspectResponse(t, w.do(t, "POST", "/explain", url.Values{"url": {"www.example.org"}}), http.StatusBadRequest)
	if got := textOf(findOne(t, doc, "id", "wrong")); !strings.Contains(got, "scheme") {
		t.Errorf("%q", got)
	}
}

func TestAboutPageReload(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	doc := w.get(t, "/about", http.StatusOK)
	for _, want := range []string{"1.2.3", "standard", "/api/v1/decisions/stream"} {
		if !strings.Contains(textOf(doc), want) {
			t.Errorf("no %q", want)
		}
	}
	w.reloads <- nil
	if got := textOf(w.inspectResponse(t, w.follow(t, "/reload", url.Values{}), http.StatusOK)); !strings.Contains(got, "was reloaded") {
		t.Errorf("%q", got)
	}
	w.reloads <- errors.New("line 3: pace.burst: no number\nline 9: nonsense: no such key")
	doc = w.inspectResponse(t, w.do(t, "POST", "/reload", url.Values{}), http.StatusUnprocessableEntity)
	if got := textOf(doc); !strings.Contains(got, "line 3: pace.burst: no number\nline 9: nonsense") {
		t.Errorf("%q", got)
	}
	w.health = func() error { return errors.New("the audit cannot be written") }
	if got := textOf(findOne(t, w.get(t, "/", http.StatusOK), "id", "trouble")); !strings.Contains(got, "the audit cannot be written") {
		t.Errorf("%q", got)
	}
}

func TestAssetCaching(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	for name, kind := range map[string]string{"page.css": "text/css", "overview.js": "text/javascript", "uplot/uPlot.iife.min.js": "text/javascript", "icon.svg": "image/svg+xml", "uplot/LICENSE": "text/plain"} {
		resp := w.do(t, "GET", ui().assetURL(name), nil)
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		if resp := w.do(t, "GET", "/static/"+name, nil); resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s without a version may be kept", name)
		}
	}
	for _, name := range []string{"/static/", "/static/none.js", "/static/templates/about.html", "/static/../pages.go"} {
		if resp := w.do(t, "GET", name, nil); resp.StatusCode == http.StatusOK {
			t.Errorf("%s is there", name)
		}
	}
}

// malformed records a request that could not be parsed.
func (p *testProxy) malformed(t testing.TB) {
	t.Helper()
	p.record(t, &audit.Record{Time: time.Now(), ID: audit.NewID(), Target: "http://:0/", Request: policy.Request{Client: "a", Method: "GET"}, Decision: policy.Decision{Reason: policy.ReasonMalformed}})
}

// The overview shows the same counts as the other pages.
func TestOverviewCountsAgree(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, cartVisit(1))
	for range 5 {
		w.malformed(t)
	}
	w.inspectResponse(t, w.do(t, "POST", "/explain", url.Values{"url": {"https://api.example.org/"}}), http.StatusOK) // a known host without a request
	doc := w.get(t, "/", http.StatusOK)
	if got := textOf(findOne(t, doc, "id", "figures")); !strings.Contains(got, "Hosts known2") || !strings.Contains(got, "Disallowed1") || !strings.Contains(got, "Failed5") {
		t.Errorf("figures: %q", got)
	}
	if got := textOf(findOne(t, doc, "id", "blockers")); !strings.Contains(got, "No hostFailed malformed request5") || len(findAll(doc, "href", "/?outcome=failed&reason=malformed#decisions")) != 1 {
		t.Errorf("blockers: %q", got)
	}
	if got := textOf(findOne(t, w.get(t, "/hosts", http.StatusOK), "id", "hosts-title")); got != "2 hosts known" {
		t.Errorf("hosts: %q", got)
	}
	if got := textOf(findOne(t, w.get(t, "/hosts?q=shop", http.StatusOK), "id", "hosts-title")); got != "1 of 2 hosts known" {
		t.Errorf("hosts: %q", got)
	}
}

// TestRecordPageIsForPeople: the page of a record explains the decision before it shows the members.
func TestRecordPageIsForPeople(t *testing.T) {
	f := newFixture(t)
	f.record("a.test", "block", "pace", "https://a.test/x", "Bot/1.0")
	page := f.do("GET", "/decisions/1", "").Body.String()
	before, members, found := strings.Cut(page, "Members of the record")
	if !found || !strings.Contains(members, "<dt><bdi>reason</bdi></dt><dd><bdi>pace</bdi></dd>") {
		t.Errorf("no members:\n%s", page)
	}
	for _, want := range []string{"Would be disallowed", "https://a.test/x", "The wait for this host would be longer", "wait too long (pace)", "Bot/1.0", "lab"} {
		if !strings.Contains(before, want) {
			t.Errorf("no %q in\n%s", want, before)
		}
	}
}

// TestExplainPageNamesTheReason: the page shows the reason in words and as in records.
func TestExplainPageNamesTheReason(t *testing.T) {
	f := newFixture(t)
	page := f.do("POST", "/explain", "url=https%3A%2F%2Fa.test%2Fx", "Content-Type", "application/x-www-form-urlencoded").Body.String()
	if !strings.Contains(page, "host denied by the operator (denied-host)") {
		t.Error(page)
	}
}

// The page of a missing record says whether it never existed or is gone.
func TestMissingRecord(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	if got := textOf(w.get(t, "/decisions/1", http.StatusNotFound)); !strings.Contains(got, "There is no record since the proxy started.") {
		t.Errorf("%q", got)
	}
	w.malformed(t)
	w.get(t, "/decisions/1", http.StatusOK)
	newest := w.feed.Newest()
	for path, want := range map[string]string{
		fmt.Sprintf("/decisions/%d", newest+5): fmt.Sprintf("No record has this number yet. The newest is %d.", newest),
		"/decisions/x":                         "Invalid record number.",
		"/decisions/0":                         "Invalid record number.",
	} {
		if got := textOf(w.get(t, path, http.StatusNotFound)); !strings.Contains(got, want) || strings.Contains(got, "The audit has it") {
			t.Errorf("%s: no %q in %q", path, want, got)
		}
	}
	for range 2100 {
		w.visit(t, visit{client: "lab-a", agent: "FooBot/1.0", url: "https://shop.example.com/x"})
	}
	if got := textOf(w.get(t, "/decisions/1", http.StatusNotFound)); !strings.Contains(got, "no longer in memory. The audit has it.") {
		t.Errorf("%q", got)
	}
}

// A button beside a decision explains it in one step, if it can be explained and the request
// comes from a page of this server.
func TestExplainLinkOfDecision(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	w.visit(t, visit{client: "a", agent: "Scrapy/2.11", method: "PROPFIND", url: "https://www.example.org/private/x"})
	w.malformed(t)
	doc := w.get(t, "/", http.StatusOK)
	asks := findAll(findOne(t, doc, "id", "rows"), "data-f", "explain")
	if len(asks) != 1 || attr(asks[0], "method") != "post" {
		t.Fatalf("%d can be asked about", len(asks))
	}
	address := attr(asks[0], "action")
	doc = w.inspectResponse(t, w.do(t, "POST", address, url.Values{}), http.StatusOK)
	if got := textOf(findOne(t, doc, "id", "answer")); !strings.Contains(got, "PROPFIND") || !strings.Contains(got, "/private/ (line 4)") {
		t.Errorf("%q", got)
	}
	if got := attr(findAll(doc, "name", "url")[0], "value"); got != "https://www.example.org/private/x" || len(findAll(doc, "selected", "")) != 1 {
		t.Errorf("the form has %q", got)
	}
	newest := w.feed.Newest()
	if n := len(findAll(w.get(t, fmt.Sprintf("/decisions/%d", newest), http.StatusOK), "method", "post")); n != 0 {
		t.Errorf("%d forms with a record of no request", n)
	}
	if len(findAll(w.get(t, fmt.Sprintf("/decisions/%d", newest-1), http.StatusOK), "action", address)) != 1 {
		t.Error("the page of the record asks about another")
	}
	fetched := w.origins.requestCount()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/explain?url=https%3A%2F%2Fapi.example.org%2F", nil)
	check(t, err)
	r.Header.Set("Origin", "https://evil.test")
	resp, err := http.DefaultTransport.RoundTrip(r)
	check(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || w.origins.requestCount() != fetched {
		t.Errorf("another's page is answered %d, after %d fetches", resp.StatusCode, w.origins.requestCount()-fetched)
	}
	pseudonym := audit.Pseudonym([]byte("key"))("a")
	w.inspectResponse(t, w.do(t, "POST", "/explain?client="+pseudonym+"&url=https%3A%2F%2Fwww.example.org%2F", url.Values{}), http.StatusOK)
	doc = w.inspectResponse(t, w.do(t, "POST", "/explain?client=nobody&url=https%3A%2F%2Fwww.example.org%2F", url.Values{}), http.StatusBadRequest)
	if got := textOf(findOne(t, doc, "id", "wrong")); !strings.Contains(got, "client: must be the name of a configured client") {
		t.Errorf("%q", got)
	}
}

func TestHostListNamesPorts(t *testing.T) {
	f := newFixture(t)
	for _, origin := range []string{"http://a.test", "http://a.test:8000", "https://a.test:8443", "https://[2001:db8::1]:444"} {
		f.cacheRobots(t, origin, "User-agent: *\n")
	}
	page := f.do("GET", "/hosts", "").Body.String()
	for _, want := range []string{"http, 0 rules", "http, port 8000, 0 rules", "https, port 8443, 0 rules", "https, port 444, 0 rules"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
}

// A fetch or a slot that is due is not announced as if it happened without a request.
func TestIdleTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.cacheRobots(t, "https://a.test", "User-agent: *\n")
		slot, err := f.pacer.Wait(t.Context(), "lab", pace.Limits{Key: "a.test", PerSecond: 1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute})
		check(t, err)
		slot.Sent()
		slot.Release()
		if got := f.do("GET", "/hosts/a.test", "").Body.String(); !strings.Contains(got, "in 1 s") || !strings.Contains(got, "in 1 d") {
			t.Errorf("before: %s", got)
		}
		if got := decode[hostDetails](t, f.do("GET", "/api/v1/hosts/a.test", ""), 200); got.Pace.NextSlot.IsZero() {
			t.Error("no next slot, while there is one")
		}
		<-time.After(25 * time.Hour)
		got := f.do("GET", "/hosts/a.test", "").Body.String()
		if !strings.Contains(got, "<dt>Next fetch</dt><dd><bdi>with the next request</bdi>") {
			t.Errorf("after: %s", got)
		}
		if w := f.do("GET", "/api/v1/hosts/a.test", ""); strings.Contains(w.Body.String(), "next_slot") {
			t.Errorf("%s", w.Body)
		}
	})
	for in, want := range map[time.Duration]string{-time.Hour: "with the next request", 0: "with the next request", time.Minute: "in 1 min"} {
		at := time.Now()
		if got := nextFetchText(at, at.Add(in)); got != want {
			t.Errorf("%v: %q", in, got)
		}
	}
	now := time.Now()
	idle := newPaceState(pace.HostState{NextSlot: now})
	for want, h := range map[string]hostState{
		"now":       {Pace: idle},
		"not known": {Pace: idle, Pause: &pauseState{}},
		"in 1 min":  {Pace: idle, Held: &heldState{Until: now.Add(time.Minute)}},
		"in 2 min":  {Pace: idle, Pause: &pauseState{Until: now.Add(2 * time.Minute)}, Held: &heldState{Until: now.Add(time.Minute)}},
	} {
		if got := h.nextSlotText(now); got != want {
			t.Errorf("next slot of %+v: %q, want %q", h, got, want)
		}
	}
}
