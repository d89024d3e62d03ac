package runner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
)

func TestPrintSummary(t *testing.T) {
	s := summary{
		Outcomes: outcomeCounts{policy.Allowed: 134, policy.Disallowed: 66, policy.Failed: 1}, LongestWait: 2*time.Minute + 12*time.Second,
		Hosts: []hostSummary{
			{Host: "evil\x1b[2J.test", Outcomes: outcomeCounts{policy.Allowed: 1, policy.Failed: 1}, LongestWait: 1200 * time.Millisecond}, // fewer requests, so the second line
			{Host: "example.com", Outcomes: outcomeCounts{policy.Allowed: 133, policy.Disallowed: 66}, LongestWait: 2*time.Minute + 12*time.Second},
		},
		Causes: []causeSummary{
			{Host: "example.com", Outcome: policy.Disallowed, Rule: "/private", Line: 3, Count: 66},
			{Host: "evil\x1b[2J.test", Outcome: policy.Failed, Text: "x\x1b[2J", Count: 1},
		},
	}
	var b strings.Builder
	printSummary(&b, s, 1, "/state/audit.jsonl")
	want := `robotsproxy: 201 requests: 134 allowed, 66 disallowed, 1 failed, longest wait 2 min 12 s
  example.com         133 allowed  66 disallowed  0 failed  longest wait 2 min 12 s
  "evil\x1b[2J.test"    1 allowed   0 disallowed  1 failed  longest wait 1.2 s
  disallowed  66 at example.com by Disallow: /private (line 3)
  failed       1 at "evil\x1b[2J.test": x\x1b[2J
robotsproxy: audit in /state/audit.jsonl
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// TestPrintSummaryOfDeferred: requests that were refused for now are neither disallowed nor failed.
func TestPrintSummaryOfDeferred(t *testing.T) {
	s := summary{
		Outcomes: outcomeCounts{policy.Allowed: 1, policy.Deferred: 12}, LongestWait: time.Second,
		Hosts: []hostSummary{
			{Host: "a.test", Outcomes: outcomeCounts{policy.Deferred: 12}, LongestWait: time.Second},
			{Host: "b.test", Outcomes: outcomeCounts{policy.Allowed: 1}},
		},
		Causes: []causeSummary{{Host: "a.test", Outcome: policy.Deferred, Text: "the queue is full", Count: 12}},
	}
	var b strings.Builder
	printSummary(&b, s, 1, "/a")
	want := `robotsproxy: 13 requests: 1 allowed, 0 disallowed, 12 deferred, longest wait 1 s
  a.test  0 allowed  0 disallowed  12 deferred  longest wait 1 s
  b.test  1 allowed  0 disallowed   0 deferred  longest wait 0 s
  deferred  12 at a.test: the queue is full
robotsproxy: audit in /a
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// If the store was unavailable, the summary says why requests were slower and where to
// find the cause.
func TestPrintSummaryOfAStoreAway(t *testing.T) {
	three := outcomeCounts{policy.Allowed: 3}
	s := summary{Outcomes: three, StoreAway: 2, LongestWait: time.Second, Hosts: []hostSummary{{Host: "a.test", Outcomes: three, LongestWait: time.Second}}}
	var b strings.Builder
	printSummary(&b, s, 1, "/a/audit.jsonl")
	want := `robotsproxy: 3 requests: 3 allowed, 0 disallowed, longest wait 1 s
  a.test  3 allowed  0 disallowed  longest wait 1 s
robotsproxy: 2 requests were paced alone, at a lower rate, because the shared store (store.redis) was unavailable: run robotsproxy doctor to see why
robotsproxy: audit in /a/audit.jsonl
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// TestPrintPace: a Crawl-delay that was shortened is reported for each host, up to a number of hosts, and the rate once.
func TestPrintPace(t *testing.T) {
	two := []hostSummary{{Host: "a\x1b.test", Asked: 30 * time.Second, Sent: 10 * time.Second, Rate: 2}, {Host: "b.test", Rate: 1.5}, {Host: "c.test", Rate: 1.5}}
	var many []hostSummary
	for range maxSummary + 3 {
		many = append(many, two[0])
	}
	for _, c := range []struct {
		name  string
		hosts []hostSummary
		rate  float64
		want  string
		lines int
	}{
		{"the rate of an entry of hosts", two[:1], 1.5, `robotsproxy: "a\x1b.test" asks for 30 s between requests; sent every 10 s (robots.max_crawl_delay)`, 1},
		{"the rate of every host", two, 1.5, "\nrobotsproxy: paced at 1.5 requests/s: pace.requests_per_second\n", 2},
		{"one request a second", []hostSummary{{Rate: 1}}, 1, "robotsproxy: paced at 1 request/s: pace.requests_per_second\n", 1},
		{"too many hosts", many, 1, "\nrobotsproxy: and 3 more hosts with a shorter Crawl-delay than the host asks for\n", maxSummary + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			printPace(&b, c.hosts, c.rate)
			if got := b.String(); !strings.Contains(got, c.want) || strings.Count(got, "\n") != c.lines {
				t.Errorf("%s", got)
			}
		})
	}
}

func TestPrintSummaryIsBounded(t *testing.T) {
	s := summary{Outcomes: outcomeCounts{policy.Disallowed: 5000}}
	for i := range 5000 {
		host := fmt.Sprint(i, ".test")
		s.Hosts = append(s.Hosts, hostSummary{Host: host, Outcomes: outcomeCounts{policy.Disallowed: 1}})
		s.Causes = append(s.Causes, causeSummary{Host: host, Outcome: policy.Disallowed, Rule: "/", Line: 1, Count: 1})
	}
	var b strings.Builder
	printSummary(&b, s, 1, "/a")
	if n := strings.Count(b.String(), "\n"); n != 2*maxSummary+4 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{"and 4980 more hosts", "and 4980 more causes"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}
