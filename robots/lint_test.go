package robots_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// lintCases has files and the remarks on them, as "line fault".
var lintCases = []struct {
	name, dialect, text string
	want                []string // "line fault"
}{
	{"nothing", "standard", "# hello\n\nUser-agent: *\nDisallow:\nDisallow: /a\nAllow: /a/b\nCrawl-delay: 2\nSitemap: https://a.example/s\n", nil},
	{"an empty file", "standard", "", nil},
	{"HTML", "standard", "<html>\n<p>a: b</p>\n", []string{"1 not-read"}},
	{"an unknown field", "standard", "User-agent: *\nNoindex: /a\n", []string{"2 not-read"}},
	{"a misspelt field", "standard", "Useragent: *\nDissallow: /a\n", []string{"1 misspelt", "2 misspelt"}},
	{"a misspelt field that does not count", "rfc9309", "User-agent: *\nDissallow: /a\n", []string{"2 not-read"}},
	{"no colon", "standard", "User-agent: *\nDisallow /a\n", []string{"2 misspelt"}},
	{"a rule before any group", "standard", "Disallow: /\nUser-agent: *\n", []string{"1 no-group"}},
	{"a delay before any group", "standard", "Crawl-delay: 1\nUser-agent: *\n", []string{"1 no-group"}},
	{"a group for nobody", "standard", "User-agent:\nUser-agent: (a)\nDisallow: /\n", []string{"1 nobody", "2 nobody"}},
	{"a group for browsers", "standard", "User-agent: Mozilla/5.0 (compatible)\nDisallow: /\n", []string{"1 nobody"}},
	{"a name that is cut", "google", "User-agent: a1\nDisallow: /\n", []string{"1 misspelt"}},
	{"a pattern without its slash", "standard", "User-agent: *\nDisallow: a\n", []string{"2 never-wins"}},
	{"a pattern with a space", "standard", "User-agent: *\nDisallow: /a b\n", nil},
	{"a pattern with a space, compared as written", "google", "User-agent: *\nDisallow: /a b\n", []string{"2 never-wins"}},
	{"the same rule again", "standard", "User-agent: *\nDisallow: /a\nDisallow: /%61\n", []string{"3 never-wins"}},
	{"Allow against the same Disallow", "standard", "User-agent: *\nDisallow: /a\nAllow: /a\n", []string{"2 never-wins"}},
	{"a longer rule that matches more", "standard", "User-agent: *\nDisallow: /a\nAllow: /**a\n", []string{"2 never-wins"}},
	{"a longer rule that matches less", "standard", "User-agent: *\nDisallow: /a\nAllow: /*a$\nAllow: /a/b\n", nil},
	{"the same rule in another group", "standard", "User-agent: a\nDisallow: /a\n\nUser-agent: b\nDisallow: /a\n", nil},
	{"the same rule in a group of the same name", "standard", "User-agent: a\nDisallow: /a\n\nUser-agent: A\nDisallow: /a\n", []string{"5 never-wins"}},
	{"a rule that wins for the last of many names", "standard", many("a", 16) + "Allow: /p/\n\n" + many("a", 17) + "Disallow: /p/\n", nil},
	{"an escape that an escape makes", "standard", "User-agent: *\nDisallow: /%4%31\n", nil},
	{"a rule that wins for one name of two", "standard", "User-agent: a\nDisallow: /a\n\nUser-agent: a\nUser-agent: b\nDisallow: /a\n", nil},
	{"a delay that is none", "standard", "User-agent: *\nCrawl-delay: five\nCrawl-delay: 0\nCrawl-delay: 0.0\n", []string{"2 not-read"}},
	{"a delay that only a careful dialect reads", "standard", "User-agent: *\nCrawl-delay: 5s\ncrawl delay: 5\n", []string{"2 misspelt", "3 misspelt"}},
	{"a delay that another dialect does not read", "coccoc", "User-agent: *\nCrawl-delay: 5s\ncrawl delay: 5\n", []string{"2 not-read", "3 not-read"}},
	{"a rate", "standard", "User-agent: *\nRequest-rate: 1/5\nRequest-rate: 1/5 0600-0845\nRequest-rate: 5\n", []string{"3 suspect", "4 not-read"}},
	{"a rate that is not read", "coccoc", "User-agent: *\nRequest-rate: 1/5\n", []string{"2 not-read"}},
	{"names with commas", "standard", "User-agent: a, b\nDisallow: /\n", []string{"1 misspelt"}},
	{"names with commas that are not read", "rfc9309", "User-agent: a, b\nDisallow: /\n", []string{"1 not-read"}},
	{"a no-break space before a name", "standard", "User-agent:\u00a0FooBot\nDisallow: /\n", []string{"1 suspect"}},
	{"a whole header", "standard", "User-agent: FooBot/1.0 (KHTML, like Gecko)\nDisallow: /\n", nil},
	{"names with blanks", "standard", "User-agent: a b\nUser-agent: a/1 (c)\nUser-agent: b (c)\nDisallow: /\n", []string{"1 not-read"}},
	{"a no-break space in UTF-8, one in Latin-1 and a space without width", "standard", "User-agent: *\nDisallow: /\u00a0a\nDisallow: /b\xa0c\nDisallow: /d\u200b\nDisallow: /\u00e9\n", []string{"2 suspect", "3 suspect", "4 suspect"}},
	{"a full URL", "standard", "User-agent: *\nDisallow: https://example.com/a\nDisallow: http://example.com/b\n", []string{"2 misspelt", "3 never-wins"}},
	{"a full URL that is not read", "google", "User-agent: *\nDisallow: https://example.com/a\n", []string{"2 never-wins"}},
	{"UTF-16", "standard", "\xff\xfeU\x00s\x00e\x00r\x00-\x00a\x00g\x00e\x00n\x00t\x00:\x00a\x00\n\x00X\x00", []string{"1 misspelt", "2 not-read"}},
	{"UTF-16 that is not decoded", "rfc9309", "\xff\xfe#\x00", []string{"1 not-read"}},
	{"a mark that is not removed", "rfc9309", "\xff\xfe# c\nUser-agent: *\nNoindex: /a\n", []string{"1 not-read", "1 not-read", "3 not-read"}},
	{"broken gzip", "standard", "\x1f\x8bUser-agent: *\n", []string{"1 not-read"}},
	{"a list joined over a delay", "standard", "User-agent: *\nCrawl-delay: 5\n\nUser-agent: BadBot\nDisallow: /\nDisallow: /a*\n", []string{"5 joined"}},
	{"a list joined over a Sitemap, to an agent that is in both parts", "standard", "User-agent: b\nSitemap: /s\nUser-agent: B\nDisallow: /\n", nil},
	{"a list joined over an unknown line before an empty rule", "standard", "User-agent: a\nNoindex: /\nUser-agent: b\nDisallow:\nAllow: /a\nDisallow: /\n", []string{"2 not-read", "5 joined"}},
	{"a list that a usage ends", "standard", "User-agent: *\nContent-Usage: train-ai=n\nUser-agent: b\nDisallow: /\n", nil},
	{"a list that a usage does not end", "rfc9309", "User-agent: *\nContent-Usage: train-ai=n\nUser-agent: b\nDisallow: /\n", []string{"4 joined"}},
	{"a list that a delay ends", "coccoc", "User-agent: *\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", nil},
	{"a signal of use", "standard", "User-agent: *\nContent-Signal: search=yes, use=reference\n", nil},
	{"a delay that is not read", "google", "User-agent: *\nCrawl-delay: 5\n", []string{"2 not-read"}},
	{"signals and usages that say nothing", "standard", "User-agent: *\nContent-Signal: search=maybe\nContent-Usage: /a\nContent-Usage: /a b=c\nContent-Signal: search=no\nContent-Signal: /a search=no\nContent-Signal: /a\n", []string{"2 not-read", "3 not-read", "7 not-read"}},
	{"a signal before any group", "standard", "Content-Signal: search=no\nUser-agent: *\n", nil},
	{"a signal before any group that does not count", "rfc9309", "Content-Signal: search=no\nUser-agent: *\n", []string{"1 no-group"}},
	{"NUL", "standard", "User-agent: *\nDisallow: /a\x00b\n", []string{"2 not-read"}},
	{"the same rule many times", "standard", "User-agent: *\n" + strings.Repeat("Disallow: /a\n", 3), []string{"3 never-wins", "4 never-wins"}},
	{"an index page", "google", "User-agent: *\nDisallow: /\nAllow: /a/index.html\n", nil},
	{"an HTML page", "standard", "\ufeff\n<!DOCTYPE html>\n", []string{"1 not-read"}},
	{"a long line", "standard", "User-agent: *\nDisallow: /" + strings.Repeat("a", 16700) + "\n", []string{"2 too-long"}},
	{"a long file", "standard", "User-agent: *\nDisallow: /\n" + strings.Repeat("#\n", robots.MaxBytes/2), []string{"255990 too-long"}},
}

func TestLint(t *testing.T) {
	for _, c := range lintCases {
		d, err := robots.DialectByName(c.dialect)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		remarks := robots.Lint([]byte(c.text), d, oracleOrigin)
		for _, r := range remarks {
			got = append(got, fmt.Sprint(r.Line, " ", r.Fault))
			if strings.ContainsAny(r.Text, "\n\r\x1b") || r.Text == "" || len(r.Text) > 1000 {
				t.Errorf("%s: text %q", c.name, r.Text)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q (%+v), want %q", c.name, got, remarks, c.want)
		}
	}
	const last = "Disallow: a"
	if got := robots.Lint([]byte("User-agent: *\r\r "+last+" # c\r"), robots.Standard(), robots.Origin{}); len(got) != 1 || got[0].Line != 3 || got[0].Source != last {
		t.Errorf("source: got %+v", got)
	}
	for _, line := range []string{"x\n", "Disallow: /a\n", "x\nDisallow: /a\n"} {
		got := robots.Lint([]byte("User-agent: *\nDisallow: /a\n"+strings.Repeat(line, 5000)), robots.Standard(), robots.Origin{})
		if len(got) != robots.MaxRemarks || got[0].Line != 3 || got[len(got)-1].Line != robots.MaxRemarks+2 {
			t.Errorf("%q: %d remarks about one file, from line %d to %d", line, len(got), got[0].Line, got[len(got)-1].Line)
		}
	}
}

func TestIsHTML(t *testing.T) {
	for text, want := range map[string]bool{
		"<!DOCTYPE html>": true, "\ufeff \n<html>": true, "<?xml": true, "<p": true,
		"": false, "<": false, "< 1": false, "# <html>": false, "User-agent: *": false,
	} {
		if got := robots.IsHTML([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// FuzzLint: a rule that Lint says never wins does not win.
func FuzzLint(f *testing.F) {
	f.Add("User-agent: *\nDisallow: /a\nAllow: /**a\nDisallow: b\n", "/xa")
	f.Add("User-agent: a\nDisallow: /%3a\nAllow: /:*\nDisallow: /?%2f*\nAllow: /?/\n", "/:")
	f.Add("User-agent: a\nDisallow: /%2a$\nDisallow: /*\n\x00", "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		isNotInURLs := func(r rune) bool { return r <= ' ' || r == 0x7f }
		if len(text) > 4<<10 || len(path) > 1<<10 || strings.ContainsFunc(path, isNotInURLs) {
			return
		}
		for _, d := range robots.Dialects() {
			for _, r := range robots.Lint([]byte(text), d, oracleOrigin) {
				if r.Fault != robots.NeverWins {
					continue
				}
				for _, agent := range []string{"a", "b", "foobot"} {
					if v := robots.ParseFor(oracleOrigin, text, d).For(agent).Match(path); v.Line == r.Line && v.Rule != "" {
						t.Fatalf("%s: line %d decides about %q: %s; robots.txt:\n%q", d.Name, r.Line, path, r.Text, text)
					}
				}
			}
		}
	})
}

func TestRelatedRules(t *testing.T) {
	const text = "User-agent: *\nDisallow: /\n\nUser-agent: foobot\nDisallow: /a\nAllow: /a\nAllow: /a/b\nDisallow: /a/*.gif$\nDisallow: /a/beta\nDisallow: /x\n\nUser-agent: FooBot\nDisallow: /*b\n"
	type R = robots.RelatedRule
	for _, c := range []struct {
		path string
		most int
		want []R
	}{
		{"/a/b", 9, []R{{false, "/*b", 13, true}, {true, "/a", 6, true}, {false, "/a", 5, true}, {false, "/a/beta", 9, false}, {false, "/a/*.gif$", 8, false}}},
		{"/a/b", 2, []R{{false, "/*b", 13, true}, {true, "/a", 6, true}}},
		{"/a/b", 0, nil},
		{"/y", 9, nil},
		{"", 9, nil},
	} {
		if got := robots.Parse([]byte(text), robots.Standard()).For("FooBot").RelatedRules(c.path, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %+v, want %+v", c.path, got, c.want)
		}
	}
	if got := robots.Parse([]byte("user-agent: a\ndisallow: /"), robots.Standard()).For("b").RelatedRules("/", 9); got != nil {
		t.Errorf("without a group: got %+v", got)
	}
	if got := (robots.Group{}).RelatedRules("/", 9); got != nil {
		t.Errorf("the zero Group: got %+v", got)
	}
	// A normalised pattern is not normalised again.
	if got := robots.Parse([]byte("user-agent: *\ndisallow: /%*x\ndisallow: /\n"), robots.Standard()).For("a").RelatedRules("/%%34%31x", 1); len(got) != 1 || !got[0].Matches {
		t.Errorf("an escape that an escape makes: got %+v", got)
	}
}

// TestRelatedRulesAgree: a rule with Matches decides if it is the only one.
func TestRelatedRulesAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	some := func(most int, pieces ...string) string {
		var b strings.Builder
		for range rnd.IntN(most + 1) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		return b.String()
	}
	for range testkit.Rounds(5000) {
		pattern := some(1, "*") + "/" + some(5, "a", "b", "*", "/", "%61", "ü") + some(1, "$", "*")
		path := "/" + some(5, "a", "b", "/", "*", "ü")
		for _, d := range robots.Dialects() {
			alone := robots.Parse([]byte("user-agent: *\ndisallow: "+pattern+"\n"), d).For("a").Match(path)
			matches := false
			for _, r := range robots.Parse([]byte("user-agent: *\ndisallow: "+pattern+"\nallow: /*****************************\n"), d).For("a").RelatedRules(path, 9) {
				matches = matches || r.Line == 2 && r.Matches
			}
			winner := robots.Parse([]byte("user-agent: *\ndisallow: "+pattern+"\nallow: /*****************************\n"), d).For("a").Match(path)
			if want := alone.Rule != ""; winner.Line != 2 && matches != want {
				t.Fatalf("%s: %q for %q: %t, want %t", d.Name, pattern, path, matches, want)
			}
		}
	}
}

// many makes so many names of agents.
func many(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "User-agent: %s%c\n", name, 'a'+i)
	}
	return b.String()
}
