package checkcmd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// one is the answer of every origin.
type one struct{ fetch.Result }

func (o one) Fetch(context.Context, fetch.Request) *fetch.Result {
	a := o.Result
	a.MaxAge, a.Fetched = -1, time.Date(2026, 11, 21, 5, 7, 33, 0, time.UTC)
	return &a
}

// explained is what check finds of an address where every origin answers so.
func explained(t *testing.T, a fetch.Result, change func(*config.Config), address string) finding {
	t.Helper()
	robotsCache, err := cache.New(cache.Options{Fetcher: one{a}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Identity.UserAgent = "FooBot/1.0"
	if change != nil {
		change(&cfg)
	}
	engine, err := daemon.NewEngine(cfg, robotsCache, nil)
	if err != nil {
		t.Fatal(err)
	}
	passthrough, err := daemon.Passthrough(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := checker{engine: engine, userAgent: cfg.Identity.UserAgent, from: cfg.Identity.From, passthrough: passthrough, maxURL: int(cfg.Limits.URL)}
	return c.check(t.Context(), address)
}

func fileOf(text string) fetch.Result {
	return fetch.Result{URL: "http://a.test/robots.txt", Status: 200, Body: []byte(text), SHA256: "abc", Connected: true}
}

// rowsOf are the rows of a text by their labels, those of one label joined.
func rowsOf(text string) map[string]string {
	rows, label := map[string]string{}, ""
	_, body, _ := strings.Cut(text, "\n")
	for line := range strings.Lines(body) {
		if l := strings.TrimSpace(line[:18]); l != "" {
			label = strings.TrimSuffix(l, ":")
		} else {
			rows[label] += "|"
		}
		rows[label] += strings.TrimSpace(line[18:])
	}
	return rows
}

func entries(h ...config.Host) func(*config.Config) {
	return func(c *config.Config) { c.Hosts = h }
}

func requires(what string) func(*config.Config) {
	return func(c *config.Config) { c.Identity.Require = what }
}

func TestExplanationOfOutcomes(t *testing.T) {
	over := func(c *config.Config) { c.Robots.OverMax = "refuse" }
	for _, c := range []struct {
		name   string
		answer fetch.Result
		change func(*config.Config)
		path   string
		first  string
		rows   map[string]string
		status int
	}{
		{"a rule", fileOf("User-agent: *\nDisallow: /x"), nil, "/x", "disallowed http://a.test/x", map[string]string{"rule": "Disallow: /x (line 2)", "group": "*", "fetched": "2026-11-21T05:07:33Z", "outcome": "status 200: rules", "sha256": "abc"}, 1},
		{"no rule", fileOf("User-agent: *\nDisallow: /x"), nil, "/", "allowed    http://a.test/", map[string]string{"why": "No rule of the site's robots.txt matches this URL."}, 0},
		{"no group", fileOf("User-agent: bar\nDisallow: /"), nil, "/", "allowed    http://a.test/", map[string]string{"why": "No group of the site's robots.txt applies to this client.", "group": ""}, 0},
		{"an empty rule decides nothing", fileOf("User-agent: *\nDisallow:"), func(c *config.Config) { c.Robots.Dialect = "google" }, "/", "allowed    http://a.test/", map[string]string{"why": "No rule of the site's robots.txt matches this URL.", "rule": "", "dialect": "google"}, 0},
		{"RFC 9309 2.3.1.3: no file", fetch.Result{URL: "http://a.test/robots.txt", Status: 404, Connected: true}, nil, "/", "allowed    http://a.test/", map[string]string{"why": "Status 404 means that there is no robots.txt: everything is allowed (RFC 9309 2.3.1.3).", "outcome": "status 404: no file", "sha256": ""}, 0},
		{"rfc9309: a busy server", fetch.Result{URL: "http://a.test/robots.txt", Status: 429, Connected: true}, func(c *config.Config) { c.Robots.Dialect = "rfc9309" }, "/", "allowed    http://a.test/", map[string]string{"why": "Status 429 means under rfc9309 that there are no rules: everything is allowed."}, 0},
		{"coccoc: a failing server", fetch.Result{URL: "http://a.test/robots.txt", Status: 500, Connected: true}, func(c *config.Config) { c.Robots.Dialect = "coccoc" }, "/", "allowed    http://a.test/", map[string]string{"why": "Status 500 means under coccoc that there are no rules: everything is allowed."}, 0},
		{"a long file", fileOf("User-agent: *\n" + strings.Repeat("#\n", robots.MaxBytes/2-7)), nil, "/", "allowed    http://a.test/", map[string]string{"note": "only the first 512000 bytes of the file are read"}, 0},
		{"a redirect is disallowed", fetch.Result{URL: "http://a.test/robots.txt", Status: 302, RedirectDisallowed: true, Connected: true, Err: errors.New("redirected to http://b.test/private: disallowed")}, func(c *config.Config) { c.Robots.Dialect = "google" }, "/", "allowed    http://a.test/", map[string]string{"robots.txt": "http://a.test/robots.txt", "why": "robots.txt redirects to a URL that the robots.txt there disallows. Under google this means that there are no rules: everything is allowed.", "outcome": "status 302: no file: a redirect is disallowed by robots.txt: redirected to http://b.test/private: disallowed"}, 0},
		{"RFC 9309 2.3.1.2: lost", fetch.Result{URL: "http://a.test/6", Status: 302, Redirects: 5, TooManyRedirects: true, Connected: true}, nil, "/", "allowed    http://a.test/", map[string]string{"robots.txt": "http://a.test/6", "why": "robots.txt has too many redirects: everything is allowed (RFC 9309 2.3.1.2).", "outcome": "status 302: no file: too many redirects, after 5 redirects"}, 0},
		{"RFC 9309 2.3.1.4: unreachable", fetch.Result{URL: "http://a.test/robots.txt", Status: 503, Connected: true}, nil, "/", "unknown    http://a.test/", map[string]string{"outcome": "status 503: unreachable", "fetched": "", "error": "fetch http://a.test/robots.txt: status 503"}, 2},
		{"a reset", fetch.Result{URL: "http://a.test/robots.txt", Connected: true, Err: errors.New("reset")}, nil, "/", "unknown    http://a.test/", map[string]string{"outcome": "unreachable: no complete response", "error": "reset"}, 2},
		{"no connection", fetch.Result{URL: "http://a.test/robots.txt", Err: errors.New("refused")}, nil, "/", "unknown    http://a.test/", map[string]string{"why": "The site could not be reached.", "outcome": "no connection", "error": "refused"}, 2},
		{"a forbidden address", fetch.Result{URL: "http://a.test/robots.txt", Err: egress.ErrForbiddenAddr}, nil, "/", "unknown    http://a.test/", map[string]string{"why": "The proxy does not connect to this address: it is private, local or reserved (egress.allow_private)."}, 2},
		{"a forbidden port", fetch.Result{URL: "http://a.test/robots.txt", Err: egress.ErrForbiddenPort}, nil, "/", "unknown    http://a.test/", map[string]string{"why": "The proxy does not connect to this port (egress.ports)."}, 2},
		{"over_max: refuse", fileOf("User-agent: *\nCrawl-delay: 60"), over, "/", "disallowed http://a.test/", map[string]string{"why": "The site asks for a longer Crawl-delay than robots.max_crawl_delay (robots.over_max: refuse).", "crawl-delay": "60 s (asked: 60 s, line 2: Crawl-delay: 60)"}, 1},
		{"hosts: ignore", fileOf("User-agent: *\nDisallow: /"), entries(config.Host{Match: "*.test", Robots: "ignore", Reason: "ticket 7"}), "/x", "allowed    http://a.test/x", map[string]string{"why": "The operator's configuration ignores robots.txt for this host (robots: ignore in hosts).", "entry": "*.test", "reason": "override", "entry reason": "ticket 7", "robots.txt": "", "agent": "FooBot", "agent from": "the User-Agent header"}, 0},
		{"hosts: deny", fileOf(""), entries(config.Host{Match: "a.test", Robots: "deny", Reason: "closed"}), "/robots.txt", "disallowed http://a.test/robots.txt", map[string]string{"why": "The operator denies requests to this host (robots: deny in hosts).", "entry": "a.test", "entry reason": "closed", "robots.txt": ""}, 1},
		{"hosts: over since yesterday", fileOf("User-agent: *\nDisallow: /x"), entries(config.Host{Match: "*", Robots: "ignore", Reason: "x", Until: time.Now()}), "/x", "disallowed http://a.test/x", map[string]string{"rule": "Disallow: /x (line 2)", "entry": ""}, 1},
		{"identity.require: contact", fileOf(""), requires("contact"), "/", "disallowed http://a.test/", map[string]string{"error": policy.ErrNoContact.Error(), "robots.txt": ""}, 1},
		{"identity.require: token", fileOf(""), requires("token"), "/", "allowed    http://a.test/", map[string]string{"agent": "FooBot", "agent from": "the User-Agent header"}, 0},
		{"identity.from", fileOf(""), func(c *config.Config) { requires("contact")(c); c.Identity.From = "bot@foo.example" }, "/", "allowed    http://a.test/", map[string]string{"error": ""}, 0},
		{"the file itself", fileOf("User-agent: *\nDisallow: /"), nil, "/robots.txt", "allowed    http://a.test/robots.txt", map[string]string{"why": "/robots.txt itself may always be fetched (RFC 9309 2.2.2)."}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := explained(t, c.answer, c.change, "http://a.test"+c.path)
			first, _, _ := strings.Cut(f.text(false), "\n")
			if first != c.first || f.exitStatus() != c.status {
				t.Errorf("%q, status %d", first, f.exitStatus())
			}
			rows := rowsOf(f.text(false))
			for label, want := range c.rows {
				if rows[label] != want {
					t.Errorf("%s: %q, want %q", label, rows[label], want)
				}
			}
		})
	}
}

func TestExplanationOfWhoAsks(t *testing.T) {
	const file = "User-agent: foobot\nDisallow: /\nUser-agent: *\nDisallow: /x"
	for _, c := range []struct {
		name, header, token string
		rows                map[string]string
		from                string
		agents              []string
	}{
		{"a header", "BarBot/1.0 FooBot/2.0", "", map[string]string{"agent": "FooBot", "agent from": "the User-Agent header", "considered": "BarBot, FooBot", "group": "foobot"}, "user_agent", []string{"BarBot", "FooBot"}},
		{"the configuration", "BarBot/1.0", "FooBot", map[string]string{"agent": "FooBot", "agent from": "identity.product_token", "considered": "", "group": "foobot"}, "identity.product_token", []string{"FooBot"}},
		{"a browser", "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/120.0", "", map[string]string{"agent": "none: the User-Agent header has no product token other than a browser's", "group": "*"}, "none", nil},
		{"nobody", "", "", map[string]string{"agent": "none: no User-Agent header (set one with -A)", "group": "*"}, "none", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := explained(t, fileOf(file), func(cfg *config.Config) {
				cfg.Identity.UserAgent, cfg.Identity.ProductToken = c.header, c.token
			}, "http://a.test/")
			rows := rowsOf(f.text(false))
			for label, want := range c.rows {
				if rows[label] != want {
					t.Errorf("%s: %q, want %q", label, rows[label], want)
				}
			}
			if f.AgentFrom != c.from || !cmp.Equal(f.Agents, c.agents) {
				t.Errorf("from %q, %q", f.AgentFrom, f.Agents)
			}
		})
	}
}

const wishful = `User-agent: *
Disallow: /shop
Allow: /shop/open
Disallow: /shop/open/not
Allow: /*/open
Disallow: /shelf
Content-Signal: search=yes, ai-input=no
Content-Usage: /shop train-ai=n

License: https://a.test/license
Sitemap: https://a.test/1.xml
Sitemap: https://a.test/2.xml
Sitemap: https://a.test/3.xml
Sitemap: https://a.test/4.xml
Sitemap: https://a.test/5.xml
Sitemap: https://a.test/6.xml
Sitemap: https://a.test/7.xml
`

func TestExplanationOfTheFile(t *testing.T) {
	f := explained(t, fileOf(wishful), nil, "http://a.test/shop/open/1")
	want := []otherRule{{"/*/open", true, 5, true}, {"/shop", false, 2, true}, {"/shop/open/not", false, 4, false}}
	if diff := cmp.Diff(want, f.Others); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
	if len(f.Sitemaps) != 7 || f.Signals != (signals{Search: "yes", AIInput: "no"}) {
		t.Errorf("%d sitemaps, signals %+v", len(f.Sitemaps), f.Signals)
	}
	rows := rowsOf(f.text(false))
	for label, want := range map[string]string{
		"rule": "Allow: /shop/open (line 3)", "outranked": "Allow: /*/open (line 5)|Disallow: /shop (line 2)",
		"begins alike": "Disallow: /shop/open/not (line 4)", "license": "https://a.test/license",
		"sitemaps":       "https://a.test/1.xml|https://a.test/2.xml|https://a.test/3.xml|https://a.test/4.xml|https://a.test/5.xml|and 2 more",
		"content-signal": "search=yes, ai-input=no", "content-usage": "train-ai=n",
	} {
		if rows[label] != want {
			t.Errorf("%s: %q, want %q", label, rows[label], want)
		}
	}
}

// What is explained is what decided: the path as the origin will read it.
func TestExplanationOfDotSegments(t *testing.T) {
	f := explained(t, fileOf(wishful), nil, "http://a.test/a/../shelf")
	if f.Line != 6 || len(f.Others) == 0 || f.Others[0].Line == 6 {
		t.Errorf("line %d, others %+v", f.Line, f.Others)
	}
}

func TestExplanationOfNoAddress(t *testing.T) {
	for address, want := range map[string]string{
		"a.test/":             "no scheme: a URL begins with http://, https:// or ftp://",
		"gopher://a.test/":    "the scheme must be http, https or ftp",
		"ftp://a.test//x":     "path not allowed for FTP",
		"http:///x":           "the host is empty",
		"http://u:p@a.test/":  "credentials in the URL",
		"http://a.test/a b":   "the path contains a blank",
		"http://a.test/a?\t":  "the query contains the control byte 0x09",
		"http://a.test/\x7f":  "the path contains the control byte 0x7F",
		"http://[::1/":        "the port must be a number",
		"http://a.test:99999": "the port must be a number",
		"":                    "no scheme",
		"a.test:8000/":        "no scheme",
		"\x1b[2J://a.test/":   "the scheme must be",
	} {
		f := explained(t, fileOf(""), nil, address)
		if !strings.Contains(f.Error, want) || f.exitStatus() != exitUnknown || f.Allow {
			t.Errorf("%q: %q, status %d", address, f.Error, f.exitStatus())
		}
		if text := f.text(false); strings.ContainsRune(text, '\x1b') || !strings.HasPrefix(text, "unknown ") {
			t.Errorf("%q", text)
		}
	}
}

// Whatever a file contains, each row of the output is one of check's own.
func TestExplanationOfHostileWords(t *testing.T) {
	const evil = "\x1b[2J\u202e\u009b31m\u2028\x00\x7f\xff"
	text := "User-agent: *\nDisallow: /\x1b[2J\u202e\u009b\u2028\x7f\xff\nDisallow: /b\x1b\nSitemap: " + evil + "\nLicense: " + strings.Repeat("\x1b", 2000) + "\nContent-Usage: /b " + evil + "\n"
	for _, address := range []string{"http://a.test/%1B[2J%E2%80%AE%C2%9B%E2%80%A8%7F%FF", "http://a.test/b", "http://a.test/\u202e"} {
		f := explained(t, fileOf(text), func(c *config.Config) { c.Identity.UserAgent = "Evil\u202eBot/1" }, address)
		for line := range strings.Lines(f.text(false)) {
			line = strings.TrimSuffix(line, "\n")
			if humanize.Escape(line) != line || len(line) > 5*humanize.MaxBrief {
				t.Errorf("%q", line)
			}
		}
		var out strings.Builder
		if err := cli.WriteJSON(&out, f); err != nil || humanize.Escape(strings.TrimSuffix(out.String(), "\n"))+"\n" != out.String() {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}

func TestExplanationInColours(t *testing.T) {
	plain := explained(t, fileOf("User-agent: *\nDisallow: /x"), nil, "http://a.test/x")
	for _, c := range []struct{ reason, want string }{
		{"rule", "\x1b[31mdisallowed\x1b[0m http://a.test/x\n  \x1b[2mrule:          \x1b[0m Disallow: /x (line 2)\n"},
		{"unreachable", "\x1b[33munknown   \x1b[0m http://a.test/x\n"},
	} {
		f := plain
		f.Reason = policy.Reason(c.reason)
		if got := f.text(true); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if f := explained(t, fileOf(""), nil, "http://a.test/x"); !strings.HasPrefix(f.text(true), "\x1b[32mallowed   \x1b[0m http://a.test/x\n") {
		t.Errorf("%q", f.text(true))
	}
	if cli.SupportsColour(new(strings.Builder)) {
		t.Error("colours for what is no terminal")
	}
}

// TestExplanationAsJSONOfEntries: the audit's words.
func TestExplanationAsJSONOfEntries(t *testing.T) {
	f := explained(t, fileOf(""), entries(config.Host{Match: "a.test", Robots: "deny", Reason: "closed"}), "http://a.test/")
	var out strings.Builder
	if err := cli.WriteJSON(&out, f); err != nil {
		t.Fatal(err)
	}
	const want = `{"url":"http://a.test/","allow":false,"reason":"denied-host","entry":"a.test","entry_reason":"closed",`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

// TestExplanationOfSealedHosts: what the proxy does not open, it judges by its host.
func TestExplanationOfSealedHosts(t *testing.T) {
	closed := func(c *config.Config) { c.TLS.Intercept = false }
	listed := func(c *config.Config) { c.TLS.Tunnel = []string{"*.test"} }
	part, whole := fileOf("User-agent: *\nDisallow: /x"), fileOf("User-agent: *\nDisallow: /")
	for _, c := range []struct {
		name    string
		answer  fetch.Result
		change  func(*config.Config)
		address string
		reason  string
		status  int
	}{
		{"opened", part, nil, "https://a.test/x", "rule", exitDisallowed},
		{"tls.intercept: false", part, closed, "https://a.test/x", "tunnel", 0},
		{"tls.intercept: false, wholly disallowed", whole, closed, "https://a.test/x", "tunnel", exitDisallowed},
		{"tls.intercept: false, in the clear", part, closed, "http://a.test/x", "rule", exitDisallowed},
		{"tls.tunnel", part, listed, "https://a.test/x", "tunnel", 0},
		{"tls.tunnel, denied", part, func(c *config.Config) { listed(c); c.Hosts = []config.Host{{Match: "*", Robots: "deny", Reason: "x"}} }, "https://a.test/x", "denied-host", exitDisallowed},
		{"tls.tunnel, ignored", whole, func(c *config.Config) {
			listed(c)
			c.Hosts = []config.Host{{Match: "*", Robots: "ignore", Reason: "x"}}
		}, "https://a.test/x", "override", 0},
		{"tls.tunnel, identity.from is not sent in it", part, func(c *config.Config) { listed(c); requires("contact")(c); c.Identity.From = "a@b.example" }, "https://a.test/x", "identity", exitDisallowed},
		{"tls.tunnel of an IDN", part, func(c *config.Config) { c.TLS.Tunnel = []string{"Bücher.test"} }, "https://xn--bcher-kva.test/x", "tunnel", 0},
		{"tls.tunnel, another host", part, listed, "https://a.example/x", "rule", exitDisallowed},
	} {
		if f := explained(t, c.answer, c.change, c.address); string(f.Reason) != c.reason || f.exitStatus() != c.status {
			t.Errorf("%s: %s, status %d", c.name, f.Reason, f.exitStatus())
		}
	}
}

// TestForbiddenDestinations: what the proxy refuses to connect to is not allowed, also where no robots.txt is fetched.
func TestForbiddenDestinations(t *testing.T) {
	cfg := config.Default()
	cfg.Hosts = []config.Host{{Match: "*", Robots: "ignore", Reason: "ticket 7"}}
	c, done, err := newChecker(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for address, want := range map[string]policy.Reason{
		"http://a.test:22/":                  policy.ReasonPort,
		"https://a.test:22/robots.txt":       policy.ReasonPort,
		"http://127.0.0.1/robots.txt":        policy.ReasonAddress,
		"http://169.254.169.254/latest":      policy.ReasonAddress,
		"http://a.test/":                     policy.ReasonOverride,
		"http://93.184.216.34:8080/page?x=y": policy.ReasonOverride,
	} {
		f := c.check(t.Context(), address)
		status := exitUnknown
		if want == policy.ReasonOverride {
			status = 0
		}
		if f.Reason != want || f.exitStatus() != status {
			t.Errorf("%s: %s, status %d, want %s, status %d", address, f.Reason, f.exitStatus(), want, status)
		}
	}
}
