package auditcmd

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots"
)

// A tailFilter says which records are shown. Lines that are not records of requests are
// shown only by an empty filter.
type tailFilter struct {
	requestFlags
	blocked bool
	needles [][]byte // what a line that passes contains
}

// allowed is in each line of a request that was allowed, and, as quotes in strings are
// escaped, in no other.
var allowed = []byte(`"decision":"allow"`)

// prepare finds what spares most lines that do not pass from being decoded.
func (f *tailFilter) prepare() {
	host, err := robots.ParseHost(f.host)
	if err != nil {
		host = "" // a pattern
	}
	for _, s := range []string{f.client, host} {
		if q := strconv.Quote(s); s != "" && q[1:len(q)-1] == s { // it stands in JSON as it is
			f.needles = append(f.needles, []byte(q))
		}
	}
}

func (f *tailFilter) passes(line []byte) bool {
	if f.client == "" && f.hosts == nil && !f.blocked {
		return true
	}
	if f.blocked && bytes.Contains(line, allowed) {
		return false
	}
	for _, needle := range f.needles {
		if !bytes.Contains(line, needle) {
			return false
		}
	}
	e, err := trail.Read(line)
	return err == nil && e.IsRequest() && (!f.blocked || e.Blocked()) &&
		(f.client == "" || e.Client == f.client) && (f.hosts == nil || f.hosts.Has(e.Host))
}

// A recordLines puts records into lines for people.
type recordLines struct {
	cli.Sheet
	zone *time.Location
	day  string // of the record before
}

func newRecordLines(colours bool, zone *time.Location) *recordLines {
	return &recordLines{Sheet: cli.Sheet{Colours: colours}, zone: zone}
}

// line is a record as a line, behind one with the date where that changes. Strangers'
// words stand as they are where they are one plain word, else in quotes.
func (r *recordLines) line(text []byte) string {
	e, err := trail.Read(text)
	if err != nil {
		return r.Paint(cli.Yellow, "no record: ") + strconv.Quote(cli.Clip(string(text)))
	}
	r.Text.Reset()
	at := "--:--:--.---"
	if !e.Time.IsZero() {
		local := e.Time.In(r.zone)
		at = local.Format("15:04:05.000")
		if day := local.Format("Monday, 2006-01-02 MST"); day != r.day {
			r.day = day
			r.Text.WriteString(r.Paint(cli.Dim, "-- "+day) + "\n")
		}
	}
	r.Text.WriteString(r.Paint(cli.Dim, at) + "  ")
	if e.Event != "" {
		r.Text.WriteString(r.Paint(cli.Yellow, "audit  "+eventText(&e)))
		return r.Text.String()
	}
	if e.IsRequest() {
		r.verdict(&e)
	} else {
		fmt.Fprintf(&r.Text, "%s  %s  %s", r.Paint(cli.Dim, fmt.Sprintf("%-6s", cli.Word(e.Kind))), statusText(&e), cmp.Or(cli.Word(e.URL), "-"))
	}
	r.circumstances(&e)
	return r.Text.String()
}

// verdict is what was decided, of what.
func (r *recordLines) verdict(e *trail.Entry) {
	decision, colour := "allow ", cli.Green
	switch {
	case e.Blocked() && e.Enforced:
		decision, colour = "block ", cli.Red
	case e.Blocked():
		decision, colour = "block?", cli.Yellow
	}
	fmt.Fprintf(&r.Text, "%s  %-11s  %s  %-4s  %s",
		r.Paint(colour, decision), cli.Word(e.Reason), statusText(e), cmp.Or(cli.Word(e.Method), "-"), cmp.Or(cli.Word(e.URL), "-"))
}

// statusText gives the status of the answer in three characters; --- without one.
func statusText(e *trail.Entry) string {
	if e.Status == 0 {
		return "---"
	}
	return strconv.Itoa(e.Status)
}

// circumstances are the rest, as far as there is something to say.
func (r *recordLines) circumstances(e *trail.Entry) {
	add := func(text string) { r.Text.WriteString("  " + text) }
	if e.Rule != "" {
		forbids := e.Blocked() && (e.Reason == string(policy.ReasonRule) || e.Reason == string(policy.ReasonTunnel))
		add(checkcmd.RuleText(!forbids, e.Rule, e.Line))
	}
	if e.WaitMS >= 1 {
		add("waited " + duration(e.WaitMS))
	}
	if e.Error != "" {
		add(r.Paint(cli.Red, "error "+strconv.Quote(cli.Clip(e.Error))))
	}
	if e.StoreAway {
		add(r.Paint(cli.Yellow, "store away"))
	}
	if e.Replica != "" {
		add(r.Paint(cli.Dim, "replica ") + cli.Word(e.Replica))
	}
	if e.Client != "" {
		add(r.Paint(cli.Dim, "client ") + cli.Word(e.Client))
	}
	if e.Agent != "" {
		add(r.Paint(cli.Dim, "agent ") + cli.Word(e.Agent))
	}
}

// duration is a number of milliseconds for people.
func duration(ms float64) string {
	return time.Duration(min(ms, float64(math.MaxInt64/int64(time.Millisecond))) * float64(time.Millisecond)).Round(time.Millisecond).String()
}
