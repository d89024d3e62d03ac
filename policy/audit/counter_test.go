package audit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
)

func TestCounterCountsByHostAndRule(t *testing.T) {
	var tally Counter
	other := refused()
	other.Request.Origin.Host, other.Decision.Rule, other.Decision.Line = "b.test", "", 0
	other.Decision.Reason, other.StoreAway = policy.ReasonUnreachable, true
	left := refused()
	left.Decision.Rule, left.Decision.Line, left.Decision.Reason = "", 0, policy.ReasonClient
	for _, r := range []*Record{allowed(), refused(), refused(), other, left} {
		if err := tally.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	want := Summary{
		Allowed: 1, Blocked: 3, ClientLeft: 1, StoreAway: 1, Waited: 7500 * time.Microsecond,
		Hosts: []HostSummary{{"b.test", 0, 1, 0, 1500 * time.Microsecond}, {"site.test", 1, 2, 1, 6 * time.Millisecond}},
		Rules: []RuleSummary{{"site.test", "rule", "/p", 3, 2}, {"b.test", "unreachable", "", 0, 1}},
	}
	if diff := cmp.Diff(want, tally.Summary()); diff != "" {
		t.Error(diff)
	}
}

func TestCounterIsBounded(t *testing.T) {
	var tally Counter
	for i := range maxCounted + 50 {
		r := refused()
		r.Request.Origin.Host = fmt.Sprintf("h%d.test", i)
		tally.Write(r)
	}
	s := tally.Summary()
	if len(s.Hosts) > maxCounted+1 || len(s.Rules) > maxCounted+1 {
		t.Errorf("%d hosts and %d rules are told apart", len(s.Hosts), len(s.Rules))
	}
	if s.Hosts[0].Host != others || s.Hosts[0].Blocked != 50 {
		t.Errorf("the rest is %+v", s.Hosts[0])
	}
}

type sink struct {
	err error
	got int
}

func (s *sink) Write(*Record) error { s.got++; return s.err }

func TestFanoutTellsTheFirstErrorAndLeavesNoneOut(t *testing.T) {
	first, second := &sink{err: errors.New("disk")}, &sink{}
	if err := Fanout(first, second).Write(allowed()); err != first.err {
		t.Errorf("got %v", err)
	}
	if second.got != 1 {
		t.Error("the second sink was left out")
	}
}

func TestIDsDiffer(t *testing.T) {
	a, b := NewIDs(), NewIDs()
	seen := map[string]bool{}
	for range 100 {
		for _, id := range []string{a.Next(), b.Next()} {
			if seen[id] || strings.ContainsAny(id, " \"\\") {
				t.Fatalf("%q", id)
			}
			seen[id] = true
		}
	}
}
