package live

import (
	"fmt"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
)

// Each request counts once, under what became of it.
func TestRequestsCountByWhatBecameOfThem(t *testing.T) {
	for _, c := range []struct {
		verdict policy.Verdict
		reason  policy.Reason
		monitor bool
		want    Class
		word    string
	}{
		{policy.Allow, policy.ReasonNoRule, false, Allowed, "allowed"},
		{policy.Allow, policy.ReasonNoRule, true, Allowed, "allowed"},
		{policy.Refuse, policy.ReasonRule, false, Disallowed, "disallowed"},
		{policy.Refuse, policy.ReasonPace, false, Deferred, "deferred"},
		{policy.Refuse, policy.ReasonOrigin, false, Failed, "failed"},
		{policy.Refuse, "no such reason", false, Failed, "failed"},
		{policy.Refuse, policy.ReasonRule, true, NotEnforced, "not_enforced"},
		{policy.Refuse, policy.ReasonUnreachable, true, NotEnforced, "not_enforced"},
	} {
		f := newFeed(t, Options{})
		r := record("a.test", c.verdict, "", 0)
		r.Decision.Reason, r.Monitor = c.reason, c.monitor
		f.Write(r)
		want := Counts{}
		want[c.want] = 1
		h, _ := f.Host("a.test")
		series := f.Series(Hour).Counts
		if h.Counts != want || series[len(series)-1] != want || c.want.String() != c.word {
			t.Errorf("%v %s, monitor %v: host %v, series %v, want %v", c.verdict, c.reason, c.monitor, h.Counts, series, want)
		}
		if causes := f.Causes("a.test"); len(causes) != 1 || causes[0].Class != c.want {
			t.Errorf("%v %s, monitor %v: %+v", c.verdict, c.reason, c.monitor, causes)
		}
		if n := len(f.Blockers(9)); (n == 1) != (c.want != Allowed) {
			t.Errorf("%v %s, monitor %v: %d causes of requests that were not allowed", c.verdict, c.reason, c.monitor, n)
		}
	}
}

// A rule that was not enforced for a while has two causes.
func TestARuleThatWasNotEnforcedAtFirst(t *testing.T) {
	f := newFeed(t, Options{})
	for _, monitor := range []bool{true, false, false} {
		r := record("a.test", policy.Refuse, "/x", 2)
		r.Monitor = monitor
		f.Write(r)
	}
	if c := f.Causes("a.test"); len(c) != 2 || c[0].Class != Disallowed || c[0].Count != 2 || c[1].Class != NotEnforced || c[1].Count != 1 {
		t.Errorf("%+v", c)
	}
}

func TestClientsAndEntries(t *testing.T) {
	f := newFeed(t, Options{})
	at := time.Now()
	for i, client := range []string{"lab", "lab", "192.0.2.7", "2001:db8::1", "", "lab.example"} {
		r := record("a.test", policy.Refuse, "/x", 2)
		r.Time, r.Request.Client = at.Add(time.Duration(i)), client
		if i > 0 {
			r.Decision.Entry, r.Decision.EntryReason = "*.test", "ticket 7"
		}
		f.Write(r)
	}
	for name, want := range map[string]Tallied{
		"lab": {Counts{Disallowed: 2}, at.Add(1)}, "": {Counts{Disallowed: 3}, at.Add(4)}, "lab.example": {Counts{Disallowed: 1}, at.Add(5)}, "192.0.2.7": {},
	} {
		if got := f.Client(name); got != want {
			t.Errorf("client %q: %+v, want %+v", name, got, want)
		}
	}
	if got, want := f.Entry(Entry{"*.test", "ticket 7"}), (Tallied{Counts{Disallowed: 5}, at.Add(5)}); got != want {
		t.Errorf("entry: %+v, want %+v", got, want)
	}
	if got := f.Entry(Entry{"*.test", "ticket 8"}); got != (Tallied{}) {
		t.Errorf("an entry of another reason: %+v", got)
	}
}

func TestTalliesAreBounded(t *testing.T) {
	f := newFeed(t, Options{})
	at := time.Now()
	for i := range maxTallied + 1 {
		f.Write(&audit.Record{Time: at.Add(time.Duration(i)), Request: policy.Request{Client: fmt.Sprintf("client-%d", i)}})
	}
	if n := len(f.clients.byKey); n != maxTallied {
		t.Errorf("%d clients are kept", n)
	}
	if f.Client("client-0") != (Tallied{}) || f.Client("client-1") == (Tallied{}) {
		t.Error("not the client whose last request is the oldest was removed")
	}
}
