package robots_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
)

// agree fails the test if the compiled file and the oracle disagree under any dialect.
func agree(t *testing.T, text, token, path string) {
	t.Helper()
	for _, d := range robots.Dialects() {
		agreeUnder(t, d, text, token, path)
	}
}

func agreeUnder(t *testing.T, d robots.Dialect, text, token, path string) {
	t.Helper()
	if d.Careful && strings.HasPrefix(text, "\x1F\x8B") {
		return // gzip
	}
	g := robots.ParseFor(oracleOrigin, text, d).For(token)
	o := newOracle(text, d)
	name, rules, delay := o.group(token)
	if g.Name() != name || g.Token() != token {
		t.Fatalf("%s: group of %q: got %q by %q, want %q; robots.txt:\n%q", d.Name, token, g.Name(), g.Token(), name, text)
	}
	if d := (min(g.CrawlDelay(), 1e8*time.Second) - delay).Abs(); d > time.Microsecond {
		t.Fatalf("delay of %q: got %v, want %v; robots.txt:\n%q", token, g.CrawlDelay(), delay, text)
	}
	got, want := g.Match(path), o.verdict(rules, path)
	if got != want {
		t.Fatalf("%s: %q for %q: got %+v, want %+v; robots.txt:\n%q", d.Name, path, token, got, want, text)
	}
	if g.DisallowsAll() && got.Allow {
		t.Fatalf("%s: %q for %q: got %+v where nothing may be fetched; robots.txt:\n%q", d.Name, path, token, got, text)
	}
}

// TestOracle compares the compiled file with the oracle on files made of the pieces where they
// are most likely to differ.
func TestOracle(t *testing.T) {
	files := 10_000
	if testing.Short() || raced { // the race detector finds nothing here: nothing is shared
		files = 1000
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			holdAgainstOracle(t, rand.New(rand.NewPCG(9309, 2022+seed)), files)
		})
	}
}

func holdAgainstOracle(t *testing.T, rnd *rand.Rand, files int) {
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	some := func(most int, pieces ...string) string {
		var b strings.Builder
		for range rnd.IntN(most + 1) {
			b.WriteString(pick(pieces...))
		}
		return b.String()
	}
	name := func() string {
		return pick("a", "A", "b", "a-b", "a-b-c", "a1", "b2", "b.c_d", "*", "*", "* a", "a/1", "Ü", "\x80", "", "a, b", "b,*", "a (b, b)", "a, b (c, d)", ", ,a1", "008")
	}
	pattern := func() string {
		return pick("/", "/", "/", "*", "", "x", "https://example.com", "https://EXAMPLE.com:443/", "http://example.com/") + some(5, "a", "a", "b", "/", "*", "*", "$", "%", "%2A", "%2a", "%24", "%61", "%2f", "ü", "%C3%BC", "?", " ", "%20", "{", "%7b", "\\", ":", "%3a", "%3F", "=", "%3D") + pick("", "", "$", "*", "/index.html")
	}
	for range files {
		var text strings.Builder
		for range rnd.IntN(12) {
			switch rnd.IntN(8) {
			case 0, 1, 2:
				text.WriteString(pick("User-agent: ", "user agent:", "useragent ") + name())
			case 3, 4, 5:
				text.WriteString(pick("Disallow: ", "Allow: ", "ALLOW:", "dissallow ") + pattern())
			case 6:
				text.WriteString(pick("Crawl-delay: ", "crawl delay:", "Request-rate: 2/", "Request-rate:") + some(3, "1", "2", ".", "x", ",", "/", " s", "m", " 0600-0845", `"`, ";"))
			case 7:
				text.WriteString(pick("Sitemap: /s", "#", "", "foo", "Content-Usage: a=b", "Content-Signal: a=b"))
			}
			text.WriteString(pick("\n", "\n", "\r", "\r\n", " # c\n"))
		}
		path := pick("", "/", "/", "/") + some(6, "a", "a", "b", "/", "*", "$", "%", "%2A", "%24", "%61", "%2F", "ü", "%c3%bc", "?", "%C3%BC", "\x00", " ", "%20", "{", "%7B", "%5c", ":", "%3A", "=", "%3d", "%3f")
		agree(t, text.String(), name(), path)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("User-agent: *\nDisallow: /\n"), "FooBot", "/a")
	f.Add([]byte("\xFF\xFEU\x00s\x00e\x00r\x00-\x00a\x00g\x00e\x00n\x00t\x00:\x00*\x00\n\x00"), "FooBot", "/a")
	f.Add([]byte("User-agent: a, b\nRequest-rate: 2/1m 0600-0845\nContent-Usage: a=b\nUser-agent: c\ncrawl delay: \"5,5\"\nDisallow: https://example.com/%3a\n"), "b", "/:")
	f.Add([]byte("\xEF\xBBuser-agent a\r\rcrawl-delay: .5\r\nuser-agent: b1\nallow:/*%2a$\x00x\ndisallow *"), "b", "/x%2Ay")
	f.Fuzz(func(t *testing.T, text []byte, token, path string) {
		if len(text) > 4<<10 || len(path) > 1<<10 {
			return // the oracle is slow
		}
		agree(t, string(text), token, path)

		// Whatever comes after the last line, and a comment, changes nothing.
		verdict := func(text string) robots.Verdict {
			return robots.Parse([]byte(text), robots.Standard()).For(token).Match(path)
		}
		if got, want := verdict(string(text)+"\n# Disallow: /"), verdict(string(text)); got != want {
			t.Fatalf("with a comment: got %+v, want %+v; robots.txt:\n%q", got, want, text)
		}
	})
}

// FuzzMatch takes the patterns of one group, a line each, with "+" before an Allow.
func FuzzMatch(f *testing.F) {
	f.Add("/\n+/a\n/*.gif$\n/a*b*c", "/a/b.gif")
	f.Add("/*a*a*a*a*b", "/aaaaaaaaaaaa")
	f.Add("+/%61$x\n/%e1%bb%a5", "/\u1ee5")
	f.Add("/a b$\n+/%\n/{%24\"*", "/a%20b")
	f.Add("/*?q=a/b:c\n+/%3A$\n/a%2fb?c%2f*", "/?q=a%2Fb%3ac")
	f.Fuzz(func(t *testing.T, patterns, path string) {
		if len(patterns) > 4<<10 || len(path) > 1<<10 {
			return
		}
		var text strings.Builder
		text.WriteString("User-agent: *\n")
		for p := range strings.SplitSeq(patterns, "\n") {
			field := "Disallow: "
			if rest, allow := strings.CutPrefix(p, "+"); allow {
				field, p = "Allow: ", rest
			}
			fmt.Fprintf(&text, "%s%s\n", field, p)
		}
		agree(t, text.String(), "", path)
	})
}

func FuzzProductTokens(f *testing.F) {
	f.Add("Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.example) Nutch-1.19")
	f.Add("((a)(b")
	f.Add("\x80\xc3\x9cBot/1") // was once lower-cased incorrectly
	f.Fuzz(func(t *testing.T, header string) {
		tokens := robots.ProductTokens(header)
		if len(tokens) > 16 {
			t.Fatalf("%q: %d tokens", header, len(tokens))
		}
		for _, token := range tokens {
			if !strings.Contains(header, token) {
				t.Fatalf("%q: %q is not in it", header, token)
			}
			// A group of that name is the client's own.
			g := robots.Parse([]byte("User-agent: "+token+"\n"), robots.Standard()).For(token)
			if g.Token() != token || g.Name() == "" || g.Name() == "*" {
				t.Fatalf("%q: its token %q names no group", header, token)
			}
		}
	})
}

func FuzzParseOrigin(f *testing.F) {
	f.Add("http", "EXAMPLE.com.:80")
	f.Add("https", "[::FFFF:1.2.3.4]:8443")
	f.Add("http", "bücher.example")
	f.Add("ftp", "example.com:21")
	f.Add("http", "\uff11\uff12\uff17.0.0.1")
	f.Fuzz(func(t *testing.T, scheme, hostport string) {
		o, err := robots.ParseOrigin(scheme, hostport)
		if err != nil {
			if o != (robots.Origin{}) {
				t.Fatalf("%q %q: %+v beside an error", scheme, hostport, o)
			}
			return
		}
		if o.Host == "" || len(o.Host) > 253 || o.Port == 0 {
			t.Fatalf("%q %q: %+v", scheme, hostport, o)
		}
		again, err := robots.ParseOrigin(o.Scheme, o.Addr())
		if err != nil || again != o {
			t.Fatalf("%q %q: %+v, but again %+v, %v", scheme, hostport, o, again, err)
		}
	})
}
