package policy_test

import (
	"errors"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"

	"robotsproxy/policy"
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
		{"escaped punctuation", "User-agent: *\nDisallow: /special:\n", "/special%3Ax", policy.Refuse, "punctuation-decoded", "/special:x"},
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
