package runner

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

func allowed() *audit.Record {
	return &audit.Record{
		Request:  policy.Request{Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: "site.test", Port: 443}}},
		Decision: policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonRule, Rule: "/p", Line: 3},
		Waited:   1500 * time.Microsecond,
	}
}

func refused() *audit.Record {
	r := allowed()
	r.Decision.Verdict, r.Err = policy.Refuse, errors.New("why")
	return r
}

// TestCounterInMonitorMode: some requests are refused in monitor mode too, such as those to forbidden addresses.
func TestCounterInMonitorMode(t *testing.T) {
	var tally counter
	sent, address, fine := refused(), refused(), allowed()
	sent.Monitor, fine.Monitor = true, true
	address.Decision.Reason = policy.ReasonAddress
	for _, r := range []*audit.Record{sent, address, fine} {
		if err := tally.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if n := tally.summary().NotEnforced; n != 1 {
		t.Errorf("%d requests were not allowed and sent nevertheless, want 1", n)
	}
}

func TestCounterCountsByHostAndCause(t *testing.T) {
	var tally counter
	other := refused()
	other.Request.Origin.Host, other.Decision.Rule, other.Decision.Line = "b.test", "", 0
	other.Decision.Reason, other.StoreAway = policy.ReasonUnreachable, true
	left := refused()
	left.Decision.Rule, left.Decision.Line, left.Decision.Reason = "", 0, policy.ReasonClient
	over := refused()
	over.Decision.Rule, over.Decision.Line, over.Decision.Reason, over.Waited = "", 0, policy.ReasonQuota, 2*time.Second
	gone := allowed()
	gone.Err = fmt.Errorf("dial site.test:443: %w", &net.DNSError{Err: "no such host", IsNotFound: true})
	for _, r := range []*audit.Record{allowed(), gone, refused(), refused(), other, left, over} {
		if err := tally.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	want := summary{
		Outcomes: outcomeCounts{policy.Allowed: 2, policy.Disallowed: 2, policy.Deferred: 1, policy.Failed: 2}, LongestWait: 2 * time.Second, StoreAway: 1, Unreached: 1,
		Hosts: []hostSummary{
			{Host: "b.test", Outcomes: outcomeCounts{policy.Failed: 1}, LongestWait: 1500 * time.Microsecond, HTTPS: true},
			{Host: "site.test", Outcomes: outcomeCounts{policy.Allowed: 2, policy.Disallowed: 2, policy.Deferred: 1, policy.Failed: 1}, LongestWait: 2 * time.Second, HTTPS: true},
		},
		Causes: []causeSummary{
			{Host: "site.test", Outcome: policy.Disallowed, Rule: "/p", Line: 3, Count: 2},
			{Host: "b.test", Outcome: policy.Failed, Text: "no usable robots.txt: why", Count: 1},
			{Host: "site.test", Outcome: policy.Allowed, Text: "not sent: the name does not resolve", Count: 1},
			{Host: "site.test", Outcome: policy.Failed, Text: "the client disconnected before the request was complete", Count: 1},
			{Host: "site.test", Outcome: policy.Deferred, Text: "the client has sent all the requests that it may send in a day (quota in clients)", Count: 1},
		},
	}
	if diff := cmp.Diff(want, tally.summary()); diff != "" {
		t.Error(diff)
	}
}

// TestCounterKnowsWhatLimitedThePace: a summary names a setting only if that delayed requests.
func TestCounterKnowsWhatLimitedThePace(t *testing.T) {
	const second = time.Second
	at := func(rate float64, delay, asked, waited time.Duration) *audit.Record {
		r := allowed()
		r.Slot, r.Waited, r.Decision.Asked = true, waited, asked
		r.Decision.Pace = pace.Limits{PerSecond: rate, CrawlDelay: delay}
		return r
	}
	with := func(r *audit.Record, change func(*audit.Record)) *audit.Record { change(r); return r }
	for _, c := range []struct {
		name        string
		record      *audit.Record
		asked, sent time.Duration
		rate        float64
	}{
		{"the rate", at(2, 0, 0, second/2), 0, 0, 2},
		{"nobody waited", at(2, 0, 0, second/50), 0, 0, 0},
		{"a longer Crawl-delay", at(2, 5*second, 5*second, second), 0, 0, 0},
		{"a shorter Crawl-delay", at(2, second/4, second/4, second), 0, 0, 2},
		{"a Crawl-delay that was shortened", at(2, 10*second, 30*second, second), 30 * second, 10 * second, 0},
		{"shortened, but the rate is as slow", at(1./30, 10*second, 30*second, second), 0, 0, 1. / 30},
		{"shortened, and the rate is slower than the maximum", at(1./20, 10*second, 30*second, second), 30 * second, 20 * second, 1. / 20},
		{"the client's own rate", with(at(2, 0, 0, second), func(r *audit.Record) { r.Decision.Pace.Client = pace.Rate{PerSecond: 1, Burst: 1} }), 0, 0, 0},
		{"a slow host", with(at(2, 0, 0, second), func(r *audit.Record) { r.Slowed = second }), 0, 0, 0},
		{"a back-off", with(at(2, 0, 0, second), func(r *audit.Record) { r.BackOff = second }), 0, 0, 0},
		{"the store is away", with(at(2, 0, 0, second), func(r *audit.Record) { r.StoreAway = true }), 0, 0, 0},
		{"not paced", with(at(2, 10*second, 30*second, second), func(r *audit.Record) { r.Slot = false }), 0, 0, 0},
		{"robots.txt itself", with(at(2, 10*second, 30*second, second), func(r *audit.Record) { r.Decision.Reason = policy.ReasonRobotsTxt }), 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tally counter
			tally.Write(c.record)
			h := tally.summary().Hosts[0]
			if h.Asked != c.asked || h.Sent != c.sent || h.Rate != c.rate {
				t.Errorf("asked %s, sent every %s, rate %v; want %s, %s and %v", h.Asked, h.Sent, h.Rate, c.asked, c.sent, c.rate)
			}
		})
	}
}

// TestCounterWithoutHost: a request that names no host, and a connection that carried no request, have names too.
func TestCounterWithoutHost(t *testing.T) {
	var tally counter
	for _, r := range []*audit.Record{
		{Target: "nonsense", Decision: policy.Decision{Reason: policy.ReasonMalformed}},
		{Target: "192.0.2.7:25", Transparent: true, Decision: policy.Decision{Reason: policy.ReasonConfined}},
	} {
		tally.Write(r)
	}
	var hosts []string
	for _, h := range tally.summary().Hosts {
		hosts = append(hosts, h.Host)
	}
	if diff := cmp.Diff([]string{"(no host)", "192.0.2.7:25"}, hosts); diff != "" {
		t.Error(diff)
	}
}

func TestCounterIsBounded(t *testing.T) {
	var tally counter
	for i := range maxCounted + 50 {
		r := refused()
		r.Request.Origin.Host = fmt.Sprintf("h%d.test", i)
		tally.Write(r)
	}
	s := tally.summary()
	if len(s.Hosts) > maxCounted+1 || len(s.Causes) > maxCounted+1 {
		t.Errorf("%d hosts and %d causes are told apart", len(s.Hosts), len(s.Causes))
	}
	if s.Hosts[0].Host != others || s.Hosts[0].Outcomes[policy.Disallowed] != 50 {
		t.Errorf("the rest is %+v", s.Hosts[0])
	}
}
