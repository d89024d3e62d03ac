package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

// A tape makes the lines of a trail.
type tape struct {
	seq  uint64
	last trail.Hash
}

// record is a line's members; time is in seconds after start.
type record map[string]any

var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func at(seconds int) string {
	return start.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339Nano)
}

// rec is a record of an allowed request with what differs.
func rec(second int, differs record) record {
	r := record{
		"time": at(second), "client": "lab", "host": "site.test", "decision": "allow", "reason": "no-rule",
		"enforced": true, "wait_ms": 0, "bytes": 10,
	}
	maps.Copy(r, differs)
	return r
}

func (p *tape) line(t testing.TB, r record) trail.Line {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return p.sealed(b[:len(b)-1])
}

func (p *tape) sealed(body []byte) trail.Line {
	p.seq++
	b, hash := trail.AppendLink(body, 0, p.seq, p.last)
	p.last = hash
	return trail.Line{File: "/var/lib/audit.jsonl", Number: int(p.seq), Text: b[:len(b)-1]}
}

// linesOf are the lines of a trail of records.
func linesOf(t testing.TB, records ...record) (lines []trail.Line) {
	t.Helper()
	var p tape
	for _, r := range records {
		lines = append(lines, p.line(t, r))
	}
	return lines
}

func readerOf(lines ...trail.Line) *trail.Reader {
	var text bytes.Buffer
	for _, l := range lines {
		fmt.Fprintf(&text, "%s\n", l.Text)
	}
	return trail.NewReader("/var/lib/audit.jsonl", &text)
}

// sum is what records come to.
func sum(t testing.TB, o Options, records ...record) *Report {
	t.Helper()
	return sumLines(t, o, linesOf(t, records...)...)
}

// TestPartial: a report of some lines of a trail, with hidden values, does not speak of a broken chain or of erased values.
func TestPartial(t *testing.T) {
	var salter trail.Salter
	var lines []trail.Line
	prev := trail.Hash{}
	for i := range uint64(4) {
		var text []byte
		text, prev = salter.AppendSalted([]byte(`{"time":"2026-11-29T09:00:00Z","id":"a","client":"lab-a","host":"a.test","decision":"allow","v":3`), 0, i+1, prev)
		text, _, err := trail.Hide(text[:len(text)-1], func(string, []byte) bool { return true })
		testkit.Must(t, err)
		if i != 1 {
			lines = append(lines, trail.Line{Text: text})
		}
	}
	for partial, says := range map[bool][2]string{true: {"3 records have hidden values", "(hidden)"}, false: {"3 records were erased in part", "(erased)"}} {
		r := sumLines(t, Options{Partial: partial}, lines...)
		var text, page bytes.Buffer
		testkit.Must(t, r.Text(&text, 10))
		testkit.Must(t, r.HTML(&page, 10))
		if (r.Fault() == "") != partial || strings.Contains(text.String(), "BROKEN") == partial ||
			strings.Contains(page.String(), "chain of the audit is broken") == partial || r.Clients.Rows[0].Client != says[1] {
			t.Errorf("partial %v, fault %q:\n%s", partial, r.Fault(), &text)
		}
		if !strings.Contains(page.String(), says[0]) {
			t.Errorf("no %q:\n%s", says[0], &page)
		}
	}
}

// sumLines is what lines come to.
func sumLines(t testing.TB, o Options, lines ...trail.Line) *Report {
	t.Helper()
	s := New(o)
	if err := s.Read(readerOf(lines...)); err != nil {
		t.Fatal(err)
	}
	return s.Report(start.Add(time.Hour), "1.2.3")
}

var (
	blocked = record{"decision": "block", "reason": "rule", "rule": "/private", "line": 3, "group": "*", "robots_sha256": "aa"}
	watched = record{"decision": "block", "reason": "rule", "rule": "/private", "line": 3, "group": "*", "robots_sha256": "aa", "enforced": false}
	silent  = record{"decision": "block", "reason": "unreachable"}
)

func with(r record, differs record) record {
	both := maps.Clone(r)
	maps.Copy(both, differs)
	return both
}

func TestTotals(t *testing.T) {
	r := sum(t, Options{},
		rec(5, record{"wait_ms": 1500, "bytes": 100}),
		rec(1, record{"wait_ms": 500.5, "client": "other"}), // came before, ended later
		rec(6, blocked),
		rec(7, watched),
		rec(8, record{"enforced": false, "duration_ms": 4000}),
		rec(9, record{"crawl_delay_s": 10, "crawl_delay_asked_s": 30, "robots_stale": true, "back_off_s": 3, "slowed_s": 1}),
	)
	want := counts{
		Requests: 6, outcomes: outcomes{
			Allowed: 4, Blocked: 1, Disallowed: 1, NotEnforced: 1, WouldDisallowed: 1,
			Waited: 2, Wait: seconds(2000500 * time.Microsecond), WaitMax: seconds(1500 * time.Millisecond),
		},
		WaitMean: seconds(1000250 * time.Microsecond), WaitMedian: r.Totals.WaitMedian, Bytes: 150,
		Clamped: 1, Stale: 1, BackedOff: 1, Slowed: 1,
		First: start.Add(time.Second), Last: start.Add(9 * time.Second), Ended: start.Add(12 * time.Second), waits: r.Totals.waits,
	}
	if !reflect.DeepEqual(r.Totals, want) {
		t.Errorf("totals\n%+v, want\n%+v", r.Totals, want)
	}
	if r.Monitored != 2 {
		t.Errorf("%d under monitor mode, want 2", r.Monitored)
	}
	if len(r.Clients.Rows) != 2 || r.Clients.Rows[0].Client != "lab" || r.Clients.Rows[0].Requests != 5 {
		t.Errorf("clients: %+v", r.Clients.Rows)
	}
}

func TestRowsSayWhatWasCounted(t *testing.T) {
	r := sum(t, Options{},
		rec(1, record{"host": "b.test", "crawl_delay_s": 10, "crawl_delay_asked_s": 100, "robots_sha256": "old"}),
		rec(3, record{"host": "b.test", "crawl_delay_s": 10, "crawl_delay_asked_s": 20, "robots_sha256": "new"}),
		rec(2, record{"host": "b.test", "robots_sha256": "between", "reason": "rule", "rule": "/p", "line": 4, "joined_line": 2}),
		rec(4, blocked), rec(5, blocked), rec(6, with(blocked, record{"robots_sha256": "bb"})),
		rec(7, record{"reason": "override", "entry": "*.test", "entry_reason": "letter of 3 March"}),
		rec(9, record{"reason": "override", "entry": "*.test", "entry_reason": "letter of 3 March"}),
		rec(8, record{"reason": "denied-host", "decision": "block", "entry": "c.test", "entry_reason": "asked us to stop"}),
	)
	for i, want := range []string{"site.test 6", "b.test 3"} {
		if got := fmt.Sprint(r.Hosts.Rows[i].Host, " ", r.Hosts.Rows[i].Requests); got != want {
			t.Errorf("host %d is %s, want %s: the busiest is the first", i, got, want)
		}
	}
	b := r.Hosts.Rows[1]
	if b.CrawlAsked != 100 || b.CrawlKept != 10 || b.Clamped != 2 || b.SHA256 != "new" {
		t.Errorf("b.test: asked %v, kept %v, clamped %d, last robots.txt %s", b.CrawlAsked, b.CrawlKept, b.Clamped, b.SHA256)
	}
	var rules []string
	for _, u := range r.Rules.Rows {
		rules = append(rules, fmt.Sprint(u.ruleKey, u.Allowed, u.Blocked))
	}
	want := "{site.test * /private 3 0 aa} 0 2; {site.test * /private 3 0 bb} 0 1; {b.test  /p 4 2 between} 1 0"
	if got := strings.Join(rules, "; "); got != want {
		t.Errorf("rules\n%s, want\n%s", got, want)
	}
	var entries []string
	for _, o := range r.Overrides.Rows {
		entries = append(entries, fmt.Sprint(o.overrideKey, o.Requests, o.First.Second(), o.Last.Second()))
	}
	want = "{override *.test letter of 3 March} 2 7 9; {denied-host c.test asked us to stop} 1 8 8"
	if got := strings.Join(entries, "; "); got != want {
		t.Errorf("overrides\n%s, want\n%s", got, want)
	}
}

func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []record
		want    string
	}{
		{"one that ended", []record{rec(1, silent), rec(4, silent), rec(9, nil)}, "1-4 2 true"},
		{"one that goes on", []record{rec(1, nil), rec(2, silent), rec(4, silent)}, "2-4 2 false"},
		{"two, and one of another host", []record{
			rec(1, silent), rec(2, nil), rec(3, with(silent, record{"host": "b.test"})), rec(5, silent), rec(6, nil),
		}, "1-1 1 true; 3-3 1 false; 5-5 1 true"},
		{"what says nothing of robots.txt does not end it", []record{
			rec(1, silent), rec(2, record{"reason": "override"}), rec(3, record{"reason": "robots-txt"}),
			rec(4, record{"reason": "origin", "decision": "block"}), rec(5, silent),
		}, "1-5 2 false"},
		{"an older copy, which another replica has, does not end it", []record{rec(1, silent), rec(2, record{"robots_stale": true}), rec(5, silent)}, "1-5 2 false"},
		{"an allowed request from before is written when it ends", []record{rec(3, silent), rec(1, nil), rec(4, silent)}, "3-4 2 false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, o := range sum(t, Options{}, c.records...).Unreachable.Rows {
				got = append(got, fmt.Sprintf("%d-%d %d %v", o.First.Second(), o.Last.Second(), o.Requests, o.Ended))
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}

func TestFilters(t *testing.T) {
	records := []record{
		rec(0, nil), rec(10, record{"client": "other"}), rec(20, record{"host": "b.test"}),
		rec(30, blocked), {"time": at(31), "event": "lost", "count": 7},
		{"time": at(32), "kind": "robots", "host": "b.test", "client": "other"},
		{"time": at(33), "kind": "event", "event": "counted", "count": 12, "clients": 1, "client": "other"},
	}
	for _, c := range []struct {
		name string
		o    Options
		want int64
	}{
		{"none", Options{}, 4},
		{"since is within", Options{Since: start.Add(10 * time.Second)}, 3},
		{"until is not", Options{Until: start.Add(10 * time.Second)}, 1},
		{"both", Options{Since: start.Add(10 * time.Second), Until: start.Add(21 * time.Second)}, 2},
		{"client", Options{Client: "other"}, 1},
		{"host", Options{MatchHost: func(h string) bool { return h == "b.test" }}, 1},
		{"all of them", Options{Client: "other", MatchHost: func(h string) bool { return h == "b.test" }}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sum(t, c.o, records...)
			if got, want := (prose{r}).Text("lines"), "7: 4 requests, 1 fetch of robots.txt, 2 events (7 records lost) (12 refusals only counted)"; got != want {
				t.Errorf("lines %q, want %q", got, want)
			}
			if r.Totals.Requests != c.want {
				t.Errorf("%d requests, want %d", r.Totals.Requests, c.want)
			}
			// The chain and the events are of the whole.
			if r.Source.Requests != 4 || r.Source.Fetches != 1 || r.Source.Lines != 7 || r.Source.Lost != 7 || r.Source.Counted != 12 || len(r.Events.Rows) != 1 || !r.Source.Chain.Held {
				t.Errorf("source %+v, events %+v", r.Source, r.Events)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	r := sum(t, Options{},
		rec(1, record{"x_robots_tag": "all", "robots_content_signal": "ai-train=no"}),
		rec(2, record{"x_robots_tag": "googlebot: NoIndex, nofollow"}),
		rec(3, record{"x_robots_tag": "none"}),
		rec(4, record{"x_robots_tag": "noindexing", "tdm_reservation": "1"}),
	)
	var got []string
	for _, s := range r.Signals.Rows {
		got = append(got, fmt.Sprintf("%s %q %d %d", s.Name, s.Last, s.Requests, s.NoIndex))
	}
	want := `robots_content_signal "ai-train=no" 1 0; tdm_reservation "1" 1 0; x_robots_tag "noindexing" 4 2`
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// A host that names another license in each response leaves space for those of other hosts.
func TestLicensesOfOneHostAreBounded(t *testing.T) {
	var records []record
	for i := range 2 * maxLicenses {
		records = append(records, rec(0, record{"license": fmt.Sprintf("/license/%d", i)}))
	}
	r := sum(t, Options{}, append(records, rec(0, record{"host": "other.test", "license": "/l"}))...)
	requests := map[string]int64{}
	for _, row := range r.Licenses.Rows {
		requests[row.Host+" "+row.License] = row.Requests
	}
	if len(requests) != maxStatements+2 || requests["site.test "+others] != 2*maxLicenses-maxStatements || requests["other.test /l"] != 1 {
		t.Errorf("%v", requests)
	}
}

func TestNumbersOfAnybody(t *testing.T) {
	const huge = `{"time":"0001-01-02T00:00:00Z","decision":"block","reason":"rule","enforced":false,"wait_ms":1e308,"bytes":9223372036854775807,"crawl_delay_asked_s":1e308,"line":-1`
	var p tape
	var lines []trail.Line
	for range 300 {
		lines = append(lines, p.sealed([]byte(huge)))
	}
	lines = append(lines, p.line(t, rec(0, record{"time": "1970-01-01T00:00:00Z"})),
		p.line(t, rec(0, record{"bytes": -5, "wait_ms": -1, "crawl_delay_s": -1, "time": "9999-12-31T23:59:59Z"})))
	r := sumLines(t, Options{}, lines...)
	if r.Totals.Requests != 302 || r.Totals.Wait <= 0 || r.Totals.Bytes <= 0 || r.Totals.WaitMax != seconds(maxWait) {
		t.Errorf("%+v", r.Totals)
	}
	if err := r.HTML(new(strings.Builder), 0); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestTimeline(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		count int
		width time.Duration
	}{
		{"a second is the least", time.Second, 30, time.Second},
		{"steps of a second, up to eight minutes", time.Second, 480, time.Second},
		{"longer than that", time.Second, 481, 5 * time.Second},
		{"hours fit", time.Minute, 400, time.Minute},
		{"a day", time.Minute, 24 * 60, 5 * time.Minute},
		{"a year", 24 * time.Hour, 365, 24 * time.Hour},
		{"ten years", 24 * time.Hour, 3650, 8 * 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newTimelineBuilder()
			for i := range c.count {
				i = i * 7 % c.count // in no order
				clock.add(&trail.Entry{Time: start.Add(time.Duration(i) * c.every), Decision: "allow"})
			}
			line := clock.timeline()
			if time.Duration(line.Width) != c.width || len(line.Buckets) > maxBuckets+1 {
				t.Errorf("%d buckets of %v, want those of %v", len(line.Buckets), time.Duration(line.Width), c.width)
			}
			var all int64
			for i, b := range line.Buckets {
				all += b.Allowed
				if b.Start.Unix()%int64(c.width.Seconds()) != 0 || i > 0 && !b.Start.After(line.Buckets[i-1].Start) {
					t.Errorf("bucket %d begins at %v", i, b.Start)
				}
			}
			if all != int64(c.count) {
				t.Errorf("%d requests in all, want %d", all, c.count)
			}
		})
	}
}

// A host that states something else in each response does not displace the reservations of other hosts.
func TestStatementsOfOneHostAreBounded(t *testing.T) {
	said := func(host, statement string) record {
		return rec(0, record{"host": host, "usage": record{"train-ai": record{"outcome": "disallowed", "statement": statement, "source": "header X-Robots-Tag"}}})
	}
	var records []record
	for i := range 2 * maxReservations {
		records = append(records, said("site.test", fmt.Sprintf("X-Robots-Tag: noai, %d", i)))
	}
	r := sum(t, Options{}, append(records, said("other.test", "X-Robots-Tag: noai"))...)
	requests := map[string]int64{}
	for _, row := range r.Reservations.Rows {
		requests[row.Host+" "+row.Statement] = row.Requests
	}
	if len(requests) != maxStatements+2 || requests["site.test "+others] != 2*maxReservations-maxStatements || requests["other.test X-Robots-Tag: noai"] != 1 || r.Reservations.Others.Requests != 0 {
		t.Errorf("%v, %d others", requests, r.Reservations.Others.Requests)
	}
}

// A host that has other rules in each robots.txt, and fails in between, leaves space for the rules and the
// outages of other hosts, also in the CSV.
func TestRulesAndOutagesOfOneHostAreBounded(t *testing.T) {
	var records []record
	for i := range maxRules {
		records = append(records, rec(2*i, silent), rec(2*i+1, with(blocked, record{"rule": fmt.Sprintf("/%d", i)})))
	}
	other := record{"host": "other.test"}
	r := sum(t, Options{}, append(records, rec(0, with(silent, other)), rec(1, with(blocked, other)))...)
	rows, in := map[string]int{}, map[string]int64{}
	for _, row := range r.Rules.Rows {
		rows[row.Host]++
		in[row.Host+" "+row.Rule] += row.Requests
	}
	if rows["site.test"] != maxHostRules+1 || rows["other.test"] != 1 || in["site.test "+others] != maxRules-maxHostRules || r.Rules.Others.Requests != 0 {
		t.Errorf("rows of rules: %v, %d and %d others", rows, in["site.test "+others], r.Rules.Others.Requests)
	}
	outages := map[string]int{}
	for _, o := range r.Unreachable.Rows {
		outages[o.Host]++
	}
	if outages["site.test"] != maxHostOutages || outages["other.test"] != 1 || r.Unreachable.Others != maxRules-maxHostOutages {
		t.Errorf("outages: %v, %d others", outages, r.Unreachable.Others)
	}
	if len(r.combined.Rows) > maxHostRules+10 {
		t.Errorf("%d rows of the CSV", len(r.combined.Rows))
	}
}
