package policy_test

import (
	"errors"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"

	"robotsproxy/policy"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// TestDecideReadings: a request is refused where any reading of its path is, and
// the decision says which; a reading makes no refusal an allow.
func TestDecideReadings(t *testing.T) {
	const private = "User-agent: *\nDisallow: /private\n"
	const privateDir = "User-agent: *\nDisallow: /private/\n"
	const onlyWeb = "User-agent: *\nDisallow: /\nAllow: /web/\nAllow: /*;public\n"
	for _, c := range []struct {
		name, file, path string
		verdict          policy.Verdict
		form, read       string
	}{
		{"as sent", private, "/private/x", policy.Refuse, "", ""},
		{"no rule speaks against a reading", private, "/web/2020/https://example.org/", policy.Allow, "", ""},
		{"a rule allows all readings", onlyWeb, "/web/2020/https://example.org/", policy.Allow, "", ""},
		{"a rule allows the path as sent alone", onlyWeb, "/a;public/b", policy.Refuse, "parameters-stripped", "/a/b"},
		{"a rule allows another reading alone", onlyWeb, "//web/a", policy.Refuse, "", ""},
		{"a rule allows what dots lead out of", onlyWeb, "/web/../a", policy.Refuse, "dots-removed", "/a"},
		{"a rule allows what dots lead to", "User-agent: *\nAllow: /a\n", "/x/../a", policy.Allow, "dots-removed", "/a"},
		{"no rule decides", private, "/x/../a", policy.Allow, "", ""},
		{"merged slashes", private, "//private/x", policy.Refuse, "slashes-merged", "/private/x"},
		{"merged slashes, then dots", private, "/a//../private/x", policy.Refuse, "slashes-merged+dots-removed", "/private/x"},
		{"a decoded slash", "User-agent: *\nDisallow: /private/\n", "/private%2Fx", policy.Refuse, "slashes-decoded", "/private/x"},
		{"a decoded slash that a rule has escaped", "User-agent: *\nDisallow: /a%2Fb\n", "/a%2fb", policy.Refuse, "", ""},
		{"a backslash", private, "/%5cprivate/x", policy.Refuse, "slashes-decoded+slashes-merged", "/private/x"},
		{"a backslash that is none beside a slash that is decoded", privateDir, "/a%5Cb%2F..%2Fprivate/x", policy.Refuse, "slashes-decoded+dots-removed", "/private/x"},
		{"a slash that is not decoded beside a backslash that is one", privateDir, "/a%2fb\\..\\private/x", policy.Refuse, "slashes-decoded+dots-removed", "/private/x"},
		{"escaped punctuation", "User-agent: *\nDisallow: /special:\n", "/special%3Ax", policy.Refuse, "", ""},
		{"parameters of dots", private, "/a/..;/private/x", policy.Refuse, "parameters-stripped+dots-removed", "/private/x"},
		{"dots, then merged slashes", privateDir, "//private//../x", policy.Refuse, "slashes-merged+dots-removed", "/private/x"},
		{"more of them", privateDir, "///private///../../x", policy.Refuse, "slashes-merged+dots-removed", "/private/x"},
		{"dots, then merged slashes, beside parameters", privateDir, "//private;a//../x", policy.Refuse, "parameters-stripped+slashes-merged+dots-removed", "/private/x"},
		{"parameters, dots, then merged slashes", privateDir, "/;/private//../x", policy.Refuse, "parameters-stripped+slashes-merged+dots-removed", "/private/x"},
		{"a decoded slash, dots, then merged slashes", privateDir, "/%2fprivate//../x", policy.Refuse, "slashes-decoded+slashes-merged+dots-removed", "/private/x"},
		{"dots, then a decoded slash", privateDir, "/%2fprivate/a%2f../../x", policy.Refuse, "slashes-decoded+slashes-merged+dots-removed", "/private/x"},
		{"dots behind a decoded slash, then merged slashes", privateDir, "/%2Fprivate%2F%2F..%2Fx", policy.Refuse, "slashes-decoded+slashes-merged+dots-removed", "/private/x"},
		{"an escaped semicolon behind dots", privateDir, "/a/..%3b/private/x", policy.Refuse, "parameters-stripped+dots-removed", "/private/x"},
		{"an escaped semicolon", privateDir, "/private%3Bx/y", policy.Refuse, "parameters-stripped", "/private/y"},
		{"what is encoded twice is decoded by nobody", private, "/a%252F..%252Fprivate", policy.Allow, "", ""},
		{"the query is left alone", "User-agent: *\nDisallow: /*?x=/private\n", "/a?x=//private;b%2F", policy.Allow, "", ""},
	} {
		d := engine(t, file(c.file), policy.Options{}).Decide(t.Context(), ask("FooBot", c.path))
		if d.Verdict != c.verdict || d.Form.String() != c.form || d.Read != c.read {
			t.Errorf("%s: %v, form %q, read as %q by %q", c.name, d.Verdict, d.Form, d.Read, d.Rule)
		}
	}
}

// TestWhichReadings: an entry of hosts comes before the options, and these before the
// dialect; dot segments are removed under all.
func TestWhichReadings(t *testing.T) {
	dialect := func(name string) robots.Dialect {
		d, err := robots.DialectByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const dialectsOwn, all, literal = policy.ReadingsOfDialect, policy.AllReadings, policy.LiteralReadings
	for _, c := range []struct {
		dialect       string
		options, host policy.Readings
		refused       bool
	}{
		{"standard", dialectsOwn, dialectsOwn, true},
		{"coccoc", dialectsOwn, dialectsOwn, true},
		{"rfc9309", dialectsOwn, dialectsOwn, false},
		{"google", dialectsOwn, dialectsOwn, false},
		{"google-2022", dialectsOwn, dialectsOwn, false},
		{"google-2019", dialectsOwn, dialectsOwn, false},
		{"standard", literal, dialectsOwn, false},
		{"google", all, dialectsOwn, true},
		{"standard", all, literal, false},
		{"rfc9309", literal, all, true},
		{"google", dialectsOwn, all, true},
	} {
		e := engine(t, file("User-agent: *\nDisallow: /private\n"), policy.Options{
			Dialect: dialect(c.dialect), Readings: c.options, Hosts: []policy.Host{{Match: "*", Readings: c.host}},
		})
		for path, refused := range map[string]bool{"//private": c.refused, "/a/..;/private": c.refused, "/%2Fprivate": c.refused, "/a/../private": true} {
			r := ask("FooBot", path)
			d := e.Decide(t.Context(), r)
			if (d.Verdict == policy.Refuse) != refused {
				t.Errorf("%+v: %s: %v", c, path, d.Verdict)
			}
			if x := e.Reading(r, d); refused && x.PathQuery != d.Read {
				t.Errorf("%+v: %s: explained as %q", c, path, x.PathQuery)
			}
		}
	}
	if _, err := policy.New(policy.Options{Cache: &cache.Cache{}, Readings: 3}); err == nil {
		t.Error("readings that there are not are taken")
	}
	if _, err := policy.New(policy.Options{Cache: &cache.Cache{}, Hosts: []policy.Host{{Match: "*", Readings: 3}}}); err == nil {
		t.Error("readings that there are not are taken of an entry")
	}
}

// TestPunctuationDecoded: a dialect whose rules keep escaped punctuation apart needs a reading in which it is
// the same.
func TestPunctuationDecoded(t *testing.T) {
	for _, d := range robots.Dialects() {
		want := "punctuation-decoded"
		if !d.ReservedAsWritten {
			want = "" // the rule matches the path as it was sent
		}
		e := engine(t, file("User-agent: *\nDisallow: /special:\n"), policy.Options{Dialect: d, Readings: policy.AllReadings})
		if got := e.Decide(t.Context(), ask("FooBot", "/special%3Ax")); got.Verdict != policy.Refuse || got.Form.String() != want {
			t.Errorf("%s: %v, form %q", d.Name, got.Verdict, got.Form)
		}
	}
}

// TestForbidden: the operator may take status 401 or 403 for robots.txt as a refusal.
func TestForbidden(t *testing.T) {
	const inherit, allow, refuse = policy.ForbiddenOfOptions, policy.AllowForbidden, policy.RefuseForbidden
	for _, c := range []struct {
		options, host policy.OnForbidden
		refused       bool
	}{
		{inherit, inherit, false}, {allow, inherit, false}, {refuse, inherit, true}, {refuse, allow, false}, {inherit, refuse, true},
	} {
		for status, refused := range map[int]bool{401: c.refused, 403: c.refused, 404: false, 451: false} {
			e := engine(t, answers{fetch.Result{Status: status, MaxAge: -1, Connected: true}}, policy.Options{Forbidden: c.options, Hosts: []policy.Host{{Match: "*", Forbidden: c.host}}})
			want, reason := policy.Allow, policy.ReasonNoFile
			if refused {
				want, reason = policy.Refuse, policy.ReasonUnreachable
			}
			if d := e.Decide(t.Context(), ask("FooBot", "/")); d.Verdict != want || d.Reason != reason || (d.Err != nil) != refused {
				t.Errorf("%+v: status %d: %v %q %v", c, status, d.Verdict, d.Reason, d.Err)
			}
			if d := e.Decide(t.Context(), ask("FooBot", "/robots.txt")); d.Verdict != policy.Allow {
				t.Errorf("%+v: status %d: robots.txt itself: %v", c, status, d.Verdict)
			}
			if d := e.DecideTunnel(t.Context(), ask("FooBot", "")); d.Verdict != want {
				t.Errorf("%+v: status %d: a tunnel: %v", c, status, d.Verdict)
			}
			if err := e.AllowsRedirect(t.Context(), fetch.Request{UserAgent: "FooBot"}, ask("FooBot", "/").Origin, "/x"); (err != nil) != refused || errors.Is(err, fetch.ErrDisallowed) {
				t.Errorf("%+v: status %d: a redirect: %v", c, status, err)
			}
		}
	}
	for _, o := range []policy.Options{{Forbidden: 3}, {Hosts: []policy.Host{{Match: "*", Forbidden: 3}}}} {
		o.Cache = &cache.Cache{}
		if _, err := policy.New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestWhatDecidesIsNamed: a decision names the line of the delay, the User-agent line of a joined list, and what
// was decoded.
func TestWhatDecidesIsNamed(t *testing.T) {
	const text = "User-agent: *\nCrawl-delay: 5\nUser-agent: BadBot\nDisallow: /\n"
	d := engine(t, file(text), policy.Options{}).Decide(t.Context(), ask("FooBot", "/"))
	if d.Line != 4 || d.JoinedLine != 1 || d.DelayLine != 2 || d.Decoded != "" {
		t.Errorf("%+v", d)
	}
	d = engine(t, file("\xFE\xFF"+text), policy.Options{}).DecideTunnel(t.Context(), ask("FooBot", ""))
	if d.Verdict != policy.Refuse || d.Line != 4 || d.JoinedLine != 1 || d.Decoded != "utf-16-mark" {
		t.Errorf("a tunnel: %+v", d)
	}
	const signal = "User-agent: *\nCrawl-delay: 5\nUser-agent: BadBot\nContent-Signal: ai-train=no\n"
	refuse := policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}}
	for agent, joined := range map[string]int{"FooBot": 1, "BadBot": 0} {
		if d := engine(t, file(signal), refuse).Decide(t.Context(), ask(agent, "/")); d.Reason != policy.ReasonUsage || d.JoinedLine != joined {
			t.Errorf("a preference, %s: %+v", agent, d)
		}
	}
	if d := engine(t, file(text), policy.Options{}).Decide(t.Context(), ask("BadBot", "/")); d.JoinedLine != 0 || d.DelayLine != 0 {
		t.Errorf("not joined: %+v", d)
	}
}

// TestDecideGivesUp: what takes too many steps to match is refused, and says so.
func TestDecideGivesUp(t *testing.T) {
	e := engine(t, file(testkit.ComplexFile()), policy.Options{})
	if d := e.Decide(t.Context(), ask("FooBot", "/"+strings.Repeat("a", 4000))); d.Verdict != policy.Refuse || d.Reason != policy.ReasonTooComplex || d.Rule != "" {
		t.Errorf("%v %q %q", d.Verdict, d.Reason, d.Rule)
	}
	if d := e.Decide(t.Context(), ask("FooBot", "/b")); d.Verdict != policy.Allow {
		t.Errorf("an easy path: %v %q", d.Verdict, d.Reason)
	}
	// A redirect there is not followed, but it is not known to be disallowed either.
	err := e.AllowsRedirect(t.Context(), fetch.Request{UserAgent: "FooBot"}, ask("FooBot", "/").Origin, "/"+strings.Repeat("a", 4000))
	if err == nil || errors.Is(err, fetch.ErrDisallowed) {
		t.Errorf("a redirect: %v", err)
	}
}
