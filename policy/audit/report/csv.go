package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"
)

// csvAppended is how many columns were added later. They are at the end, because scripts may
// refer to the others by position.
const csvAppended = 4

// csvColumns are the names in the header row.
var csvColumns = []string{
	"client", "host", "decision", "enforced", "reason", "entry", "group", "rule", "line", "robots_sha256",
	"requests", "waited", "wait_s", "wait_max_s", "bytes", "clamped", "stale", "back_offs", "slowed", "first", "last",
	"replica", "store_away", "outcome", "joined_line",
}

// CSV writes one table (RFC 4180): a row for each combination of replica, client, host, decision
// and its reasons, and one of "(others)" for those beyond the maximum. It puts an apostrophe
// before a cell that a spreadsheet would take for a formula.
func (r *Report) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(csvColumns); err != nil {
		return err
	}
	for i := range r.combined.Rows {
		c := &r.combined.Rows[i]
		names := []string{
			csvSafe(c.Client), csvSafe(c.Host), csvSafe(c.Decision), strconv.FormatBool(c.Enforced), csvSafe(c.Reason),
			csvSafe(c.Entry), csvSafe(c.Group), csvSafe(c.Rule), strconv.Itoa(c.Line), csvSafe(c.SHA256),
		}
		row := append(names, csvCounts(&c.counts)...)
		row = append(row, csvSafe(c.Replica), strconv.FormatInt(c.StoreAway, 10), c.outcome().String(), strconv.Itoa(c.Joined))
		if err := out.Write(row); err != nil {
			return err
		}
	}
	if rest := &r.combined.Others; rest.Requests > 0 {
		names := make([]string, len(csvColumns)-len(csvCounts(rest))-csvAppended)
		names[0], names[1] = others, others
		row := append(names, csvCounts(rest)...)
		if err := out.Write(append(row, others, strconv.FormatInt(rest.StoreAway, 10), others, "")); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func csvCounts(c *counts) []string {
	var cells []string
	for _, n := range []int64{c.Requests, c.Waited} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}
	for _, s := range []seconds{c.Wait, c.WaitMax} {
		cells = append(cells, strconv.FormatFloat(time.Duration(s).Seconds(), 'f', -1, 64))
	}
	for _, n := range []int64{c.Bytes, c.Clamped, c.Stale, c.BackedOff, c.Slowed} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}
	for _, t := range []time.Time{c.First, c.Last} {
		text := ""
		if !t.IsZero() {
			text = t.UTC().Format(time.RFC3339Nano)
		}
		cells = append(cells, text)
	}
	return cells
}

var afterSemicolon = strings.NewReplacer(";=", ";'=", ";+", ";'+", ";-", ";'-", ";@", ";'@")

// csvSafe returns a string as a cell. It escapes what is not printable, and puts an apostrophe
// before what a spreadsheet would take for a formula (OWASP, CSV Injection). In many languages, a
// spreadsheet that opens a CSV file begins a new cell at each semicolon, also within quotes.
func csvSafe(s string) string {
	if s == "" {
		return ""
	}
	text := afterSemicolon.Replace(shown(s))
	if strings.ContainsRune("=+-@\t\r\n", rune(s[0])) || strings.ContainsRune("=+-@", rune(text[0])) {
		return "'" + text
	}
	return text
}
