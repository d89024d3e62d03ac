package live

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

func newFeed(t testing.TB, o Options) *Feed {
	t.Helper()
	if o.Waiting == nil {
		o.Waiting = func() int { return 0 }
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func record(host string, v policy.Verdict, rule string, line int) *audit.Record {
	r := &audit.Record{Time: time.Now(), Request: policy.Request{Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: host, Port: 443}}}}
	r.Decision = policy.Decision{Verdict: v, Reason: policy.ReasonNoRule}
	if line > 0 {
		r.Decision.Reason, r.Decision.Rule, r.Decision.Line = policy.ReasonRule, rule, line
		r.Decision.Ruling = cache.Ruling{Result: &fetch.Result{URL: "https://" + host + "/robots.txt"}}
	}
	return r
}

func numbers(lines []Line) (all []uint64) {
	for _, l := range lines {
		all = append(all, l.Number)
	}
	return all
}

func TestNewRefuses(t *testing.T) {
	waiting := func() int { return 0 }
	for _, o := range []Options{{}, {Waiting: waiting, MaxLines: -1}, {Waiting: waiting, MaxBytes: 100}, {Waiting: waiting, MaxRules: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v made a Feed", o)
		}
	}
}

func TestLinesInOrderAndMissed(t *testing.T) {
	f := newFeed(t, Options{MaxLines: 4})
	if got, missed := f.After(0, 10); got != nil || missed != 0 || f.Newest() != 0 {
		t.Fatalf("before the first: %v, %d", got, missed)
	}
	for n := uint64(7); n <= 12; n++ { // a trail that goes on from an earlier process
		f.Tap(n, fmt.Appendf(nil, `{"seq":%d}`+"\n", n))
	}
	for _, c := range []struct {
		after  uint64
		most   int
		want   []uint64
		missed uint64
	}{
		{0, 10, []uint64{9, 10, 11, 12}, 0},
		{0, 2, []uint64{9, 10}, 0},
		{3, 10, []uint64{9, 10, 11, 12}, 5},
		{9, 10, []uint64{10, 11, 12}, 0},
		{11, 10, []uint64{12}, 0},
		{12, 10, nil, 0},
		{99, 10, nil, 0},
	} {
		got, missed := f.After(c.after, c.most)
		if !slices.Equal(numbers(got), c.want) || missed != c.missed {
			t.Errorf("after %d: %v, %d missed; want %v, %d", c.after, numbers(got), missed, c.want, c.missed)
		}
	}
	if f.Newest() != 12 {
		t.Errorf("newest %d", f.Newest())
	}
}

// Whatever their lengths: what is given is what was taken in, the newest are there,
// and as many as there is room for.
func TestLinesGoRound(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	f := newFeed(t, Options{MaxLines: 50, MaxBytes: trail.MaxLine})
	all := map[uint64]string{}
	for n := uint64(1); n <= uint64(testkit.Rounds(3000)); n++ {
		size := 1 + rnd.Intn(2000)
		if rnd.Intn(20) == 0 {
			size = 1 + rnd.Intn(trail.MaxLine)
		}
		all[n] = strings.Repeat(string(rune('a'+n%26)), size)
		f.Tap(n, []byte(all[n]+"\n"))
		got, _ := f.After(0, 50)
		held := 0
		for i, l := range got {
			if string(l.JSON) != all[l.Number] || l.Number != n-uint64(len(got)-1-i) {
				t.Fatalf("after %d: line %d is not what it was", n, l.Number)
			}
			held += len(l.JSON)
		}
		if before := n - uint64(len(got)); before > 0 && len(got) < 50 && held+len(all[before]) < trail.MaxLine/2 {
			t.Fatalf("after %d: %d lines of %d bytes are kept, the one before has %d", n, len(got), held, len(all[before]))
		}
	}
}

func TestLinesOfNoUse(t *testing.T) {
	f := newFeed(t, Options{})
	f.Tap(1, nil)
	f.Tap(2, []byte("not whole"))
	f.Tap(3, make([]byte, trail.MaxLine+2))
	if n := f.Newest(); n != 0 {
		t.Errorf("%d", n)
	}
}

func TestSeriesCountsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting atomic.Int64
		f := newFeed(t, Options{Waiting: func() int { return int(waiting.Load()) }})
		start := time.Now() // of a step: synctest begins at midnight
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		pass := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		f.Write(record("a.test", policy.Allow, "", 0))
		f.Write(record("a.test", policy.Refuse, "/x", 2))
		waiting.Store(3)
		pass(7 * time.Second)
		f.Write(record("a.test", policy.Allow, "", 0))
		waiting.Store(1)
		pass(4 * time.Second)
		want := Series{Start: start, Step: 5 * time.Second, Counts: []Counts{{Allowed: 1, Disallowed: 1}, {Allowed: 1}, {}}, Waiting: []int64{3, 1, 1}}
		if diff := cmp.Diff(want, f.Series(Hour)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		want = Series{Start: start, Step: 2 * time.Minute, Counts: []Counts{{Allowed: 2, Disallowed: 1}}, Waiting: []int64{3}}
		if diff := cmp.Diff(want, f.Series(Day)); diff != "" {
			t.Errorf("of the day (-want +got):\n%s", diff)
		}
		pass(2 * time.Hour)
		got := f.Series(Hour)
		if len(got.Counts) != steps || !got.Start.Equal(time.Now().Truncate(5*time.Second).Add(-(steps-1)*5*time.Second)) || slices.ContainsFunc(got.Counts, func(c Counts) bool { return c.Total() > 0 }) {
			t.Errorf("two hours later: %d steps since %v, %v", len(got.Counts), got.Start, got.Counts[:3])
		}
		if day := f.Series(Day); day.Counts[0][Allowed] != 2 || len(day.Counts) != 61 {
			t.Errorf("two hours later, of the day: %v", day.Counts)
		}
		f.Write(record("a.test", policy.Allow, "", 0))
		if quarter := f.Series(QuarterHour); len(quarter.Counts) != quarterSteps || quarter.Counts[quarterSteps-1][Allowed] != 1 || !quarter.Start.Equal(time.Now().Truncate(5*time.Second).Add(-(quarterSteps-1)*5*time.Second)) {
			t.Errorf("two hours later, of a quarter of an hour: %d steps since %v", len(quarter.Counts), quarter.Start)
		}
		cancel()
		<-done
	})
}

func TestSeriesAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(t, Options{})
		f.Write(record("a.test", policy.Allow, "", 0))
		f.Series(Hour)
		<-time.After(30 * 24 * time.Hour) // nobody runs it
		f.Write(record("a.test", policy.Allow, "", 0))
		if got := f.Series(Hour); len(got.Counts) != 1 || got.Counts[0].Total() != 0 || !got.Start.Equal(time.Now().Truncate(5*time.Second)) {
			t.Errorf("%+v", got)
		}
	})
}

// A rule that allowed is no cause of a refusal. Of a refused use, the statement is.
func TestCausesThatAreNoRules(t *testing.T) {
	f := newFeed(t, Options{})
	for _, reason := range []policy.Reason{policy.ReasonUsage, policy.ReasonPace} {
		r := record("a.test", policy.Refuse, "/allowed", 4)
		r.Decision.Reason, r.Decision.Usage.Purposes = reason, usage.SetOf(usage.TrainAI)
		r.Decision.Statements = usage.FromRobots([]robots.UsageLine{{Number: 7, Text: "ai-train=no"}}, nil)
		f.Write(r)
	}
	got := map[string]Cause{}
	for _, c := range f.Causes("a.test") {
		got[c.Reason] = Cause{Robots: c.Robots, Rule: c.Rule, Line: c.Line}
	}
	want := map[string]Cause{"usage": {Robots: "https://a.test/robots.txt", Rule: "Content-Signal: ai-train=no", Line: 7}, "pace": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHostsAndCauses(t *testing.T) {
	f := newFeed(t, Options{MaxRules: 2})
	start := time.Now()
	write := func(after time.Duration, host string, v policy.Verdict, rule string, line int) {
		r := record(host, v, rule, line)
		r.Time, r.Waited = start.Add(after), time.Second
		f.Write(r)
	}
	write(1, "a.test", policy.Refuse, "/x", 2)
	write(2, "b.test", policy.Refuse, "/x", 2)
	write(3, "a.test", policy.Refuse, "/x", 2)
	write(4, "a.test", policy.Allow, "/x/y", 3)
	f.Write(&audit.Record{Decision: policy.Decision{Reason: policy.ReasonMalformed}}) // of no host
	want := []Host{
		{Host: "a.test", Counts: Counts{Allowed: 1, Disallowed: 2}, Waited: 3 * time.Second, Last: start.Add(4)},
		{Host: "b.test", Counts: Counts{Disallowed: 1}, Waited: time.Second, Last: start.Add(2)},
	}
	if diff := cmp.Diff(want, f.Hosts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	blocks := func(host string, n int64, last time.Duration) Cause {
		return Cause{Host: host, Robots: "https://" + host + "/robots.txt", Rule: "/x", Line: 2, Reason: "rule", Decision: "block", Class: Disallowed, Count: n, Last: start.Add(last)}
	}
	hostless := Cause{Reason: "malformed", Decision: "block", Count: 1}
	if diff := cmp.Diff([]Cause{blocks("a.test", 2, 3), blocks("b.test", 1, 2), hostless}, f.Blockers(9)); diff != "" {
		t.Errorf("blockers (-want +got):\n%s", diff)
	}
	if _, known := f.Host(""); known {
		t.Error("no host is one")
	}
	if got := f.Blockers(1); len(got) != 1 || got[0].Host != "a.test" {
		t.Errorf("the first of them: %+v", got)
	}
	allows := Cause{Host: "a.test", Robots: "https://a.test/robots.txt", Rule: "/x/y", Line: 3, Reason: "rule", Decision: "allow", Class: Allowed, Count: 1, Last: start.Add(4)}
	if diff := cmp.Diff([]Cause{blocks("a.test", 2, 3), allows}, f.Causes("a.test")); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
	write(5, "a.test", policy.Refuse, "/new", 9) // takes the place of the one that has decided least
	if got := f.Causes("a.test"); len(got) != 2 || got[0].Rule != "/x" || got[1].Rule != "/new" {
		t.Errorf("with room for two: %+v", got)
	}
	if h, ok := f.Host("b.test"); !ok || h != want[1] {
		t.Errorf("%+v", h)
	}
	if h, ok := f.Host("c.test"); ok || h != (Host{}) || f.Causes("c.test") != nil {
		t.Errorf("nobody asked for it: %+v", h)
	}
}

// TestLongRequestsComeLate: a request that arrived earlier than another, and ended later, is not the last one.
func TestLongRequestsComeLate(t *testing.T) {
	f := newFeed(t, Options{})
	first, last := record("a.test", policy.Refuse, "/x", 2), record("a.test", policy.Refuse, "/x", 2)
	last.Time = first.Time.Add(time.Hour)
	f.Write(last)
	f.Write(first)
	if h, _ := f.Host("a.test"); !h.Last.Equal(last.Time) {
		t.Errorf("the last request to the host arrived at %v", h.Last)
	}
	if causes := f.Causes("a.test"); !causes[0].Last.Equal(last.Time) {
		t.Errorf("the last request under the rule arrived at %v", causes[0].Last)
	}
}

func TestHostsAreBounded(t *testing.T) {
	f := newFeed(t, Options{MaxHosts: 320})
	for i := range 5000 {
		f.Write(record("kept.test", policy.Allow, "", 0)) // requested repeatedly
		f.Write(record(fmt.Sprintf("h%d.test", i), policy.Refuse, "/", 1))
	}
	if n := len(f.Hosts()); n > 320 || n < 300 {
		t.Errorf("%d hosts are kept", n)
	}
	if h, ok := f.Host("kept.test"); !ok || h.Counts[Allowed] != 5000 {
		t.Errorf("%+v, %v", h, ok)
	}
	if _, ok := f.Host("h4999.test"); !ok {
		t.Error("the last one is gone")
	}
}

// A record's strings are pieces of a request's head.
func TestNothingOfARequestStaysInMemory(t *testing.T) {
	f := newFeed(t, Options{})
	r := record("a.test", policy.Refuse, "/x", 2)
	r.Request.Client, r.Decision.Entry = "lab-a", "*.test"
	n := testing.AllocsPerRun(100, func() { f.Write(r) })
	if n != 0 {
		t.Errorf("%v allocations for what is known already", n)
	}
}

// A site that has the longest rules takes no more room than another.
func TestLongRulesAreCut(t *testing.T) {
	f := newFeed(t, Options{})
	long := strings.Repeat("/x", maxText)
	for range 2 {
		r := record("a.test", policy.Refuse, long, 2)
		r.Decision.Ruling.Result.URL += long
		f.Write(r)
	}
	causes := f.Causes("a.test")
	if len(causes) != 1 || causes[0].Count != 2 || causes[0].Rule != Clip(long) || len(causes[0].Rule) != maxText || len(causes[0].Robots) != maxText {
		t.Errorf("%+v", causes)
	}
}

func TestSharedByMany(t *testing.T) {
	f := newFeed(t, Options{MaxLines: 100, MaxHosts: 64})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				f.Write(record(fmt.Sprintf("h%d.test", i%200), policy.Refuse, "/x", 1+i%40))
				if g == 0 {
					f.Tap(uint64(i+1), []byte("{}\n"))
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				f.After(0, 10)
				f.Hosts()
				f.Blockers(5)
				f.Causes("h1.test")
				f.Series(Hour)
			}
		})
	}
	wg.Wait()
	var disallowed int64
	for _, n := range f.Series(Day).Counts { // two steps, where the clock passes from one to the next
		disallowed += n[Disallowed]
	}
	if disallowed != 2000 {
		t.Errorf("%d are counted, want 2000", disallowed)
	}
}

func BenchmarkWrite(b *testing.B) {
	f := newFeed(b, Options{})
	r := record("a.test", policy.Refuse, "/x", 2)
	b.ReportAllocs()
	for b.Loop() {
		f.Write(r)
	}
}

func BenchmarkTap(b *testing.B) {
	f := newFeed(b, Options{})
	line := []byte(strings.Repeat("x", 700) + "\n")
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		f.Tap(n, line)
	}
}

func BenchmarkBlockersOfTenThousandHosts(b *testing.B) {
	f := newFeed(b, Options{})
	for i := range 10_000 {
		for line := range 10 {
			f.Write(record(fmt.Sprintf("h%d.test", i), policy.Refuse, "/x", 1+line))
		}
	}
	for b.Loop() {
		f.Blockers(20)
	}
}
