package policy_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
)

// TestParent: a request goes through the upstream proxy of the entry that decides about it; robots.txt, CONNECT and tunnels through
// that of the entry for all paths.
func TestParent(t *testing.T) {
	entries := []policy.Host{
		{Match: "site.test", Paths: []string{"/data/"}, Parent: "a"},
		{Match: "site.test", Paths: []string{"/slow/"}, Parent: "b", Pace: pace.Limits{PerSecond: 0.1}},
		{Match: "site.test", Paths: []string{"/plain/"}},
		{Match: "site.test", Parent: "c"},
		{Match: "denied.test", Robots: policy.Deny, Reason: "closed", Parent: "d"},
		{Match: "*.free.test", Robots: policy.Ignore, Reason: "ours", Parent: "e"},
	}
	e := engine(t, file("User-agent: *\nDisallow: /closed"), policy.Options{Hosts: entries})
	for _, c := range []struct{ name, host, path, want, ofHost string }{
		{"no entry", "other.test", "/page", "", ""},
		{"the entry for all paths", "site.test", "/page", "c", "c"},
		{"an entry for a path", "site.test", "/data/1", "a", "c"},
		{"an entry that names none", "site.test", "/plain/1", "", "c"},
		{"robots.txt", "site.test", "/robots.txt", "c", "c"},
		{"two forms, neither is stricter", "site.test", "/data/../page", "c", "c"},
		{"two forms, of which one is slower", "site.test", "/data/../slow/1", "c", "c"},
		{"two forms, one of an entry that names none", "site.test", "/plain/../data/1", "c", "c"},
		{"two forms of one entry", "site.test", "/data/../data/1", "a", "c"},
		{"refused by a rule", "site.test", "/closed", "c", "c"},
		{"denied", "denied.test", "/page", "d", "d"},
		{"robots.txt is ignored", "www.free.test", "/page", "e", "e"},
		{"not below the domain", "free.test", "/page", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ask("FooBot/1.0", c.path)
			r.Origin.Host = c.host
			if d := e.Decide(t.Context(), r); d.Parent != c.want {
				t.Errorf("%q by %q, want %q", d.Parent, d.Entry, c.want)
			}
			if got := e.ParentOf(c.host); got != c.ofHost {
				t.Errorf("of the host: %q, want %q", got, c.ofHost)
			}
			r.Method = http.MethodConnect
			for name, d := range map[string]policy.Decision{"CONNECT": e.DecideConnect(r), "tunnel": e.DecideTunnel(t.Context(), r)} {
				if d.Parent != c.ofHost {
					t.Errorf("%s: %q, want %q", name, d.Parent, c.ofHost)
				}
			}
		})
	}
}

// TestParentUntil: an entry that has expired names no upstream proxy.
func TestParentUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, file(""), policy.Options{Hosts: []policy.Host{{Match: "*", Parent: "a", Until: time.Now().Add(time.Hour)}, {Match: "*", Parent: "b"}}})
		r := ask("FooBot", "/")
		if d := e.Decide(t.Context(), r); d.Parent != "a" || e.ParentOf(r.Origin.Host) != "a" {
			t.Errorf("before: %q", d.Parent)
		}
		time.Sleep(time.Hour)
		if d := e.Decide(t.Context(), r); d.Parent != "b" || e.ParentOf(r.Origin.Host) != "b" {
			t.Errorf("after: %q", d.Parent)
		}
	})
}
