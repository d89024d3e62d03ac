package robots_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
)

func TestDialectByName(t *testing.T) {
	for _, d := range robots.Dialects() {
		if named, err := robots.DialectByName(d.Name); err != nil || named != d {
			t.Errorf("%s: got %+v, %v", d.Name, named, err)
		}
	}
	if robots.Standard() != robots.Dialects()[0] {
		t.Error("the standard dialect is not the first one")
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

// dialectCases are files that dialects read differently.
var dialectCases = []struct {
	name, text, agent, path string

	// RFC 9309 to the letter disallows the path.
	disallowed bool
}{
	{"a misspelt field", "useragent: *\ndissallow: /a", "FooBot", "/a", false},
	{"no colon", "user-agent: *\ndisallow /a", "FooBot", "/a", false},
	{"a field by its beginning", "user-agents: *\ndisallowed: /a", "FooBot", "/a", true},
	{"an unreserved octet, escaped in the rule", "user-agent: *\ndisallow: /%61", "FooBot", "/a", true},
	{"an unreserved octet, escaped in the path", "user-agent: *\ndisallow: /a", "FooBot", "/%61", true},
	{"a lower-case escape in the rule", "user-agent: *\ndisallow: /%2f", "FooBot", "/%2F", true},
	{"a lower-case escape in the path", "user-agent: *\ndisallow: /%2F", "FooBot", "/%2f", true},
	{"bytes over 0x7F in the rule", "user-agent: *\ndisallow: /\u00fc", "FooBot", "/%C3%BC", true},
	{"an escaped star", "user-agent: *\ndisallow: /%2A", "FooBot", "/*", true},
	{"a star in the path is no wildcard", "user-agent: *\ndisallow: /*b", "FooBot", "/*c", false},
	{"a trailing star counts", "user-agent: *\nallow: /a\ndisallow: /a*", "FooBot", "/a", true},
	{"every trailing star counts", "user-agent: *\nallow: /abc\ndisallow: /a***", "FooBot", "/abc", true},
	{"an index page", "user-agent: *\ndisallow: /\nallow: /a/index.html", "FooBot", "/a/", true},
	{"an index page alone", "user-agent: *\ndisallow: /\nallow: /a/index.html", "FooBot", "/a/b", true},
	{"NUL in the path", "user-agent: *\ndisallow: /a$", "FooBot", "/a\x00b", false},
	{"a family", "user-agent: foobot\ndisallow: /a", "FooBot-Images", "/a", false},
	{"a family of a family", "user-agent: foobot\ndisallow: /a", "foobot-images_small.2", "/a", false},
	{"not a family: other letters", "user-agent: foobot\ndisallow: /a", "foobots", "/a", false},
	{"the closest name", "user-agent: foobot\ndisallow: /a\nuser-agent: foobot-images\nallow: /", "FooBot-Images", "/a", false},
	{"a family before the star group", "user-agent: *\ndisallow: /a\nuser-agent: foobot\nallow: /", "FooBot-Images", "/a", true},
	{"a digit in a group's name", "user-agent: foobot2\ndisallow: /a", "FooBot", "/a", true},
	{"a digit in the client's name", "user-agent: foobot2\ndisallow: /a", "FooBot2", "/a", true},
	{"a reserved character, escaped in the path", "user-agent: *\ndisallow: /:", "FooBot", "/%3A", true},
	{"a slash in the query, escaped in the rule", "user-agent: *\ndisallow: /?%2f", "FooBot", "/?/", true},
	{"a slash in the path, escaped", "user-agent: *\ndisallow: /a/b", "FooBot", "/a%2Fb", false},
	{"names with commas", "user-agent: a, foobot\ndisallow: /a", "FooBot", "/a", false},
	{"a URL of the origin", "user-agent: *\ndisallow: https://EXAMPLE.com:443/a", "FooBot", "/a", false},
	{"a URL of the origin without a path", "user-agent: *\ndisallow: https://example.com", "FooBot", "/a", false},
	{"a URL of another scheme", "user-agent: *\ndisallow: http://example.com/a", "FooBot", "/a", false},
	{"a Content-Usage ends the list", "user-agent: a\ncontent-usage: train-ai=n\nuser-agent: b\ndisallow: /a", "a", "/a", true},
	{"a Crawl-delay ends the list", "user-agent: a\ncrawl-delay: 1\nuser-agent: b\ndisallow: /a", "a", "/a", true},
}

// A dialectColumn is what a dialect makes of dialectCases.
type dialectColumn struct {
	// The meaning of "Crawl-delay: 1.5".
	delay time.Duration

	// The names of the cases in which it departs from RFC 9309.
	departs []string
}

// dialectColumns has the column of each dialect.
var dialectColumns = map[string]dialectColumn{
	"standard": {
		delay: 1500 * time.Millisecond,
		departs: []string{
			"a misspelt field", "no colon", "names with commas", "a URL of the origin",
			"a URL of the origin without a path", "a Content-Usage ends the list",
		},
	},
	"rfc9309": {},
	"google": {
		departs: []string{
			"a misspelt field", "no colon", "an unreserved octet, escaped in the rule",
			"an unreserved octet, escaped in the path", "a lower-case escape in the path", "an escaped star",
			"an index page", "NUL in the path", "a digit in the client's name",
			"a reserved character, escaped in the path", "a slash in the query, escaped in the rule",
		},
	},
	"google-2022": {
		departs: []string{
			"an unreserved octet, escaped in the rule", "an unreserved octet, escaped in the path",
			"a lower-case escape in the path", "an escaped star", "NUL in the path", "a digit in the client's name",
			"a reserved character, escaped in the path", "a slash in the query, escaped in the rule",
		},
	},
	"google-2019": {
		departs: []string{
			"an unreserved octet, escaped in the rule", "an unreserved octet, escaped in the path",
			"a lower-case escape in the path", "an escaped star", "NUL in the path", "a family", "a family of a family",
			"a family before the star group", "a digit in the client's name", "a reserved character, escaped in the path",
			"a slash in the query, escaped in the rule",
		},
	},
	"coccoc": {
		delay: 2 * time.Second,
		departs: []string{
			"a family", "a family of a family", "a family before the star group",
			"a reserved character, escaped in the path", "a slash in the query, escaped in the rule",
			"a Crawl-delay ends the list",
		},
	},
}

func TestDialects(t *testing.T) {
	for _, d := range robots.Dialects() {
		column, ok := dialectColumns[d.Name]
		if !ok {
			t.Errorf("dialectColumns has no column for %s", d.Name)
		}
		for _, c := range dialectCases {
			got := robots.ParseFor(oracleOrigin, c.text, d).For(c.agent).Match(c.path)
			if want := c.disallowed != slices.Contains(column.departs, c.name); got.Allow == want {
				t.Errorf("%s: %s: got %+v", d.Name, c.name, got)
			}
		}
		if got := robots.Parse([]byte("User-agent: *\nCrawl-delay: 1.5\n"), d).For("FooBot").CrawlDelay(); got != column.delay {
			t.Errorf("%s: a Crawl-delay of 1.5 is %v, want %v", d.Name, got, column.delay)
		}
	}
}

// TestDialectsAreDocumented checks that the table of dialects has a row for each, that of what a site writes a column, and
// that of robots.txt files that fail a row.
func TestDialectsAreDocumented(t *testing.T) {
	const page = "../docs/how-it-decides.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	heads := make(map[string]string)
	for _, first := range []string{"dialect", "the site", "while robots.txt fails"} {
		_, table, _ := strings.Cut(string(text), "\n| "+first+" |")
		if first == "the site" {
			heads[first], _, _ = strings.Cut(table, "\n")
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for row := range strings.Lines(table) {
			cell, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
			heads[first] += cell
		}
	}
	for _, d := range robots.Dialects() {
		family, _, _ := strings.Cut(d.Name, "-")
		for first, head := range heads {
			if !strings.Contains(head, "`"+d.Name+"`") && (first == "dialect" || !strings.Contains(head, "`"+family+"*`")) {
				t.Errorf("%s: the table that begins with %q does not name %s", page, first, d.Name)
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
