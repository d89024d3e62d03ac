package prom

import (
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

func newMetrics(t testing.TB, o Options) *Metrics {
	t.Helper()
	m, err := New(o)
	testkit.Must(t, err)
	return m
}

// scrape asks as Prometheus does, and reads the answer as it would.
func scrape(t testing.TB, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %v: %s", w.Code, w.Header(), w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// series returns the values of a family by their labels: `decision="allow"
// reason="rule"`.
func series(f *dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		all[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return all
}

func record(v policy.Verdict, why policy.Reason) *audit.Record {
	return &audit.Record{Decision: policy.Decision{Verdict: v, Reason: why}}
}

func TestDecisionsAreCounted(t *testing.T) {
	m := newMetrics(t, zeroOptions())
	for _, r := range []*audit.Record{
		record(policy.Allow, policy.ReasonRule), record(policy.Refuse, policy.ReasonRule), record(policy.Allow, policy.ReasonRule),
		record(policy.Refuse, policy.ReasonPace), record(policy.Allow, "never heard of"),
	} {
		if err := m.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	got := series(scrape(t, m)["robotsproxy_decisions_total"])
	maps.DeleteFunc(got, func(_ string, n float64) bool { return n == 0 })
	want := map[string]float64{
		"decision=allow reason=rule": 2, "decision=block reason=rule": 1, "decision=block reason=pace": 1,
		"decision=allow reason=never heard of": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The mode is read at each scrape, so that it follows a reload. A decision that is not enforced counts
// among the decisions, and once more.
func TestMonitorMode(t *testing.T) {
	o, monitor := zeroOptions(), true
	o.Monitor = func() bool { return monitor }
	m := newMetrics(t, o)
	for _, v := range []policy.Verdict{policy.Allow, policy.Refuse} {
		for _, monitored := range []bool{true, false} {
			r := record(v, policy.ReasonRule)
			r.Monitor = monitored
			testkit.Must(t, m.Write(r))
		}
	}
	for _, want := range []float64{1, 0} {
		all := scrape(t, m)
		if got := series(all["robotsproxy_monitor_mode"])[""]; got != want {
			t.Errorf("mode: %v, want %v", got, want)
		}
		if got := series(all["robotsproxy_not_enforced_total"])[""]; got != 1 {
			t.Errorf("not enforced: %v", got)
		}
		monitor = false
	}
}

func TestSignaturesAreCounted(t *testing.T) {
	m := newMetrics(t, zeroOptions())
	for _, r := range []audit.Record{{}, {Signed: "key"}, {Signed: "key"}, {Unsigned: policy.UnsignedClient}, {Unsigned: policy.UnsignedTunnel}} {
		testkit.Must(t, m.Write(&r))
	}
	want := map[string]float64{"signature=proxy": 2, "signature=client": 1, "signature=plain-http": 0, "signature=tunnel": 1, "signature=ftp": 0}
	if diff := cmp.Diff(want, series(scrape(t, m)["robotsproxy_signatures_total"])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUsagePreferencesAreCounted(t *testing.T) {
	m := newMetrics(t, zeroOptions())
	d := policy.Decision{
		Usage:      usage.Policy{Purposes: usage.SetOf(usage.TrainAI, usage.Search, usage.TDM)},
		Statements: usage.FromRobots([]robots.UsageLine{{Number: 1, Text: "ai-train=no, search=yes"}}, nil),
	}
	for _, r := range []audit.Record{{}, {Decision: d}, {Decision: d}} {
		testkit.Must(t, m.Write(&r))
	}
	got := map[string]float64{}
	for labels, n := range series(scrape(t, m)["robotsproxy_usage_preferences_total"]) {
		if n > 0 {
			got[labels] = n
		}
	}
	want := map[string]float64{"outcome=disallowed purpose=train-ai": 2, "outcome=allowed purpose=search": 2, "outcome=unknown purpose=tdm": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// rate() cannot see the first of something: all are there from the start.
func TestEveryReasonBeginsAtZero(t *testing.T) {
	source, err := os.ReadFile("../../../policy/reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for labels := range series(scrape(t, newMetrics(t, zeroOptions()))["robotsproxy_decisions_total"]) {
		_, reason, _ := strings.Cut(labels, "reason=")
		got = append(got, reason)
	}
	slices.Sort(got)
	got = slices.Compact(got)
	var want []string
	for _, found := range regexp.MustCompile(`(?m)^\tReason\w+\s+Reason = "(.*?)"`).FindAllSubmatch(source, -1) {
		want = append(want, string(found[1]))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 10 {
		t.Errorf("reasons of package policy (-) and of the labels (+):\n%s", diff)
	}
}

func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		rec  audit.Record
		n    uint64
		sum  float64
	}{
		{"a slot at once", audit.Record{Slot: true, Decision: policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonNoRule}}, 1, 0},
		{"a slot after a while", audit.Record{Slot: true, Waited: 1500 * time.Millisecond}, 1, 1.5},
		{"refused for its pace", audit.Record{Waited: time.Second, Decision: policy.Decision{Reason: policy.ReasonPace}}, 0, 0},
		{"left before its turn", audit.Record{Waited: time.Second, Decision: policy.Decision{Reason: policy.ReasonClient}}, 0, 0},
		{"refused by a rule", audit.Record{Decision: policy.Decision{Reason: policy.ReasonRule}}, 0, 0},
		{"robots.txt itself", audit.Record{Decision: policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonRobotsTxt}}, 0, 0},
	} {
		m := newMetrics(t, zeroOptions())
		m.Write(&c.rec)
		h := scrape(t, m)["robotsproxy_wait_seconds"].GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != c.n || h.GetSampleSum() != c.sum {
			t.Errorf("%s: %d waits of %v s in all, want %d of %v s", c.name, h.GetSampleCount(), h.GetSampleSum(), c.n, c.sum)
		}
	}
}

func TestStatsAreCalledOnceAScrape(t *testing.T) {
	asked := 0
	o := zeroOptions()
	o.Pace = func() pace.Stats {
		asked++
		return pace.Stats{Hosts: 1, Waiting: 2, UnderWay: 3, Streams: 4, BackedOff: 5, Slowed: 6, BackOffs: 7, Missed: 8}
	}
	m := newMetrics(t, o)
	families := scrape(t, m)
	got := map[string]float64{}
	for name, f := range families {
		if short, ok := strings.CutPrefix(name, "robotsproxy_pace_"); ok {
			got[short] = series(f)[""]
		}
	}
	want := map[string]float64{
		"hosts": 1, "waiting_requests": 2, "inflight_requests": 3, "streams": 4, "paused_hosts": 5, "slowed_hosts": 6, "back_offs_total": 7, "missed_turns_total": 8,
	}
	if diff := cmp.Diff(want, got); diff != "" || asked != 1 {
		t.Errorf("asked %d times, (-want +got):\n%s", asked, diff)
	}
	for name, count := range series(families["robotsproxy_build_info"]) {
		if !strings.HasSuffix(name, "revision=abc version=v1.2.3") || count != 1 {
			t.Errorf("build info %s is %v", name, count)
		}
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if families[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}

func TestNewRefusesMissingOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made without options")
	}
}

// Two in one process share nothing, as they would in the library's own registry.
func TestRegistriesAreSeparate(t *testing.T) {
	one, other := newMetrics(t, zeroOptions()), newMetrics(t, zeroOptions())
	one.Write(record(policy.Allow, policy.ReasonRule))
	if got := series(scrape(t, other)["robotsproxy_decisions_total"])["decision=allow reason=rule"]; got != 0 {
		t.Errorf("another's request was counted: %v", got)
	}
}

func TestWriteAllocatesNothing(t *testing.T) {
	m := newMetrics(t, zeroOptions())
	r := record(policy.Allow, policy.ReasonNoRule)
	r.Slot, r.Waited = true, time.Second
	if n := testing.AllocsPerRun(100, func() { m.Write(r) }); n != 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	m := newMetrics(b, zeroOptions())
	r := record(policy.Allow, policy.ReasonNoRule)
	r.Slot, r.Waited = true, time.Second
	b.ReportAllocs()
	for b.Loop() {
		m.Write(r)
	}
}
