package runner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/audit"
)

func TestPrintSummary(t *testing.T) {
	s := audit.Summary{
		Allowed: 134, Blocked: 67, Waited: 2*time.Minute + 12*time.Second,
		Hosts: []audit.HostSummary{
			{Host: "evil\x1b[2J.test", Allowed: 1, Blocked: 1, Waited: 12 * time.Second}, // asked less, and so behind
			{Host: "example.com", Allowed: 133, Blocked: 66, Waited: 2 * time.Minute},
		},
		Rules: []audit.RuleSummary{
			{Host: "example.com", Reason: "rule", Rule: "/private", Line: 3, Count: 66},
			{Host: "evil\x1b[2J.test", Reason: "pace", Count: 1},
		},
	}
	var b strings.Builder
	printSummary(&b, s, "/state/audit.jsonl")
	want := `robotsproxy: 201 requests, 134 allowed, 67 blocked, waited 2m12s
  example.com         133 allowed  66 blocked  waited 2m
  "evil\x1b[2J.test"    1 allowed   1 blocked  waited 12s
  blocked 66  at example.com         by Disallow: /private (line 3)
  blocked  1  at "evil\x1b[2J.test"  by pace
robotsproxy: audit in /state/audit.jsonl
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// What the client gave up itself is not what was decided against.
func TestPrintSummaryOfGivenUp(t *testing.T) {
	s := audit.Summary{
		Allowed: 1, ClientLeft: 12, Waited: time.Second,
		Hosts: []audit.HostSummary{{Host: "a.test", ClientLeft: 12, Waited: time.Second}, {Host: "b.test", Allowed: 1}},
	}
	var b strings.Builder
	printSummary(&b, s, "/a")
	want := `robotsproxy: 13 requests, 1 allowed, 0 blocked, 12 given up by the client, waited 1s
  a.test  0 allowed  0 blocked  12 given up  waited 1s
  b.test  1 allowed  0 blocked   0 given up  waited 0s
robotsproxy: audit in /a
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// Who was slowed down because the store was away is told why, and where the cause stands.
func TestPrintSummaryOfAStoreAway(t *testing.T) {
	s := audit.Summary{Allowed: 3, StoreAway: 2, Waited: time.Second, Hosts: []audit.HostSummary{{Host: "a.test", Allowed: 3, Waited: time.Second}}}
	var b strings.Builder
	printSummary(&b, s, "/a/audit.jsonl")
	want := `robotsproxy: 3 requests, 3 allowed, 0 blocked, waited 1s
  a.test  3 allowed  0 blocked  waited 1s
robotsproxy: 2 requests were paced alone, and slower, since the store in store.redis was away: robotsproxy doctor says why
robotsproxy: audit in /a/audit.jsonl
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

func TestPrintSummaryIsBounded(t *testing.T) {
	s := audit.Summary{Blocked: 5000}
	for i := range 5000 {
		host := fmt.Sprint(i, ".test")
		s.Hosts = append(s.Hosts, audit.HostSummary{Host: host, Blocked: 1})
		s.Rules = append(s.Rules, audit.RuleSummary{Host: host, Reason: "pace", Count: 1})
	}
	var b strings.Builder
	printSummary(&b, s, "/a")
	if n := strings.Count(b.String(), "\n"); n != 2*maxSummary+4 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{"and 4980 more hosts", "and 4980 more rules"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}
