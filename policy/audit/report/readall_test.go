package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/policy/audit/trail"
)

// replicas writes the trails of some, a file set aside and a compressed one included
// where there are records enough, and opens them.
func replicas(t *testing.T, records map[string][]record) (all []Trail, home string) {
	t.Helper()
	home = t.TempDir()
	for name, own := range records {
		dir := filepath.Join(home, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "audit.jsonl")
		var p tape
		var lines [][]byte
		for _, r := range own {
			lines = append(lines, append(p.line(t, with(record{"replica": name}, r)).Text, '\n'))
		}
		file := func(name string, text []byte) {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if len(lines) > 2 {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			z.Write(lines[0])
			z.Close()
			file(trail.SegmentPath(path, 1)+".gz", packed.Bytes())
			file(trail.SegmentPath(path, 2), lines[1])
			lines = lines[2:]
		}
		file(path, bytes.Join(lines, nil))
		all = append(all, Trail{Name: name + "/audit.jsonl", Lines: open(t, path)})
	}
	slices.SortFunc(all, func(a, b Trail) int { return strings.Compare(a.Name, b.Name) })
	return all, home
}

// three is what three of them come to, where change, if any, was made to their files.
func three(t *testing.T, change func(home string)) *Report {
	t.Helper()
	trails, home := replicas(t, map[string][]record{
		"a": {rec(0, nil), rec(4, silent), rec(10, record{"store_away": true}), rec(12, nil)},
		"b": {rec(1, blocked), rec(5, silent), rec(8, record{"x_robots_tag": "noindex"})},
		"c": {rec(2, nil), {"time": at(3), "event": "lost", "replica": "c", "count": 7}, {"time": at(5), "kind": "robots", "host": "b.test", "duration_ms": 1}, rec(6, silent), rec(7, record{"x_robots_tag": "noarchive"})},
	})
	if change != nil {
		change(home)
	}
	s := New(Options{})
	if err := s.ReadAll(trails); err != nil {
		t.Fatal(err)
	}
	return s.Report(start, "")
}

func TestSeveralTrails(t *testing.T) {
	r := three(t, nil)
	if c := r.Source.Chain; !c.Held || c.Fault != nil || c.Anchor != "" {
		t.Errorf("chain %+v", c)
	}
	if got, want := fmt.Sprint(r.Totals.Requests, r.Totals.Allowed, r.Totals.Blocked, r.Totals.StoreAway, r.Source.Lines, r.Source.Fetches, r.Source.Lost), "10 6 4 1 12 1 7"; got != want {
		t.Errorf("requests, allowed, blocked, away, lines, fetches, lost: %s, want %s", got, want)
	}
	var each []string
	for _, row := range r.Replicas.Rows {
		each = append(each, fmt.Sprint(row.Replica+" ", row.Requests, row.Allowed, row.Blocked, row.StoreAway))
	}
	if want := []string{"a 4 3 1 1", "b 3 1 2 0", "c 3 2 1 0"}; !slices.Equal(each, want) {
		t.Errorf("by replica: %q, want %q", each, want)
	}
	each = nil
	for _, f := range r.Source.Files.Rows {
		each = append(each, fmt.Sprintf("%s %d-%d", f.Name, f.FirstSeq, f.LastSeq))
	}
	want := []string{
		"a/audit-000000000001.jsonl.gz 1-1", "a/audit-000000000002.jsonl 2-2", "a/audit.jsonl 3-4",
		"b/audit-000000000001.jsonl.gz 1-1", "b/audit-000000000002.jsonl 2-2", "b/audit.jsonl 3-3",
		"c/audit-000000000001.jsonl.gz 1-1", "c/audit-000000000002.jsonl 2-2", "c/audit.jsonl 3-5",
	}
	if !slices.Equal(each, want) {
		t.Errorf("files %q, want %q", each, want)
	}
	for i, p := range r.Source.Trails {
		if !p.Chain.Held || !strings.HasPrefix(p.Chain.Anchor, fmt.Sprintf("%d:", p.Lines)) || p.Files != 3 {
			t.Errorf("trail %d: %+v", i, p)
		}
	}
	if e := r.Events.Rows; len(e) != 1 || e[0].From != "c/audit.jsonl" || e[0].Replica != "c" {
		t.Errorf("events %+v", e)
	}
}

// What one replica saw after another comes after it: one time without robots.txt, which
// ended, and the last that the site has said.
func TestTrailsAreMergedInTime(t *testing.T) {
	r := three(t, nil)
	if o := r.Unreachable.Rows; len(o) != 1 || o[0].Requests != 3 || !o[0].Ended || o[0].First.Format("05") != "04" || o[0].Last.Format("05") != "06" {
		t.Errorf("times without robots.txt: %+v", o)
	}
	if g := r.Signals.Rows; len(g) != 1 || g[0].Last != "noindex" || g[0].Requests != 2 {
		t.Errorf("signals: %+v", g)
	}
}

// Lines are in the order in which requests ended: a request that arrived earlier may come
// later.
func TestTrailsAreMergedByEnds(t *testing.T) {
	trails, _ := replicas(t, map[string][]record{
		"a": {rec(0, record{"duration_ms": 60_000, "x_robots_tag": "last"})},
		"b": {rec(1, record{"x_robots_tag": "first"}), rec(30, record{"x_robots_tag": "second"})},
	})
	s := New(Options{})
	if err := s.ReadAll(trails); err != nil {
		t.Fatal(err)
	}
	if g := s.Report(start, "").Signals.Rows; len(g) != 1 || g[0].Last != "last" {
		t.Errorf("signals: %+v", g)
	}
}

// One broken chain is said with its file, and the others held.
func TestOneOfSeveralTrailsIsBroken(t *testing.T) {
	r := three(t, func(home string) {
		file := filepath.Join(home, "b", "audit.jsonl")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, bytes.Replace(text, []byte("allow"), []byte("ALLOW"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if want := "b/audit.jsonl:1: seq 3: changed: "; r.Source.Chain.Held || !strings.HasPrefix(r.Fault(), want) {
		t.Errorf("fault %q, want %s...", r.Fault(), want)
	}
	for i, want := range []bool{true, false, true} {
		if got := r.Source.Trails[i].Chain.Held; got != want {
			t.Errorf("trail %d held: %v", i, got)
		}
	}
	if r.Totals.Requests != 10 {
		t.Errorf("%d requests, want all 10", r.Totals.Requests)
	}
}

func TestSeveralTrailsInEachFormat(t *testing.T) {
	r := three(t, nil)
	text := render(t, func(b *strings.Builder) error { return r.Text(b, 0) })
	for _, want := range []string{
		"  chain      holds in each of 3 audits: no line between the first and the last was changed, removed or moved. Without", "1 paced while the store of the replicas was unavailable",
		"\nReplicas\n", "\n  a               4        3           0         0       1 ", "\nAudits\n", "\n  b/audit.jsonl      3      3         3        0     0  holds  3:",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	page := render(t, func(b *strings.Builder) error { return r.HTML(b, 0) })
	for _, want := range []string{`<section id="replicas"`, `<section id="audits"`, "c/audit.jsonl"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	table := render(t, func(b *strings.Builder) error { return r.CSV(b) })
	if want := "lab,site.test,block,true,rule,,*,/private,3,aa,1,0,0,0,10,0,0,0,0,2026-11-21T09:00:01Z,2026-11-21T09:00:01Z,b,0,disallowed,0\r\n"; !strings.Contains(table, want) {
		t.Errorf("the table lacks %q:\n%s", want, table)
	}
	document, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(document, &back); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"source.trails.2.name": "c/audit.jsonl", "source.trails.2.lines": 5.0, "source.trails.2.fetches": 1.0, "source.fetches": 1.0, "source.trails.2.lost": 7.0, "source.trails.2.chain.held": true,
		"source.chain.held": true, "source.chain.anchor": "", "replicas.rows.0.replica": "a", "replicas.rows.0.store_away": 1.0,
		"events.rows.0.trail": "c/audit.jsonl", "events.rows.0.replica": "c",
	} {
		if got := member(back, path); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// A proxy on its own has no table of replicas, nor one of audits.
func TestOneTrailHasNoReplicas(t *testing.T) {
	r := sum(t, Options{}, rec(1, nil), rec(2, blocked))
	if len(r.Replicas.Rows) > 0 || r.Source.Trails != nil {
		t.Errorf("%+v, %+v", r.Replicas.Rows, r.Source.Trails)
	}
	if text := render(t, func(b *strings.Builder) error { return r.Text(b, 0) }); strings.Contains(text, "eplica") || strings.Contains(text, "Audits") {
		t.Error(text)
	}
}
