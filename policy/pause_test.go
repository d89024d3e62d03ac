package policy_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/stops"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// TestStopsOfAnEngine: a pause refuses requests and tunnels before any robots.txt is fetched, holds under the Engine after a reload, and
// ends. An entry that denies comes before it.
func TestStopsOfAnEngine(t *testing.T) {
	table, f := stops.New(), &hostFiles{asked: map[string]int{}}
	hosts := []policy.Host{{Match: "denied.test", Robots: policy.Deny, Reason: "x"}, {Match: "ours.test", Robots: policy.Ignore, Reason: "x"}}
	e := engine(t, f, policy.Options{Hosts: hosts, Stops: table})
	decide := func(e *policy.Engine, host string) (all []policy.Decision) {
		r := policy.Request{Client: "lab", Method: http.MethodGet, Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: host, Port: 443}, PathQuery: "/"}}
		return append(all, e.Decide(t.Context(), r), e.DecideTunnel(t.Context(), r), e.DecideConnect(r))
	}
	want := func(e *policy.Engine, host string, reason policy.Reason, retry time.Time) {
		t.Helper()
		for i, d := range decide(e, host) {
			if paused := errors.Is(d.Err, policy.ErrHeld); d.Verdict != policy.Refuse || d.Reason != reason || !d.Retry.Equal(retry) || paused != (reason == policy.ReasonPaused) {
				t.Errorf("%s, %d: %v for %s until %v: %v", host, i, d.Verdict, d.Reason, d.Retry, d.Err)
			}
		}
	}
	until := time.Now().Add(time.Hour).Round(0)
	_, err := table.Put(stops.Stop{Kind: stops.Paused, Host: "a.test", Until: until, Reason: "x"})
	testkit.Must(t, err)
	want(e, "a.test", policy.ReasonPaused, until)
	_, err = table.Put(stops.Stop{Kind: stops.Paused, Reason: "x"})
	testkit.Must(t, err)
	robotsCache, err := cache.New(cache.Options{Fetcher: f})
	testkit.Must(t, err)
	e, err = e.Renew(policy.Options{Cache: robotsCache, Hosts: hosts, Stops: table})
	testkit.Must(t, err)
	want(e, "b.test", policy.ReasonPaused, time.Time{})
	want(e, "ours.test", policy.ReasonPaused, time.Time{})
	want(e, "denied.test", policy.ReasonDenied, time.Time{})
	for _, path := range []string{"/robots.txt", "/x"} {
		if err := e.AllowsRedirect(t.Context(), fetch.Request{}, robots.Origin{Scheme: "https", Host: "b.test", Port: 443}, path); !errors.Is(err, policy.ErrHeld) {
			t.Errorf("a redirect to %s: %v", path, err)
		}
	}
	if len(f.asked) > 0 {
		t.Errorf("robots.txt files were fetched: %v", f.asked)
	}
	for _, host := range []string{"", "a.test"} {
		table.End(stops.Key{Kind: stops.Paused, Host: host}, "")
	}
	for _, d := range decide(e, "a.test") {
		if d.Verdict != policy.Allow {
			t.Errorf("after the end: %+v", d)
		}
	}
}
