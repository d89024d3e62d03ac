package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/robots"
)

const (
	named     = "FooBot/1.0"
	reachable = "Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.example/bot)"
	browser   = "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"
)

// TestRequire: requirements are checked first for each request, and a configured token
// does not replace the header that sites see.
func TestRequire(t *testing.T) {
	for _, c := range []struct {
		name      string
		require   policy.Require
		userAgent string
		from      string
		err       error
	}{
		{"nothing is required", policy.RequireNothing, "", "", nil},
		{"token", policy.RequireToken, named, "", nil},
		{"token: a browser", policy.RequireToken, browser, "", policy.ErrNoToken},
		{"token: no header", policy.RequireToken, "", "", policy.ErrNoToken},
		{"token: From is none", policy.RequireToken, "", "bot@foo.example", policy.ErrNoToken},
		{"contact: in the header", policy.RequireContact, reachable, "", nil},
		{"contact: From", policy.RequireContact, named, "bot@foo.example", nil},
		{"contact: From with a name (RFC 5322 3.4)", policy.RequireContact, named, "Foo <bot@foo.example>", nil},
		{"contact: From that is none", policy.RequireContact, named, "nobody", policy.ErrNoContact},
		{"contact: From without an end", policy.RequireContact, named, strings.Repeat("x", 1<<20) + " bot@foo.example", policy.ErrNoContact},
		{"contact: none", policy.RequireContact, named, "", policy.ErrNoContact},
		{"contact: of nobody in particular", policy.RequireContact, browser + " (+https://foo.example)", "bot@foo.example", policy.ErrNoToken},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, file("User-agent: *\nDisallow: /private"), policy.Options{
				Require: c.require, ProductToken: "OwnBot", Hosts: []policy.Host{{Match: "denied.test", Robots: policy.Deny, Reason: "x"}, {Match: "ours.test", Robots: policy.Ignore, Reason: "x"}},
			})
			for _, host := range []string{"site.test", "denied.test", "ours.test"} {
				for _, path := range []string{"/page", "/private", "/robots.txt"} {
					r := policy.Request{Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: host, Port: 443}, PathQuery: path}, UserAgent: c.userAgent, From: c.from}
					for _, d := range []policy.Decision{e.Decide(t.Context(), r), e.DecideTunnel(t.Context(), r)} {
						if c.err == nil && d.Reason != policy.ReasonIdentity {
							continue
						}
						if d.Verdict != policy.Refuse || d.Reason != policy.ReasonIdentity || !errors.Is(d.Err, c.err) || d.Ruling.Result != nil {
							t.Errorf("%s%s: %v %q %v", host, path, d.Verdict, d.Reason, d.Err)
						}
					}
				}
			}
		})
	}
}

func TestContacts(t *testing.T) {
	for value, want := range map[string]bool{
		"FooBot/1.0 (+https://foo.example/bot)": true, "FooBot/1.0 (http://foo.example:8080?x)": true, "FooBot +HTTPS://FOO.example": true,
		"FooBot/1.0 (url:https://foo.example)": true, "FooBot/1.0 (+https://bücher.example)": true,
		"FooBot/1.0 (bot@foo.example)": true, "FooBot (mailto:bot@foo.example)": true, "FooBot (contact: a.b+c@foo.example.)": true, "FooBot <bot@foo.example>": true,
		"FooBot/1.0": false, "": false, browser: false, "FooBot (+https://)": false, "FooBot (+ftp://foo.example)": false, "FooBot (foo.example/bot)": false,
		"FooBot @foo.example": false, "FooBot bot@": false, "FooBot bot@localhost": false, "FooBot a@b@c.example": false, "FooBot (+https:///x)": false,
		"FooBot (shttp://foo.example)": true, "FooBot (+https://a b)": true, "FooBot (+https://%00)": false,
	} {
		e := engine(t, file(""), policy.Options{Require: policy.RequireContact})
		d := e.Decide(t.Context(), policy.Request{Target: robots.Target{Origin: site, PathQuery: "/"}, UserAgent: "FooBot/1.0", From: value})
		if got := d.Verdict == policy.Allow; got != want {
			t.Errorf("%q: %v", value, got)
		}
		if strings.HasPrefix(value, "FooBot") {
			if d := e.Decide(t.Context(), ask(value, "/")); (d.Verdict == policy.Allow) != want {
				t.Errorf("User-Agent: %q: %v %v", value, d.Verdict, d.Err)
			}
		}
	}
}

// TestWhoseToken: a client's own goes before the configuration's, and that
// before the header's.
func TestWhoseToken(t *testing.T) {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, c := range []struct {
		client, general, want string
		source                policy.TokenSource
		group                 string
	}{
		{"LabBot", "OwnBot", "LabBot", policy.FromClient, "labbot"},
		{"LabBot", "", "LabBot", policy.FromClient, "labbot"},
		{"", "OwnBot", "OwnBot", policy.FromOptions, "ownbot"},
		{"", "", "FooBot", policy.FromHeader, "foobot"},
	} {
		e := engine(t, file("User-agent: labbot\nDisallow: /\nUser-agent: ownbot\nDisallow: /\nUser-agent: foobot\nDisallow: /"), policy.Options{
			ProductToken: c.general, Clients: []policy.Client{{Name: "lab-a", Networks: here, ProductToken: c.client}}, Open: true,
		})
		r := ask("FooBot/1.0", "/")
		r.Client = "lab-a"
		d := e.Decide(t.Context(), r)
		x := e.Reading(r, d)
		if d.Group != c.group || x.Source != c.source || len(x.Tokens) != 1 || x.Tokens[0] != c.want {
			t.Errorf("%+v: group %q, tokens %q from %d", c, d.Group, x.Tokens, x.Source)
		}
		r.Client = "127.0.0.1" // a stranger
		if d := e.Decide(t.Context(), r); c.general == "" && d.Group != "foobot" || c.general != "" && d.Group != "ownbot" {
			t.Errorf("%+v: a stranger is of group %q", c, d.Group)
		}
	}
}
