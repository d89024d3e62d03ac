package robots_test

import (
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots"
)

func TestProductTokens(t *testing.T) {
	for _, c := range []struct {
		name, header string
		want         []string
	}{
		{"RFC 9110 10.1.5: the most significant first", "MyBot/1.0 (+https://my.example/bot) python-requests/2.31", []string{"MyBot", "python-requests"}},
		{"RFC 9110 10.1.5: each once", "FooBot/1.0 (foobot; FOOBOT)", []string{"FooBot"}},
		{"RFC 9110 5.6.5: comments in comments", "A/1 (b (c; d) e) F/2", []string{"A", "b", "c", "d", "e", "F"}},
		{"RFC 9110 5.6.5: a comment without its end", "A/1 (b (c", []string{"A", "b", "c"}},
		{"an empty header", "", nil},
		{"a browser", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1", nil},
		{"a browser on a device that nobody lists", "Mozilla/5.0 (Linux; Android 14; SomeMaker Phone 7 Build/AB1.2) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Mobile Safari/537.36", nil},
		{"an old browser", "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1; Trident/4.0)", nil},
		{"a robot on a platform", "Mozilla/5.0 (Linux; Android 14; FooBot/1.0) Gecko/1", []string{"FooBot"}},
		{"a robot that is compatible on a platform", "Mozilla/5.0 (compatible; Windows NT 10.0; FooBot)", []string{"FooBot"}},
		{"URLs", "FooBot (http://bar.example/baz_bot; +https://x.example; +foo.example/y; bar.example/bot)", []string{"FooBot"}},
		{"e-mail addresses", "FooBot (bar@baz.example; mailto:a.b@c.example)", []string{"FooBot"}},
		{"versions", "FooBot 2.0 v1.4 (10_15_5)", []string{"FooBot"}},
		{"a version glued to a name", "Nutch-1.19 foo_v2.0", []string{"Nutch", "foo"}},
		{"a number that belongs to a name", "lab-bot-2 lab-bot-3/1.0", []string{"lab-bot-2", "lab-bot-3"}},
		{"a name with a point and a version", "archive.org_bot/1.0", []string{"archive.org_bot"}},
		{"a number at the beginning", "008/0.83 (+http://a.example) 2.0 7 FooBot", []string{"008", "FooBot"}},
		{"a version at the beginning", "5.0 (Windows)", nil},
		{"a full stop", "FooBot.", []string{"FooBot"}},
		{"bytes over 0x7F", "B\u00f6t/1.0 \xff", []string{"B\u00f6t", "\xff"}},
	} {
		if got := robots.ProductTokens(c.header); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %q: got %q, want %q", c.name, c.header, got, c.want)
		}
	}
}

func TestProductTokensCeilings(t *testing.T) {
	words := make([]string, 0, 26*26)
	for a := 'a'; a <= 'z'; a++ {
		for b := 'a'; b <= 'z'; b++ {
			words = append(words, "bot"+string(a)+string(b))
		}
	}
	if got := robots.ProductTokens(strings.Join(words, " ")); !slices.Equal(got, words[:16]) {
		t.Errorf("many words: got %q", got)
	}
	// The 1,024th byte is inside the last word.
	header := "FooBot " + strings.Repeat("1 ", 500) + " BarBot-with-a-long-name"
	if got := robots.ProductTokens(header); !slices.Equal(got, []string{"FooBot"}) {
		t.Errorf("a word that the ceiling cuts: got %q", got)
	}
	if got := robots.ProductTokens(strings.Repeat("a", 1<<20)); got != nil {
		t.Errorf("one long word: got %d bytes", len(got[0]))
	}
}
