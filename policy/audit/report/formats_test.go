package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"
)

// hostile are strings that strangers would like to see in a report.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style><script>alert(1)</script>`, `javascript:alert(1)`,
	"\x1b[2J\x1b]0;title\a", "a\u202egnp.exe", "\u2066isolate", "line\r\nbreak", "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1",
	"{{.}}", "\x00", strings.Repeat("a", 5000), strings.Repeat("<", 5000),
}

func hostileReport(t testing.TB) *Report {
	var records []record
	for i, s := range hostile {
		r := with(blocked, record{
			"client": s, "host": s, "rule": s, "group": s, "robots_sha256": s, "reason": s, "line": i + 1,
			"entry": s, "entry_reason": s, "x_robots_tag": s, "crawl_delay_asked_s": 30, "wait_ms": 1,
		})
		records = append(records, rec(i, r), rec(i, with(r, record{"reason": "override"})), rec(i, with(r, record{"reason": "unreachable"})))
		records = append(records, record{"time": at(i), "event": s, "detail": s, "file": s})
	}
	return sum(t, Options{Client: "", Host: hostile[0], MatchHost: func(string) bool { return true }}, records...)
}

// TestErased: all records whose clients were erased are one row, and the report says how many there are.
func TestErased(t *testing.T) {
	erased := func(n int) record {
		return rec(n, record{"v": 3, "client": "sha256:" + strings.Repeat(string(rune('A'+n)), 43), "url": "https://site.test/sha256:x"})
	}
	r := sum(t, Options{}, erased(1), erased(2), rec(3, record{"v": 3, "client": "sha256:name", "salts": map[string]string{"client": "a"}}))
	text := render(t, func(b *strings.Builder) error { return r.Text(b, 0) })
	if r.Erased != 2 || len(r.Clients.Rows) != 2 || r.Clients.Rows[0].Client != "(erased)" || !strings.Contains(text, "\n  (erased)") {
		t.Errorf("%d erased, %+v\n%s", r.Erased, r.Clients, text)
	}
}

func render(t testing.TB, write func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// unfit returns the characters that could move a cursor or reverse a text.
func unfit(s string, but ...rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || slices.Contains(but, r) {
			return -1
		}
		return r
	}, s)
}

func TestTextIsFitForATerminal(t *testing.T) {
	text := render(t, func(b *strings.Builder) error { return hostileReport(t).Text(b, 0) })
	if bad := unfit(text, '\n'); bad != "" {
		t.Errorf("it has %q", bad)
	}
	if !strings.Contains(text, `"a\u202egnp.exe"`) {
		t.Error("a string that is not plain is not shown quoted")
	}
}

func TestTextColumns(t *testing.T) {
	r := sum(t, Options{}, rec(1, nil), rec(2, nil), rec(3, record{"client": "someone else"}))
	text := render(t, func(b *strings.Builder) error { return r.Text(b, 1) })
	want := "Clients\n" +
		"  client    requests  allowed  disallowed  deferred  failed  waited  median wait  longest wait  data\n" +
		"  lab              2        2           0         0       0       0          0 s           0 s  20 B\n" +
		"  (others)         1        1           0         0       0       0          0 s           0 s  10 B\n" +
		"  (others) is the sum of 1 further row.\n"
	if !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant in it\n%s", text, want)
	}
}

func TestCSVReadsBack(t *testing.T) {
	r := sum(t, Options{}, rec(1, nil), rec(2, record{"wait_ms": 1500}), rec(3, blocked), rec(4, watched))
	text := render(t, func(b *strings.Builder) error { return r.CSV(b) })
	if strings.Count(text, "\r\n") != strings.Count(text, "\n") {
		t.Error("lines do not end with CR LF (RFC 4180 2.1)")
	}
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		csvColumns,
		{"lab", "site.test", "allow", "true", "no-rule", "", "", "", "0", "", "2", "1", "1.5", "1.5", "20", "0", "0", "0", "0", "2026-11-21T09:00:01Z", "2026-11-21T09:00:02Z", "", "0", "allowed", "0"},
		{"lab", "site.test", "block", "false", "rule", "", "*", "/private", "3", "aa", "1", "0", "0", "0", "10", "0", "0", "0", "0", "2026-11-21T09:00:04Z", "2026-11-21T09:00:04Z", "", "0", "disallowed", "0"},
		{"lab", "site.test", "block", "true", "rule", "", "*", "/private", "3", "aa", "1", "0", "0", "0", "10", "0", "0", "0", "0", "2026-11-21T09:00:03Z", "2026-11-21T09:00:03Z", "", "0", "disallowed", "0"},
	}
	if !slices.EqualFunc(rows, want, slices.Equal) {
		t.Errorf("%q, want %q", rows, want)
	}
}

func TestCSVHasNoFormula(t *testing.T) {
	text := render(t, func(b *strings.Builder) error { return hostileReport(t).CSV(b) })
	if bad := unfit(text, '\r', '\n'); bad != "" {
		t.Errorf("it has %q", bad)
	}
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	led := 0
	for _, row := range rows {
		for _, cell := range row {
			if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Errorf("a cell is %q", cell)
			}
			if strings.HasPrefix(cell, "'") {
				led++
			}
		}
	}
	if led == 0 {
		t.Error("no cell is led by an apostrophe")
	}
}

func TestJSONReadsBack(t *testing.T) {
	r := sum(t, Options{Client: "lab"}, rec(1, record{"wait_ms": 1500}), rec(2, blocked), rec(3, watched), rec(3, record{"client": "b"}))
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"format": 1.0, "version": "1.2.3", "made": "2026-11-21T10:00:00Z", "monitored": 1.0, "filters.client": "lab",
		"source.lines": 4.0, "source.requests": 4.0, "source.files.rows.0.name": "audit.jsonl", "source.chain.held": true,
		"totals.requests": 3.0, "totals.allowed": 1.0, "totals.blocked": 1.0, "totals.not_enforced": 1.0,
		"totals.disallowed": 1.0, "totals.deferred": 0.0, "totals.failed": 0.0, "totals.would_be_disallowed": 1.0, "totals.wait_median_s": 1.5, "totals.ended": "2026-11-21T09:00:03Z",
		"source.chain.first_seq": 1.0, "source.chain.last_seq": 4.0, "timeline.buckets.0.wait_max_s": 1.5, "hosts.rows.0.wait_median_s": 1.5,
		"totals.waited": 1.0, "totals.wait_s": 1.5, "totals.wait_mean_s": 1.5, "totals.wait_max_s": 1.5, "totals.bytes": 30.0,
		"totals.first": "2026-11-21T09:00:01Z", "timeline.bucket_s": 1.0, "timeline.buckets.1.blocked": 1.0,
		"hosts.rows.0.host": "site.test", "hosts.rows.0.robots_sha256": "aa", "hosts.most": 10000.0, "hosts.others.requests": 0.0,
		"rules.rows.0.rule": "/private", "rules.rows.0.line": 3.0, "rules.rows.0.blocked": 1.0, "reasons.rows.0.reason": "rule",
		"unreachable.rows": []any{}, "signals.others": 0.0, "events.most": 1000.0,
	} {
		if got := member(back, path); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// member returns the value at a path of names and indices in a document.
func member(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			v = in[int(name[0]-'0')]
		default:
			return nil
		}
	}
	return v
}

// elements walks a page.
func elements(t testing.TB, page string, visit func(n *html.Node)) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		visit(n)
	}
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func TestPageLoadsAndRunsNothing(t *testing.T) {
	page := render(t, func(b *strings.Builder) error { return hostileReport(t).HTML(b, 0) })
	if bad := unfit(page, '\n', '\t'); bad != "" {
		t.Errorf("it has %q", bad)
	}
	var policy, style, shown strings.Builder
	elements(t, page, func(n *html.Node) {
		if n.Type == html.TextNode {
			shown.WriteString(n.Data + "\n")
		}
		if n.Type != html.ElementNode {
			return
		}
		if slices.Contains([]string{"script", "link", "img", "image", "use", "iframe", "object", "embed", "form", "base", "video", "audio", "source"}, n.Data) {
			t.Errorf("it has an element %s", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || slices.Contains([]string{"src", "srcset", "style", "action", "data", "poster", "background"}, a.Key) ||
				a.Key == "href" && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("it has %s=%q", a.Key, a.Val)
			}
		}
		switch {
		case n.Data == "meta" && attr(n, "http-equiv") == "Content-Security-Policy":
			policy.WriteString(attr(n, "content"))
		case n.Data == "style":
			style.WriteString(n.FirstChild.Data)
		}
	})
	if p := policy.String(); !strings.HasPrefix(p, "default-src 'none'; style-src 'sha256-") || strings.Contains(p, "unsafe") {
		t.Errorf("its policy is %s", p)
	}
	if s := style.String(); s != pageStyle || strings.Contains(s, "url(") || strings.Contains(s, "@import") {
		t.Error("its style is not ours alone, or loads something")
	}
	for _, s := range []string{hostile[0], hostile[1], "{{.}}", `"a\u202egnp.exe"`} {
		if !strings.Contains(shown.String(), s) {
			t.Errorf("%q is not shown as it is", s)
		}
	}
}

// The structure of the page for screen readers and keyboard users.
func TestPageCanBeHeard(t *testing.T) {
	page := render(t, func(b *strings.Builder) error { return hostileReport(t).HTML(b, 0) })
	ids := map[string]bool{}
	elements(t, page, func(n *html.Node) {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("id %s is there twice", id)
			}
			ids[id] = true
		}
	})
	charts, tables := 0, 0
	elements(t, page, func(n *html.Node) {
		for name := range strings.FieldsSeq(attr(n, "aria-labelledby")) {
			if !ids[name] {
				t.Errorf("%s is named by %s, which is not there", n.Data, name)
			}
		}
		if to, ok := strings.CutPrefix(attr(n, "href"), "#"); ok && !ids[to] {
			t.Errorf("a link leads to %s, which is not there", to)
		}
		if n.Type != html.ElementNode {
			return
		}
		switch n.Data {
		case "html":
			if attr(n, "lang") != "en" {
				t.Error("it does not say its language")
			}
		case "svg":
			charts++
			if attr(n, "role") != "img" && attr(n, "aria-hidden") != "true" {
				t.Error("a drawing is neither an image with a name nor hidden")
			}
		case "table":
			tables++
			if n.FirstChild.NextSibling.Data != "caption" {
				t.Error("a table has no caption")
			}
		case "th":
			if s := attr(n, "scope"); s != "col" && s != "row" && s != "rowgroup" {
				t.Errorf("a heading's scope is %q", s)
			}
		}
	})
	if charts == 0 || tables < 8 {
		t.Errorf("%d drawings and %d tables", charts, tables)
	}
}

func TestPageSaysWhatItRestsOn(t *testing.T) {
	r := sum(t, Options{Client: "lab"}, rec(1, nil), rec(2, blocked), rec(3, watched))
	page := render(t, func(b *strings.Builder) error { return r.HTML(b, 20) })
	for _, said := range []string{
		"The audit has 3 records of requests (21 November 2026, 09:00:01 to 09:00:03 UTC).", "Allowed: 1 (33.3 %). Disallowed by robots.txt or by the operator, and therefore not sent to the site: 1 (33.3 %).",
		"Sent, although the proxy decided against it (mode: monitor): 1 (33.3 %).", "1 request was disallowed by a rule", "client lab; the totals count only requests that match",
		r.Source.Chain.Anchor, "2026-11-21 10:00:00 UTC, by robotsproxy 1.2.3",
		"The chain of the audit holds: no line between 1 and 3 was changed, removed or moved. Without a checkpoint or an anchor, two things cannot be detected: lines cut off the end, and lines changed together with all later hashes.", "audit.jsonl",
		"Monitoring: nothing was blocked for 1 of 3 requests (21 November 2026, 09:00:03 UTC). The proxy only recorded its decisions (mode: monitor). Would have been disallowed: 1. Pace and quotas were not evaluated.",
	} {
		if !strings.Contains(page, said) {
			t.Errorf("it does not say %q", said)
		}
	}
}

// A disallowed request was sent if only the response disallows the use of the content.
func TestWithheldIsSaid(t *testing.T) {
	withheld := with(blocked, record{"reason": "usage", "withheld": true, "crawl_delay_asked_s": 30, "crawl_delay_s": 1})
	r := sum(t, Options{}, rec(1, nil), rec(2, blocked), rec(3, withheld), rec(4, with(withheld, record{"withheld": false})))
	const want = "and therefore not sent to the site (except 1 request: the site disallows the use of the content only in its response, which the proxy did not pass on): 3 (75 %)."
	text := strings.Join(prose{r}.sentences("sentences"), "\n")
	if !strings.Contains(text, want) || !strings.Contains(text, "1 request was sent after a shorter Crawl-delay") {
		t.Errorf("%q is not in\n%s", want, text)
	}
}

func TestRulesOfOneHostFold(t *testing.T) {
	var records []record
	for i := range minGrouped {
		records = append(records, rec(i, with(blocked, record{"line": i + 1})))
	}
	records = append(records, rec(9, with(blocked, record{"host": "t.test"})), rec(9, with(blocked, record{"host": "u.test"})))
	page := sum(t, Options{}, records...).page(minGrouped + 1)
	for _, s := range page.Tables {
		if s.ID != "rules" {
			continue
		}
		if len(s.Groups) != 1 || len(s.Groups[0].Table.Rows) != minGrouped || s.Groups[0].Name != "site.test" || s.Groups[0].Note != "4 rules, 4 requests" {
			t.Errorf("folds %+v", s.Groups)
		}
		if len(s.Rows) != 2 || s.Rows[0][0] != "t.test" || s.Rows[1][0] != others {
			t.Errorf("beside them stand %q", s.Rows)
		}
	}
}

func TestWideTablesHaveTwoLinesForARow(t *testing.T) {
	p := goldenReport(t).page(0)
	two := map[string]bool{}
	for _, s := range p.Tables {
		two[s.ID] = s.Stacked()
		if s.ID != "hosts" {
			continue
		}
		cells := s.Cells(s.Rows[0])
		if len(cells.Beside) != len(s.Beside()) || cells.Beside[0] != (cell{column{"requests", figures}, "17"}) {
			t.Errorf("counts: %v under %v", cells.Beside, s.Beside())
		}
		if len(cells.Above) != 4 || cells.Above[0] != (cell{column{"asked delay", figures}, "30 s"}) {
			t.Errorf("beside the host: %v", cells.Above)
		}
		if cells := s.Cells(s.Rows[2]); len(cells.Above) != 1 || cells.Above[0].Name != "robots.txt" {
			t.Errorf("beside a host without a delay: %v", cells.Above)
		}
	}
	if !two["rules"] || !two["clients"] || two["unreachable"] || two["events"] {
		t.Errorf("with two lines: %v", two)
	}
}

func TestEmptyTrail(t *testing.T) {
	r := sum(t, Options{})
	for name, write := range map[string]func(b *strings.Builder) error{
		"text": func(b *strings.Builder) error { return r.Text(b, 20) },
		"html": func(b *strings.Builder) error { return r.HTML(b, 20) },
		"csv":  func(b *strings.Builder) error { return r.CSV(b) },
	} {
		if text := render(t, write); text == "" || strings.Contains(text, "holds:") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// What the report says of exceptions holds for the records that it has, in every format.
func TestExceptions(t *testing.T) {
	denied := with(blocked, record{"reason": "denied-host", "entry": "site.test"})
	tunnel := record{"reason": "tunnel", "method": "CONNECT"}
	full := []record{rec(0, nil)}
	for i := range maxReasons {
		full = append(full, rec(i, record{"reason": fmt.Sprint("made-up-", i)}))
	}
	for _, c := range []struct {
		name    string
		records []record
		want    string // "": nothing is said
	}{
		{"none", []record{rec(0, nil), rec(1, blocked)}, "No exceptions: robots.txt, as the proxy had fetched it, was applied to every request that the proxy sent."},
		{"nothing was sent", []record{rec(0, blocked)}, "No exceptions: the report has no request that the proxy sent."},
		{"nothing was enforced", []record{rec(0, watched)}, "No exceptions: no entry of the configuration ignores robots.txt for these requests."},
		{"a host is denied", []record{rec(0, nil), rec(1, denied)}, "No exceptions except denied hosts: robots.txt, as the proxy had fetched it, was applied to every request that the proxy sent."},
		{"a tunnel was passed through", []record{rec(0, nil), rec(1, tunnel)},
			"No exceptions: robots.txt, as the proxy had fetched it, was applied to every request that the proxy sent, but not inside the tunnels that it passed through."},
		{"a tunnel was refused", []record{rec(0, nil), rec(1, with(tunnel, record{"decision": "block"}))},
			"No exceptions: robots.txt, as the proxy had fetched it, was applied to every request that the proxy sent."},
		{"robots.txt was ignored", []record{rec(0, nil), rec(1, record{"reason": "override"})}, "1 request was decided by an entry of the configuration that ignores robots.txt."},
		{"some reasons have no row", append(full, rec(0, record{"reason": "override"})), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sum(t, Options{}, c.records...)
			sentences := strings.Join(prose{r}.sentences("sentences"), "\n")
			text := render(t, func(b *strings.Builder) error { return r.Text(b, 0) })
			if c.want == "" {
				if strings.Contains(sentences, "exceptions") || strings.Contains(text, "  exceptions") {
					t.Errorf("it is said: %s\n%s", sentences, text)
				}
				return
			}
			if !strings.Contains(sentences, c.want) {
				t.Errorf("%q is not in the sentences:\n%s", c.want, sentences)
			}
			if !strings.Contains(text, "  exceptions "+strings.Replace(c.want, "No exceptions", "none", 1)) {
				t.Errorf("%q is not in the text:\n%s", c.want, text)
			}
		})
	}
}

// The report says how many tunnels were passed through, because the requests inside have no records.
func TestTunnelsAreSaid(t *testing.T) {
	r := sum(t, Options{}, rec(0, record{"reason": "tunnel"}), rec(1, record{"reason": "tunnel"}), rec(2, with(blocked, record{"reason": "tunnel"})))
	const want = "2 tunnels were passed through: robots.txt decided about the whole site only. The requests inside have no records, and can be for pages that robots.txt disallows."
	if text := strings.Join(prose{r}.sentences("sentences"), "\n"); !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
	if notes := (prose{r}).Text("of these"); notes != "2 passed through as tunnels, without records of the requests inside" {
		t.Errorf("the notes are %q", notes)
	}
}

// The report says of refusals without a record only what holds for each of their reasons.
func TestCountedIsSaid(t *testing.T) {
	r := sum(t, Options{}, rec(0, nil), record{"time": at(1), "kind": "event", "event": "counted", "count": 12, "clients": 1, "reasons": record{"denied-host": 12}})
	const want = "12 further refusals were only counted, and the numbers of this report do not include them: a client caused more than 100 refusals in one second for reasons that do not depend on the site, such as"
	if text := strings.Join(prose{r}.sentences("sentences"), "\n"); !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{share(0, 0), "0 %"}, {share(1, 3), "33.3 %"}, {share(1, 10000), "less than 0.1 %"}, {share(9999, 10000), "more than 99.9 %"}, {share(5, 5), "100 %"},
		{shown(""), "(none)"}, {shown("a b"), "a b"}, {shown("a\nb"), `"a\nb"`},
		{csvSafe("=1"), "'=1"}, {csvSafe("\t1"), `'"\t1"`}, {csvSafe(""), ""}, {csvSafe("1=1"), "1=1"},
		{csvSafe("/a;=1"), "/a;'=1"}, {csvSafe("/;@SUM(A1);-1"), "/;'@SUM(A1);'-1"}, {csvSafe("/a;b=1"), "/a;b=1"}, {csvSafe(`/;"=1`), `"/;\"=1"`},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
