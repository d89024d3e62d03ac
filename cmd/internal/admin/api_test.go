package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

type decisionList struct {
	Decisions []json.RawMessage
	Missed    uint64
	Newest    uint64
}

func TestDecisionsCopyAuditLines(t *testing.T) {
	f := newFixture(t)
	if got := decode[decisionList](t, f.do("GET", "/api/v1/decisions", ""), 200); len(got.Decisions) != 0 || got.Newest != 0 {
		t.Fatalf("before the first: %+v", got)
	}
	odd := `{"seq":1, "event":"began","note":"<&> \u2028 kept as it is","hash":"0"}`
	f.lines = 1
	f.feed.Tap(1, []byte(odd+"\n"))
	want := []string{odd}
	for i := range 9 {
		want = append(want, f.record(fmt.Sprintf("h%d.test", i), "allow", "no-rule", "https://h.test/?a&b", hostileText))
	}
	texts := func(got decisionList) (all []string) {
		for _, d := range got.Decisions {
			all = append(all, string(d))
		}
		return all
	}
	got := decode[decisionList](t, f.do("GET", "/api/v1/decisions", ""), 200)
	if diff := cmp.Diff(want, texts(got)); diff != "" || got.Newest != 10 || got.Missed != 0 {
		t.Errorf("%d %d (-want +got):\n%s", got.Newest, got.Missed, diff)
	}
	if got := decode[decisionList](t, f.do("GET", "/api/v1/decisions?limit=2", ""), 200); !slices.Equal(texts(got), want[8:]) || got.Newest != 10 {
		t.Errorf("the last two: %+v", got)
	}
	got = decode[decisionList](t, f.do("GET", "/api/v1/decisions?limit=2&after=3", ""), 200)
	if !slices.Equal(texts(got), want[3:5]) || got.Newest != 5 { // newest is where the next request continues
		t.Errorf("the next two: %+v", got)
	}
	if got := decode[decisionList](t, f.do("GET", "/api/v1/decisions?after=10", ""), 200); len(got.Decisions) != 0 || got.Newest != 10 {
		t.Errorf("none yet: %+v", got)
	}
	if got := decode[decisionList](t, f.do("GET", "/api/v1/decisions?after=4000", ""), 200); len(got.Decisions) != 0 || got.Newest != 10 {
		t.Errorf("behind one that there never was: %+v", got)
	}
	for range 3000 {
		f.record("h.test", "allow", "no-rule", "https://h.test/", "")
	}
	if got := decode[decisionList](t, f.do("GET", "/api/v1/decisions?after=10&limit=5", ""), 200); got.Missed == 0 || len(got.Decisions) != 5 || got.Newest != 10+got.Missed+5 {
		t.Errorf("some are gone: %d %d %d", got.Missed, len(got.Decisions), got.Newest)
	}
}

func TestDecisionsAreFiltered(t *testing.T) {
	f := newFixture(t)
	f.feed.Tap(1, []byte("{\"event\":\"began\"}\n"))
	f.lines = 1
	f.record("a.test", "allow", "no-rule", "https://a.test/Shop?q=1", "ABot/1")
	f.record("b.test", "block", "rule", "https://b.test/private", "BBot/1")
	f.record("b.test", "block", "pace", "https://b.test/", "x")
	for query, want := range map[string]int{
		"": 4, "decision=allow": 1, "decision=block": 2, "reason=rule": 1, "host=b.test": 2, "host=B.TEST": 2, "host=test": 0, "client=lab": 3, "client=nobody": 0,
		"agent=bot": 3, "agent=BOT": 3, "q=shop": 1, "q=bbot": 1, "q=a.test": 1, "decision=block&host=b.test&q=private": 1, "q=began": 0,
		"q=" + url.QueryEscape(hostileText): 0, "reason=" + url.QueryEscape(hostileText): 0,
	} {
		if got := decode[decisionList](t, f.do("GET", "/api/v1/decisions?"+query, ""), 200); len(got.Decisions) != want {
			t.Errorf("%s: %d, want %d", query, len(got.Decisions), want)
		}
	}
}

func TestInvalidQueryParameters(t *testing.T) {
	f := newFixture(t)
	for target, want := range map[string]string{
		"/api/v1/decisions?limit=0":         `limit: must be a whole number from 1 to 1000, got "0"`,
		"/api/v1/decisions?limit=1001":      "limit: must be",
		"/api/v1/decisions?limit=-1":        "limit: must be",
		"/api/v1/decisions?limit=1e3":       "limit: must be",
		"/api/v1/decisions?after=-1":        "after: must be the number of a line",
		"/api/v1/decisions?decision=maybe":  "decision: must be one of allow, block",
		"/api/v1/decisions?hots=a":          `Unknown parameter "hots"`,
		"/api/v1/decisions?host=a&host=b":   "The parameter host occurs more than once",
		"/api/v1/decisions?q=%zz":           "is malformed",
		"/api/v1/decisions?a;b":             "is malformed",
		"/api/v1/decisions/stream?after=x":  "after: must be",
		"/api/v1/decisions/stream?limit=3":  "Unknown parameter",
		"/api/v1/series?span=week":          "span: must be one of hour, day",
		"/api/v1/blockers?limit=201":        "limit: must be",
		"/api/v1/hosts?sort=size":           "sort: must be one of last",
		"/api/v1/hosts?after=gone.test":     "no longer in the list",
		"/api/v1/hosts/a%2fb":               "The host must be a name or an address",
		"/api/v1/hosts/%3Cscript%3E":        "The host must be a name or an address",
		"/api/v1/ca.pem?x=1":                "Unknown parameter",
		"/api/v1/?%1b%5b=" + "1":            "Unknown parameter",
		"/api/v1/proxy.pac?proxy=evil.test": "Unknown parameter",
		"/api/v1/hosts?" + url.QueryEscape(strings.Repeat(hostileText, 50)) + "=1": "Unknown parameter",
	} {
		if got := decode[problemDetails](t, f.do("GET", target, ""), 400); !strings.Contains(got.Detail, want) || got.Status != 400 || got.Title != "Bad Request" || len(got.Detail) > 2000 {
			t.Errorf("%s: %+v", target, got)
		}
	}
}

func TestEndpointList(t *testing.T) {
	f := newFixture(t)
	got := decode[struct {
		Version   string
		Endpoints []endpoint
	}](t, f.do("GET", "/api/v1/", ""), 200)
	if got.Version != "v1.2.3" || len(got.Endpoints) != 20 {
		t.Fatalf("%+v", got)
	}
	for _, e := range got.Endpoints {
		w := f.do("PUT", strings.ReplaceAll(e.Path, "{host}", "a.test"), "")
		decode[problemDetails](t, w, 405)
		if !strings.Contains(w.Header().Get("Allow"), e.Method) || e.Description == "" {
			t.Errorf("%s %s: Allow: %s", e.Method, e.Path, w.Header().Get("Allow"))
		}
	}
	for _, target := range []string{"/api/", "/api/v2/hosts", "/api/v1/hosts/", "/api/v1/decisions/1"} {
		decode[problemDetails](t, f.do("GET", target, ""), 404)
	}
}

func TestExplainRequestBodies(t *testing.T) {
	f := newFixture(t)
	for body, status := range map[string]int{
		`{"url":"https://a.test/"}`: 200, "": 400, "null x": 400, "[]": 400, `"x"`: 400, `{"url":1}`: 400, `{"uri":"https://a.test/"}`: 400,
		`{"url":"https://a.test/"}{}`: 400, `{"url":"https://a.test/"`: 400, `{"url":"` + strings.Repeat("a", maxBody) + `"}`: 413,
		`{"url":"a.test"}`: 400, `{"url":"a.test:80/x"}`: 400, `{"url":"gopher://a.test/"}`: 400, `{"url":"https://user:pass@a.test/"}`: 400, `{"url":"https:///x"}`: 400,
		`{"url":"https://a b/"}`: 400, `{"url":"https://a.test/` + `\u0000"}`: 400, `{"url":"mailto:a@b"}`: 400, `{"url":"https://a.test:0/"}`: 400,
		`{"url":"https://a.test/","method":"G T"}`: 400, `{"url":"https://a.test/","method":"CONNECT"}`: 400, `{"url":"https://a.test/","method":"PURGE"}`: 200,
		`{"url":"https://a.test/","user_agent":"a\r\nb"}`: 400, `{"url":"https://a.test/","from":"a\u0000b"}`: 400, `{"url":"https://a.test/","dest":"\n"}`: 400,
	} {
		w := f.do("POST", "/api/v1/explain", body)
		if w.Code != status {
			t.Errorf("%.60s: %d, want %d: %s", body, w.Code, status, w.Body)
		}
		if status >= 400 {
			decode[problemDetails](t, w, status)
		}
	}
	decode[problemDetails](t, f.do("POST", "/api/v1/explain?x=1", `{"url":"https://a.test/"}`), 400)
}

func TestExplainUsesEngine(t *testing.T) {
	var decided policy.Request
	d := policy.Decision{}
	f := newFixture(t, func(o *Options) {
		o.Explain = func(_ context.Context, r policy.Request) (policy.Decision, time.Duration) {
			decided = r
			return d, 1500 * time.Millisecond
		}
	})
	text := "User-agent: *\nDisallow: /a\n\nUser-agent: foobot\nUser-agent: " + hostileText + "\nCrawl-delay: 2\nDisallow: /private" + strings.Repeat("\u00e9", 400) + "\nAllow: /\n"
	o := f.cacheRobots(t, "https://a.test:8443", text)
	d = policy.Decision{
		Reason: policy.ReasonRule, Rule: hostileText, Line: 8, Group: "foobot", Token: "FooBot", Dialect: "standard", Asked: 20 * time.Second,
		Entry: "*.test", EntryReason: "why", ContentUsage: "ai=n", Pace: pace.Limits{Key: "a.test", PerSecond: 1, CrawlDelay: 10 * time.Second},
		Ruling: f.cache.Peek(o).Under(robots.Standard()), Err: errors.New(hostileText),
	}
	body := `{"url":"HTTPS://A.test:8443/private?x=<y>#z","user_agent":"FooBot/1.0","method":"HEAD","client":"lab","from":"a@b.test","dest":"image"}`
	got := decode[explainResponse](t, f.do("POST", "/api/v1/explain", body), 200)
	want := policy.Request{Client: "lab", Method: "HEAD", Target: robots.Target{Origin: o, PathQuery: "/private?x=<y>"}, UserAgent: "FooBot/1.0", From: "a@b.test", Dest: "image"}
	if decided != want {
		t.Errorf("decided %+v", decided)
	}
	if got.Decision != "block" || got.Reason != "rule" || got.Line != 8 || got.Group != "foobot" || got.Agent != "FooBot" || got.RobotsURL != o.RobotsURL() ||
		got.Fetched.IsZero() || got.SHA256 == "" || got.Dialect != "standard" || got.CrawlDelay != 10 || got.CrawlAsked != 20 || got.Gap != 10 || got.Wait != nil ||
		got.Entry != "*.test" || got.EntryReason != "why" || got.Usage != "ai=n" || got.Error == "" || got.URL != "https://a.test:8443/private?x=<y>" {
		t.Errorf("%+v", got)
	}
	lines := got.Excerpt.Lines
	i := slices.IndexFunc(lines, func(l explain.Line) bool { return l.Decides })
	if i < 0 || lines[i].Number != 8 || !strings.HasPrefix(lines[i].Text, "Disallow: /private\u00e9") || len(lines[i].Text) > humanize.MaxBrief || !strings.HasSuffix(lines[i].Text, "\u00e9…") {
		t.Errorf("%+v", lines)
	}
	if len(got.Excerpt.Agents) < 2 || got.Excerpt.Agents[0].Text != "User-agent: foobot" {
		t.Errorf("%+v", got.Excerpt.Agents)
	}
	d = policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonNoFile, Pace: pace.Limits{Key: "b.test", PerSecond: 2}}
	got = decode[explainResponse](t, f.do("POST", "/api/v1/explain", `{"url":"http://b.test"}`), 200)
	if got.Decision != "allow" || got.Gap != 0.5 || got.Wait == nil || *got.Wait != 1.5 || got.Excerpt != nil || decided.PathQuery != "/" || decided.Method != "GET" {
		t.Errorf("%+v of %+v", got, decided)
	}
}

// Requests that wait for an origin are bounded in number and in time.
func TestOriginWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *Options) {
			o.Explain = func(ctx context.Context, _ policy.Request) (policy.Decision, time.Duration) {
				<-ctx.Done()
				return policy.Decision{Reason: policy.ReasonClient, Err: ctx.Err()}, 0
			}
		})
		start := time.Now()
		codes := make(chan int, maxOriginWaits)
		for range maxOriginWaits {
			go func() { codes <- f.do("POST", "/api/v1/explain", `{"url":"https://a.test/"}`).Code }()
		}
		synctest.Wait()
		w := f.do("POST", "/api/v1/refetch", `{"origin":"https://a.test"}`)
		if decode[problemDetails](t, w, 503); w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		for range maxOriginWaits {
			if code := <-codes; code != http.StatusGatewayTimeout {
				t.Errorf("%d", code)
			}
		}
		if took := time.Since(start); took != originWaitTimeout {
			t.Errorf("after %v", took)
		}
		// The page says that it timed out. It shows no verdict.
		late := f.do("POST", "/explain", "url=https%3A%2F%2Fa.test%2F", "Content-Type", "application/x-www-form-urlencoded")
		if page := late.Body.String(); late.Code != http.StatusGatewayTimeout || !strings.Contains(page, "The fetch continues") || strings.Contains(page, "Disallowed") || strings.Contains(page, "Invalid request") {
			t.Errorf("%d:\n%s", late.Code, page)
		}
		f.cacheRobots(t, "https://a.test", "")
		decode[originState](t, f.do("POST", "/api/v1/refetch", `{"origin":"https://a.test"}`), 200)
	})
}

func TestPurgeAndRefetch(t *testing.T) {
	f := newFixture(t)
	f.cacheRobots(t, "https://a.test", "User-agent: *\nDisallow: /old\n")
	type purged struct {
		Origin string
		Purged bool
	}
	want := purged{"https://a.test", true}
	if got := decode[purged](t, f.do("POST", "/api/v1/purge", `{"origin":"HTTPS://A.TEST:443/"}`), 200); got != want {
		t.Errorf("%+v", got)
	}
	want.Purged = false
	if got := decode[purged](t, f.do("POST", "/api/v1/purge", `{"origin":"https://a.test"}`), 200); got != want {
		t.Errorf("once more: %+v", got)
	}
	f.fetcher.texts["https://a.test"] = "User-agent: *\nDisallow: /new\nDisallow: /newer\n"
	got := decode[originState](t, f.do("POST", "/api/v1/refetch", `{"origin":"https://a.test","user_agent":"Op/1"}`), 200)
	if got.Outcome != "rules" || got.Rules != 2 || got.Origin != "https://a.test" || got.Fetched.IsZero() || got.Text != nil {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(f.fetcher.fetched, []string{"https://a.test robotsproxy", "https://a.test Op/1"}) {
		t.Errorf("fetched: %q", f.fetcher.fetched)
	}
	for _, origin := range []string{"a.test", "https://", "https://a.test/x", "https://a.test?x", "https://u:p@a.test", "file:///etc/passwd", "https://a.test#x", "https://127.1", hostileText, ""} {
		body, _ := json.Marshal(map[string]string{"origin": origin})
		for _, path := range []string{"purge", "refetch"} {
			decode[problemDetails](t, f.do("POST", "/api/v1/"+path, string(body)), 400)
		}
	}
	decode[problemDetails](t, f.do("POST", "/api/v1/refetch", `{"origin":"https://a.test","user_agent":"a\nb"}`), 400)
	if len(f.fetcher.fetched) != 2 {
		t.Errorf("fetched: %q", f.fetcher.fetched)
	}
}

// TestEndBackOff: an operator sees who caused a back-off, and ends it by the API or by the button of the page.
func TestEndBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := pace.Limits{Key: "a.test", PerSecond: 1000, Burst: 1000, MaxConcurrent: 9}
		answer := func(client, id string, ok bool) {
			s, err := f.pacer.Wait(t.Context(), client, l)
			if err != nil {
				t.Fatal(err)
			}
			if s.Sent(); ok {
				s.Succeeded()
			} else {
				s.BackOff(time.Hour, id)
			}
			s.Release()
		}
		type host struct {
			Pace struct {
				PausedUntil time.Time `json:"paused_until"`
				BackOffBy   string    `json:"back_off_by"`
			}
			Clients []clientBackOff `json:"client_back_offs"`
		}
		type ended struct {
			Host  string
			Ended bool
		}
		const path, hidden = "/api/v1/hosts/a.test", `id="back-off" data-live hidden`
		until := time.Now().Add(time.Hour).UTC()
		button := func() string {
			w := f.do("POST", "/hosts/a.test", "do=end-back-off", "Content-Type", "application/x-www-form-urlencoded")
			return w.Header().Get("Location")
		}
		answer("b", "", true)
		answer("<b>", "id-1", false)
		if got := decode[host](t, f.do("GET", path, ""), 200); !slices.Equal(got.Clients, []clientBackOff{{"<b>", until, "id-1"}}) || got.Pace.BackOffBy != "" {
			t.Errorf("%+v", got)
		}
		page := f.do("GET", "/hosts/a.test", "").Body.String()
		if !strings.Contains(page, `<bdi>&lt;b&gt;</bdi></th><td>1 h</td><td>a 429 or 503 to <bdi class="code">id-1</bdi>`) || strings.Contains(page, hidden) {
			t.Errorf("the page:\n%s", page)
		}
		answer("b", "id-2", false)
		if got := decode[host](t, f.do("GET", path, ""), 200); got.Pace.BackOffBy != "id-1" || !got.Pace.PausedUntil.Equal(until) || got.Clients != nil {
			t.Errorf("%+v", got)
		}
		for _, want := range []bool{true, false} {
			if got := decode[ended](t, f.do("DELETE", path+"/back-off", ""), 200); got != (ended{"a.test", want}) {
				t.Errorf("%+v, want %v", got, want)
			}
		}
		answer("b", "", true)
		if page := f.do("GET", "/hosts/a.test", "").Body.String(); !strings.Contains(page, hidden) {
			t.Errorf("the page after the end:\n%s", page)
		}
		answer("c", "id-3", false)
		if got := button(); got != "/hosts/a.test?done=back-off" {
			t.Errorf("the button leads to %q", got)
		}
		if got := button(); got != "/hosts/a.test?done=no-back-off" {
			t.Errorf("the button leads to %q", got)
		}
		if !slices.Equal(f.ended, []string{"a.test", "a.test"}) {
			t.Errorf("events: %q", f.ended)
		}
		f.auditErr = errors.New("disk full")
		answer("c", "id-4", false)
		decode[problemDetails](t, f.do("DELETE", path+"/back-off", "{}"), 503)
		answer("c", "id-5", false)
		if got := button(); got != "/hosts/a.test?done=unrecorded" {
			t.Errorf("the button leads to %q", got)
		}
		decode[problemDetails](t, f.do("DELETE", "/api/v1/hosts/a%20b/back-off", ""), 400)
		decode[problemDetails](t, f.do("DELETE", path+"/back-off", `{"x":1}`), 400)
	})
}

func TestReload(t *testing.T) {
	var wrong error
	f := newFixture(t, func(o *Options) { o.Reload = func(context.Context) error { return wrong } })
	if got := decode[map[string]bool](t, f.do("POST", "/api/v1/reload", ""), 200); !got["reloaded"] {
		t.Errorf("%v", got)
	}
	wrong = errors.New("config.yaml:3: listen: needs a restart\nconfig.yaml:9: " + hostileText)
	got := decode[problemDetails](t, f.do("POST", "/api/v1/reload", ""), 422)
	if len(got.Errors) < 2 || got.Errors[0] != "config.yaml:3: listen: needs a restart" {
		t.Errorf("%q", got.Errors)
	}
	decode[problemDetails](t, newFixture(t).do("POST", "/api/v1/reload", ""), 501)
}

func TestCACertificateAndPAC(t *testing.T) {
	f := newFixture(t)
	ca := f.do("GET", "/api/v1/ca.pem", "")
	if ca.Header().Get("Content-Type") != "application/x-pem-file" || ca.Header().Get("Content-Disposition") != `attachment; filename="robotsproxy-ca.pem"` ||
		ca.Body.String() != "-----BEGIN CERTIFICATE-----\n" {
		t.Errorf("%v\n%s", ca.Header(), ca.Body)
	}
	everywhere := &net.TCPAddr{IP: net.IPv6unspecified, Port: 3128}
	for _, c := range []struct {
		name   string
		proxy  net.Addr
		secure bool
		host   string
		want   string
	}{
		{"where it listens", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}, false, "proxy.example:8081", `"PROXY 127.0.0.1:8080"`},
		{"as it is asked", everywhere, false, "Proxy.example:8081", `"PROXY proxy.example:3128"`},
		{"as it is asked, without a port", everywhere, false, "proxy.example", `"PROXY proxy.example:3128"`},
		{"by an address", everywhere, false, "[2001:db8::1]:8081", `"PROXY [2001:db8::1]:3128"`},
		{"over TLS", &net.TCPAddr{IP: net.IPv4zero, Port: 3128}, true, "proxy.example", `"HTTPS proxy.example:3128"`},
		{"by no host", everywhere, false, `a";alert(1);"`, ""},
		{"by none at all", everywhere, false, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, withToken(secret), func(o *Options) { o.Proxy, o.ProxyTLS = c.proxy, c.secure })
			w := f.do("GET", "/api/v1/proxy.pac", "", "Host", c.host, "Authorization", "Bearer "+secret)
			if c.want == "" {
				decode[problemDetails](t, w, 400)
				return
			}
			if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-ns-proxy-autoconfig" || !bytes.Contains(w.Body.Bytes(), []byte("return "+c.want)) {
				t.Errorf("%d %v\n%s", w.Code, w.Header(), w.Body)
			}
		})
	}
}

func TestSeriesAndBlockers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.record("a.test", "allow", "no-rule", "https://a.test/", "")
		f.record("a.test", "block", "pace", "https://a.test/", "")
		f.record("b.test", "block", "pace", "https://b.test/", "")
		f.record("b.test", "block", "pace", "https://b.test/", "")
		f.record("", "block", "malformed", "", "")
		for span, step := range map[string]float64{"": 5, "?span=hour": 5, "?span=day": 120, "?span=15min": 5} {
			got := decode[struct {
				Start                     time.Time
				Step                      float64 `json:"step_s"`
				Allowed, Blocked, Waiting []int64

				Disallowed, Deferred, Failed []int64
				NotEnforced                  []int64 `json:"not_enforced"`
			}](t, f.do("GET", "/api/v1/series"+span, ""), 200)
			if got.Step != step || !slices.Equal(got.Allowed, []int64{1}) || !slices.Equal(got.Blocked, []int64{4}) || !slices.Equal(got.Disallowed, []int64{0}) || !slices.Equal(got.Deferred, []int64{3}) || !slices.Equal(got.Failed, []int64{1}) || !slices.Equal(got.NotEnforced, []int64{0}) || len(got.Waiting) != 1 || !got.Start.Equal(time.Now()) {
				t.Errorf("%s: %+v", span, got)
			}
		}
		type blockers struct{ Blockers []cause }
		got := decode[blockers](t, f.do("GET", "/api/v1/blockers?limit=1", ""), 200)
		want := []cause{{Host: "b.test", Reason: "pace", Decision: "block", Outcome: "deferred", Count: 2, Last: time.Now().UTC().Format(time.RFC3339Nano)}}
		if diff := cmp.Diff(want, got.Blockers); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := decode[blockers](t, f.do("GET", "/api/v1/blockers", ""), 200).Blockers; len(got) != 3 || !slices.ContainsFunc(got, func(c cause) bool { return c.Host == "" && c.Reason == "malformed" }) {
			t.Errorf("a request without a host is not counted: %+v", got)
		}
		if got := decode[blockers](t, newFixture(t).do("GET", "/api/v1/blockers", ""), 200); got.Blockers == nil {
			t.Error("none is no list")
		}
	})
}

// An endpoint refuses parameters and bodies that it does not take, and the response says what
// it takes.
func TestEndpointsRejectUnknownInput(t *testing.T) {
	reloads := 0
	f := newFixture(t, func(o *Options) { o.Reload = func(context.Context) error { reloads++; return nil } })
	f.cacheRobots(t, "https://a.test", "User-agent: *\n")
	for _, c := range []struct {
		method, target, body string
		status               int
		says                 string
	}{
		{"POST", "/api/v1/reload", `{"x":1}`, 400, `unknown field \"x\"`},
		{"POST", "/api/v1/reload", `{}{}`, 400, "after the object"},
		{"POST", "/api/v1/reload", `[]`, 400, "not the JSON object"},
		{"POST", "/api/v1/reload", `{"x":"` + strings.Repeat("x", maxBody) + `"}`, 413, "longer than"},
		{"POST", "/api/v1/reload?x=1", "", 400, `Unknown parameter \"x\". Allowed parameters: none.`},
		{"GET", "/api/v1/ca.pem?x=1", "", 400, "Allowed parameters: none."},
		{"POST", "/api/v1/purge", "{}", 400, "origin: required"},
		{"POST", "/api/v1/refetch", "{}", 400, "origin: required"},
		{"POST", "/api/v1/purge", "", 400, "empty body"},
		{"POST", "/api/v1/purge", `{"origin"`, 400, "incomplete object"},
		{"GET", "/api/v1/purge", "", 405, "Use the method POST."},
		{"POST", "/api/v1/hosts", "", 405, "Use the method GET or HEAD."},
		{"GET", "/api/v1/hosts/a.test?origin=junk", "", 400, "origin"},
		{"GET", "/api/v1/hosts/a.test?origin=https://a.test:8443", "", 404, "The proxy has no robots.txt of https://a.test:8443"},
		{"GET", "/api/v1/hosts/a.test?origin=https://b.test", "", 404, "among the origins of a.test"},
		{"POST", "/api/v1/explain", `{"url":"https://a.test/","client":"nobody"}`, 400, "client: must be the name of a configured client or an IP address"},
	} {
		w := f.do(c.method, c.target, c.body)
		if decode[problemDetails](t, w, c.status); !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %.40s: no %q in %s", c.method, c.target, c.body, c.says, w.Body)
		}
	}
	if reloads != 0 {
		t.Errorf("reloaded %d times", reloads)
	}
	for i, body := range []string{"", "{}", " {}\n"} {
		if decode[map[string]bool](t, f.do("POST", "/api/v1/reload", body), 200); reloads != i+1 {
			t.Errorf("%q: reloaded %d times", body, reloads)
		}
	}
	if got := decode[hostDetails](t, f.do("GET", "/api/v1/hosts/a.test?origin=HTTPS://A.test:443", ""), 200); len(got.Origins) != 1 {
		t.Errorf("an origin by another spelling: %+v", got.Origins)
	}
}

// The client of an explain request is a configured name or an address.
func TestExplainClients(t *testing.T) {
	var clients []string
	f := newFixture(t, func(o *Options) {
		o.Explain = func(_ context.Context, r policy.Request) (policy.Decision, time.Duration) {
			clients = append(clients, r.Client)
			return policy.Decision{}, 0
		}
	})
	want := []string{"", "lab", "192.0.2.7", "2001:db8::1"}
	for _, client := range want {
		decode[explainResponse](t, f.do("POST", "/api/v1/explain", fmt.Sprintf(`{"url":"https://a.test/","client":%q}`, client)), 200)
	}
	if !slices.Equal(clients, want) {
		t.Errorf("%q", clients)
	}
}

// TestCoolDownOfAHost: an operator sees whom a host has refused, and ends the cool-downs as back-offs are ended.
func TestCoolDownOfAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		type state struct {
			Held      heldState  `json:"held"`
			CoolDowns []coolDown `json:"cool_downs"`
		}
		until := time.Now().Add(time.Hour).UTC()
		stop := stops.Stop{Kind: stops.CoolDown, Host: "a.test", Client: "<b>", Statuses: []int{403, 429}, Until: until, Length: time.Hour}
		_, err := f.stops.Put(stop)
		testkit.Must(t, err)
		answer(t, f, "a.test")
		want := state{CoolDowns: []coolDown{{"<b>", until, []int{403, 429}}}}
		if diff := cmp.Diff(want, decode[state](t, f.do("GET", "/api/v1/hosts/a.test", ""), 200)); diff != "" {
			t.Error(diff)
		}
		stop.Client = ""
		_, err = f.stops.Put(stop)
		testkit.Must(t, err)
		want.Held, want.CoolDowns = heldState{policy.ReasonCoolDown, until}, slices.Insert(want.CoolDowns, 0, coolDown{"", until, stop.Statuses})
		if diff := cmp.Diff(want, decode[state](t, f.do("GET", "/api/v1/hosts/a.test", ""), 200)); diff != "" {
			t.Error(diff)
		}
		page := f.do("GET", "/hosts/a.test", "").Body.String()
		for _, part := range []string{`all</th><td>1 h</td><td>refusals in a row: 403 429`, `&lt;b&gt;</bdi></th><td>1 h</td>`, "Cool-down"} {
			if !strings.Contains(page, part) {
				t.Errorf("no %q in the page:\n%s", part, page)
			}
		}
		if got := f.do("DELETE", "/api/v1/hosts/a.test/back-off", "").Body.String(); !strings.Contains(got, `"ended":true`) {
			t.Error(got)
		}
		if got := decode[state](t, f.do("GET", "/api/v1/hosts/a.test", ""), 200); got.CoolDowns != nil || got.Held.Reason != "" {
			t.Errorf("after the end: %+v", got)
		}
	})
}

// answer makes a host known by a request.
func answer(t *testing.T, f *fixture, host string) {
	t.Helper()
	s, err := f.pacer.Wait(t.Context(), "lab", pace.Limits{Key: host, PerSecond: 1000, Burst: 1000, MaxConcurrent: 9})
	testkit.Must(t, err)
	s.Sent()
	s.Release()
}
