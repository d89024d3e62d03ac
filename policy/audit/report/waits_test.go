package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/audit/trail"
)

// Only requests that were sent after a wait have waited: those that were refused at once, or while
// they waited, have not.
func TestWaited(t *testing.T) {
	for _, c := range []struct {
		name    string
		differs record
		want    int64
	}{
		{"sent after a wait", record{"wait_ms": 1500}, 1},
		{"sent at once, as the pacer needs some time", record{"wait_ms": 0.3}, 0},
		{"refused at once", record{"wait_ms": 0.3, "decision": "block", "reason": "pace"}, 0},
		{"refused while it waited", record{"wait_ms": 60_000, "decision": "block", "reason": "shutdown"}, 0},
		{"the client left while it waited", record{"wait_ms": 1500, "decision": "block", "reason": "client"}, 0},
		{"sent, and its response withheld", record{"wait_ms": 1500, "decision": "block", "reason": "usage", "withheld": true}, 1},
		{"no number", record{"wait_ms": -1}, 0},
	} {
		if got := sum(t, Options{}, rec(0, c.differs)).Totals; got.Waited != c.want || (got.Wait > 0) != (c.want > 0) || (got.WaitMax > 0) != (c.want > 0) {
			t.Errorf("%s: %d waited, %v in all, longest %v; want %d", c.name, got.Waited, got.Wait, got.WaitMax, c.want)
		}
	}
}

// A median is that of the waits, up to the width of a bucket.
func TestMedian(t *testing.T) {
	for _, c := range []struct {
		name  string
		waits []time.Duration
		want  time.Duration
	}{
		{"none", nil, 0},
		{"one", []time.Duration{1500 * time.Millisecond}, 1500 * time.Millisecond},
		{"the least", []time.Duration{minWait}, minWait},
		{"an even number: the lower one", []time.Duration{time.Second, 3 * time.Second}, time.Second},
		{"one that is far from the others", []time.Duration{time.Second, 2 * time.Second, maxWait}, 2 * time.Second},
		{"a year", []time.Duration{maxWait, maxWait}, maxWait},
	} {
		var w waits
		var longest time.Duration
		for _, d := range c.waits {
			w.add(d)
			longest = max(longest, d)
		}
		got := time.Duration(w.median(seconds(longest)))
		if off := math.Abs(float64(got - c.want)); off > 0.04*float64(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if len(w) > 560 {
			t.Errorf("%s: %d buckets", c.name, len(w))
		}
	}
}

// A sum of waits leaves its parts as they are: a report may be written several times.
func TestWaitsAreMerged(t *testing.T) {
	var a, b waits
	a.add(time.Second)
	b.add(time.Second)
	b.add(time.Minute)
	before := slices.Clone(b)
	if got := time.Duration(a.merged(b).median(seconds(time.Minute))).Round(100 * time.Millisecond); got != time.Second {
		t.Errorf("median %v, want about 1s", got)
	}
	if !slices.Equal(b, before) {
		t.Error("the sum has changed a part")
	}
}

// The report says how long requests waited and whose they were; it does not add up waits that were
// at the same time.
func TestWhoWaited(t *testing.T) {
	records := []record{rec(0, nil), rec(0, record{"client": "other", "host": "b.test", "wait_ms": 9000})}
	for range 3 {
		records = append(records, rec(0, record{"wait_ms": 2000}))
	}
	text := strings.Join(prose{sum(t, Options{}, records...)}.sentences("sentences"), " ")
	want := "4 requests waited for a slot, because the proxy spaces out the requests to each host: median 2 s, longest 9 s. Most often: client lab (3) and host site.test (3)."
	if !strings.Contains(text, want) {
		t.Errorf("got %s\nwant in it %s", text, want)
	}
	if strings.Contains(text, "15 s") {
		t.Errorf("the sum of the waits is in %s", text)
	}
}

// Every reason counts as one outcome, and blocked is the sum of three of them.
func TestOutcomes(t *testing.T) {
	r := sum(t, Options{}, rec(0, nil), rec(0, blocked), rec(0, silent),
		rec(0, record{"decision": "block", "reason": "pace"}), rec(0, record{"decision": "block", "reason": "quota"}),
		rec(0, record{"decision": "block", "reason": "client"}), rec(0, record{"decision": "block", "reason": "of a later version"}),
		rec(0, watched), rec(0, with(silent, record{"enforced": false})), rec(0, record{"enforced": false}))
	if got, want := (prose{r}).Outcomes(), "2 allowed, 1 disallowed, 2 deferred, 3 failed, 1 would be disallowed, 1 would have failed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r.Totals.Blocked != 6 || r.Totals.NotEnforced != 2 {
		t.Errorf("%d blocked and %d not enforced, want 6 and 2", r.Totals.Blocked, r.Totals.NotEnforced)
	}
}

// A short crawl has seconds wherever a time stands, and ends when its last request ends.
func TestShortCrawl(t *testing.T) {
	r := sum(t, Options{}, rec(1, nil), rec(3, record{"duration_ms": 4000}), rec(4, nil))
	if got, want := (prose{r}).Period(), "21 November 2026, 09:00:01 to 09:00:07 UTC"; got != want {
		t.Errorf("period %s, want %s", got, want)
	}
	var labels []string
	for _, m := range r.chart().Ticks {
		labels = append(labels, m.Label)
	}
	if got, want := strings.Join(labels, " "), "09:00:01 09:00:02 09:00:03 09:00:04 09:00:05"; got != want {
		t.Errorf("labels %s, want %s", got, want)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		span  time.Duration
		count int
		first string
	}{
		{time.Second, 2, "09:00:00"}, {5 * time.Second, 6, "09:00:00"}, {59 * time.Minute, 7, "09:00:00"},
		{time.Hour, 7, "21 Nov 09:00"}, {5 * 24 * time.Hour, 7, "21 Nov 09:00"}, {8 * 24 * time.Hour, 7, "21 Nov"}, {400 * 24 * time.Hour, 7, "21 Nov 2026"},
	} {
		seen := map[string]bool{}
		marks := ticks(start, start.Add(c.span), waitBase)
		for _, m := range marks {
			seen[m.Label] = true
		}
		if len(marks) != c.count || len(seen) != c.count || marks[0].Label != c.first {
			t.Errorf("%v: %+v, want %d labels, the first %s", c.span, marks, c.count, c.first)
		}
	}
}

func TestPeriod(t *testing.T) {
	for _, c := range []struct {
		last time.Duration
		want string
	}{
		{0, "21 November 2026, 09:00:00 UTC"}, {500 * time.Millisecond, "21 November 2026, 09:00:00 UTC"},
		{time.Second, "21 November 2026, 09:00:00 to 09:00:01 UTC"}, {15 * time.Hour, "21 November 2026 to 22 November 2026"},
	} {
		if got := period(start, start.Add(c.last)); got != c.want {
			t.Errorf("%v: %s, want %s", c.last, got, c.want)
		}
	}
	if got := period(time.Time{}, time.Time{}); got != "at an unknown time" {
		t.Errorf("no time: %s", got)
	}
}

// A report of records that were not enforced says at its top that nothing was blocked.
func TestMonitoring(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []record
		want    string
	}{
		{"none", []record{rec(0, blocked)}, ""},
		{"all", []record{rec(0, watched), rec(2, record{"enforced": false})},
			"Monitoring: nothing was blocked for all requests (21 November 2026, 09:00:00 to 09:00:02 UTC). The proxy only recorded its decisions (mode: monitor). Would have been disallowed: 1. Pace and quotas were not evaluated."},
		{"some", []record{rec(0, blocked), rec(1, with(silent, record{"enforced": false}))},
			"Monitoring: nothing was blocked for 1 of 2 requests (21 November 2026, 09:00:01 UTC). The proxy only recorded its decisions (mode: monitor). Would have been disallowed: 0; would have failed: 1. Pace and quotas were not evaluated."},
		{"deferred, by another version", []record{rec(0, record{"decision": "block", "reason": "quota", "enforced": false})},
			"Monitoring: nothing was blocked for all requests (21 November 2026, 09:00:00 UTC). The proxy only recorded its decisions (mode: monitor). Would have been disallowed: 0, deferred: 1."},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sum(t, Options{}, c.records...)
			if got := (prose{r}).Text("mode"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			for format, text := range map[string]string{
				"text": render(t, func(b *strings.Builder) error { return r.Text(b, 0) }),
				"html": render(t, func(b *strings.Builder) error { return r.HTML(b, 0) }),
			} {
				if got := strings.Contains(text, "Monitoring: nothing was blocked"); got != (c.want != "") {
					t.Errorf("%s: said %v", format, got)
				}
			}
		})
	}
}

// The first lines of the text say what the chain proves and what it does not.
func TestChainIsSaidFirst(t *testing.T) {
	var p tape
	var lines []trail.Line
	for i := range 5 {
		lines = append(lines, p.line(t, rec(i, nil)))
	}
	for _, c := range []struct {
		first int
		want  string
	}{
		{0, "  chain      holds: no line between 1 and 5 was changed, removed or moved. Without a checkpoint or an anchor, two things cannot be detected: lines cut off the end, and lines changed together with all later hashes.\n"},
		{2, "  chain      holds: no line between 3 and 5 was changed, removed or moved. Without a checkpoint or an anchor, two things cannot be detected: lines cut off the end, and lines changed together with all later hashes. The lines before 3 are missing: "},
	} {
		r := sumLines(t, Options{}, lines[c.first:]...)
		text := render(t, func(b *strings.Builder) error { return r.Text(b, 0) })
		if _, after, _ := strings.Cut(text, "\n\n"); !strings.HasPrefix(after, c.want) {
			t.Errorf("from line %d:\n%s", c.first+1, fmt.Sprint(after))
		}
	}
}
