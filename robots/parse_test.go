package robots_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
)

func TestLines(t *testing.T) {
	long := "/" + strings.Repeat("a", 16700)
	for _, c := range []struct {
		name, text, path string
		want             robots.Verdict
	}{
		{"RFC 9309 2.2: LF", "user-agent:*\n\ndisallow:/a\n", "/a", robots.Verdict{Rule: "/a", Line: 3}},
		{"RFC 9309 2.2: CR", "user-agent:*\r\rdisallow:/a\r", "/a", robots.Verdict{Rule: "/a", Line: 3}},
		{"RFC 9309 2.2: CRLF", "user-agent:*\r\n\r\ndisallow:/a\r\n", "/a", robots.Verdict{Rule: "/a", Line: 3}},
		{"RFC 9309 2.2: mixed", "user-agent:*\r\r\n\n\rdisallow:/a", "/a", robots.Verdict{Rule: "/a", Line: 5}},
		{"RFC 9309 2.2: no end of the last line", "user-agent:*\ndisallow:/a", "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"RFC 9309 2.2: comments", "user-agent:*#\n # disallow:/\ndisallow : /a #b", "/a", robots.Verdict{Rule: "/a", Line: 3}},
		{"RFC 9309 2.2: white space", "\t user-agent \v:\f *\n disallow\t: /a \t", "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"only ASCII white space is trimmed", "user-agent:*\ndisallow:/a\u00a0", "/a", robots.Verdict{Allow: true}},
		{"a byte order mark", "\xef\xbb\xbfuser-agent:*\ndisallow:/a", "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"two thirds of one", "\xef\xbbuser-agent:*\ndisallow:/a", "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"one later than the first byte", "\nuser-agent:*\n\xef\xbb\xbfdisallow:/a", "/a", robots.Verdict{Allow: true}},
		{"NUL ends a line", "user-agent:*\ndisallow:/a\x00b\n", "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"a line is cut after 16,663 bytes", "user-agent:*\ndisallow:" + long, long[:16654], robots.Verdict{Rule: long[:16654], Line: 2}},
		{"and not before", "user-agent:*\ndisallow:" + long, long[:16653], robots.Verdict{Allow: true}},
		{"a field by its beginning", "user-agents:*\nDisallowed:/a", "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"no field by its end", "user-agent:*\nnodisallow:/a", "/a", robots.Verdict{Allow: true}},
		{"no colon", "user-agent *\ndisallow\t /a", "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"no colon, three words", "user-agent *\ndisallow /a /b", "/a", robots.Verdict{Allow: true}},
		{"no field before the colon", "user-agent:*\n:/a", "/a", robots.Verdict{Allow: true}},
		{"a colon in the value", "user-agent:*\ndisallow:/a:b", "/a:b", robots.Verdict{Rule: "/a:b", Line: 2}},
	} {
		if got := robots.Parse([]byte(c.text), robots.Standard()).For("FooBot").Match(c.path); got != c.want {
			t.Errorf("%s: got %.80v, want %.80v", c.name, got, c.want)
		}
	}
}

func TestMisspellings(t *testing.T) {
	for _, agent := range []string{"user-agent", "useragent", "user agent"} {
		for _, disallow := range []string{"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"} {
			for _, change := range []func(string) string{strings.ToLower, strings.ToUpper} {
				text := change(agent) + ": *\n" + change(disallow) + ": /\n"
				if robots.Parse([]byte(text), robots.Standard()).For("FooBot").Match("/a").Allow {
					t.Errorf("allowed by %q", text)
				}
			}
		}
	}
}

func TestGroups(t *testing.T) {
	const (
		companies = "user-agent: a\nuser-agent: b\ndisallow: /ab\n\nuser-agent: b\nuser-agent: c\ndisallow: /bc\n\nuser-agent: *\ndisallow: /"
		longNames = "user-agent: FooBot2\ndisallow: /2\nuser-agent: FooBot3\ndisallow: /3\n"
		both      = longNames + "user-agent: foobot\ndisallow: /0\n"
	)
	for _, c := range []struct {
		name, text, tokens string
		group, token       string
		disallowed         string // of the paths below
	}{
		{"RFC 9309 2.2.1: no group", "", "FooBot", "", "FooBot", ""},
		{"RFC 9309 2.2.1: names in any case", "user-agent: fOOBOT\ndisallow: /0", "FOObot", "foobot", "FOObot", "/0"},
		{"RFC 9309 2.2.1: else the star group", "user-agent: b\nuser-agent: *\ndisallow: /0", "a", "*", "a", "/0"},
		{"RFC 9309 2.2.1: a named group alone", companies, "a", "a", "a", "/ab"},
		{"RFC 9309 2.2.1: groups of one name are one", companies, "b", "b", "b", "/ab /bc"},
		{"RFC 9309 2.2.1: in whatever company", companies, "c", "c", "c", "/bc"},
		{"RFC 9309 2.2.1: not a part of a name", "user-agent: foo\ndisallow: /0", "FooBot", "", "FooBot", ""},
		{"RFC 9309 2.2.1: rules before any agent", "disallow: /0\nuser-agent: *\ndisallow: /2", "a", "*", "a", "/2"},
		{"RFC 9309 2.2.4: other lines do not end a list", "user-agent: a\nsitemap: x\nfoo: y\nuser-agent: b\ndisallow: /0", "a", "a", "a", "/0"},
		{"an empty rule ends a list", "user-agent: a\ndisallow:\nuser-agent: b\ndisallow: /0", "a", "a", "a", ""},
		{"an agent without a name is nobody", "user-agent: a\ndisallow: /2\nuser-agent:\ndisallow: /0", "a", "a", "a", "/2"},
		{"a star and more", "user-agent: * foo\ndisallow: /0", "a", "*", "a", "/0"},
		{"a star in a name", "user-agent: *foo\ndisallow: /0", "foo", "", "foo", ""},
		{"no token at all", "user-agent: *\ndisallow: /0", "", "*", "", "/0"},
		{"the star is nobody's token", "user-agent: *\ndisallow: /0", "*", "*", "*", "/0"},
		{"the first token that names a group", both, "MyBot FooBot3 FooBot", "foobot3", "FooBot3", "/3"},
		{"the first token where none does", "user-agent: *", "MyBot FooBot", "*", "MyBot", ""},
		{"a name means its letters too", longNames, "FooBot", "foobot", "FooBot", "/2 /3"},
		{"but not where another has them in full", both, "FooBot", "foobot", "FooBot", "/0"},
		{"nor where the client has the whole name", longNames, "FooBot FooBot3", "foobot3", "FooBot3", "/3"},
		{"the first token, though another is like it", longNames, "FooBot FOOBOT", "foobot", "FooBot", "/2 /3"},
		{"a longer client name is another", both, "FooBot4", "", "FooBot4", ""},
		{"a version in a token", both, "FooBot/2.1", "foobot", "FooBot/2.1", "/0"},
	} {
		g := robots.Parse([]byte(c.text), robots.Standard()).For(strings.Fields(c.tokens)...)
		var disallowed []string
		for _, path := range []string{"/0", "/2", "/3", "/ab", "/bc"} {
			if !g.Match(path).Allow {
				disallowed = append(disallowed, path)
			}
		}
		if g.Name() != c.group || g.Token() != c.token || !slices.Equal(disallowed, strings.Fields(c.disallowed)) {
			t.Errorf("%s: got group %q by %q, disallowed %q", c.name, g.Name(), g.Token(), disallowed)
		}
	}
}

func TestCrawlDelay(t *testing.T) {
	const lists = "user-agent: a\ncrawl-delay: 1\ncrawl-delay: 3\nuser-agent: b\ncrawl-delay: 2\ndisallow: /x\ncrawl-delay: 5\nuser-agent: c\ndisallow: /y\n"
	for _, c := range []struct {
		name, text, token string
		want              time.Duration
	}{
		{"the agents named since the last", lists, "a", 3 * time.Second},
		{"after the rules of its group", lists, "b", 5 * time.Second},
		{"not the group after", lists, "c", 0},
		{"no agent yet", "crawl-delay: 1\nuser-agent: a", "a", 0},
		{"the longest, over groups of one name", "user-agent: a\ncrawl-delay: 2\nallow: /\nuser-agent: A\ncrawl-delay: 1", "a", 2 * time.Second},
		{"crawldelay", "user-agent: a\ncrawldelay: 1", "a", time.Second},
		{"5.", "user-agent: a\ncrawl-delay: 5.", "a", 5 * time.Second},
		{".25", "user-agent: a\ncrawl-delay: .25", "a", 250 * time.Millisecond},
		{"more digits than nanoseconds", "user-agent: a\ncrawl-delay: 0.0000000019", "a", 2 * time.Nanosecond},
		{"a point alone", "user-agent: a\ncrawl-delay: .", "a", 0},
		{"two points", "user-agent: a\ncrawl-delay: 1.2.3", "a", 0},
		{"a unit", "user-agent: a\ncrawl-delay: 5s", "a", 5 * time.Second},
		{"minutes", "user-agent: a\ncrawl-delay: 2 Min;", "a", 2 * time.Minute},
		{"a comma for the point, in quotes", "user-agent: a\ncrawl-delay: '1,5 secs',", "a", 1500 * time.Millisecond},
		{"an unknown unit", "user-agent: a\ncrawl-delay: 5ms", "a", 0},
		{"two numbers", "user-agent: a\ncrawl-delay: 5 10", "a", 0},
		{"a number after the unit", "user-agent: a\ncrawl-delay: 5m30", "a", 0},
		{"a rate", "user-agent: a\nrequest-rate: 4 / 1 m 0600-0845", "a", 15 * time.Second},
		{"a rate of hours", "user-agent: a\nrequest-rate: 60/.5h", "a", 30 * time.Second},
		{"a rate of no pages", "user-agent: a\nrequest-rate: 0/5", "a", 0},
		{"a rate without a time", "user-agent: a\nrequest-rate: 5/", "a", 0},
		{"a rate without a slash", "user-agent: a\nrequest-rate: 5", "a", 0},
		{"a rate with text after its time", "user-agent: a\nrequest-rate: 1/5x", "a", 0},
		{"a rate is of the kind of a Crawl-delay", "user-agent: a\ncrawl-delay: 1\nuser-agent: b\nrequest-rate: 1/10\ndisallow: /x", "a", time.Second},
		{"a signal divides no list for a delay", "user-agent: a\ncontent-signal: search=no\nuser-agent: b\ncrawl-delay: 2\ndisallow: /x", "a", 2 * time.Second},
		{"a usage ends the list", "user-agent: a\ncontent-usage: search=n\nuser-agent: b\ncrawl-delay: 2\ndisallow: /x", "a", 0},
		{"a sign", "user-agent: a\ncrawl-delay: +5", "a", 0},
	} {
		if got := robots.Parse([]byte(c.text), robots.Standard()).For(c.token).CrawlDelay(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	endless := robots.Parse([]byte("user-agent: *\ncrawl-delay: "+strings.Repeat("9", 1000)), robots.Standard()).For("a").CrawlDelay()
	if endless < 25*365*24*time.Hour || endless > math.MaxInt64/2 {
		t.Errorf("a thousand nines: got %v", endless)
	}
}

func TestMaxBytes(t *testing.T) {
	const head = "user-agent: *\n"
	filled := func(last string, size int) []byte { // with last as its last line
		text := []byte(head)
		text = append(text, bytes.Repeat([]byte("#\n"), (size-len(head)-len(last))/2)...)
		text = append(text, last...)
		for len(text) < size {
			text = slices.Insert(text, len(head), '\n')
		}
		return text
	}
	for _, c := range []struct {
		name  string
		text  []byte
		allow bool
	}{
		{"RFC 9309 2.5: below the limit", filled("disallow: /a", robots.MaxBytes-1), false},
		{"RFC 9309 2.5: the last line ends at the limit", append(filled("disallow: /a\n", robots.MaxBytes), "allow: /a"...), false},
		{"RFC 9309 2.5: the limit cuts the last line", append(filled("disallow: /", robots.MaxBytes), "a\n"...), true},
		{"RFC 9309 2.5: cut there already", filled("disallow: /", robots.MaxBytes), true},
		{"RFC 9309 2.5: beyond the limit", append(filled("\n", robots.MaxBytes), "disallow: /a\n"...), true},
	} {
		if got := robots.Parse(c.text, robots.Standard()).For("a").Match("/a"); got.Allow != c.allow {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
}

func TestParseKeepsNoText(t *testing.T) {
	text := []byte("user-agent: foobot\ndisallow: /a\n")
	g := robots.Parse(text, robots.Standard()).For("FooBot")
	clear(text)
	if got, want := g.Match("/a"), (robots.Verdict{Rule: "/a", Line: 2}); got != want || g.Name() != "foobot" {
		t.Errorf("got %q, %+v, want %+v", g.Name(), got, want)
	}
}

// TestListedNamesAreBounded: a file may list many names with commas, in one line or in several; the first name of
// each line always counts.
func TestListedNamesAreBounded(t *testing.T) {
	names := func(from, to int) string {
		var b strings.Builder
		for n := from; n < to; n++ {
			fmt.Fprintf(&b, "bot%d,", n)
		}
		return b.String()
	}
	f := robots.Parse([]byte("user-agent: "+names(0, 600)+"\nuser-agent:"+names(600, 9000)+"\nuser-agent: last, more\ndisallow: /\n"), robots.Standard())
	for agent, want := range map[string]bool{"bot0": true, "bot599": true, "bot1001": true, "bot1002": false, "bot8999": false, "last": true, "more": false} {
		if got := f.For(agent).Name() == agent; got != want {
			t.Errorf("%s: %t", agent, got)
		}
	}
}
