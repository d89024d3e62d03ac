package robots_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
)

func TestDialectByName(t *testing.T) {
	want := []string{"standard", "rfc9309", "google", "google-2022", "google-2019", "coccoc"}
	var got []string
	for _, d := range robots.Dialects() {
		got = append(got, d.Name)
		if named, err := robots.DialectByName(d.Name); err != nil || named != d {
			t.Errorf("%s: got %+v, %v", d.Name, named, err)
		}
	}
	if !slices.Equal(got, want) || robots.Standard() != robots.Dialects()[0] {
		t.Errorf("dialects %q, want %q", got, want)
	}
	for _, name := range []string{"", "Standard", "gopher"} {
		d, err := robots.DialectByName(name)
		if err == nil || d != (robots.Dialect{}) || !strings.Contains(err.Error(), "google-2019") {
			t.Errorf("%q: got %+v, %v", name, d, err)
		}
	}
	robots.Dialects()[0].Name = "changed"
	if robots.Standard().Name != "standard" {
		t.Error("a caller can change the dialects")
	}
}

// TestDialects has a row for each difference between dialects: under those named the path is
// disallowed.
func TestDialects(t *testing.T) {
	for _, c := range []struct {
		name, text, agent, path string
		disallowed              string
	}{
		{"a misspelt field", "useragent: *\ndissallow: /a", "FooBot", "/a", "standard google"},
		{"no colon", "user-agent: *\ndisallow /a", "FooBot", "/a", "standard google"},
		{"a field by its beginning", "user-agents: *\ndisallowed: /a", "FooBot", "/a", "standard rfc9309 google google-2022 google-2019 coccoc"},
		{"an unreserved octet, escaped in the rule", "user-agent: *\ndisallow: /%61", "FooBot", "/a", "standard rfc9309 coccoc"},
		{"an unreserved octet, escaped in the path", "user-agent: *\ndisallow: /a", "FooBot", "/%61", "standard rfc9309 coccoc"},
		{"a lower-case escape in the rule", "user-agent: *\ndisallow: /%2f", "FooBot", "/%2F", "standard rfc9309 google google-2022 google-2019 coccoc"},
		{"a lower-case escape in the path", "user-agent: *\ndisallow: /%2F", "FooBot", "/%2f", "standard rfc9309 coccoc"},
		{"bytes over 0x7F in the rule", "user-agent: *\ndisallow: /\u00fc", "FooBot", "/%C3%BC", "standard rfc9309 google google-2022 google-2019 coccoc"},
		{"an escaped star", "user-agent: *\ndisallow: /%2A", "FooBot", "/*", "standard rfc9309 coccoc"},
		{"a star in the path is no wildcard", "user-agent: *\ndisallow: /*b", "FooBot", "/*c", ""},
		{"a trailing star counts", "user-agent: *\nallow: /a\ndisallow: /a*", "FooBot", "/a", "standard rfc9309 google google-2022 google-2019 coccoc"},
		{"every trailing star counts", "user-agent: *\nallow: /abc\ndisallow: /a***", "FooBot", "/abc", "standard rfc9309 google google-2022 google-2019 coccoc"},
		{"an index page", "user-agent: *\ndisallow: /\nallow: /a/index.html", "FooBot", "/a/", "standard rfc9309 google-2022 google-2019 coccoc"},
		{"an index page alone", "user-agent: *\ndisallow: /\nallow: /a/index.html", "FooBot", "/a/b", "standard rfc9309 google google-2022 google-2019 coccoc"},
		{"NUL in the path", "user-agent: *\ndisallow: /a$", "FooBot", "/a\x00b", "google google-2022 google-2019"},
		{"a family", "user-agent: foobot\ndisallow: /a", "FooBot-Images", "/a", "google-2019 coccoc"},
		{"a family of a family", "user-agent: foobot\ndisallow: /a", "foobot-images_small.2", "/a", "google-2019 coccoc"},
		{"not a family: other letters", "user-agent: foobot\ndisallow: /a", "foobots", "/a", ""},
		{"the closest name", "user-agent: foobot\ndisallow: /a\nuser-agent: foobot-images\nallow: /", "FooBot-Images", "/a", ""},
		{"a family before the star group", "user-agent: *\ndisallow: /a\nuser-agent: foobot\nallow: /", "FooBot-Images", "/a", "standard rfc9309 google google-2022"},
		{"a digit in a group's name", "user-agent: foobot2\ndisallow: /a", "FooBot", "/a", "standard rfc9309 google google-2022 google-2019 coccoc"},
		{"a digit in the client's name", "user-agent: foobot2\ndisallow: /a", "FooBot2", "/a", "standard rfc9309 coccoc"},
		{"a reserved character, escaped in the path", "user-agent: *\ndisallow: /:", "FooBot", "/%3A", "standard rfc9309"},
		{"a slash in the query, escaped in the rule", "user-agent: *\ndisallow: /?%2f", "FooBot", "/?/", "standard rfc9309"},
		{"a slash in the path, escaped", "user-agent: *\ndisallow: /a/b", "FooBot", "/a%2Fb", ""},
		{"names with commas", "user-agent: a, foobot\ndisallow: /a", "FooBot", "/a", "standard"},
		{"a URL of the origin", "user-agent: *\ndisallow: https://EXAMPLE.com:443/a", "FooBot", "/a", "standard"},
		{"a URL of the origin without a path", "user-agent: *\ndisallow: https://example.com", "FooBot", "/a", "standard"},
		{"a URL of another scheme", "user-agent: *\ndisallow: http://example.com/a", "FooBot", "/a", ""},
		{"a Content-Usage ends the list", "user-agent: a\ncontent-usage: train-ai=n\nuser-agent: b\ndisallow: /a", "a", "/a", "rfc9309 google google-2022 google-2019 coccoc"},
		{"a Crawl-delay ends the list", "user-agent: a\ncrawl-delay: 1\nuser-agent: b\ndisallow: /a", "a", "/a", "standard rfc9309 google google-2022 google-2019"},
	} {
		for _, d := range robots.Dialects() {
			got := robots.ParseFor(oracleOrigin, c.text, d).For(c.agent).Match(c.path)
			if want := slices.Contains(strings.Fields(c.disallowed), d.Name); got.Allow == want {
				t.Errorf("%s: %s: got %+v", d.Name, c.name, got)
			}
		}
	}
}

// TestGoogleLine: Google's open-source parser names the line of an empty rule if no other rule
// matches, and the first of two equal rules.
func TestGoogleLine(t *testing.T) {
	google, err := robots.DialectByName("google")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		want       robots.Verdict
	}{
		{"an empty rule", "user-agent: *\ndisallow:\n", robots.Verdict{Allow: true, Line: 2}},
		{"two of them", "user-agent: *\ndisallow:\ndisallow:\n", robots.Verdict{Allow: true, Line: 2}},
		{"one allows", "user-agent: *\ndisallow:\nallow:\n", robots.Verdict{Allow: true, Line: 3}},
		{"another matches", "user-agent: *\ndisallow:\ndisallow: /\n", robots.Verdict{Rule: "/", Line: 3}},
		{"another does not", "user-agent: *\ndisallow: /b\ndisallow:\n", robots.Verdict{Allow: true, Line: 3}},
		{"in another group", "user-agent: *\ndisallow:\nuser-agent: foobot\nallow: /b", robots.Verdict{Allow: true}},
		{"an index page", "user-agent: *\nallow: /a/index.htm\n", robots.Verdict{Allow: true, Rule: "/a/index.htm", Line: 2}},
	} {
		if got := robots.Parse([]byte(c.text), google).For("FooBot").Match("/a/"); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestDelayOfGroup(t *testing.T) {
	coccoc, err := robots.DialectByName("coccoc")
	if err != nil {
		t.Fatal(err)
	}
	const text = "user-agent: a\nuser-agent: b\ncrawl-delay: 1.5\nuser-agent: c\ncrawl-delay: 3\ndisallow: /\nuser-agent: e\ncrawl-delay: 1.0000000001\nuser-agent: f\ncrawl-delay: 1.5.0\n"
	for agent, want := range map[string]time.Duration{"a": 2 * time.Second, "b": 2 * time.Second, "c": 3 * time.Second, "d": 0, "e": 2 * time.Second, "f": 0} {
		if got := robots.Parse([]byte(text), coccoc).For(agent).CrawlDelay(); got != want {
			t.Errorf("%s: got %v, want %v", agent, got, want)
		}
	}
}

func TestPathQuery(t *testing.T) {
	for url, want := range map[string]string{
		"http://a.example/b?c=d#e":       "/b?c=d",
		"http://a.example":               "/",
		"http://a.example?b":             "/?b",
		"http://a.example;b":             "/;b",
		"http://a.example#b/c":           "/",
		"http://a.example/b;c#d#e":       "/b;c",
		"http://a.example/%c3%bc/\u00fc": "/%c3%bc/\u00fc",
		"http://a.example/b://c":         "/b://c",
		"//a.example/b":                  "/b",
		"a.example/b":                    "/b",
		"/b/../c":                        "/b/../c",
		"":                               "/",
		"b":                              "/",
		"/":                              "/",
		"http:///b":                      "/b",
	} {
		if got := robots.PathQuery(url); got != want {
			t.Errorf("%q: got %q, want %q", url, got, want)
		}
	}
}

func TestIsRobotsTxt(t *testing.T) {
	for path, want := range map[string]bool{
		"/robots.txt": true, "/robots.txt?a": false, "/robots.txt?": false, "/robots.txt/": false, "/robots.txtx": false, "/a/robots.txt": false, "/": false, "": false,
	} {
		if got := robots.IsRobotsTxt(path); got != want {
			t.Errorf("%q: got %t", path, got)
		}
	}
}
