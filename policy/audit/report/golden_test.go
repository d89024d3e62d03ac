package report

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots/testkit"
)

var update = flag.Bool("update", false, "write the reports of TestGolden into testdata")

// goldenReport has every table and every outcome.
func goldenReport(t testing.TB) *Report {
	one := linesOf(t,
		rec(0, record{"robots_sha256": "0123456789abcdef", "wait_ms": 0.2, "bytes": 52_000, "duration_ms": 80}),
		rec(1, record{"wait_ms": 1000, "bytes": 48_000, "x_robots_tag": "noindex"}),
		rec(1, record{"wait_ms": 2000, "client": "thesis", "crawl_delay_s": 1, "crawl_delay_asked_s": 30}),
		rec(1, blocked), rec(2, blocked), rec(2, with(blocked, record{"client": "thesis", "rule": "/search", "line": 7, "joined_line": 2})),
		rec(2, record{"decision": "block", "reason": "pace", "wait_ms": 0.3}),
		rec(3, with(silent, record{"host": "down.test"})), rec(4, record{"host": "down.test", "reason": "no-file"}),
		rec(3, record{"host": "gone.test", "decision": "block", "reason": "origin"}),
		rec(4, record{"host": "open.test", "reason": "override", "entry": "open.test", "entry_reason": "letter of 3 March"}),
		rec(4, watched), rec(4, record{"decision": "block", "reason": "pace", "enforced": false}), rec(4, with(silent, record{"enforced": false})),
		rec(5, record{"decision": "block", "reason": "usage", "withheld": true, "license": "https://site.test/license.xml", "usage_source": "header X-Robots-Tag",
			"usage": map[string]any{"train-ai": map[string]any{"outcome": "disallowed", "statement": "X-Robots-Tag: noai", "source": "header X-Robots-Tag"}, "tdm": map[string]any{"outcome": "unknown"}}}),
		rec(4, record{"signed": "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"}), rec(4, record{"unsigned": "client"}), rec(4, record{"unsigned": "tunnel", "reason": "tunnel"}),
		rec(5, record{"entry": "site.test", "entry_reason": "contract 7", "usage_source": "robots.txt",
			"usage": map[string]any{"tdm": map[string]any{"outcome": "disallowed", "statement": "Content-Signal: ai-train=no", "source": "robots.txt", "line": 3}}}),
		record{"time": at(5), "kind": "robots", "host": "site.test"},
		sent(0, record{"host": "paced.test", "burst": 2}), sent(900, record{"host": "paced.test", "burst": 2}),
		sent(3000, record{"host": "paced.test", "pace_ms": 2000, "crawl_delay_s": 2, "crawl_delay_asked_s": 20, "crawl_delay_line": 2}),
		sent(5000, record{"host": "paced.test", "id": "x", "pace_ms": 2000, "back_off_s": 60, "back_off_by": "x", "status": 429}),
		record{"time": at(5), "kind": "robots", "host": "paced.test", "url": "http://paced.test/robots.txt", "outcome": "rules", "sha256": "0123456789abcdef", "fetched": at(5)},
		record{"time": at(6), "kind": "robots", "host": "paced.test", "url": "http://paced.test/robots.txt", "outcome": "no-file", "fetched": at(6)},
		record{"time": at(5), "kind": "tdmrep", "host": "site.test"},
		record{"time": at(5), "kind": "event", "event": "lost", "detail": "the disk was full", "count": 2},
		rec(5, record{"robots_stale": true, "back_off_s": 3, "slowed_s": 1, "store_away": true, "duration_ms": 2500}),
	)
	s := New(Options{})
	testkit.Must(t, s.ReadAll([]Trail{{"a/audit.jsonl", readerOf(one...)}, {"b/audit.jsonl", readerOf(linesOf(t, rec(6, record{"replica": "b"}))...)}}))
	return s.Report(start.Add(time.Hour), "1.2.3")
}

// TestGolden compares whole reports with those in testdata: read the difference, then write them
// with go test -run TestGolden -update.
func TestGolden(t *testing.T) {
	r := goldenReport(t)
	for name, write := range map[string]func(*strings.Builder) error{
		"report.txt":  func(b *strings.Builder) error { return r.Text(b, 20) },
		"report.html": func(b *strings.Builder) error { return r.HTML(b, 100) },
		"report.csv":  func(b *strings.Builder) error { return r.CSV(b) },
	} {
		file := filepath.Join("testdata", name)
		got := render(t, write)
		if *update {
			testkit.Must(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		testkit.Must(t, err)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
