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

func TestLinks(t *testing.T) {
	const text = "Sitemap: https://a.example/1.xml\nsitemap : /2.xml # c\nUser-agent: a\nSITEMAP: https://a.example/3.xml\nSitemap:\n" +
		"License: https://a.example/license.xml\nlicence: no\nDisallow: /\nsite-map: /4.xml\n"
	for _, d := range robots.Dialects() {
		f := robots.Parse([]byte(text), d)
		want := []string{"https://a.example/1.xml", "/2.xml", "https://a.example/3.xml"}
		if d.Misspellings {
			want = append(want, "/4.xml")
		}
		if got := f.Sitemaps(); !slices.Equal(got, want) {
			t.Errorf("%s: sitemaps %q, want %q", d.Name, got, want)
		}
		if got := f.Licenses(); !slices.Equal(got, []string{"https://a.example/license.xml"}) {
			t.Errorf("%s: licenses %q", d.Name, got)
		}
	}
	var none *robots.File
	if none.Sitemaps() != nil || none.Licenses() != nil {
		t.Error("a nil File has extensions")
	}
}

func TestContentSignals(t *testing.T) {
	type S = robots.Signals
	for _, c := range []struct {
		name, text, agent string
		want              S
	}{
		{"all", "user-agent: *\ncontent-signal: search=yes,ai-train=no , AI-Input = YES\n", "a", S{robots.Yes, robots.Yes, robots.No}},
		{"some", "user-agent: *\ncontent-signal: ai-train=no", "a", S{AITrain: robots.No}},
		{"what nobody knows", "user-agent: *\ncontent-signal: ai-train=maybe, use=all, =, ,search", "a", S{}},
		{"before the first group", "content-signal: ai-train=no, search=no\nuser-agent: *\ncontent-signal: ai-train=yes\nallow: /", "a", S{Search: robots.No, AITrain: robots.Yes}},
		{"before the first group, for one that no group names", "content-signal: ai-train=no\nuser-agent: b\nallow: /", "a", S{AITrain: robots.No}},
		{"no group at all, before the first", "content-signal: ai-train=no", "a", S{AITrain: robots.No}},
		{"another's group", "user-agent: a\ncontent-signal: ai-train=no\ndisallow: /b\n\nuser-agent: *\ncontent-signal: search=no", "b", S{Search: robots.No}},
		{"groups of one name", "user-agent: a\ncontent-signal: ai-train=no\ndisallow: /b\n\nuser-agent: A\ncontent-signal: search=yes", "a", S{Search: robots.Yes, AITrain: robots.No}},
		{"no counts", "user-agent: a\ncontent-signal: search=no\ncontent-signal: search=yes", "a", S{Search: robots.No}},
		{"no group at all", "user-agent: a\ncontent-signal: search=no", "b", S{}},
		{"of the agent before", "user-agent: a\ncontent-signal: search=no\nuser-agent: b\ndisallow: /", "b", S{}},
		{"a second line", "user-agent: a\ncontent-signal: search=no\ncontent-signal: ai-train=no\nuser-agent: b\ncontent-signal: search=yes\ndisallow: /", "a", S{Search: robots.No, AITrain: robots.No}},
		{"over a delay", "user-agent: a\ncrawl-delay: 1\nuser-agent: b\ncontent-signal: search=no\ndisallow: /", "a", S{Search: robots.No}},
		{"after the rules", "user-agent: a\ncontent-signal: search=no\nuser-agent: b\ndisallow: /\ncontent-signal: search=yes", "a", S{Search: robots.No}},
		{"after a usage", "user-agent: a\ncontent-usage: search=n\nuser-agent: b\ncontent-signal: search=no\ndisallow: /", "a", S{}},
		{"none", "user-agent: *\nsitemap: /s", "a", S{}},
	} {
		if got := robots.Parse([]byte(c.text), robots.Standard()).For(c.agent).ContentSignals(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if s := fmt.Sprint(S{robots.Unsaid, robots.Yes, robots.No}); s != "ai-input=yes, ai-train=no" {
		t.Errorf("in words: %q", s)
	}
	if (robots.Group{}).ContentSignals() != (S{}) {
		t.Error("the zero Group has signals")
	}
}

// texts joins the texts of lines.
func texts(lines []robots.UsageLine) string {
	var all []string
	for _, l := range lines {
		all = append(all, l.Text)
	}
	return strings.Join(all, ", ")
}

func TestContentSignalLines(t *testing.T) {
	const text = "content-signal: search=yes\nuser-agent: a\ncontent-signal: ai-train=yes\nuser-agent: b\nContent-Signal:  ai-train=no # but\ndisallow: /\n\n" +
		"user-agent: c\ncontent-signal: search=no\nallow: /\n\nuser-agent: A\ncontent-signal: what=ever\n"
	f := robots.Parse([]byte(text), robots.Standard())
	for agent, want := range map[string][]robots.UsageLine{
		"a": {{Number: 1, Text: "search=yes", BeforeGroups: true}, {Number: 3, Text: "ai-train=yes"}, {Number: 13, Text: "what=ever"}},
		"b": {{Number: 1, Text: "search=yes", BeforeGroups: true}, {Number: 5, Text: "ai-train=no"}},
		"c": {{Number: 1, Text: "search=yes", BeforeGroups: true}, {Number: 9, Text: "search=no"}},
		"d": {{Number: 1, Text: "search=yes", BeforeGroups: true}},
	} {
		if got := f.For(agent).ContentSignalLines("/", new(robots.Effort)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", agent, got, want)
		}
	}
	if (robots.Group{}).ContentSignalLines("/", new(robots.Effort)) != nil {
		t.Error("the zero Group has signals")
	}
}

// TestContentSignalPaths: a line may begin with a path pattern, as many sites have it, and applies to these
// paths only.
func TestContentSignalPaths(t *testing.T) {
	const text = "user-agent: *\ncontent-signal: search=yes\ncontent-signal: /blog/\tai-train=no, search=no\ncontent-signal: /*.pdf$ ai-input=no\ncontent-signal: /nothing\nallow: /\n\n" +
		"user-agent: b\ncontent-signal: / search=no\n"
	g := robots.Parse([]byte(text), robots.Standard()).For("a")
	for path, want := range map[string]string{
		"/":           "search=yes",
		"/blog":       "search=yes",
		"/bl%6Fg/a":   "search=yes, ai-train=no, search=no",
		"/blog/a.pdf": "search=yes, ai-train=no, search=no, ai-input=no",
		"/a.pdf?":     "search=yes",
	} {
		if got := g.ContentSignalLines(path, new(robots.Effort)); texts(got) != want {
			t.Errorf("%s: got %v, want %q", path, got, want)
		}
	}
	if got := g.ContentSignals(); got != (robots.Signals{Search: robots.Yes}) {
		t.Errorf("for all paths: %v", got)
	}
	spent := robots.MaxEffort
	if got := g.ContentSignalLines("/", &spent); len(got) != 4 {
		t.Errorf("after too many steps: %v", got)
	}
	for text, want := range map[string]bool{
		"content-signal: search=no\n": false, "content-signal: /a search=no\n": true, "content-usage: train-ai=n\n": true, "disallow: /\n": false,
	} {
		if got := robots.Parse([]byte("user-agent: *\n"+text), robots.Standard()).For("a").HasPathPreferences(); got != want {
			t.Errorf("%q: has preferences for paths: %v", text, got)
		}
	}
}

func TestContentUsage(t *testing.T) {
	const text = "user-agent: *\ncontent-usage: train-ai=n\ncontent-usage: /ok/ train-ai=y, search=y\n" +
		"content-usage: /ok/*.gif$ train-ai=n\ncontent-usage: /nothing\nallow: /\n\nuser-agent: b\ndisallow: /x\n\nuser-agent: c\ncontent-usage: *.pdf train-ai=n\n"
	for _, c := range []struct{ agent, path, want string }{
		{"a", "/", "train-ai=n"},
		{"a", "/ok/page", "train-ai=y, search=y"},
		{"a", "/o%6b/page", "train-ai=y, search=y"},
		{"a", "/ok/a.gif", "train-ai=n"},
		{"a", "/nothing", "train-ai=n"},
		{"c", "/a.pdf", "*.pdf train-ai=n"}, // a path begins with "/" (draft-ietf-aipref-attach, Processing Content-Usage Rules)
		{"b", "/", ""},
	} {
		if got := robots.Parse([]byte(text), robots.Standard()).For(c.agent).ContentUsage(c.path); texts(got) != c.want {
			t.Errorf("%s for %s: got %v, want %q", c.path, c.agent, got, c.want)
		}
	}
	const twice = "user-agent: a\ncontent-usage: / train-ai=n\ncontent-usage: search=y\ndisallow: /x\n\n" +
		"user-agent: b\ncontent-usage: / train-ai=y\ndisallow: /\n\nuser-agent: A\ncontent-usage: / c=d\ncontent-usage: /%61 e=f\ncontent-usage: /a g=h\n"
	group := robots.Parse([]byte(twice), robots.Standard()).For("a")
	want := []robots.UsageLine{{Number: 2, Text: "train-ai=n"}, {Number: 3, Text: "search=y"}, {Number: 11, Text: "c=d"}}
	if got := group.ContentUsage("/b"); !slices.Equal(got, want) {
		t.Errorf("of one pattern: got %v, want %v", got, want)
	}
	want = []robots.UsageLine{{Number: 12, Text: "e=f"}, {Number: 13, Text: "g=h"}}
	if got := group.ContentUsage("/a"); !slices.Equal(got, want) {
		t.Errorf("of one pattern, written in two ways: got %v, want %v", got, want)
	}
	if (robots.Group{}).ContentUsage("/") != nil {
		t.Error("the zero Group has preferences")
	}
}

// TestContentUsageOfEachAgent: a line applies to the agents named since the last rule, which it is
// itself under the standard dialect.
func TestContentUsageOfEachAgent(t *testing.T) {
	const text = "user-agent: a\ncontent-usage: 1\nuser-agent: b\ncontent-usage: 2\nuser-agent: c\ncrawl-delay: 1\nuser-agent: d\ncontent-usage: 3\ndisallow: /\n"
	for _, d := range robots.Dialects() {
		f := robots.Parse([]byte(text), d)
		for agent, want := range map[string]string{"a": "1", "b": "2", "c": "3", "d": "3"} {
			if d.Delay == robots.DelayOfGroup && agent == "c" {
				want = "" // a Crawl-delay ends the list
			}
			if got := texts(f.For(agent).ContentUsage("/")); got != want {
				t.Errorf("%s: %s: got %q, want %q", d.Name, agent, got, want)
			}
		}
	}
}

// TestContentUsageOfEquallyLongPatterns: none of them is the longest, so all state a preference.
func TestContentUsageOfEquallyLongPatterns(t *testing.T) {
	const text = "user-agent: a\ncontent-usage: /blog/ 1\ncontent-usage: /*.pdf 2\ncontent-usage: /*.doc 3\ncontent-usage: /*.gi$ 4\ncontent-usage: / 5\nallow: /\n\n" +
		"user-agent: b\ncontent-usage: /b*og/ 6\n"
	for path, want := range map[string]string{
		"/blog/a.pdf": "1, 2", "/blog/a.gi": "1, 4", "/blog/a.gif": "1", "/a.pdf.doc": "2, 3", "/blo%67/%2Epdf": "1, 2", "/blog": "5",
	} {
		if got := robots.Parse([]byte(text), robots.Standard()).For("a").ContentUsage(path); texts(got) != want {
			t.Errorf("%s: got %v, want %s", path, got, want)
		}
	}
}

// TestContentUsageGivesUp checks that a hostile path or file hides no preference: if matching takes too many
// steps, all lines of the group count.
func TestContentUsageGivesUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9309, 10))
	word := func(n int) string {
		return strings.Map(func(rune) rune { return rune("ab"[rnd.IntN(2)]) }, strings.Repeat("x", n))
	}
	text := "user-agent: b\ncontent-usage: / other=n\nallow: /\n\nuser-agent: *\ncontent-usage: / train-ai=n\n"
	for range 900 {
		text += "content-usage: /*" + word(8) + "*" + word(10) + "*z train-ai=y\n"
	}
	g, path := robots.Parse([]byte(text), robots.Standard()).For("a"), "/"+word(60<<10)
	var spent robots.Effort
	if got := g.ContentUsageWithin(path, &spent); spent <= robots.MaxEffort || len(got) != 901 || got[0].Text != "train-ai=n" {
		t.Errorf("%d steps, %d lines", spent, len(got))
	}
	if got := g.ContentUsageWithin("/", &spent); len(got) != 901 {
		t.Errorf("another form after that: %d lines", len(got))
	}
	if got := g.ContentUsage("/"); len(got) != 1 {
		t.Errorf("another path: %d lines", len(got))
	}
}

// TestContentUsageOfManyEquallyLong: the patterns that are as long as the one that matches are tried one by
// one only as long as there are steps left.
func TestContentUsageOfManyEquallyLong(t *testing.T) {
	text := "user-agent: *\ncontent-usage: /" + strings.Repeat("a", 50) + " train-ai=y\n"
	for n := range 850 {
		text += fmt.Sprintf("content-usage: /*%sb%03d a=b\n", strings.Repeat("a", 45), n)
	}
	g := robots.Parse([]byte(text), robots.Standard()).For("a")
	spent := robots.MaxEffort - 10_000
	if got := g.ContentUsageWithin("/"+strings.Repeat("a", 60<<10), &spent); spent > robots.MaxEffort+10_000 || len(got) < 100 || got[0].Text != "train-ai=y" {
		t.Errorf("%d steps, %d lines", spent, len(got))
	}
}

// TestExtensionsAreBounded fills a file with extension lines.
func TestExtensionsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 3<<10)
	for name, line := range map[string]string{
		"sitemap": "sitemap: x\n", "long": "sitemap: " + long + "\n", "license": "license: " + long[:1<<10] + "\n",
		"signal": "content-signal: search=no\n", "signal with a path": "content-signal: /%x search=no\n", "usage": "content-usage: /a b=c\n", "usage with stars": "content-usage: /*a*a b=c\n",
	} {
		text := "user-agent: *\n" + strings.Repeat(line, 400<<10/len(line))
		f := robots.Parse([]byte(text), robots.Standard())
		if f.Size() > 256<<10 {
			t.Errorf("%s: held in %d bytes", name, f.Size())
		}
		if n := len(f.Sitemaps()) + len(f.Licenses()); n > 1000 {
			t.Errorf("%s: %d links", name, n)
		}
	}
}

// TestLinksHideNoPreference checks that preferences count after a thousand Sitemap lines, as some files have.
func TestLinksHideNoPreference(t *testing.T) {
	text := strings.Repeat("sitemap: https://a.example/1.xml\n", 2000) + "user-agent: *\ncontent-usage: train-ai=n\ncontent-signal: search=no\n"
	g := robots.Parse([]byte(text), robots.Standard()).For("a")
	if usages, signals := g.ContentUsage("/"), g.ContentSignals(); texts(usages) != "train-ai=n" || signals.Search != robots.No {
		t.Errorf("got %v, %v", usages, signals)
	}
}

// TestExtensionsDisturbNothing adds extension lines anywhere. A Content-Usage line may be a rule.
func TestExtensionsDisturbNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	for range testkit.Rounds(5000) {
		var plain, extended strings.Builder
		for range rnd.IntN(10) {
			line := pick("user-agent: a", "user-agent: b", "user-agent: *", "disallow: /a", "allow: /a/b", "disallow:", "crawl-delay: 2") + "\n"
			plain.WriteString(line)
			extended.WriteString(pick("", "sitemap: /", "license: x", "content-signal: search=no", "content-usage: /a train-ai=n", "content-usage: b", "content-signal: =") + "\n")
			extended.WriteString(line)
		}
		for _, d := range robots.Dialects() {
			if d.UsageRules && strings.Contains(extended.String(), "content-usage") {
				continue
			}
			want := robots.Parse([]byte(plain.String()), d).For("a")
			got := robots.Parse([]byte(extended.String()), d).For("a")
			for _, path := range []string{"/", "/a", "/a/b"} {
				w, g := want.Match(path), got.Match(path)
				if w.Line *= 2; w != g || want.Name() != got.Name() || want.CrawlDelay() != got.CrawlDelay() {
					t.Fatalf("%s: %s: got %+v, want %+v:\n%s", d.Name, path, g, w, extended.String())
				}
			}
		}
	}
}
