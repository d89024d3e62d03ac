package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// answers is a Fetcher of one answer for every origin.
type answers struct{ fetch.Result }

func (a answers) Fetch(context.Context, fetch.Request) *fetch.Result {
	b := a.Result
	b.Fetched = time.Now()
	return &b
}

func file(text string) answers {
	return answers{fetch.Result{URL: "https://site.test/robots.txt", Status: 200, Body: []byte(text), MaxAge: -1, Connected: true}}
}

func engine(t testing.TB, f cache.Fetcher, o policy.Options) *policy.Engine {
	t.Helper()
	robotsCache, err := cache.New(cache.Options{Fetcher: f})
	if err != nil {
		t.Fatal(err)
	}
	o.Cache = robotsCache
	o.Pace = pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 2, MaxWait: time.Minute, MaxQueue: 500}
	e, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var site = robots.Origin{Scheme: "https", Host: "site.test", Port: 443}

func ask(userAgent, pathQuery string) policy.Request {
	return policy.Request{Client: "127.0.0.1", Method: "GET", Target: robots.Target{Origin: site, PathQuery: pathQuery}, UserAgent: userAgent}
}

const rules = `User-agent: *
Disallow: /all
User-agent: FooBot
Disallow: /private
Allow: /private/open
Crawl-delay: 100
`

func TestDecide(t *testing.T) {
	status := func(code int) answers { return answers{fetch.Result{Status: code, MaxAge: -1, Connected: true}} }
	for _, c := range []struct {
		name       string
		origin     answers
		agent      string
		path       string
		verdict    policy.Verdict
		reason     policy.Reason
		rule       string
		line       int
		group, tok string
	}{
		{"a rule disallows", file(rules), "FooBot/1.0", "/private/x", policy.Refuse, policy.ReasonRule, "/private", 4, "foobot", "FooBot"},
		{"a longer rule allows", file(rules), "FooBot/1.0", "/private/open", policy.Allow, policy.ReasonRule, "/private/open", 5, "foobot", "FooBot"},
		{"no rule matches", file(rules), "FooBot/1.0", "/all", policy.Allow, policy.ReasonNoRule, "", 0, "foobot", "FooBot"},
		{"the star group", file(rules), "BarBot", "/all", policy.Refuse, policy.ReasonRule, "/all", 2, "*", "BarBot"},
		{"a browser is *", file(rules), "Mozilla/5.0 (X11) Gecko/20100101 Firefox/120.0", "/all", policy.Refuse, policy.ReasonRule, "/all", 2, "*", ""},
		{"no header is *", file(rules), "", "/all", policy.Refuse, policy.ReasonRule, "/all", 2, "*", ""},
		{"no group applies", file("User-agent: x\nDisallow: /"), "FooBot", "/", policy.Allow, policy.ReasonNoRule, "", 0, "", "FooBot"},
		{"RFC 9309 2.3.1.3: 404 allows", status(404), "FooBot", "/", policy.Allow, policy.ReasonNoFile, "", 0, "", "FooBot"},
		{"RFC 9309 2.3.1.4: 503 refuses", status(503), "FooBot", "/", policy.Refuse, policy.ReasonUnreachable, "", 0, "", "FooBot"},
		{"429 refuses", status(429), "FooBot", "/", policy.Refuse, policy.ReasonUnreachable, "", 0, "", "FooBot"},
		{"no connection refuses", answers{fetch.Result{Err: errors.New("refused"), MaxAge: -1}}, "FooBot", "/", policy.Refuse, policy.ReasonOrigin, "", 0, "", "FooBot"},
		{"RFC 3986 5.2.4: a dot segment is no way round a rule", file(rules), "FooBot", "/a/../private", policy.Refuse, policy.ReasonRule, "/private", 4, "foobot", "FooBot"},
		{"nor is an escaped one", file(rules), "FooBot", "/a/%2e%2E/./private?x", policy.Refuse, policy.ReasonRule, "/private", 4, "foobot", "FooBot"},
		{"refused as sent stays refused", file(rules), "FooBot", "/private/../a", policy.Refuse, policy.ReasonRule, "/private", 4, "foobot", "FooBot"},
		{"RFC 9309 2.2.2: /robots.txt is allowed", file("User-agent: *\nDisallow: /"), "FooBot", "/robots.txt", policy.Allow, policy.ReasonRobotsTxt, "", 0, "", "FooBot"},
		{"but not with a query", file("User-agent: *\nDisallow: /"), "FooBot", "/robots.txt?x", policy.Refuse, policy.ReasonRule, "/", 2, "*", "FooBot"},
		{"but not what begins so", file("User-agent: *\nDisallow: /"), "FooBot", "/robots.txt.bak", policy.Refuse, policy.ReasonRule, "/", 2, "*", "FooBot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := engine(t, c.origin, policy.Options{}).Decide(t.Context(), ask(c.agent, c.path))
			if d.Verdict != c.verdict || d.Reason != c.reason || d.Rule != c.rule || d.Line != c.line || d.Group != c.group || d.Token != c.tok {
				t.Errorf("%v %q %q line %d group %q token %q", d.Verdict, d.Reason, d.Rule, d.Line, d.Group, d.Token)
			}
			if d.Verdict == policy.Refuse && d.Reason != policy.ReasonRule && d.Err == nil {
				t.Error("it is not said why")
			}
		})
	}
}

// The type code of an ftp URL (RFC 1738 3.2.2) is no part of a file's name, and
// a name has one spelling there.
func TestDecideFTP(t *testing.T) {
	for _, c := range []struct {
		name, scheme, path, rule string // "": allowed
	}{
		{"a rule up to the end", "ftp", "/a.zip;type=i", "/*.zip$"},
		{"a rule on a directory", "ftp", "/private;type=d", "/private/"},
		{"a directory as it is", "ftp", "/private/;TYPE=D", "/private/"},
		{"a rule on what was sent", "ftp", "/b;type=a", "/b;type="},
		{"no type code", "ftp", "/private;type=x", ""},
		{"another file", "ftp", "/a.zip.txt;type=i", ""},
		{"what is escaped here and not in the rule", "ftp", "/a%2Bb/x", "/a+b/"},
		{"what is escaped in the rule and not here", "ftp", "/c+d/x", "/c%2Bd/"},
		{"a percent sign is one", "ftp", "/a%252Bb/x", ""},
		{"http takes them for the same (RFC 9309 2.2.2)", "http", "/c+d/x", "/c%2Bd/"},
		{"http has none", "http", "/private;type=d", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, file("User-agent: *\nDisallow: /*.zip$\nDisallow: /private/\nDisallow: /b;type=\nDisallow: /a+b/\nDisallow: /c%2Bd/"), policy.Options{})
			d := e.Decide(t.Context(), policy.Request{Target: robots.Target{Origin: robots.Origin{Scheme: c.scheme, Host: "site.test", Port: 21}, PathQuery: c.path}})
			if d.Rule != c.rule || (d.Verdict == policy.Allow) != (c.rule == "") {
				t.Errorf("%v by %q", d.Verdict, d.Rule)
			}
		})
	}
}

func TestCrawlDelay(t *testing.T) {
	for _, c := range []struct {
		name    string
		asked   string
		over    policy.OverMax
		given   time.Duration
		verdict policy.Verdict
	}{
		{"under the maximum", "5", policy.Clamp, 5 * time.Second, policy.Allow},
		{"over_max: clamp, 100 is 10", "100", policy.Clamp, 10 * time.Second, policy.Allow},
		{"over_max: honor", "100", policy.Honor, 100 * time.Second, policy.Allow},
		{"over_max: refuse", "100", policy.RefuseExcess, 100 * time.Second, policy.Refuse},
		{"over_max: refuse, under the maximum", "9.5", policy.RefuseExcess, 9500 * time.Millisecond, policy.Allow},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, file("User-agent: *\nDisallow: /x\nCrawl-delay: "+c.asked), policy.Options{OverMax: c.over})
			d := e.Decide(t.Context(), ask("FooBot", "/"))
			if d.Pace.CrawlDelay != c.given || d.Verdict != c.verdict {
				t.Errorf("%v, a delay of %v", d.Verdict, d.Pace.CrawlDelay)
			}
			if c.verdict == policy.Refuse && d.Reason != policy.ReasonCrawlDelay {
				t.Errorf("reason %q", d.Reason)
			}
			if got := fmt.Sprint(d.Asked.Seconds()); got != c.asked {
				t.Errorf("asked for %s, recorded %s", c.asked, got)
			}
			if d.Pace.Key != "site.test" {
				t.Errorf("paced under %q", d.Pace.Key)
			}
		})
	}
}

func TestProductTokenOfTheConfiguration(t *testing.T) {
	e := engine(t, file(rules), policy.Options{ProductToken: "FooBot"})
	if d := e.Decide(t.Context(), ask("Mozilla/5.0", "/private")); d.Group != "foobot" || d.Token != "FooBot" || d.Verdict != policy.Refuse {
		t.Errorf("%+v", d)
	}
}

func TestDecideTunnel(t *testing.T) {
	for _, c := range []struct {
		name, text string
		verdict    policy.Verdict
		line       int
	}{
		{"a wholly disallowed site is refused", "User-agent: *\nDisallow: /", policy.Refuse, 2},
		{"a partly disallowed site is passed", "User-agent: *\nDisallow: /x", policy.Allow, 0},
		{"so is one with an exception", "User-agent: *\nDisallow: /\nAllow: /x", policy.Allow, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := engine(t, file(c.text), policy.Options{}).DecideTunnel(t.Context(), ask("FooBot", "/"))
			if d.Verdict != c.verdict || d.Reason != policy.ReasonTunnel || d.Line != c.line {
				t.Errorf("%v %q line %d", d.Verdict, d.Reason, d.Line)
			}
		})
	}
}

// TestPreferencesDecideNothing: what a group says of uses is in the Decision beside it.
func TestPreferencesDecideNothing(t *testing.T) {
	const text = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nContent-Usage: train-ai=n\nContent-Usage: /free/ train-ai=y\nDisallow: /private\n"
	signals := robots.Signals{Search: robots.Yes, AITrain: robots.No}
	e := engine(t, file(text), policy.Options{})
	for _, c := range []struct {
		path, usage string
		verdict     policy.Verdict
	}{
		{"/page", "train-ai=n", policy.Allow},
		{"/free/page", "train-ai=y", policy.Allow},
		{"/private/x", "train-ai=n", policy.Refuse},
	} {
		if d := e.Decide(t.Context(), ask("FooBot", c.path)); d.Verdict != c.verdict || d.Signals != signals || d.ContentUsage != c.usage {
			t.Errorf("%s: %v, %v, %q", c.path, d.Verdict, d.Signals, d.ContentUsage)
		}
	}
	if d := e.DecideTunnel(t.Context(), ask("FooBot", "")); d.Verdict != policy.Allow || d.Signals != signals || d.ContentUsage != "train-ai=n" {
		t.Errorf("a tunnel: %v, %v, %q", d.Verdict, d.Signals, d.ContentUsage)
	}
	if d := engine(t, file(rules), policy.Options{}).Decide(t.Context(), ask("FooBot", "/page")); d.Signals != (robots.Signals{}) || d.ContentUsage != "" {
		t.Errorf("made up: %v, %q", d.Signals, d.ContentUsage)
	}
}

func TestZeroDecisionRefuses(t *testing.T) {
	if (policy.Decision{}).Verdict != policy.Refuse {
		t.Error("the zero Decision lets a request out")
	}
}

func TestClientThatLeftIsNotAnOriginThatFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d := engine(t, file(rules), policy.Options{}).Decide(ctx, ask("FooBot", "/")); d.Verdict != policy.Refuse || d.Reason != policy.ReasonClient {
		t.Errorf("%v %q", d.Verdict, d.Reason)
	}
}

func TestLongHeadersAreCut(t *testing.T) {
	e := engine(t, file(rules), policy.Options{})
	if d := e.Decide(t.Context(), ask("FooBot/1.0 "+strings.Repeat("x", 1<<20), "/private")); d.Group != "foobot" {
		t.Errorf("group %q", d.Group)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	if _, err := policy.New(policy.Options{}); err == nil {
		t.Error("made without a cache")
	}
}

// known returns an Engine that has the file for the request in its cache.
func known(t testing.TB) (*policy.Engine, policy.Request) {
	return engine(t, file(rules+strings.Repeat("Disallow: /a*b\nDisallow: /c\n", 75)), policy.Options{}),
		ask("Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.example)", "/some/page/of/the/site?q=1")
}

func TestDecideByAKnownFileAllocatesNothing(t *testing.T) {
	e, r := known(t)
	n := testing.AllocsPerRun(100, func() {
		if d := e.Decide(t.Context(), r); d.Verdict != policy.Allow {
			t.Fatalf("%+v", d)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	e, r := known(b)
	if d := e.Decide(b.Context(), r); d.Verdict != policy.Allow {
		b.Fatalf("%+v", d)
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Decide(b.Context(), r)
	}
}

// TestClients: two clients are judged under two dialects by one fetch.
func TestClients(t *testing.T) {
	coccoc, err := robots.DialectByName("coccoc")
	if err != nil {
		t.Fatal(err)
	}
	fetches := 0
	f := counted{file("User-agent: foobot\nDisallow: /private\nCrawl-delay: 1.5\n"), &fetches}
	e := engine(t, f, policy.Options{Open: true, Clients: []policy.Client{
		{Name: "lab-a", Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}, Dialect: coccoc},
		{Name: "lab-b", Networks: []netip.Prefix{netip.MustParsePrefix("192.0.0.0/16")}},
	}})
	for _, c := range []struct {
		address, name, dialect string
		verdict                policy.Verdict
	}{
		{"192.0.2.7", "lab-a", "coccoc", policy.Refuse},
		{"::ffff:192.0.2.7", "lab-a", "coccoc", policy.Refuse},
		{"2001:db8::1%eth0", "lab-a", "coccoc", policy.Refuse},
		{"192.0.3.7", "lab-b", "standard", policy.Allow},
		{"127.0.0.1", "127.0.0.1", "standard", policy.Allow},
		{"@", "@", "standard", policy.Allow},
	} {
		r := ask("FooBot-Images/1.0", "/private")
		var err error
		if r.Client, err = e.Admit(t.Context(), c.address, policy.Login{}); r.Client != c.name || err != nil {
			t.Errorf("%s: %q, want %q (%v)", c.address, r.Client, c.name, err)
		}
		if d := e.Decide(t.Context(), r); d.Verdict != c.verdict || d.Dialect != c.dialect {
			t.Errorf("%s: %v under %q, want %v under %q", c.address, d.Verdict, d.Dialect, c.verdict, c.dialect)
		}
	}
	if fetches != 1 {
		t.Errorf("%d fetches", fetches)
	}
}

type counted struct {
	cache.Fetcher
	n *int
}

func (c counted) Fetch(ctx context.Context, r fetch.Request) *fetch.Result {
	*c.n++
	return c.Fetcher.Fetch(ctx, r)
}

// TestFetchPerToken: the file is fetched and kept as the proxy for all clients, or for
// the product token that the client is taken for.
func TestFetchPerToken(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     policy.Options
		agent string
		want  string
	}{
		{"as the proxy", policy.Options{}, "FooBot/1.0", ""},
		{"as the client", policy.Options{FetchPerToken: true}, "FooBot/1.0 (+https://foo.example)", "FooBot"},
		{"a browser names no product", policy.Options{FetchPerToken: true}, "Mozilla/5.0 (X11; Linux x86_64)", ""},
		{"by the configuration", policy.Options{FetchPerToken: true, ProductToken: "OurBot"}, "FooBot/1.0", "OurBot"},
	} {
		q := engine(t, file(""), c.o).Query(policy.Request{Client: "2001:db8::1", UserAgent: c.agent})
		if q.Token != c.want || q.Client != "2001:db8::/56" {
			t.Errorf("%s: %+v, want the token %q", c.name, q, c.want)
		}
	}
}

// TestReleasedDecisionHoldsNoFile: what a released Decision still says is no part of the file, which is
// freed as soon as the cache drops it.
func TestReleasedDecisionHoldsNoFile(t *testing.T) {
	text := rules + "Content-Usage: /private/open train-ai=n\n" + strings.Repeat("# padding\n", 2000)
	e := engine(t, file(text), policy.Options{})
	d := e.Decide(t.Context(), ask("FooBot", "/private/open"))
	before := d
	d.Release()
	if d.Ruling.File != nil || len(d.Ruling.Result.Body) > 0 || d.Ruling.Result.URL != before.Ruling.Result.URL {
		t.Errorf("released: %+v", d.Ruling)
	}
	if d.Rule != "/private/open" || d.Group != "foobot" || d.ContentUsage != "train-ai=n" || !d.Ruling.Fetched().Equal(before.Ruling.Fetched()) {
		t.Errorf("released: rule %q, group %q, usage %q, fetched %v", d.Rule, d.Group, d.ContentUsage, d.Ruling.Fetched())
	}
	if d.Ruling.FullResult() != before.Ruling.Result {
		t.Error("the whole answer is not to be had though it is still there")
	}
	body := weak.Make(&before.Ruling.Result.Body[0])
	e, before = nil, policy.Decision{}
	for range 100 { // until the cache's goroutines have let go of the answer
		if runtime.GC(); body.Value() == nil {
			break
		}
	}
	if body.Value() != nil || d.Ruling.FullResult() != nil {
		t.Error("a released Decision keeps the body")
	}
	runtime.KeepAlive(&d)
}
