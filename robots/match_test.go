package robots_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/internal/corpus"
	"robotsproxy/robots/testkit"
)

// group parses the rules of one group.
func group(t testing.TB, rules ...string) robots.Group {
	t.Helper()
	return robots.Parse([]byte("User-agent: *\n"+strings.Join(rules, "\n")+"\n"), robots.Standard()).For("FooBot")
}

// A matchCase is a path, and what it matches.
type matchCase struct {
	name  string
	rules []string
	path  string
	want  robots.Verdict
}

// matchCases returns the cases of TestMatch, named after the clauses.
func matchCases() []matchCase {
	long := strings.Repeat("a", 300)
	var stars []string
	for i := range 20 {
		stars = append(stars, "Disallow: /"+long[:i]+"*y")
	}
	stars[16] = "Disallow: /aaaaaaaaaaaaaaaa*z"
	return []matchCase{
		{"RFC 9309 2.2.2: no rule matches", []string{"Disallow: /a"}, "/b", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.2: the longest rule", []string{"Disallow: /a", "Allow: /a/b"}, "/a/b", robots.Verdict{Allow: true, Rule: "/a/b", Line: 3}},
		{"RFC 9309 2.2.2: equal: Allow", []string{"Disallow: /a", "Allow: /a"}, "/a", robots.Verdict{Allow: true, Rule: "/a", Line: 3}},
		{"RFC 9309 2.2.2: equal, though not alike: Allow", []string{"Allow: /ab", "Disallow: /*b"}, "/ab", robots.Verdict{Allow: true, Rule: "/ab", Line: 2}},
		{"RFC 9309 2.2.2: a rule twice: the first line", []string{"Disallow: /a", "Disallow: /%61"}, "/a", robots.Verdict{Rule: "/a", Line: 2}},
		{"RFC 9309 2.2.2: a rule twice, first escaped", []string{"Disallow: /%61", "Disallow: /a"}, "/a", robots.Verdict{Rule: "/%61", Line: 2}},
		{"RFC 9309 2.2.2: paths are case-sensitive", []string{"Disallow: /A"}, "/a", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.2: unreserved bytes, escaped in the rule", []string{"Disallow: /%7e%2D"}, "/~-", robots.Verdict{Rule: "/%7e%2D", Line: 2}},
		{"RFC 9309 2.2.2: unreserved bytes, escaped in the path", []string{"Disallow: /~-"}, "/%7E%2d", robots.Verdict{Rule: "/~-", Line: 2}},
		{"RFC 9309 2.2.2: reserved bytes stay as they are", []string{"Disallow: /a%2Fb"}, "/a/b", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.2: escapes in either case", []string{"Disallow: /a%2fb"}, "/a%2Fb", robots.Verdict{Rule: "/a%2fb", Line: 2}},
		{"RFC 9309 2.2.2: what is no escape is itself", []string{"Disallow: /100%"}, "/100%x", robots.Verdict{Rule: "/100%", Line: 2}},
		{"RFC 9309 2.2.2: a blank in the rule", []string{"Disallow: /a b"}, "/a%20b", robots.Verdict{Rule: "/a b", Line: 2}},
		{"RFC 9309 2.2.2: a blank in an Allow", []string{"Disallow: /", "Allow: /a b"}, "/a%20b", robots.Verdict{Allow: true, Rule: "/a b", Line: 3}},
		{"RFC 9309 2.2.2: a blank counts as its escape", []string{"Allow: /a?b", "Disallow: /a b"}, "/a%20b", robots.Verdict{Rule: "/a b", Line: 3}},
		{"RFC 9309 2.2.2: a blank before the end", []string{"Disallow: /a b$"}, "/a%20b", robots.Verdict{Rule: "/a b$", Line: 2}},
		{"RFC 9309 2.2.2: an incomplete escape begins an escaped slash", []string{"Disallow: /%"}, "/%2F", robots.Verdict{Rule: "/%", Line: 2}},
		{"RFC 9309 2.2.2: an incomplete escape begins an escaped percent sign", []string{"Disallow: /%"}, "/%25", robots.Verdict{Rule: "/%", Line: 2}},
		{"RFC 9309 2.2.2: an incomplete escape begins an escaped dollar sign", []string{"Disallow: /%"}, "/%24", robots.Verdict{Rule: "/%", Line: 2}},
		{"RFC 9309 2.2.2: half an escape begins an escaped dollar sign", []string{"Disallow: /%2"}, "/%24", robots.Verdict{Rule: "/%2", Line: 2}},
		{"RFC 9309 2.2.2: the query takes part", []string{"Disallow: /*?id="}, "/a?id=1", robots.Verdict{Rule: "/*?id=", Line: 2}},
		{"RFC 9309 2.2.2: an empty pattern matches nothing", []string{"Disallow:", "Allow:"}, "/", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.2: a pattern begins with a slash or a star", []string{"Disallow: a", "Disallow: $"}, "/a", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.3: * is nothing", []string{"Disallow: /a*b"}, "/ab", robots.Verdict{Rule: "/a*b", Line: 2}},
		{"RFC 9309 2.2.3: * is anything", []string{"Disallow: /a*b"}, "/a/?%20/b/", robots.Verdict{Rule: "/a*b", Line: 2}},
		{"RFC 9309 2.2.2: a trailing * counts", []string{"Disallow: /ab**", "Allow: /ab*"}, "/abc", robots.Verdict{Rule: "/ab**", Line: 2}},
		{"RFC 9309 2.2.3: $ is the end", []string{"Disallow: /a$"}, "/a?", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.3: $ counts", []string{"Disallow: /a$", "Allow: /a"}, "/a", robots.Verdict{Rule: "/a$", Line: 2}},
		{"RFC 9309 2.2.3: $ elsewhere is itself", []string{"Disallow: /a$b"}, "/a$bc", robots.Verdict{Rule: "/a$b", Line: 2}},
		{"RFC 9309 2.2.3: $ before a trailing * is itself", []string{"Disallow: /a$*"}, "/a", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.3: %24 at the end is no anchor", []string{"Disallow: /a%24"}, "/a$b", robots.Verdict{Rule: "/a%24", Line: 2}},
		{"RFC 9309 2.2.3: %24 before the end is itself", []string{"Disallow: /a%24$"}, "/a$", robots.Verdict{Rule: "/a%24$", Line: 2}},
		{"RFC 9309 2.2.3: a literal $ counts one byte", []string{"Disallow: /a$b", "Allow: /*$b"}, "/a%24b", robots.Verdict{Allow: true, Rule: "/*$b", Line: 3}},
		{"RFC 9309 2.2.3: a literal $, escaped, counts one byte", []string{"Disallow: /a%24b", "Allow: /*$b"}, "/a$b", robots.Verdict{Allow: true, Rule: "/*$b", Line: 3}},
		{"RFC 9309 2.2.3: %2A is no wildcard", []string{"Disallow: /a%2Ac"}, "/abc", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.3: * in the path is a plain one", []string{"Disallow: /a%2a"}, "/a*", robots.Verdict{Rule: "/a%2a", Line: 2}},
		{"RFC 9309 2.2.3: *$ is everything", []string{"Disallow: /*$"}, "/a", robots.Verdict{Rule: "/*$", Line: 2}},
		{"RFC 9309 2.2.3: what ends the path comes after what * took", []string{"Disallow: /*ab*ab$"}, "/ab", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.3: the last place counts for $", []string{"Disallow: /*.gif$"}, "/a.gif.gif", robots.Verdict{Rule: "/*.gif$", Line: 2}},
		{"RFC 9309 2.2.3: a later place for what follows *", []string{"Allow: /*a", "Disallow: /*ab"}, "/aab", robots.Verdict{Rule: "/*ab", Line: 3}},
		{"RFC 9309 2.2.2: the longest rule has a star, and more than 255 bytes", []string{"Disallow: /" + long, "Allow: /*" + long}, "/" + long, robots.Verdict{Allow: true, Rule: "/*" + long, Line: 3}},
		{"RFC 9309 2.2.3: more stars on the way than are kept without allocating", stars, "/aaaaaaaaaaaaaaaaaaaaz", robots.Verdict{Rule: "/aaaaaaaaaaaaaaaa*z", Line: 18}},
		{"RFC 9110 4.2.3: no path is /", []string{"Disallow: /$"}, "", robots.Verdict{Rule: "/$", Line: 2}},
		{"RFC 9309 2.2.2: reserved characters in one form", []string{"Disallow: /%3A;%3d"}, "/:%3B=", robots.Verdict{Rule: "/%3A;%3d", Line: 2}},
		{"RFC 9309 2.2.2: in one form, a rule counts as it is written", []string{"Disallow: /%3A", "Allow: /:x"}, "/:x", robots.Verdict{Rule: "/%3A", Line: 2}},
		{"RFC 9309 2.2.2: in one form or as written", []string{"Disallow: /*%2Fx:"}, "/?%2Fx:", robots.Verdict{Rule: "/*%2Fx:", Line: 2}},
		{"RFC 9309 2.2.2: never a mixture of both", []string{"Disallow: /%3A%3"}, "/:%3D", robots.Verdict{Allow: true}},
		{"RFC 9309 2.2.2: the path as it is sent, the rule not", []string{"Disallow: /?%3A/"}, "/?:/", robots.Verdict{Rule: "/?%3A/", Line: 2}},
		{"RFC 9309 2.2.2: an anchored rule in one form", []string{"Disallow: /%3A$", "Allow: /%3A"}, "/:", robots.Verdict{Rule: "/%3A$", Line: 2}},
		{"a path without its slash", []string{"Disallow: /?a"}, "?a", robots.Verdict{Rule: "/?a", Line: 2}},
		{"RFC 9309 2.2.2: many bytes to escape", []string{"Disallow: /" + strings.Repeat("\u00fc", 1000)}, "/" + strings.Repeat("%c3%bc", 1000), robots.Verdict{Rule: "/" + strings.Repeat("\u00fc", 1000), Line: 2}},
	}
}

func TestMatch(t *testing.T) {
	for _, c := range matchCases() {
		if got := group(t, c.rules...).Match(c.path); got != c.want {
			t.Errorf("%s: %q for %q: got %+v, want %+v", c.name, c.rules, c.path, got, c.want)
		}
	}
}

// TestBytesOfURIs: a byte in a rule or a path may be percent-encoded or not, with the same result,
// except for the reserved characters (RFC 3986 2.2), which have their own meaning unencoded. The
// google dialects compare rules as written, except for bytes over 0x7F.
func TestBytesOfURIs(t *testing.T) {
	const reserved = ":/?#[]@!$&'()*+,;="
	for _, d := range robots.Dialects() {
		for c := 1; c < 256; c++ {
			raw, escaped := string([]byte{byte(c)}), fmt.Sprintf("%%%02X", c)
			if strings.Contains(reserved+"%\r\n", raw) {
				continue
			}
			for _, tail := range []string{"x", "/a/longer/path"} {
				for _, rule := range []string{raw, escaped} {
					g := robots.Parse([]byte("User-agent: *\nDisallow: /a"+rule+tail), d).For("FooBot")
					for _, path := range []string{raw, escaped} {
						same := c >= 0x80 || rule == path
						if got := g.Match("/a" + path + tail + "/b"); got.Allow != (d.AsWritten && !same) {
							t.Errorf("%s: rule with %q, path with %q: got %+v", d.Name, rule, path, got)
						}
					}
				}
			}
		}
	}
}

func TestDisallowsAll(t *testing.T) {
	for _, c := range []struct {
		rules []string
		want  bool
	}{
		{[]string{"Disallow: /"}, true},
		{[]string{"Disallow: *"}, true},
		{[]string{"Disallow: /*$"}, true},
		{[]string{"Disallow: */"}, true},
		{[]string{"Disallow: /", "Allow: *"}, false},
		{[]string{"Disallow: /*", "Allow: *"}, true}, // shorter
		{[]string{"Disallow: /", "Allow: a"}, true},  // matches nothing
		{[]string{"Disallow: /", "Allow: /"}, false},
		{[]string{"Disallow: /", "Allow: /public/"}, false},
		{[]string{"Disallow: /$"}, false},
		{[]string{"Disallow: /a"}, false},
		{[]string{"Disallow:"}, false},
		{nil, false},
	} {
		if got := group(t, c.rules...).DisallowsAll(); got != c.want {
			t.Errorf("%q: got %t", c.rules, got)
		}
	}
}

func TestZeroRefuses(t *testing.T) {
	var file *robots.File
	for name, g := range map[string]robots.Group{
		"zero Group":   {},
		"nil File":     file.For("FooBot"),
		"zero Dialect": robots.Parse([]byte("User-agent: *\nAllow: /\n"), robots.Dialect{}).For("FooBot"),
	} {
		if got := g.Match("/"); got != (robots.Verdict{}) || got.Allow {
			t.Errorf("%s: got %+v", name, got)
		}
		if !g.DisallowsAll() || g.Name() != "" || g.Token() != "" || g.CrawlDelay() != 0 {
			t.Errorf("%s: %q %q %v", name, g.Name(), g.Token(), g.CrawlDelay())
		}
	}
	if file.Size() != 0 {
		t.Errorf("a nil File holds %d bytes", file.Size())
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	big := corpus.New("big", 17235)
	f := robots.Parse(append(big.Text, "Disallow: /*a*b*c*d*e\nAllow: /\u00fc\n"...), robots.Standard())
	tokens := []string{"MyBot", "FooBot"}
	for _, path := range append(big.Paths, "", "/a/b?c=d", "/th%C6%B0-m%E1%BB%A5c/\u00fc%2f*", "/axbxcxdxexf", "/"+strings.Repeat("%41", 1000)) {
		if n := testing.AllocsPerRun(10, func() { f.For(tokens...).Match(path) }); n != 0 {
			t.Errorf("%.40q: %v allocations", path, n)
		}
	}
}

// TestHostileRules matches hostile files. A matcher that backtracks takes longer than any
// deadline; the deadline is far from the time that a slow machine takes.
func TestHostileRules(t *testing.T) {
	fill := func(line func(i int) string) string {
		var b strings.Builder
		b.WriteString("User-agent: *\n")
		for i := 0; b.Len() < robots.MaxBytes-1<<15; i++ {
			b.WriteString(line(i))
		}
		return b.String()
	}
	as := func(n int) string { return strings.Repeat("a", n) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const allowed, refused = true, false
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"five stars", "User-agent: *\nDisallow: /*a*a*a*a*b\n", allowed},
		{"8,000 stars", fill(func(int) string { return "Disallow: /" + strings.Repeat("*a", 8000) + "*b\n" }), refused},
		{"a star after every prefix", fill(func(i int) string { return "Disallow: /*" + as(i) + "*b\n" }), refused},
		{"every prefix after a star", fill(func(i int) string { return "Disallow: /*" + as(i) + "b$\n" }), refused},
		{"17,000 rules with a star", fill(func(i int) string { return fmt.Sprintf("Disallow: /*a%d*b\n", i) }), allowed},
		{"no line feed", fill(func(int) string { return "\r" }), allowed},
		{"an agent a line", fill(func(i int) string { return fmt.Sprintf("user-agent:a%d\n", i) }) + "allow:/\n", allowed},
		{"a group a line", fill(func(i int) string { return fmt.Sprintf("user-agent:a%d\nallow:/\n", i) }), allowed},
		{"an agent in every company", fill(func(i int) string { return fmt.Sprintf("user-agent:*\nuser-agent:a%d\nallow:/x%d\n", i, i) }), allowed},
		{"a delay for all, again and again", fill(func(i int) string { return fmt.Sprintf("user-agent:a%d\n", i) })[:200<<10] + strings.Repeat("\ncrawl-delay:1", 20_000), allowed},
	} {
		done := make(chan robots.Verdict)
		go func() {
			done <- robots.Parse([]byte(c.text), robots.Standard()).For("FooBot").Match("/" + as(2000))
		}()
		select {
		case got := <-done:
			if got.Allow != c.want || got.GaveUp == c.want {
				t.Errorf("%s: got %+v, want allowed: %t", c.name, got, c.want)
			}
		case <-ctx.Done():
			t.Fatalf("%s: not done after a minute", c.name)
		}
	}
}

// TestEffort: a match takes no more than MaxEffort steps, whatever the file, and its verdict is
// then either exact or GaveUp.
func TestEffort(t *testing.T) {
	sizes := []int{100, 2000, 8 << 10, 64 << 10}
	if testing.Short() {
		sizes = sizes[2:3] // some are given up
	}
	for _, size := range sizes {
		for _, c := range corpus.Hostile(size) {
			var spent robots.Effort
			v := robots.Parse(c.Text, robots.Standard()).For("FooBot").MatchWithin(c.Paths[0], &spent)
			if v != (robots.Verdict{Allow: true}) && v != (robots.Verdict{GaveUp: true}) {
				t.Errorf("%s, %d bytes: %+v, though no rule matches", c.Name, size, v)
			}
			if v.GaveUp != (spent > robots.MaxEffort) || spent > robots.MaxEffort*3/2 {
				t.Errorf("%s, %d bytes: gave up: %t, after %d steps", c.Name, size, v.GaveUp, spent)
			}
			if easy := []string{"number-after-letter", "bushy", "two-forms-escaped"}; size == 8<<10 && v.GaveUp == slices.Contains(easy, c.Name) {
				t.Errorf("%s: gave up on a path of %d bytes: %t", c.Name, size, v.GaveUp)
			}
		}
	}
}

// TestEffortOfOrdinaryFiles: an ordinary file gives a verdict even for the longest URL that
// limits.url permits.
func TestEffortOfOrdinaryFiles(t *testing.T) {
	var words []string
	for i := range 1000 {
		words = append(words, fmt.Sprintf("Disallow: /*%s", strconv.FormatInt(int64(i*7919%46656), 36)))
	}
	files := append(corpus.All(), corpus.Corpus{Name: "1,000 words behind a star", Text: []byte("User-agent: *\n" + strings.Join(words, "\n"))})
	for _, c := range files {
		g := robots.Parse(c.Text, robots.Standard()).For("FooBot")
		path := "/~a?" + strings.Repeat("Q%20-uery=Val_ue&", 64<<10/17)
		var spent robots.Effort
		if v := g.MatchWithin(path, &spent); v.GaveUp {
			t.Errorf("%s: given up after %d steps", c.Name, spent)
		}
	}
}

// TestEncodedBytesAreMatchedAlike: a byte over 0x7F and its percent-encoding have the same
// verdict at the same effort, also when matching gives up.
func TestEncodedBytesAreMatchedAlike(t *testing.T) {
	hard := "User-agent: *\n"
	for i := range 5000 {
		hard += fmt.Sprintf("Disallow: /*%%FF*a*%%FF*a*%d\n", i)
	}
	for name, body := range map[string]string{"few rules": "User-agent: *\nDisallow: /*\xff\xfe\nAllow: /*?b=\xe2\x82$\n", "many rules": hard} {
		g := robots.Parse([]byte(body), robots.Standard()).For("bot")
		for _, raw := range []string{"/?a=\xff\xfe", "/?b=\xe2\x82", "/?\xff%FE", "/?" + strings.Repeat("\xffa", 100), "/?" + strings.Repeat("\xffa", 4000)} {
			var encoded strings.Builder
			for _, c := range []byte(raw) {
				if c < 0x80 {
					encoded.WriteByte(c)
				} else {
					fmt.Fprintf(&encoded, "%%%02X", c)
				}
			}
			var of, as robots.Effort
			if v, w := g.MatchWithin(raw, &of), g.MatchWithin(encoded.String(), &as); v != w || of != as {
				t.Errorf("%s: %.20q: %+v in %d steps, encoded %+v in %d", name, raw, v, of, w, as)
			}
		}
	}
}

func TestEffortIsShared(t *testing.T) {
	g := group(t, "Disallow: /*a")
	var spent robots.Effort
	before := spent
	for range 3 {
		if v := g.MatchWithin("/b", &spent); !v.Allow || spent <= before {
			t.Fatalf("%+v after %d steps", v, spent)
		}
		before = spent
	}
	for _, path := range []string{"/b", "/xa", "/%20*"} {
		spent = robots.MaxEffort
		if v := g.MatchWithin(path, &spent); v != (robots.Verdict{GaveUp: true}) {
			t.Errorf("%s, with nothing left to spend: %+v", path, v)
		}
	}
}

// TestSize: a compiled file takes, with its text, at most three times the bytes of its rules.
func TestSize(t *testing.T) {
	big := corpus.New("big", 17235)
	f := robots.Parse(big.Text, robots.Standard())
	if size := len(big.Text) + f.Size(); size > 3*len(big.Text) || f.Size() < len(big.Text)/2 {
		t.Errorf("%d bytes of robots.txt are held in %d", len(big.Text), size)
	}
	once := robots.Parse([]byte("user-agent:*\nallow:/\n"), robots.Standard())
	again := robots.Parse([]byte(strings.Repeat("user-agent:*\nuser-agent:*\nallow:/\nuser-agent:*\nallow:/\n", 1000)), robots.Standard())
	if again.Size() != once.Size() {
		t.Errorf("the same again and again is held in %d bytes, once in %d", again.Size(), once.Size())
	}
	other := robots.Parse([]byte("user-agent:*\nallow:/%61\n"), robots.Standard())
	if want := once.Size() + len("/a"); other.Size() != want {
		t.Errorf("a pattern with another form is held in %d bytes, want %d", other.Size(), want)
	}
}

// TestFormsOfCostlyRules: the search in one form of a path leaves nothing behind for the other.
func TestFormsOfCostlyRules(t *testing.T) {
	var costly strings.Builder // many steps for a path with many "%3A"
	costly.WriteString("User-agent: *\n")
	for n := range 60 {
		costly.WriteString("Disallow: /*3A" + strings.Repeat("%3A", n) + "y\n")
	}
	long := "/" + strings.Repeat("%3A", 200) + "bcdefghij" + "k%3Al:" + strings.Repeat("x", 1000)
	for _, c := range []struct{ rules, path string }{
		{"Disallow: /*j*Q\n", "/" + strings.Repeat("%3A", 300) + "j"},
		{"Disallow: /*b*Q\nDisallow: /*c*Q\nDisallow: /*d*Q\nDisallow: /*e*Q\nDisallow: /*f*Q\nDisallow: /*g*Q\nDisallow: /*h*Q\nDisallow: /*i*Q\nDisallow: /*j*k:l%3A\n", long},
		{"Disallow: /\nAllow: /*3A*k:l%3A\n", long},
		{"Disallow: /*3A*k%3Al:x\n", long},
	} {
		agree(t, costly.String()+c.rules, "a", c.path)
	}
	rnd := rand.New(rand.NewPCG(9309, 50))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	some := func(least, most int) string {
		var b strings.Builder
		for range least + rnd.IntN(most-least) {
			b.WriteString(pick("%3A", "%3a", ":", "a", "b", "3A", "%2F", "/", "?", "%"))
		}
		return b.String()
	}
	for range testkit.Rounds(200) {
		var text strings.Builder
		text.WriteString("User-agent: *\n")
		for range 40 + rnd.IntN(60) {
			text.WriteString(pick("Disallow: ", "Allow: ") + pick("/*", "/", "*") + some(0, 4) + pick("*", "") + some(0, 4) + pick("*", "$", "") + "\n")
		}
		agreeUnder(t, robots.Standard(), text.String(), "a", "/"+some(100, 400))
	}
}
