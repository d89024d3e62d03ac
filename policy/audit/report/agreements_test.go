package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/policy/hours"
	"robotsproxy/robots/testkit"
)

// TestAgreements: what was used of budgets, whether hours were kept, and what was sent during pauses and cool-downs.
func TestAgreements(t *testing.T) {
	const hour = 60 * 60
	open, err := hours.Parse("09:00-10:00")
	testkit.Must(t, err)
	entries := []policy.Host{
		{Match: "site.test", Paths: []string{"/data/", "/x"}, Budget: policy.Budget{Quota: policy.Quota{Requests: 3}, Per: 12 * time.Hour}},
		{Match: "*.test", Hours: []*hours.Schedule{open}, Budget: policy.Budget{Quota: policy.Quota{Bytes: 100}, Per: 12 * time.Hour}},
		{Match: "plain.test"},
	}
	in := func(second int, host, entry string, more record) record {
		r := record{"v": 2, "host": host, "entry": entry, "sent": at(second)}
		for k, v := range more {
			if r[k] = v; v == nil {
				delete(r, k)
			}
		}
		return rec(second, r)
	}
	held := func(second int, host, entry, reason string) record {
		return in(second, host, entry, record{"sent": nil, "decision": "block", "reason": reason})
	}
	event := func(second int, kind, host string, more record) record {
		r := record{"time": at(second), "kind": "event", "event": kind, "host": host}
		for k, v := range more {
			r[k] = v
		}
		return r
	}
	r := sum(t, Options{Hosts: entries},
		in(0, "site.test", "site.test/data/", nil), in(1, "site.test", "site.test/x", nil), held(2, "site.test", "site.test/data/", "budget"),
		in(13*hour, "site.test", "site.test/data/", nil),
		in(10, "a.test", "*.test", record{"bytes": 60}), in(2*hour, "a.test", "*.test", record{"bytes": 30}), held(2*hour+1, "a.test", "*.test", "hours"),
		record{"time": at(2*hour + 2), "kind": "robots", "host": "a.test", "bytes": 7},
		in(3, "plain.test", "plain.test", nil),
		event(20*hour, "paused", "a.test", record{"reason": "they asked", "by": "alice", "until": at(30 * hour)}),
		in(20*hour-1, "a.test", "", nil), held(20*hour+5, "a.test", "", "paused"), held(20*hour+5, "b.test", "", "paused"),
		event(21*hour, "resumed", "a.test", record{"reason": "they asked", "by": "bob"}),
		in(22*hour, "a.test", "", nil),
		event(23*hour, "cool-down", "b.test", record{"reason": "status 403", "client": "lab", "until": at(24 * hour)}),
		held(23*hour+1, "b.test", "", "cool-down"), in(23*hour+2, "b.test", "", record{"client": "other"}), in(23*hour+3, "b.test", "", nil), in(24*hour, "b.test", "", nil),
		in(23*hour+9, "m.test", "*.test", record{"decision": "block", "reason": "hours", "enforced": false}),
		event(23*hour+10, "cool-down", "six.test", record{"reason": "status 403", "client": policy.ShareKey("2001:db8::1"), "until": at(24 * hour)}),
		rec(23*hour+11, record{"v": 2, "host": "six.test", "client": "2001:db8::2", "decision": "block", "reason": "cool-down"}),
		event(25*hour, "paused", "", record{"reason": "stop"}), held(26*hour, "c.test", "", "paused"),
	)
	day := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	want := []agreement{
		{Kind: "budget", Host: "a.test", Entry: "*.test", Terms: "at most 100 B in 12 h", Sent: 2, Most: policy.Use{Requests: 3, Bytes: 97}, MostUntil: day(3 * hour)},
		{Kind: "hours", Host: "a.test", Entry: "*.test", Terms: "09:00-10:00", Sent: 2, Against: 1, Deferred: 1},
		{Kind: "budget", Host: "m.test", Entry: "*.test", Terms: "at most 100 B in 12 h", Sent: 1, Most: policy.Use{Requests: 1, Bytes: 10}, MostUntil: day(24 * hour)},
		{Kind: "hours", Host: "m.test", Entry: "*.test", Terms: "09:00-10:00", Sent: 1, Against: 1},
		{Kind: "budget", Host: "site.test", Entry: "site.test/data/ site.test/x", Terms: "at most 3 requests in 12 h", Sent: 3, Deferred: 1,
			Most: policy.Use{Requests: 2, Bytes: 20}, MostUntil: day(hour)},
		{Kind: "pause", Host: "a.test", Terms: "they asked", From: day(20 * hour), Until: day(21 * hour), By: "alice", Deferred: 1},
		{Kind: "cool-down", Host: "b.test", Terms: "status 403", From: day(23 * hour), Until: day(24 * hour), Client: "lab", Against: 1, Deferred: 1},
		{Kind: "cool-down", Host: "six.test", Terms: "status 403", From: day(23*hour + 10), Until: day(24 * hour), Client: policy.ShareKey("2001:db8::1"), Deferred: 1},
		{Kind: "pause", Terms: "stop", From: day(25 * hour), Deferred: 1},
	}
	if diff := cmp.Diff(want, r.Agreements.Rows); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	var text, page bytes.Buffer
	testkit.Must(t, r.Text(&text, 10))
	testkit.Must(t, r.HTML(&page, 10))
	for _, line := range []string{
		"09:00-10:00 (*.test)", "2 requests sent, 1 of them outside the hours; 1 deferred",
		"at most 3 requests in 12 h (site.test/data/ site.test/x)", "at most 2 requests and 20 B, up to 2026-11-21 10:00",
		"they asked, from 2026-11-22 05:00:00 to 2026-11-22 06:00:00, by alice", "all hosts",
	} {
		if !strings.Contains(text.String(), line) || !strings.Contains(page.String(), strings.ReplaceAll(line, "'", "&#39;")) {
			t.Errorf("no %q in\n%s", line, &text)
		}
	}
}
