package auditcmd

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/labels"
	"robotsproxy/robots"
)

// A tailFilter selects records. Only an empty filter selects lines that are not records of requests.
type tailFilter struct {
	requestFlags
	blocked bool

	// since selects requests that arrived then or later; zero: all.
	since time.Time

	// needles are in each line that the filter selects.
	needles [][]byte
}

// allowed is a part of each line of a request that was allowed, and of no other line: quotes in
// strings are escaped.
var allowed = []byte(`"decision":"allow"`)

// prepare finds the needles, which spare most other lines from being decoded.
func (f *tailFilter) prepare() {
	host, err := robots.ParseHost(f.host)
	if err != nil {
		// The host is a pattern.
		host = ""
	}
	for _, s := range []string{f.client, host} {
		// A string that strconv need not escape stands in JSON as it is.
		if q := strconv.Quote(s); s != "" && q[1:len(q)-1] == s {
			f.needles = append(f.needles, []byte(q))
		}
	}
}

// selects reports whether the filter leaves any line out.
func (f *tailFilter) selects() bool {
	return f.client != "" || f.hosts != nil || f.labels != "" || f.blocked || !f.since.IsZero()
}

func (f *tailFilter) passes(line []byte) bool {
	if !f.selects() {
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
	return err == nil && e.IsRequest() && (!f.blocked || e.Blocked()) && !e.Time.Before(f.since) &&
		(f.client == "" || e.Client == f.client) && (f.hosts == nil || f.hosts.Has(e.Host)) && labels.Set(e.Labels).Has(f.labels)
}

// A recordLines formats records as lines for people.
type recordLines struct {
	cli.Details
	zone *time.Location

	// day is that of the record before.
	day string
}

func newRecordLines(colours bool, zone *time.Location) *recordLines {
	return &recordLines{Details: cli.Details{Colours: colours}, zone: zone}
}

// line formats a record as a line, with a line of the date before it where that changes.
func (r *recordLines) line(text []byte) string {
	e, err := trail.Read(text)
	if err != nil {
		return r.Paint(cli.Yellow, "no record: ") + strconv.Quote(humanize.Clip(string(text), humanize.MaxBrief))
	}
	return r.entry(&e)
}

// entry is line for a record that is parsed already.
func (r *recordLines) entry(e *trail.Entry) string {
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
		r.Text.WriteString(r.Paint(cli.Yellow, "audit        "+eventText(e)))
		return r.Text.String()
	}
	if e.IsRequest() {
		r.verdict(e)
	} else {
		kind := r.Paint(cli.Dim, fmt.Sprintf("%-11s", humanize.Word(e.Kind)))
		fmt.Fprintf(&r.Text, "%s  %s  %s", kind, statusText(e), cmp.Or(humanize.Word(e.URL), "-"))
	}
	r.details(e)
	return r.Text.String()
}

// outcomeColours has the colour of each outcome.
var outcomeColours = map[policy.Outcome]string{
	policy.Allowed: cli.Green, policy.Disallowed: cli.Red, policy.Deferred: cli.Yellow, policy.Failed: cli.Red,
}

// verdict adds the outcome, the reason and the request. A question mark says that the decision was
// not enforced.
func (r *recordLines) verdict(e *trail.Entry) {
	outcome := explain.Outcome(e)
	word, colour := outcome.String(), outcomeColours[outcome]
	if e.Blocked() && !e.Enforced {
		word, colour = word+"?", cli.Yellow
	}
	method, url := cmp.Or(humanize.Word(e.Method), "-"), cmp.Or(humanize.Word(e.URL), "-")
	fmt.Fprintf(&r.Text, "%s  %-11s  %s  %-4s  %s",
		r.Paint(colour, fmt.Sprintf("%-11s", word)), humanize.Word(e.Reason), statusText(e), method, url)
}

// statusText returns the status of the response in three characters, or "---" if there
// was none.
func statusText(e *trail.Entry) string {
	if e.Status == 0 {
		return "---"
	}
	return strconv.Itoa(e.Status)
}

// details adds what else the record has.
func (r *recordLines) details(e *trail.Entry) {
	add := func(text string) { r.Text.WriteString("  " + text) }
	if e.Rule != "" {
		e := explain.OfRecord(e, nil)
		text := e.RuleText()
		if !explain.ByRobots(e.Reason) {
			text = "rule " + text
		}
		add(text)
	}
	if use := explain.Disallowed(e.Usage); use != "" {
		add(use)
	}
	if e.WaitMS >= 1 {
		add("waited " + asDuration(e.WaitMS/1000).Round(time.Millisecond).String())
	}
	if e.Error != "" {
		add(r.Paint(cli.Red, "error "+strconv.Quote(humanize.Clip(e.Error, humanize.MaxBrief))))
	}
	if e.StoreAway {
		add(r.Paint(cli.Yellow, "store away"))
	}
	if e.Replica != "" {
		add(r.Paint(cli.Dim, "replica ") + humanize.Word(e.Replica))
	}
	if e.Client != "" {
		add(r.Paint(cli.Dim, "client ") + humanize.Word(e.Client))
	}
	if e.Agent != "" {
		add(r.Paint(cli.Dim, "agent ") + humanize.Word(e.Agent))
	}
}

// asDuration converts the seconds of a record. A record may have any number.
func asDuration(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(math.Round(seconds*float64(time.Second)), math.MaxInt64/2))
}

// eventText formats an event. It is printable.
func eventText(e *trail.Entry) string {
	text := humanize.Word(e.Event)
	// The details of these events have the number.
	if e.Count > 0 && e.Event != trail.EventCounted && e.Event != trail.EventUnfinished && e.Event != trail.EventErased {
		text += " " + humanize.Count(e.Count, "record")
	}
	if e.Detail != "" {
		text += ": " + humanize.Prose(e.Detail)
	}
	if len(e.Keys) > 0 {
		text += ": " + humanize.Prose(strings.Join(e.Keys, ", "))
	}
	if e.Client != "" {
		text += "  client " + humanize.Word(e.Client)
	}
	if e.File != "" {
		text += fmt.Sprintf(" (%s, %d bytes)", humanize.Word(e.File), e.FileBytes)
	}
	return text
}
