package auditcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
)

func auditExplainCommand() *cobra.Command {
	var f auditFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [flags] ID",
		Short: "Explain a decision, and repeat it from the files that it is based on",
		Long: `Explain a decision: whether the request was allowed, disallowed, deferred or failed,
why, by which line of which robots.txt, and where the record is. ID is the id of a
record. The response to a refused request shows it.

The command repeats the decision with the code that decides about requests, from the
stored robots.txt and tdmrep.json that the decision is based on (see robotsproxy audit
snapshot). What response headers stated about uses of the content is not repeated.
Use --file once for each replica of a fleet: the command searches all these files.
Without --file and --run, it also searches the audits of the newest runs, unless run
--audit has written them elsewhere.

The exit status is 1 if the repeated decision differs, if the decision cannot be
repeated, if the line of the record was changed, or if there is no such record.`,
		Example: `  robotsproxy audit explain 1q3k8vz0w9rtp
  robotsproxy audit explain --json 1q3k8vz0w9rtp`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
				return errors.New("expected exactly one record ID; put --file before the name of each file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.explain(cmd.Context(), strings.TrimSpace(args[0]))
			if err != nil {
				return err
			}
			return r.write(cmd.OutOrStdout(), asJSON)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// A recordExplanation is what is known of the decision that one record is about.
type recordExplanation struct {
	Record json.RawMessage `json:"record"`
	Place  recordPlace     `json:"place"`

	// Why is a sentence; "": the rule says everything.
	Why string `json:"why,omitempty"`

	// Snapshot and TDMRep are the states of the snapshots of robots.txt and tdmrep.json; "": the decision is based on none.
	Snapshot string `json:"snapshot,omitempty"`
	TDMRep   string `json:"tdmrep_snapshot,omitempty"`

	// Fetch is that of robots.txt, from the index.
	Fetch *snapshot.Fetch `json:"fetch,omitempty"`

	// Agents are the User-agent lines of the group.
	Agents []excerptLine `json:"agents,omitempty"`

	// Lines are the line that decided, and those around it.
	Lines   []excerptLine `json:"lines,omitempty"`
	Derived *derivation   `json:"rederived,omitempty"`

	entry trail.Entry

	// run has the record; "": it is in no run, or in that of --file.
	run         string
	explanation explain.Explanation

	// size and tdmrepSize are those of the snapshots, in bytes.
	size, tdmrepSize int

	// excerpt is nil if no line decided, or the snapshot is not there.
	excerpt *explain.Excerpt
}

// A recordPlace is the place of a record in the chain.
type recordPlace struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Seq  uint64 `json:"seq,omitempty"`
	Hash bool   `json:"hash_holds"`

	// Says what is wrong with the line.
	Says string `json:"says,omitempty"`
}

// An excerptLine is an explain.Line in the JSON of this command.
type excerptLine struct {
	Number  int    `json:"line"`
	Text    string `json:"text"`
	Decides bool   `json:"marked,omitempty"`
}

func excerptLines(lines []explain.Line) (all []excerptLine) {
	for _, l := range lines {
		all = append(all, excerptLine(l))
	}
	return all
}

// explain explains a record of the audits that the flags name. Without --file and --run, the record
// may also be one of a run.
func (f *auditFlags) explain(ctx context.Context, id string) (*recordExplanation, error) {
	all, err := f.audits()
	if err == nil {
		var r *recordExplanation
		if r, err = explainAny(ctx, all, id); err == nil {
			return r, nil
		}
	}
	if len(f.paths) > 0 || f.run != "" || !isUnknown(err) && !errors.Is(err, errStdout) {
		return nil, err
	}
	runs, in, noRuns := f.runs()
	if noRuns != nil || len(runs) == 0 {
		return nil, errors.Join(err, noRuns)
	}
	for _, at := range runs {
		if r, err := explainRecord(ctx, at, id); err == nil || !isUnknown(err) {
			return r, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("%w\nno such record in the audits of %s in %s either", err, humanize.Count(len(runs), "run"), in)
}

// isUnknown reports whether an audit has no record with an ID, or does not exist.
func isUnknown(err error) bool {
	return errors.Is(err, trail.ErrNoRecord) || errors.Is(err, errNoAudit)
}

// explainAny explains a record, which may be in any of the audits.
func explainAny(ctx context.Context, all []auditFiles, id string) (*recordExplanation, error) {
	var errs []error
	for _, at := range all {
		r, err := explainRecord(ctx, at, id)
		if err == nil {
			return r, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// explainRecord finds a record of an audit, and what is stored of the robots.txt that it is based on.
func explainRecord(ctx context.Context, at auditFiles, id string) (*recordExplanation, error) {
	line, entry, err := trail.Find(at.file, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noAudit(at.file, err)
	}
	if errors.Is(err, trail.ErrNoRecord) {
		err = fmt.Errorf("%w in %s (use --file for the audit of another replica; the proxy deletes records by audit.max_age, "+
			"and refusals beyond 100 a second of a client, or 1,000 of all, have no record)", err, at.file)
	}
	if err == nil && entry.Kind == trail.KindBegun {
		err = fmt.Errorf("the request has begun (%s:%d) and has no record: it is under way, or the proxy ended before it did",
			line.File, line.Number)
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", id, err)
	}
	r := &recordExplanation{
		Record: line.Text, Place: recordPlace{File: line.File, Line: line.Number, Hash: true}, entry: entry, run: at.run,
	}
	link, err := trail.ReadLink(line.Text)
	r.Place.Seq = link.Seq
	if err != nil {
		r.Place.Hash, r.Place.Says = false, err.Error()
	}
	if r.Fetch, err = fetchOf(at.snapshots, &entry); err != nil {
		return nil, err
	}
	r.explanation = explain.OfRecord(&entry, nil)
	if f := r.Fetch; f != nil {
		r.explanation = explain.OfRecord(&entry, &explain.Fetch{
			Status: f.Status, Redirects: f.Redirects, Error: f.Error,
			TooManyRedirects: f.TooManyRedirects, DeadRedirect: f.DeadRedirect, RedirectDisallowed: f.RedirectDisallowed,
		})
		r.explanation.Fetched, r.explanation.RobotsAgent = f.Fetched, cmp.Or(f.UserAgent, entry.RobotsAgent)
	}
	r.Why = r.explanation.Why()
	if entry.RobotsSHA256 != "" || entry.TDMRepSHA256 != "" {
		err = r.rederive(ctx, at.snapshots)
	}
	return r, err
}

// rederive makes the decision again, and finds the lines that it is about.
func (r *recordExplanation) rederive(ctx context.Context, dir string) (err error) {
	e := &r.entry
	var text, tdmrep []byte
	if text, r.Snapshot, err = snapshotOf(dir, e.RobotsSHA256); err != nil {
		return err
	}
	if tdmrep, r.TDMRep, err = snapshotOf(dir, e.TDMRepSHA256); err != nil {
		return err
	}
	r.size, r.tdmrepSize = len(text), len(tdmrep)
	if notes := append(unusable(e.RobotsSHA256, r.Snapshot), unusable(e.TDMRepSHA256, r.TDMRep)...); notes != nil {
		r.Derived = &derivation{Notes: notes}
		return nil
	}
	file := &checkcmd.File{Name: e.RobotsURL, Text: text, Status: http.StatusNotFound}
	if r.Snapshot != "" {
		file.Status = http.StatusOK
		if r.Fetch != nil {
			file.Status = r.Fetch.Status
		}
	}
	r.Derived = new(new(judge).rederive(ctx, e, file, tdmrep))
	if f := r.explanation.Fetch; f != nil && e.Line == 0 && e.Group == "" && robots.IsHTML(text) {
		f.HTML = true
		r.Why = r.explanation.Why()
	}
	if r.excerpt = r.explanation.Excerpt(string(text)); r.excerpt != nil {
		r.Lines, r.Agents = excerptLines(r.excerpt.Lines), excerptLines(r.excerpt.Agents)
	}
	return nil
}

// snapshotOf returns the snapshot of a hash in a record and its state; nothing for no hash.
func snapshotOf(dir, sha string) (text []byte, state string, err error) {
	if sha == "" {
		return nil, "", nil
	}
	text, state, err = stateOf(dir, sha)
	// The record may have anything in place of a hash.
	if errors.Is(err, snapshot.ErrName) {
		return nil, isDamaged, nil
	}
	return text, state, err
}

// unusable says why a decision cannot be made again from a snapshot in a state.
func unusable(sha, state string) []string {
	switch state {
	case isRemoved:
		return []string{noSnapshot(sha, fs.ErrNotExist).Error()}
	case isDamaged:
		return []string{"the stored snapshot has another SHA-256"}
	}
	return nil
}

// fetchOf finds in the index the fetch that a record rested on; nil: it is not there. A record
// that rested on a failed fetch does not say when that was: it is the last one before the request
// ended.
func fetchOf(dir string, e *trail.Entry) (found *snapshot.Fetch, err error) {
	if e.RobotsURL == "" {
		return nil, nil
	}
	end := e.Time.Add(time.Duration(e.DurationMS * float64(time.Millisecond)))
	// A long line has only the beginning of the URL.
	known, _, _ := trail.CutText(e.RobotsURL)
	for f, err := range snapshot.Index(dir, known) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, err
		case !isRecorded(e.RobotsURL, f.URL) || f.SHA256 != e.RobotsSHA256:
		case f.Fetched.Equal(e.RobotsFetched):
			// Only the first line of a fetch has its headers.
			found = &f
		case e.RobotsFetched.IsZero() && !f.Fetched.After(end):
			return &f, nil
		}
		if !e.RobotsFetched.IsZero() && f.Saved.Before(e.RobotsFetched) {
			// Older lines of the index are about earlier fetches.
			break
		}
	}
	return found, nil
}

// fine reports whether there is nothing to object to.
func (r *recordExplanation) fine() bool {
	return r.Place.Hash && (r.Derived == nil || r.Derived.Same)
}

// write prints the explanation. What is wrong with it is the exit status.
func (r *recordExplanation) write(out io.Writer, asJSON bool) (err error) {
	if asJSON {
		err = cli.WriteJSON(out, r)
	} else {
		_, err = io.WriteString(out, r.text(cli.SupportsColour(out)))
	}
	if err == nil && !r.fine() {
		err = cli.ExitError(cli.ExitFailure)
	}
	return err
}

// text is the explanation for people.
func (r *recordExplanation) text(colours bool) string {
	e := &r.entry
	s := &cli.Details{Colours: colours}
	outcome := explain.Outcome(e)
	fmt.Fprintf(&s.Text, "%s %s\n", s.Paint(outcomeColours[outcome], fmt.Sprintf("%-10s", outcome)), humanize.Brief(e.URL))
	if e.Blocked() && !e.Enforced {
		s.Row("enforced", "no: the proxy sent the request and only recorded the decision (mode: monitor)")
	}
	s.Row("why", r.Why)
	s.Facts(r.explanation.Decided())
	s.Row("user-agent", humanize.Brief(e.UserAgent))
	s.Row("labels", humanize.Brief(e.Labels))
	s.Row("replica", humanize.Brief(e.Replica))
	client, at := cmp.Or(humanize.Brief(e.Client), "an unnamed client"), e.Time.UTC().Format(time.RFC3339Nano)
	s.Row("request", strings.TrimSpace(fmt.Sprintf("%s by %s, %s", humanize.Brief(e.Method), client, at)))
	response := "none"
	if e.Status > 0 {
		response = fmt.Sprintf("status %d, %s, after %s", e.Status, humanize.Count(e.Bytes, "byte"), millis(e.DurationMS))
	}
	s.Row("response", response)
	if e.WaitMS > 0 {
		s.Row("waited", millis(e.WaitMS).String())
	}
	s.Row("signed", humanize.Brief(e.Signed))
	s.Row("unsigned", humanize.Brief(e.Unsigned))
	if e.TLS != "" {
		s.Row("tls", humanize.Brief(e.TLS)+": a version or a cipher suite of the origin that is weak")
	}
	if e.Dropped > 0 {
		s.Row("left out", humanize.Count(int64(e.Dropped), "malformed field")+" of the response")
	}
	if e.StoreAway {
		s.Row("store", "unavailable: the request was paced without the other replicas")
	}
	s.Facts(r.explanation.Basis())
	r.printRobots(s)
	r.printResponse(s)
	r.printArchived(s)
	r.printPlace(s)
	r.printDerived(s)
	return s.Text.String()
}

// millis reads the milliseconds of a record, to a tenth of one.
func millis(ms float64) time.Duration { return asDuration(ms / 1000).Round(time.Millisecond / 10) }

// printRobots prints what is stored of the robots.txt that the decision is based on.
func (r *recordExplanation) printRobots(s *cli.Details) {
	if r.entry.RobotsURL == "" {
		s.Row("robots.txt", "not needed for this decision")
	} else if r.Fetch == nil {
		s.Row("outcome", "unknown: the index no longer has the fetch")
	} else {
		s.Row("headers", headerRows(*r.Fetch)...)
	}
	var kept []string
	show := "robotsproxy audit snapshot "
	if r.run != "" {
		show += "--run " + cli.ShellQuote(r.run) + " "
	}
	if r.Snapshot == isThere {
		kept = append(kept, fmt.Sprintf("%s: %s%.12s", humanize.Count(r.size, "byte"), show, r.entry.RobotsSHA256))
	}
	if r.TDMRep == isThere {
		kept = append(kept, fmt.Sprintf("%s of tdmrep.json: %s%.12s", humanize.Count(r.tdmrepSize, "byte"), show, r.entry.TDMRepSHA256))
	}
	s.Row("snapshot", kept...)
	if r.excerpt == nil {
		return
	}
	agents, more, lines := r.excerpt.Shown()
	for _, l := range agents {
		printLine(s, l)
	}
	if more > 0 {
		fmt.Fprintf(&s.Text, "  %6s   and %s\n", "", humanize.Count(more, "more User-agent line"))
	}
	if n := len(agents); n > 0 && agents[n-1].Number < lines[0].Number-1 {
		fmt.Fprintf(&s.Text, "  %6s   ...\n", "")
	}
	for _, l := range lines {
		printLine(s, l)
	}
}

func printLine(s *cli.Details, l explain.Line) {
	mark, text := " ", humanize.Prose(strings.TrimRight(l.Text, " \t"))
	if l.Decides {
		mark, text = ">", s.Paint(cli.Yellow, text)
	}
	fmt.Fprintf(&s.Text, "  %s %5d | %s\n", mark, l.Number, text)
}

// printResponse shows what the response said about uses of its content.
func (r *recordExplanation) printResponse(s *cli.Details) {
	e := &r.entry
	// The policy may also be that of tdmrep.json.
	s.Row("tdm-policy", humanize.Brief(e.TDMPolicy))
	for _, h := range []struct{ name, value string }{
		{"content-signal", e.ContentSignal}, {"content-usage", e.ContentUsage}, {"x-robots-tag", e.XRobotsTag},
		{"tdm-reservation", e.TDMReservation}, {"crawler-price", e.CrawlerPrice},
	} {
		if h.value != "" {
			s.Row(h.name, humanize.Brief(h.value)+", in the response")
		}
	}
}

// printArchived shows where the archive has the response.
func (r *recordExplanation) printArchived(s *cli.Details) {
	if at := &r.entry.WARC; at.ID != "" {
		s.Row("archived", fmt.Sprintf("in %s at byte %d, as %s (robotsproxy archive get %s)",
			humanize.Printable(at.File), at.Offset, humanize.Printable(at.ID), humanize.Printable(r.entry.ID)))
	}
}

func (r *recordExplanation) printPlace(s *cli.Details) {
	p := &r.Place
	if r.run != "" {
		s.Row("run", humanize.Brief(r.run))
	}
	where := fmt.Sprintf("%s:%d", humanize.Printable(p.File), p.Line)
	if p.Seq > 0 {
		where += fmt.Sprintf(", number %d", p.Seq)
	}
	holds := "the hash of the line is correct (audit verify checks the whole chain)"
	if !p.Hash {
		holds = s.Paint(cli.Red, humanize.Prose(p.Says))
	}
	s.Row("record", where, holds)
}

func (r *recordExplanation) printDerived(s *cli.Details) {
	d := r.Derived
	if d == nil {
		return
	}
	rows := []string{s.Paint(cli.Green, "the same")}
	switch {
	case len(d.Differs) > 0:
		rows = []string{s.Paint(cli.Red, "it differs")}
		for _, diff := range d.Differs {
			rows = append(rows, fmt.Sprintf("%s: recorded %s, re-derived %s", diff.Member,
				cmp.Or(humanize.Brief(diff.Record), "nothing"), cmp.Or(humanize.Brief(diff.Derived), "nothing")))
		}
		rows = append(rows, "audit verify shows whether somebody changed the kept robots.txt or its entry in the index")
	case !d.Same:
		rows = []string{s.Paint(cli.Red, "not possible")}
	}
	for _, note := range d.Notes {
		rows = append(rows, humanize.Escape(note))
	}
	s.Row("re-derived", rows...)
}
