package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots/cache"
)

func TestHostPatterns(t *testing.T) {
	for _, c := range []struct{ name, pattern, yes, no string }{
		{"a name", "example.org", "example.org", "www.example.org example.org.test xexample.org org"},
		{"case, and the root's dot", "Example.ORG.", "example.org", "www.example.org"},
		{"an IDN (RFC 5890)", "bücher.example", "xn--bcher-kva.example", "bcher.example"},
		{"an IDN as Punycode", "XN--bcher-kva.example", "xn--bcher-kva.example", "bcher.example"},
		{"a suffix", "*.example.org", "www.example.org a.b.example.org", "example.org xexample.org org www.example.org.test"},
		{"a suffix that is an IDN", "*.Bücher.example", "www.xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"a suffix of one label", "*.test", "a.test b.a.test", "test atest"},
		{"every host", "*", "example.org localhost 192.0.2.1 2001:db8::1", ""},
		{"an IPv4 address", "192.0.2.1", "192.0.2.1", "192.0.2.2 2.1"},
		{"an IPv6 address (RFC 5952)", "2001:DB8:0::1", "2001:db8::1", "2001:db8::2"},
		{"an IPv4 address in IPv6", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2"},
		{"and in brackets", "[2001:DB8:0::1]", "2001:db8::1", "2001:db8::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := policy.NewHostPatterns([]string{"other.invalid", c.pattern})
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range strings.Fields(c.yes) {
				if !p.Has(host) {
					t.Errorf("%s is not %s", host, c.pattern)
				}
			}
			for _, host := range strings.Fields(c.no) {
				if p.Has(host) {
					t.Errorf("%s is %s", host, c.pattern)
				}
			}
		})
	}
	if new(policy.HostPatterns).Has("example.org") {
		t.Error("the zero list has a host")
	}
}

func TestPatternsThatAreNone(t *testing.T) {
	for _, pattern := range []string{"", "*.", "*example.org", "*..org", ".example.org", "a.*.org", "example.*", "**", "*.*", "a b", "example.org:80", "http://example.org", "*.2.1"} {
		if _, err := policy.NewHostPatterns([]string{pattern}); err == nil {
			t.Errorf("%q is taken", pattern)
		}
		if _, err := policy.New(policy.Options{Cache: &cache.Cache{}, Hosts: []policy.Host{{Match: pattern}}}); err == nil {
			t.Errorf("%q is taken for an entry", pattern)
		}
	}
}

// A hostCase is what is decided for a host, and by which entry.
type hostCase struct {
	name, host, path string
	verdict          policy.Verdict
	reason           policy.Reason
	entry, why       string
}

// decided holds the decisions on a request, and on a tunnel to its host, against the case.
func (c hostCase) decided(t *testing.T, e *policy.Engine, r policy.Request) {
	t.Helper()
	for name, d := range map[string]policy.Decision{"request": e.Decide(t.Context(), r), "tunnel": e.DecideTunnel(t.Context(), r)} {
		verdict, reason, entry, why := c.verdict, c.reason, c.entry, c.why
		if name == "tunnel" && reason == policy.ReasonRobotsTxt { // which has no path
			reason = policy.ReasonOverride
		}
		if name == "tunnel" && reason != policy.ReasonOverride && reason != policy.ReasonDenied {
			verdict, reason = policy.Allow, policy.ReasonTunnel
		}
		if d.Verdict != verdict || d.Reason != reason || d.Entry != entry || d.EntryReason != why {
			t.Errorf("%s: %v %q by %q (%s), want %v %q by %q (%s)", name, d.Verdict, d.Reason, d.Entry, d.EntryReason, verdict, reason, entry, why)
		}
		if d.Token != "FooBot" || d.Pace.Key != c.host {
			t.Errorf("%s: token %q, pace of %q", name, d.Token, d.Pace.Key)
		}
	}
}

// TestHostEntries: the first that fits and is in force decides, after the
// identity and before robots.txt.
func TestHostEntries(t *testing.T) {
	const robotsTxt = "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n"
	entries := []policy.Host{
		{Match: "old.test", Robots: policy.Deny, Reason: "over", Until: time.Now().Add(-time.Hour)},
		{Match: "old.test", Robots: policy.Ignore, Reason: "the next", Until: time.Now().Add(time.Hour)},
		{Match: "open.deny.test", Robots: policy.Enforce},
		{Match: "*.deny.test", Robots: policy.Deny, Reason: "they asked us to stay out"},
		{Match: "*.ours.test", Robots: policy.Ignore, Reason: "ticket 7"},
		{Match: "deny.ours.test", Robots: policy.Deny, Reason: "never looked at"},
		{Match: "later.test", Robots: policy.Deny, Reason: "listed before the star"},
		{Match: "*.late.test", Reason: "agreed with them", Pace: pace.Limits{PerSecond: 2}},
		{Match: "*", Robots: policy.Enforce},
		{Match: "any.test", Robots: policy.Deny, Reason: "never looked at"},
	}
	fetches := 0
	e := engine(t, counted{file(robotsTxt), &fetches}, policy.Options{Hosts: entries})
	for _, c := range []hostCase{
		{"ignore: robots.txt is not asked", "a.ours.test", "/private", policy.Allow, policy.ReasonOverride, "*.ours.test", "ticket 7"},
		{"ignore: the first counts", "deny.ours.test", "/private", policy.Allow, policy.ReasonOverride, "*.ours.test", "ticket 7"},
		{"ignore: robots.txt itself needs no permission", "a.ours.test", "/robots.txt", policy.Allow, policy.ReasonRobotsTxt, "*.ours.test", "ticket 7"},
		{"deny", "a.deny.test", "/page", policy.Refuse, policy.ReasonDenied, "*.deny.test", "they asked us to stay out"},
		{"deny: robots.txt too", "a.deny.test", "/robots.txt", policy.Refuse, policy.ReasonDenied, "*.deny.test", "they asked us to stay out"},
		{"deny: an exception before it", "open.deny.test", "/private", policy.Refuse, policy.ReasonRule, "open.deny.test", ""},
		{"deny: not the suffix itself", "deny.test", "/page", policy.Allow, policy.ReasonNoRule, "*", ""},
		{"an entry that is over is as if not there", "old.test", "/private", policy.Allow, policy.ReasonOverride, "old.test", "the next"},
		{"an exact entry in its place", "later.test", "/page", policy.Refuse, policy.ReasonDenied, "later.test", "listed before the star"},
		{"behind the star nothing counts", "any.test", "/private", policy.Refuse, policy.ReasonRule, "*", ""},
		{"enforce with a pace", "a.late.test", "/private", policy.Refuse, policy.ReasonRule, "*.late.test", "agreed with them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fetches = 0
			r := ask("FooBot/1.0", c.path)
			r.Origin.Host = c.host
			c.decided(t, e, r)
			asked := c.reason == policy.ReasonRule || c.reason == policy.ReasonNoRule
			if (fetches > 0) != asked {
				t.Errorf("%d fetches", fetches)
			}
			d := e.DecideConnect(r)
			if denied := c.reason == policy.ReasonDenied; (d.Verdict == policy.Refuse) != denied || (d.Reason == policy.ReasonDenied) != denied {
				t.Errorf("CONNECT: %v %q", d.Verdict, d.Reason)
			}
			if d.Pace.CrawlDelay != 0 || d.Pace.Key != c.host || d.Pace.MaxConcurrent != 2 {
				t.Errorf("CONNECT: %+v", d.Pace)
			}
		})
	}
}

// TestEntriesForPaths: the first entry that matches host and path applies. What permits must be for all forms of the path, what
// forbids or slows for one.
func TestEntriesForPaths(t *testing.T) {
	const robotsTxt = "User-agent: *\nDisallow: /data\nDisallow: /both"
	entries := []policy.Host{
		{Match: "site.test", Paths: []string{"/old"}, Robots: policy.Deny, Reason: "over", Until: time.Now().Add(-time.Hour)},
		{Match: "site.test", Paths: []string{"/data/", "/both", "/export?format=*$"}, Robots: policy.Ignore, Reason: "permitted"},
		{Match: "site.test", Paths: []string{"/closed", "/both/closed"}, Robots: policy.Deny, Reason: "closed"},
		{Match: "site.test", Paths: []string{"/slow/"}, Pace: pace.Limits{PerSecond: 0.1}},
		{Match: "site.test", Paths: []string{"/fast/"}, Pace: pace.Limits{PerSecond: 5, Burst: 9}},
		{Match: "*", Paths: []string{"/anywhere"}, Robots: policy.Deny, Reason: "nowhere"},
		{Match: "*", Pace: pace.Limits{PerSecond: 2}},
	}
	e := engine(t, file(robotsTxt), policy.Options{Hosts: entries})
	for _, c := range []struct {
		name, path string
		reason     policy.Reason
		entry      string
		perSecond  float64
	}{
		{"none of the paths", "/page", policy.ReasonNoRule, "*", 2},
		{"permitted", "/data/1", policy.ReasonOverride, "site.test/data/", 1},
		{"with its query", "/export?format=csv", policy.ReasonOverride, "site.test/export?format=*$", 1},
		{"not its prefix", "/data", policy.ReasonRule, "*", 2},
		{"no longer in force", "/old", policy.ReasonNoRule, "*", 2},
		{"closed", "/closed/x", policy.ReasonDenied, "site.test/closed", 1},
		{"the first that matches", "/both/closed", policy.ReasonOverride, "site.test/both", 1},
		{"of another host's pattern", "/anywhere", policy.ReasonDenied, "*/anywhere", 1},
		{"slow", "/slow/1", policy.ReasonNoRule, "site.test/slow/", 0.1},
		{"fast", "/fast/1", policy.ReasonNoRule, "site.test/fast/", 5},

		{"dots lead out of what is permitted", "/data/../secret", policy.ReasonRule, "*", 1},
		{"dots that stay in it", "/data/a/../b", policy.ReasonOverride, "site.test/data/", 1},
		{"dots lead into it", "/page/../data/1", policy.ReasonRule, "*", 1},
		{"dots lead to what is closed", "/data/../closed", policy.ReasonDenied, "site.test/closed", 1},
		{"escaped dots and slash", "/data%2F%2e%2e%2fclosed", policy.ReasonDenied, "site.test/closed", 1},
		{"several slashes", "//closed/x", policy.ReasonDenied, "site.test/closed", 1},
		{"parameters", "/closed;v=1/x", policy.ReasonDenied, "site.test/closed", 1},
		{"a way out of what is closed", "/closed/../page", policy.ReasonDenied, "site.test/closed", 1},
		{"slow in one form", "//slow/1", policy.ReasonNoRule, "site.test/slow/", 0.1},
		{"fast in one form", "//fast/1", policy.ReasonNoRule, "*", 2},
		{"the slower of two", "/fast/..%2Fslow/1", policy.ReasonNoRule, "site.test/slow/", 0.1},

		{"robots.txt is for all paths", "/robots.txt", policy.ReasonRobotsTxt, "*", 2},
		{"too many forms", "/" + strings.Repeat("%2F;%3B..%5C/a*", 4000), policy.ReasonTooComplex, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ask("FooBot/1.0", c.path)
			r.Origin.Host = "site.test"
			d := e.Decide(t.Context(), r)
			if d.Reason != c.reason || d.Entry != c.entry {
				t.Errorf("%v %q by %q, want %q by %q", d.Verdict, d.Reason, d.Entry, c.reason, c.entry)
			}
			if d.Pace.PerSecond != c.perSecond && c.perSecond != 1 {
				t.Errorf("%v requests per second", d.Pace.PerSecond)
			}
			for name, d := range map[string]policy.Decision{"CONNECT": e.DecideConnect(r), "tunnel": e.DecideTunnel(t.Context(), r)} {
				if d.Verdict != policy.Allow || d.Entry != "*" {
					t.Errorf("%s: %v %q by %q", name, d.Verdict, d.Reason, d.Entry)
				}
			}
		})
	}
	if l, err := e.FetchLimits(fileOf(ask("FooBot/1.0", "/slow/1").Origin)); err != nil || l.PerSecond != 2 {
		t.Errorf("a fetch: %v requests per second", l.PerSecond)
	}
	denied, err := policy.Denied(entries)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/closed/robots.txt": true, "/a/..//closed": true, "/robots.txt": false, "/page": false, "/data/x": false} {
		r := ask("FooBot/1.0", path)
		if r.Origin.Host = "site.test"; denied(r.Target) != want {
			t.Errorf("a redirect to %s: denied is not %t", path, want)
		}
	}
}

// TestStrictestEntry: of the entries that apply to the forms of one path, each setting is the one that permits least.
func TestStrictestEntry(t *testing.T) {
	usageIgnored := policy.Host{Match: "*", Paths: []string{"/a"}, IgnoreUsage: true, Reason: "contract"}
	for _, c := range []struct {
		name  string
		other policy.Host
		holds func(d policy.Decision) bool
	}{
		{"usage", usageIgnored, func(d policy.Decision) bool { return d.Usage.Refuse && d.Entry == "" }},
		{"usage of both", policy.Host{Match: "*", Paths: []string{"/"}, IgnoreUsage: true, Reason: "contract"}, func(d policy.Decision) bool {
			return !d.Usage.Refuse
		}},
		{"readings", policy.Host{Match: "*", Paths: []string{"/a"}, Readings: policy.LiteralReadings}, func(d policy.Decision) bool {
			return d.Verdict == policy.Refuse
		}},
		{"readings of both", policy.Host{Match: "*", Paths: []string{"/"}, Readings: policy.LiteralReadings}, func(d policy.Decision) bool {
			return d.Verdict == policy.Allow
		}},
		{"in flight", policy.Host{Match: "*", Paths: []string{"/a"}, Pace: pace.Limits{MaxConcurrent: 7}}, func(d policy.Decision) bool {
			return d.Pace.MaxConcurrent == 2
		}},
		{"a client's own pace", policy.Host{Match: "*", Paths: []string{"/a"}, Pace: pace.Limits{PerSecond: 9}}, func(d policy.Decision) bool {
			return d.Pace.PerSecond == 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, file("User-agent: *\nDisallow: /closed"), policy.Options{
				Hosts: []policy.Host{c.other}, Usage: usage.Policy{Purposes: usage.SetOf(usage.Search), Refuse: true},
			})
			if d := e.Decide(t.Context(), ask("FooBot/1.0", "/a/..//closed")); !c.holds(d) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestUntil: an entry ends while the engine runs.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, file("User-agent: *\nDisallow: /"), policy.Options{Hosts: []policy.Host{
			{Match: "site.test", Robots: policy.Ignore, Reason: "for a day", Until: time.Now().Add(24 * time.Hour)},
		}})
		<-time.After(24*time.Hour - time.Nanosecond)
		if d := e.Decide(t.Context(), ask("FooBot", "/")); d.Reason != policy.ReasonOverride {
			t.Errorf("before the end: %q", d.Reason)
		}
		<-time.After(time.Nanosecond)
		if d := e.Decide(t.Context(), ask("FooBot", "/")); d.Verdict != policy.Refuse || d.Reason != policy.ReasonRule {
			t.Errorf("at the end: %v %q", d.Verdict, d.Reason)
		}
	})
}

func TestEntriesThatAreNone(t *testing.T) {
	for name, h := range map[string]policy.Host{
		"ignore without a reason": {Match: "*", Robots: policy.Ignore},
		"deny without a reason":   {Match: "*", Robots: policy.Deny},
		"a reason of two lines":   {Match: "*", Reason: "two\nlines"},
		"a terminal's escape":     {Match: "*", Reason: "\x1b[2J"},
		"no treatment":            {Match: "*", Robots: policy.Deny + 1, Reason: "x"},
		"a negative rate":         {Match: "*", Pace: pace.Limits{PerSecond: -1}},
		"a negative queue":        {Match: "*", Pace: pace.Limits{MaxQueue: -1}},
		"a negative wait":         {Match: "*", Pace: pace.Limits{MaxWait: -1}},
	} {
		if _, err := policy.New(policy.Options{Cache: &cache.Cache{}, Hosts: []policy.Host{h}}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestHostPace: from the entry to what the request is paced by, with and without
// a Crawl-delay, and the hosts of a domain as one, but for their back-offs.
func TestHostPace(t *testing.T) {
	e := engine(t, file("User-agent: *\nCrawl-delay: 5"), policy.Options{PerDomain: true, Hosts: []policy.Host{
		{Match: "*.site.test", Pace: pace.Limits{PerSecond: 3, MaxQueue: 7}},
		{Match: "ours.site.test", Robots: policy.Ignore, Reason: "x"},
	}})
	r := ask("FooBot", "/")
	r.Origin.Host = "www.site.test"
	if p := e.Decide(t.Context(), r).Pace; p.Key != "site.test" || p.BackOffKey != "www.site.test" || p.PerSecond != 3 || p.MaxQueue != 7 || p.MaxConcurrent != 2 || p.CrawlDelay != 5*time.Second {
		t.Errorf("%+v", p)
	}
	r.Origin.Host = "192.0.2.1"
	if p := e.Decide(t.Context(), r).Pace; p.Key != "192.0.2.1" || p.BackOffKey != "" || p.PerSecond != 1 || p.MaxQueue != 500 {
		t.Errorf("%+v", p)
	}
}

func BenchmarkDecideAmongHosts(b *testing.B) {
	var hosts []policy.Host
	for i := range 20 {
		hosts = append(hosts,
			policy.Host{Match: fmt.Sprintf("host-%d.test", i), Robots: policy.Deny, Reason: "x"},
			policy.Host{Match: fmt.Sprintf("*.suffix-%d.test", i), Pace: pace.Limits{PerSecond: 2}})
	}
	e := engine(b, file(rules), policy.Options{Hosts: hosts})
	r := ask("FooBot/1.0", "/some/page")
	r.Origin.Host = "www.suffix-19.test"
	if d := e.Decide(b.Context(), r); d.Verdict != policy.Allow || d.Pace.PerSecond != 2 {
		b.Fatalf("%+v", d)
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Decide(b.Context(), r)
	}
}
