package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"robotsproxy/robots/testkit"
)

// sent is a record of a request that was sent so many milliseconds after start, under a delay of 1 s.
func sent(ms int, differs record) record {
	when := start.Add(time.Duration(ms) * time.Millisecond).Format(time.RFC3339Nano)
	return rec(ms/1000, with(record{"v": 3, "id": fmt.Sprint(ms), "sent": when, "pace_ms": 1000, "salts": record{"client": "a", "url": "a", "user_agent": "a"}}, differs))
}

// TestPaceOfHost: records in any order give the intervals between requests as they were sent.
func TestPaceOfHost(t *testing.T) {
	for name, c := range map[string]struct {
		records []record
		want    pacing
	}{
		"one request": {[]record{sent(0, nil)}, pacing{Sent: 1, In10s: 1, InMinute: 1}},
		"in any order": {
			[]record{sent(2500, nil), sent(0, nil), sent(5500, nil), sent(1000, nil), sent(3500, nil)},
			pacing{Sent: 5, Compared: 4, Shortest: seconds(time.Second), In10s: 5, InMinute: 5},
		},
		"10 s and a minute end before the next one": {
			[]record{sent(0, nil), sent(9_999, nil), sent(10_000, nil), sent(60_000, nil), sent(69_998, nil)},
			pacing{Sent: 5, Compared: 4, Shortest: seconds(time.Millisecond), In10s: 2, InMinute: 4, Shorter: shorter{Unknown: 1}},
		},
		"clocks are not exact": {[]record{sent(0, nil), sent(991, nil)}, pacing{Sent: 2, Compared: 1, Shortest: seconds(991 * time.Millisecond), In10s: 2, InMinute: 2}},
		"2 ms are no difference": {
			[]record{sent(0, record{"pace_ms": 50}), sent(48, record{"pace_ms": 50}), sent(95, record{"pace_ms": 50})},
			pacing{Sent: 3, Compared: 2, Shortest: seconds(47 * time.Millisecond), In10s: 3, InMinute: 3, Shorter: shorter{Unknown: 1}},
		},
		"the store was away for one of both": {
			[]record{sent(0, record{"store_away": true}), sent(100, nil), sent(200, nil)},
			pacing{Sent: 3, Compared: 2, Shortest: seconds(100 * time.Millisecond), In10s: 3, InMinute: 3, Shorter: shorter{StoreAway: 1, Unknown: 1}},
		},
		"a burst": {
			// The third one uses up the burst, and the fourth one is one too many.
			[]record{sent(0, record{"burst": 3}), sent(100, record{"burst": 3}), sent(200, record{"burst": 3}), sent(300, record{"burst": 3}), sent(5000, record{"burst": 3}), sent(5001, record{"burst": 3})},
			pacing{Sent: 6, Compared: 5, Shortest: seconds(time.Millisecond), In10s: 6, InMinute: 6, Shorter: shorter{Burst: 3, Unknown: 1}},
		},
		"another delay is not compared with the one before": {
			[]record{sent(0, record{"pace_ms": 5000}), sent(1000, nil)},
			pacing{Sent: 2, Compared: 1, Shortest: seconds(time.Second), In10s: 2, InMinute: 2},
		},
		"no delay was in force": {
			[]record{sent(0, record{"pace_ms": 0}), sent(1, record{"pace_ms": 0})},
			pacing{Sent: 2, Shortest: seconds(time.Millisecond), In10s: 2, InMinute: 2},
		},
		"records of earlier versions": {
			[]record{rec(0, record{"wait_ms": 500}), rec(1, record{"wait_ms": 750}), rec(2, blocked), rec(3, record{"cached": true})},
			pacing{Sent: 2, Estimated: 2, Shortest: seconds(1250 * time.Millisecond), In10s: 2, InMinute: 2},
		},
		"a request that ended badly was sent too": {
			[]record{sent(0, nil), sent(1500, record{"decision": "block", "reason": "origin"})},
			pacing{Sent: 2, Compared: 1, Shortest: seconds(1500 * time.Millisecond), In10s: 2, InMinute: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sum(t, Options{}, c.records...)
			ignored := cmp.Options{cmpopts.IgnoreUnexported(pacing{}), cmpopts.IgnoreFields(pacing{}, "OverTime", "Median", "In10sAt", "InMinuteAt")}
			if diff := cmp.Diff(c.want, r.Pace.Total, ignored); diff != "" {
				t.Errorf("in total (-want +got):\n%s", diff)
			}
			c.want.Host = "site.test"
			if diff := cmp.Diff([]pacing{c.want}, r.Pace.Hosts.Rows, ignored); diff != "" {
				t.Errorf("by host (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnsent: allowed requests without a time of sending are counted, and others are not.
func TestUnsent(t *testing.T) {
	r := sum(t, Options{}, sent(0, nil), sent(1000, record{"sent": nil, "cached": true}), rec(2, with(blocked, record{"v": 3})), rec(3, nil))
	if r.Pace.Unsent != 1 || r.Pace.Total.Sent != 2 {
		t.Errorf("%d unsent, %d sent", r.Pace.Unsent, r.Pace.Total.Sent)
	}
}

// TestManyPacedHosts: requests to hosts without a row are counted, and said.
func TestManyPacedHosts(t *testing.T) {
	var all []record
	for i := range maxPaced + 2 {
		all = append(all, sent(i, record{"host": fmt.Sprintf("h%d.test", i)}), sent(i+5000, record{"host": fmt.Sprintf("h%d.test", i)}))
	}
	r := sum(t, Options{}, all...)
	text := render(t, func(b *strings.Builder) error { return r.HTML(b, 1) })
	if r.Pace.Hosts.Others != 4 || r.Pace.Total.Sent != 2*maxPaced || !strings.Contains(text, "4 further requests to other sites are not included") {
		t.Errorf("%d others, %d sent", r.Pace.Hosts.Others, r.Pace.Total.Sent)
	}
}

// TestPaceOfSeveralHosts: intervals are those between requests to one host.
func TestPaceOfSeveralHosts(t *testing.T) {
	r := sum(t, Options{}, sent(0, nil), sent(10, record{"host": "b.test"}), sent(2000, nil), sent(4010, record{"host": "b.test"}), sent(4020, record{"host": "c.test"}))
	if p := r.Pace.Total; p.Sent != 5 || p.Shortest != seconds(2*time.Second) || p.In10s != 2 || p.Shorter.Sum() != 0 {
		t.Errorf("%+v", p)
	}
	if median := time.Duration(r.Pace.Total.Median); median < 1900*time.Millisecond || median > 2100*time.Millisecond {
		t.Errorf("median %v", median)
	}
}

// TestPaceOfReplicas: each replica has its own row, and two audits are a cause of short intervals.
func TestPaceOfReplicas(t *testing.T) {
	b := New(Options{})
	testkit.Must(t, b.ReadAll([]Trail{
		{"a/audit.jsonl", readerOf(linesOf(t, sent(0, record{"replica": "a"}), sent(2000, record{"replica": "a"}))...)},
		{"b/audit.jsonl", readerOf(linesOf(t, sent(100, nil), sent(3000, nil))...)},
	}))
	r := b.Report(start, "")
	var got []string
	for _, p := range r.Pace.Hosts.Rows {
		got = append(got, fmt.Sprint(p.Replica, " ", p.Sent, " ", time.Duration(p.Shortest), " ", p.Shorter.Text()))
	}
	want := []string{" 4 100ms several audits 1", "a 2 2s ", "b/audit.jsonl 2 2.9s "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClockSetBack: requests after the clock was set back are not between those before.
func TestClockSetBack(t *testing.T) {
	var all []record
	for i := range 10 {
		all = append(all, sent(1000*i+60_000, nil))
	}
	for i := range 10 {
		all = append(all, sent(1000*i+60_500-30_000, nil), sent(1000*i+60_500, record{"host": "b.test"}))
	}
	all = append(all[:10], all[10], all[12], all[14])
	r := sum(t, Options{}, all...)
	if p := r.Pace.Total; p.Sent != 13 || p.Shortest != seconds(time.Second) || p.Compared != 11 || p.Shorter.Sum() != 0 {
		t.Errorf("%+v", p)
	}
}

// TestMedianOfEqualIntervals: the median is neither below the shortest interval nor above the longest.
func TestMedianOfEqualIntervals(t *testing.T) {
	for _, ms := range []int{1, 1004, 5004, 20_004} {
		var all []record
		for i := range 9 {
			all = append(all, sent(i*ms, nil))
		}
		if p := sum(t, Options{}, all...).Pace.Total; p.Median != seconds(time.Duration(ms)*time.Millisecond) {
			t.Errorf("%d ms: %v", ms, time.Duration(p.Median))
		}
	}
}

// TestYearsThatJSONLacks: the times of strangers cannot prevent a report.
func TestYearsThatJSONLacks(t *testing.T) {
	late := "9999-12-31T23:59:59-23:59"
	r := sum(t, Options{}, sent(0, record{"sent": late}), rec(1, record{"v": 2, "time": "9999-12-31T23:59:59Z", "wait_ms": 1000}),
		sent(2000, record{"back_off_s": 5, "back_off_by": "2000", "duration_ms": 1e12}), sent(3000, record{"robots_url": "http://a.test/", "robots_fetched": late}))
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// TestLatePace: a request that ended after maxUnordered others were counted is not placed between them.
func TestLatePace(t *testing.T) {
	testkit.Long(t, "volume")
	b := newPaceBuilder()
	p := b.row(pacingKey{host: "a"})
	at := func(ms int) *sending {
		return &sending{at: start.Add(time.Duration(ms) * time.Millisecond), delay: time.Second, whole: p}
	}
	for i := range maxUnordered + 100 {
		b.push(at(1000 * (i + 1)))
	}
	b.push(at(1))
	b.end()
	if p.Sent != maxUnordered+101 || p.Late != 1 || p.Shortest != seconds(time.Second) {
		t.Errorf("%+v", p)
	}
}

// TestDelays: a row for each delay that was in force, with its source.
func TestDelays(t *testing.T) {
	r := sum(t, Options{},
		sent(0, nil), sent(1000, nil),
		sent(2000, record{"pace_ms": 10_000, "crawl_delay_s": 10, "crawl_delay_asked_s": 30, "crawl_delay_line": 4}),
		sent(3000, record{"pace_ms": 4000, "slowed_s": 4, "crawl_delay_s": 2, "crawl_delay_asked_s": 2, "crawl_delay_line": 4}),
		sent(7000, record{"pace_ms": 6000, "slowed_s": 6}),
		sent(8000, record{"pace_ms": 3000, "store_away": true}),
		sent(8500, record{"pace_ms": 2500, "crawl_delay_s": 1, "crawl_delay_asked_s": 1, "crawl_delay_line": 4}),
		sent(9000, record{"pace_ms": 200, "entry": "site.test", "entry_reason": "letter"}),
		sent(9000, record{"pace_ms": 300, "entry": "*.test", "reason": "override", "burst": 4}),
	)
	var got []string
	for _, row := range (&tableBuilder{report: r}).delays().Rows {
		got = append(got, strings.Join(row[1:4], " | "))
	}
	want := []string{
		"1 s | configuration | 2", "10 s | robots.txt, line 4, which asks for 30 s | 1", "4 s to 6 s | slow responses | 2",
		"3 s | a share of the rate: the store was unavailable | 1", "2.5 s | configuration | 1", "200 ms | configuration, with the entry site.test (letter) | 1",
		"300 ms | configuration, at most 4 at once, with the entry *.test, which ignores robots.txt and its Crawl-delay | 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDelaysOfOneHost: a host with many delays leaves space for others.
func TestDelaysOfOneHost(t *testing.T) {
	var all []record
	for i := range maxHostDelays + 5 {
		all = append(all, sent(1000*i, record{"pace_ms": 1000 + i}))
	}
	r := sum(t, Options{}, append(all, sent(0, record{"host": "b.test"}))...)
	if n := len(r.Pace.Delays.Rows); n != maxHostDelays+1 || r.Pace.Delays.Others != 5 {
		t.Errorf("%d rows, %d others", n, r.Pace.Delays.Others)
	}
}

// TestBackOffs: what was sent between the response that began a back-off and its end, by whom, and what came next.
func TestBackOffs(t *testing.T) {
	began := sent(1000, record{"id": "x", "back_off_s": 10, "back_off_by": "x", "duration_ms": 500})
	for name, c := range map[string]struct {
		records []record
		want    string
	}{
		"kept":            {[]record{began, sent(12_000, record{"back_off_s": 8, "back_off_by": "x"})}, "delayed 1, during 0, others 0, unknown 0, next 12s"},
		"not kept":        {[]record{began, sent(5000, nil), sent(12_000, nil)}, "delayed 0, during 1, others 0, unknown 0, next 12s"},
		"of one client":   {[]record{began, sent(5000, record{"client": "b"}), sent(12_000, nil)}, "delayed 0, during 0, others 1, unknown 0, next 12s"},
		"of another host": {[]record{began, sent(5000, record{"host": "b.test"})}, "delayed 0, during 0, others 0, unknown 0, next never"},
		"in flight":       {[]record{sent(1100, nil), began}, "delayed 0, during 0, others 0, unknown 0, next never"},
		"ended by an operator too late": {
			[]record{began, {"time": at(15), "kind": "event", "event": "back-off-ended", "host": "site.test"}}, "delayed 0, during 0, others 0, unknown 0, next never",
		},
		"refused": {[]record{began, rec(3, record{"v": 3, "decision": "block", "reason": "pace", "back_off_s": 8, "back_off_by": "x"})}, "delayed 1, during 0, others 0, unknown 0, next never"},
		"clients are not recorded": {
			[]record{with(began, record{"client": "", "salts": nil}), sent(5000, record{"client": ""})}, "delayed 0, during 0, others 0, unknown 1, next never",
		},
		"clients were erased": {[]record{began, sent(5000, record{"salts": nil})}, "delayed 0, during 0, others 0, unknown 1, next never"},
		"ended by an operator": {
			[]record{began, {"time": at(4), "kind": "event", "event": "back-off-ended", "host": "site.test"}, sent(5000, nil)},
			"delayed 0, during 0, others 0, unknown 0, next 5s, ended 4s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows := sum(t, Options{}, c.records...).Pace.BackOffs.Rows
			if len(rows) != 1 {
				t.Fatalf("%+v", rows)
			}
			o := &rows[0]
			next := "never"
			if !o.Next.IsZero() {
				next = o.Next.Sub(start).String()
			}
			got := fmt.Sprintf("delayed %d, during %d, others %d, unknown %d, next %s", o.Delayed, o.During, o.Others, o.Unknown, next)
			if !o.EndedByOperator.IsZero() {
				got += ", ended " + o.EndedByOperator.Sub(start).String()
			}
			if got != c.want || o.Host != "site.test" || o.By != "x" || o.Length != seconds(10*time.Second) || !o.Began.Equal(start.Add(1500*time.Millisecond)) {
				t.Errorf("%s, want %s: %+v", got, c.want, o)
			}
		})
	}
}

// TestBackOffUnseen: of a back-off whose beginning has no record, the longest that a request met is known.
func TestBackOffUnseen(t *testing.T) {
	met := func(second int, left float64) record {
		return rec(second, record{"v": 3, "decision": "block", "reason": "pace", "back_off_s": left, "back_off_by": "x"})
	}
	rows := sum(t, Options{}, met(1, 60), met(50, 11), sent(55_000, nil)).Pace.BackOffs.Rows
	if len(rows) != 1 || rows[0].Length != seconds(time.Minute) || rows[0].Delayed != 2 || !rows[0].Began.IsZero() || rows[0].During != 0 {
		t.Errorf("%+v", rows)
	}
}

// TestVersionsOfARedirectedFile: fetches of it count for the records, which have the last URL; so does a version that only records
// name.
func TestVersionsOfARedirectedFile(t *testing.T) {
	const url = "http://b.test/robots.txt"
	fetch := func(second int, sha string) record {
		return record{"time": at(second), "kind": "robots", "url": "http://site.test/robots.txt", "hops": []string{url}, "host": "site.test", "outcome": "rules", "sha256": sha, "fetched": at(second)}
	}
	decided := func(second, fetched int) record {
		return sent(1000*second, record{"robots_url": url, "robots_fetched": at(fetched)})
	}
	r := sum(t, Options{}, fetch(10, "b"), decided(9, 1), decided(11, 1), decided(12, 10), fetch(20, "c"), fetch(30, "d"), decided(25, 10), decided(31, 10))
	var got []string
	for _, v := range r.Versions.Rows {
		got = append(got, fmt.Sprintf("%q %d %d", v.SHA256, v.AfterLast, v.AfterNext))
	}
	want := []string{`"b" 1 2`, `"" 1 1`, `"c" 0 0`, `"d" 0 0`}
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)); diff != "" || r.Outdated != (outdated{2, 3}) {
		t.Errorf("%+v, (-want +got):\n%s", r.Outdated, diff)
	}
}

// TestVersionOfAnEarlierAudit: a record of the version that is known, fetched earlier, is of that version; others are bounded.
func TestVersionOfAnEarlierAudit(t *testing.T) {
	const url = "http://site.test/robots.txt"
	fetch := record{"time": at(1000), "kind": "robots", "url": url, "host": "site.test", "outcome": "rules", "sha256": "a", "fetched": at(1000)}
	all := []record{fetch, sent(1_001_000, record{"robots_url": url, "robots_fetched": at(900), "robots_sha256": "a"})}
	if r := sum(t, Options{}, all...); len(r.Versions.Rows) != 1 || r.Outdated != (outdated{}) || !r.Versions.Rows[0].First.Equal(start.Add(900*time.Second)) {
		t.Errorf("%+v, %+v", r.Outdated, r.Versions.Rows)
	}
	for i := range 2 * maxFileVersions {
		all = append(all, sent(1_002_000+i, record{"robots_url": url, "robots_fetched": at(800 - i), "robots_sha256": fmt.Sprint(i)}))
	}
	if r := sum(t, Options{}, all...); len(r.Versions.Rows) != maxFileVersions || r.Versions.Others != 0 {
		t.Errorf("%d versions, %d others", len(r.Versions.Rows), r.Versions.Others)
	}
}

// TestVersions: requests that were sent after the last fetch that found their robots.txt, and before one that found another.
func TestVersions(t *testing.T) {
	const url = "http://site.test/robots.txt"
	fetch := func(second int, sha string) record {
		return record{"time": at(second), "kind": "robots", "url": url, "host": "site.test", "outcome": "rules", "sha256": sha, "fetched": at(second)}
	}
	decided := func(ms, fetched int, sha string) record {
		return sent(ms, record{"robots_url": url, "robots_fetched": at(fetched), "robots_sha256": sha})
	}
	r := sum(t, Options{},
		fetch(0, "a"), decided(1000, 0, "a"), fetch(10, "a"), decided(9000, 0, "a"), decided(11_000, 10, "a"), decided(12_000, 10, "a"),
		record{"time": at(15), "kind": "robots", "url": url, "host": "site.test", "outcome": "unreachable", "fetched": at(15)},
		fetch(20, "b"), decided(19_000, 10, "a"), decided(9500, 0, "a"), decided(22_000, 10, "a"), decided(21_000, 20, "b"),
		fetch(30, ""),
	)
	var got []string
	for _, v := range r.Versions.Rows {
		until := "now"
		if !v.Until.IsZero() {
			until = v.Until.Sub(start).String()
		}
		got = append(got, fmt.Sprintf("%q: %v to %v in %d fetches, until %s, %d sent, %d later", v.SHA256, v.First.Sub(start), v.Last.Sub(start), v.Fetches, until, v.AfterLast, v.AfterNext))
	}
	want := []string{
		`"a": 0s to 10s in 2 fetches, until 20s, 3 sent, 1 later`, `"b": 20s to 20s in 1 fetches, until 30s, 1 sent, 0 later`,
		`"": 30s to 30s in 1 fetches, until now, 0 sent, 0 later`,
	}
	if diff := cmp.Diff(want, got); diff != "" || r.Outdated != (outdated{4, 1}) {
		t.Errorf("%+v, (-want +got):\n%s", r.Outdated, diff)
	}
}
