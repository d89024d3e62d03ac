package runner

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
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
	for _, r := range []*audit.Record{allowed(), refused(), refused(), other, left, over} {
		if err := tally.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	want := summary{
		Outcomes: outcomeCounts{policy.Allowed: 1, policy.Disallowed: 2, policy.Deferred: 1, policy.Failed: 2}, LongestWait: 2 * time.Second, StoreAway: 1,
		Hosts: []hostSummary{
			{"b.test", outcomeCounts{policy.Failed: 1}, 1500 * time.Microsecond, true},
			{"site.test", outcomeCounts{policy.Allowed: 1, policy.Disallowed: 2, policy.Deferred: 1, policy.Failed: 1}, 2 * time.Second, true},
		},
		Causes: []causeSummary{
			{Host: "site.test", Outcome: policy.Disallowed, Rule: "/p", Line: 3, Count: 2},
			{Host: "b.test", Outcome: policy.Failed, Text: "no usable robots.txt: why", Count: 1},
			{Host: "site.test", Outcome: policy.Failed, Text: "the client disconnected before the request was complete", Count: 1},
			{Host: "site.test", Outcome: policy.Deferred, Text: "the client has sent all the requests that it may send in a day (quota in clients)", Count: 1},
		},
	}
	if diff := cmp.Diff(want, tally.summary()); diff != "" {
		t.Error(diff)
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
