package explain

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

func TestEveryReasonHasWords(t *testing.T) {
	for _, r := range policy.Reasons() {
		text := Reason(string(r.Name))
		e := Explanation{Reason: r.Name}
		if text == "" || strings.HasSuffix(text, ".") || !strings.HasSuffix(e.Sentence(), ".") {
			t.Errorf("%s: %q, %q", r.Name, text, e.Sentence())
		}
	}
}

// The JSON members are those of the audit's record, but for the form of the path and the Visit-time lines, which a record
// leaves out.
func TestMembersAreThoseOfTheRecord(t *testing.T) {
	names := func(v any) map[string]bool {
		all, of := map[string]bool{}, reflect.TypeOf(v)
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			all[name] = true
		}
		return all
	}
	record := names(trail.Entry{})
	for name := range names(Explanation{}) {
		if !record[name] && name != "-" && name != "read_as" && name != "visit_times" {
			t.Errorf("%s is no member of a record", name)
		}
	}
}

func decision() policy.Decision {
	return policy.Decision{
		Reason: policy.ReasonRule, Rule: "/private", Line: 5, Form: policy.DotsRemoved, Read: "/private", Group: "foobot", Token: "FooBot",
		Entry: "*.test", EntryReason: "ticket 7", Dialect: "standard", Asked: 20 * time.Second, ContentUsage: "train-ai=n",
		Pace: pace.Limits{CrawlDelay: 10 * time.Second}, Err: errors.New("stale"),
		Ruling: cache.Ruling{Meaning: cache.Rules, Stale: true, Result: &fetch.Result{
			URL: "http://a.test/robots.txt", UserAgent: "robotsproxy/1", Status: 200, SHA256: "abc", Fetched: time.Date(2026, 11, 21, 5, 7, 33, 1, time.UTC)}},
	}
}

// A decision and its record have the same explanation.
func TestOfRecord(t *testing.T) {
	d := decision()
	want := Of(&d)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var e trail.Entry
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	e.Decision, e.RobotsContentUsage = d.Verdict.String(), d.ContentUsage
	want.Path = "" // no record has it
	if diff := cmp.Diff(want, OfRecord(&e, &Fetch{Status: 200})); diff != "" {
		t.Errorf("of its record (-decision +record):\n%s", diff)
	}
}

func TestOfRuling(t *testing.T) {
	for outcome, want := range map[cache.Meaning]policy.Reason{
		cache.Rules: policy.ReasonNoRule, cache.NoFile: policy.ReasonNoFile, cache.NoConnection: policy.ReasonOrigin, cache.Unreachable: policy.ReasonUnreachable,
	} {
		e := OfRuling(&cache.Ruling{Meaning: outcome, Result: &fetch.Result{Status: 404}}, "google")
		if e.Reason != want || e.Allow != (outcome == cache.Rules || outcome == cache.NoFile) || e.Dialect != "google" || e.Fetch.Outcome != outcome {
			t.Errorf("%v: %+v", outcome, e)
		}
	}
}

func TestForClient(t *testing.T) {
	d := decision()
	e := Of(&d)
	text, err := json.Marshal(e.ForClient())
	const want = `{"reason":"rule","rule":"/private","line":5,"reading":"dots-removed","read_as":"/private","group":"foobot","agent":"FooBot","dialect":"standard",` +
		`"robots_url":"http://a.test/robots.txt","robots_fetched":"2026-11-21T05:07:33Z","robots_agent":"robotsproxy/1","crawl_delay_s":10,"crawl_delay_asked_s":20}`
	if err != nil || string(text) != want {
		t.Errorf("%s, want %s; %v", text, want, err)
	}
	e.Reason = policy.ReasonPace
	if got := e.ForClient(); got.Rule != "" || got.Line != 0 || got.Form != "" || got.Path != "" || got.Entry != "" {
		t.Errorf("what did not decide is told: %+v", got)
	}
	e.TDMRepURL, e.TDMRepFetched, e.TDMRepSHA256, e.UsageSource = "http://a.test/.well-known/tdmrep.json", e.Fetched, "ab", "tdmrep.json"
	if got := e.ForClient(); got.TDMRepURL != "" || !got.TDMRepFetched.IsZero() || got.UsageSource != "" {
		t.Errorf("what did not decide is told: %+v", got)
	}
	e.Reason = policy.ReasonUsage
	if got := e.ForClient(); got.Rule != "" || got.Form == "" || got.Path == "" || got.TDMRepURL == "" || got.TDMRepFetched.IsZero() || got.TDMRepSHA256 != "" || got.UsageSource == "" {
		t.Errorf("of a refused use is told: %+v", got)
	}
	e.Reason = policy.ReasonDenied
	if got := e.ForClient(); got.Entry != "*.test" || got.EntryReason != "ticket 7" {
		t.Errorf("the entry that denies is not told: %+v", got)
	}
}

func TestSentences(t *testing.T) {
	for _, c := range []struct {
		x    Explanation
		want string
	}{
		{Explanation{Reason: policy.ReasonRule}, "disallows this URL for this client."},
		{Explanation{Reason: policy.ReasonRule, Form: "slashes-merged"}, "disallows another form of this URL"},
		{Explanation{Reason: policy.ReasonRule, Allow: true}, "allows this URL for this client."},
		{Explanation{Reason: policy.ReasonTunnel}, "disallows the whole site"},
		{Explanation{Reason: policy.ReasonTunnel, Allow: true}, "judged by its host alone"},
		{Explanation{Reason: policy.ReasonNoRule, Allow: true}, "No group"},
		{Explanation{Reason: policy.ReasonNoRule, Allow: true, Group: "*"}, "No rule"},
		{Explanation{Reason: policy.ReasonNoRule, Allow: true, Fetch: &Fetch{HTML: true}}, "an HTML page without a rule"},
		{Explanation{Reason: policy.ReasonUnreachable}, "gave no usable robots.txt, so"},
		{Explanation{Reason: policy.ReasonUnreachable, Error: "fetch http://a.test/robots.txt: status 503"}, "gave no usable robots.txt (status 503), so"},
		{Explanation{Reason: policy.ReasonUnreachable, Error: "fetch http://a.test/robots.txt: timed out after 20 s"}, "(timed out after 20 s)"},
		{Explanation{Reason: policy.ReasonNoFile, Allow: true}, "has no robots.txt"},
		{Explanation{Reason: policy.ReasonNoFile, Allow: true, Dialect: "google", Error: "x"}, "for so long that google assumes"},
		{Explanation{Reason: policy.ReasonNoFile, Allow: true, Fetch: &Fetch{Status: 404}}, "Status 404 means that there is no robots.txt"},
		{Explanation{Reason: policy.ReasonNoFile, Allow: true, Dialect: "rfc9309", Fetch: &Fetch{Status: 429}}, "Status 429 means under rfc9309"},
		{Explanation{Reason: policy.ReasonNoFile, Allow: true, Fetch: &Fetch{Status: 302, TooManyRedirects: true}}, "has too many redirects"},
		{Explanation{Reason: policy.ReasonNoFile, Allow: true, Dialect: "google", Fetch: &Fetch{Status: 304, DeadRedirect: true, Error: "fetch http://a.test/robots.txt: a redirect that cannot be followed: status 304 has no URL to follow"}}, "answers with a redirect that cannot be followed: status 304 has no URL to follow. Under google"},
		{Explanation{Reason: policy.ReasonNoFile, Allow: true, Fetch: &Fetch{Status: 302, RedirectDisallowed: true}}, "redirects to a URL that"},
		{Explanation{Reason: policy.ReasonIdentity, Error: policy.ErrNoToken.Error()}, "requires a product token"},
		{Explanation{Reason: policy.ReasonIdentity, Error: policy.ErrNoContact.Error()}, "requires a web or e-mail address"},
		{Explanation{Reason: policy.ReasonPaused}, "An operator has paused requests to this host."},
		{Explanation{Reason: "\x1b[2J"}, `"\x1b[2J"`},
	} {
		if got := c.x.Sentence(); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.x, got, c.want)
		}
	}
}

// If robots.txt decided, the rule is shown in its form; otherwise a sentence gives the cause.
func TestRuleAndWhy(t *testing.T) {
	e := Explanation{Reason: policy.ReasonRule, Rule: "/x", Line: 2}
	if e.RuleText() != "Disallow: /x (line 2)" || e.Why() != "" {
		t.Errorf("%q, %q", e.RuleText(), e.Why())
	}
	e.Reason = policy.ReasonPace
	if e.RuleText() != "/x (line 2)" || e.Why() == "" {
		t.Errorf("%q, %q", e.RuleText(), e.Why())
	}
}

// Whatever clients and sites send, each fact is one printable line that people can read.
func TestFactsAreHarmless(t *testing.T) {
	evil := "\x1b[2J\u202e\n" + strings.Repeat("\xff", 5000)
	var e Explanation
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(evil)
		}
	}
	e.JoinedLine, e.CrawlLine = 1, 1
	e.CrawlAsked, e.BackOff, e.Slowed, e.Stale, e.Fetched = 1, 1, 1, true, time.Now()
	e.TDMRepStale, e.TDMRepFetched = true, time.Now()
	e.Usage = map[string]trail.Usage{evil: {}, "tdm": {Outcome: evil, Statement: evil, Source: evil, Line: 1}}
	e.Fetch = &Fetch{Outcome: cache.Unreachable, Redirects: 2, Error: "x" + evil}
	all := append(e.Decided(), e.Basis()...)
	for _, text := range append(all, Fact{Value: e.Sentence()}, Fact{Value: e.RuleText()}) {
		if strings.ContainsFunc(text.Value, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text.Value) > 10*humanize.MaxBrief {
			t.Errorf("%s: %q", text.Name, text.Value)
		}
	}
	if len(all) != 28 {
		t.Errorf("%d facts", len(all))
	}
}

func TestExcerpt(t *testing.T) {
	text := "User-agent: a\n" + strings.Repeat("User-agent: b\n", 30) + "User-agent: foobot\n" + strings.Repeat("Allow: /a\n", 10) + "Disallow: /\n"
	e := Explanation{Dialect: robots.Standard().Name, Line: 43, Group: "foobot"}
	excerpt := e.Excerpt(text)
	agents, more, lines := excerpt.Shown()
	if len(agents) != maxAgents || more != 12 || agents[0].Number != 1 || agents[maxAgents-1].Text != "User-agent: foobot" {
		t.Errorf("%d more than %+v", more, agents)
	}
	if len(lines) != around+1 || lines[around] != (Line{43, "Disallow: /", true}) {
		t.Errorf("%+v", lines)
	}
	e.Line = 2
	if agents, _, _ := e.Excerpt(text).Shown(); len(agents) != 0 {
		t.Errorf("shown twice: %+v", agents)
	}
	if e.Line = 0; e.Excerpt(text) != nil {
		t.Error("an excerpt around no line")
	}
}

func TestParseURL(t *testing.T) {
	target, err := ParseURL("GET", "HTTPS://A.test:443/x%?y#z")
	if err != nil || target.String() != "https://a.test/x%?y" {
		t.Errorf("%s %v", target, err)
	}
	for address, want := range map[string]string{
		"": "no scheme", "a.test:80": "no scheme", "gopher://a.test": "scheme", "http://u@a.test": "credentials", "http://a.test/\x1b": "control", "http:///": "host",
	} {
		if _, err := ParseURL("GET", address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// The outcome of a record is that of its decision, whether or not it was enforced.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		decision, reason string
		want             policy.Outcome
	}{
		{"allow", "rule", policy.Allowed}, {"block", "rule", policy.Disallowed}, {"block", "pace", policy.Deferred},
		{"block", "unreachable", policy.Failed}, {"block", "of a later version", policy.Failed}, {"", "", policy.Failed},
	} {
		if got := Outcome(&trail.Entry{Decision: c.decision, Reason: c.reason}); got != c.want {
			t.Errorf("%q for %q: %v, want %v", c.decision, c.reason, got, c.want)
		}
	}
}
