package auditcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots"
)

const (
	around    = 2 // lines of robots.txt that are shown before and after the one that decided
	maxAgents = 5 // User-agent lines of its group that are shown
)

func auditExplainCommand() *cobra.Command {
	var f auditFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [flags] ID",
		Short: "Explain a decision, and make it again from what it rested on",
		Long: `Explain a decision: why, by which line of which robots.txt, and where its record
stands. ID is the id of a record, which the answer to a refused request shows.

The decision is made again from the octets of the robots.txt that it rested on,
which are kept (see robotsproxy audit snapshot), by the code that judges requests.
With several --file, as the replicas of a fleet have one each, the record may be in
any of them.

The exit status is 1 when it comes out otherwise or cannot be made again, when the
record's line was changed, and when there is no such record.`,
		Example: `  robotsproxy audit explain 0f3a9c1d2b4e-7
  robotsproxy audit explain --json 0f3a9c1d2b4e-7`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
				return errors.New("one ID is wanted, as a record or a refusal has it, and a --file before each file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := f.places()
			if err != nil {
				return err
			}
			x, err := explainAny(cmd.Context(), all, strings.TrimSpace(args[0]))
			if err != nil {
				return err
			}
			return x.write(cmd.OutOrStdout(), asJSON)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// An explanation is what is known of one decision.
type explanation struct {
	Record   json.RawMessage `json:"record"`
	Place    recordPlace     `json:"place"`
	Why      string          `json:"why,omitempty"` // in words, where no rule decided
	Snapshot string          `json:"snapshot,omitempty"`
	Fetch    *snapshot.Fetch `json:"fetch,omitempty"`  // as the index has it
	Agents   []excerptLine   `json:"agents,omitempty"` // the User-agent lines of the group
	Lines    []excerptLine   `json:"lines,omitempty"`  // the one that decided, and those around it
	Derived  *derivation     `json:"rederived,omitempty"`

	entry trail.Entry
}

// A recordPlace is where a record stands in the chain.
type recordPlace struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Seq  uint64 `json:"seq,omitempty"`
	Hash bool   `json:"hash_holds"`
	Says string `json:"says,omitempty"` // what is wrong with the line
}

// An excerptLine is a line of robots.txt.
type excerptLine struct {
	Line   int    `json:"line"`
	Text   string `json:"text"`
	Marked bool   `json:"marked,omitempty"`
}

// explainAny explains a record of whichever of the audits has it.
func explainAny(ctx context.Context, all []auditPlace, id string) (*explanation, error) {
	var errs []error
	for _, at := range all {
		x, err := explain(ctx, at.file, at.snapshots, id)
		if err == nil {
			return x, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// explain finds a record of a trail, and what is kept in dir of what it rested on.
func explain(ctx context.Context, file, dir, id string) (*explanation, error) {
	line, entry, err := trail.Find(file, id)
	if errors.Is(err, trail.ErrNoRecord) {
		err = fmt.Errorf("%w in %s (an id ends in - and a count; those of a run are found with --run, that of another replica in its own audit, --file once for each; the oldest go by audit.max_files; refusals of one client beyond 100 a second have no record)", err, file)
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", id, err)
	}
	x := &explanation{Record: line.Text, Place: recordPlace{File: line.File, Line: line.Number, Hash: true}, entry: entry}
	link, err := trail.ReadLink(line.Text)
	x.Place.Seq = link.Seq
	if err != nil {
		x.Place.Hash, x.Place.Says = false, err.Error()
	}
	if x.Fetch, err = fetchOf(dir, &entry); err != nil {
		return nil, err
	}
	if entry.RobotsSHA256 != "" {
		if err := x.rederive(ctx, dir); err != nil {
			return nil, err
		}
	}
	if entry.Rule == "" {
		x.Why = x.why()
	}
	return x, nil
}

// rederive makes the decision again, and finds the lines that it is about.
func (x *explanation) rederive(ctx context.Context, dir string) error {
	e := &x.entry
	octets, state, err := stateOf(dir, e.RobotsSHA256)
	if errors.Is(err, snapshot.ErrName) {
		octets, state, err = nil, isDamaged, nil // what the record has is no hash
	}
	if err != nil {
		return err
	}
	x.Snapshot = state
	switch state {
	case isRemoved:
		x.Derived = &derivation{Notes: []string{noSnapshot(e.RobotsSHA256, fs.ErrNotExist).Error()}}
		return nil
	case isDamaged:
		x.Derived = &derivation{Notes: []string{"what is kept as the snapshot does not have this SHA-256"}}
		return nil
	}
	status := http.StatusOK
	if x.Fetch != nil {
		status = x.Fetch.Status
	}
	x.Derived = new(rederive(ctx, e, octets, status))
	if dialect, err := robots.DialectByName(e.Dialect); err == nil && e.Line > 0 {
		near, agents := robots.Excerpt(string(octets), dialect, e.Line, around)
		x.Lines, x.Agents = excerptOf(near, e.Line), excerptOf(agents, 0)
	}
	return nil
}

func excerptOf(lines []robots.Line, marked int) (all []excerptLine) {
	for _, l := range lines {
		all = append(all, excerptLine{l.Number, l.Text, l.Number == marked})
	}
	return all
}

// fetchOf finds in the index what a record rested on; nil: it is not there. A record
// that rested on a failure does not say when that was: it was the last one before
// the request ended.
func fetchOf(dir string, e *trail.Entry) (found *snapshot.Fetch, err error) {
	if e.RobotsURL == "" {
		return nil, nil
	}
	end := e.Time.Add(time.Duration(e.DurationMS * float64(time.Millisecond)))
	for f, err := range snapshot.Index(dir, e.RobotsURL) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, err
		case f.URL != e.RobotsURL || f.SHA256 != e.RobotsSHA256:
		case f.Fetched.Equal(e.RobotsFetched):
			found = &f // the first line of a fetch has its headers
		case e.RobotsFetched.IsZero() && !f.Fetched.After(end):
			return &f, nil
		}
		if !e.RobotsFetched.IsZero() && f.Kept.Before(e.RobotsFetched) {
			break // what is older was before
		}
	}
	return found, nil
}

// fine says whether there is nothing to object to.
func (x *explanation) fine() bool { return x.Place.Hash && (x.Derived == nil || x.Derived.Same) }

// write prints the explanation. What is wrong with it is the exit status.
func (x *explanation) write(out io.Writer, asJSON bool) (err error) {
	if asJSON {
		err = cli.NewJSONLines(out).Write(x)
	} else {
		_, err = io.WriteString(out, x.text(cli.Colourful(out)))
	}
	if err == nil && !x.fine() {
		err = cli.ExitError(cli.ExitFailure)
	}
	return err
}

// why puts into words what no rule decided.
func (x *explanation) why() string {
	e := &x.entry
	switch policy.Reason(e.Reason) {
	case policy.ReasonNoFile:
		if x.Fetch == nil {
			return "there were no rules: everything is allowed (the index does not have the fetch any more)"
		}
	case policy.ReasonTunnel:
		if e.Method == http.MethodConnect && e.RobotsURL == "" {
			return "a tunnel, judged by its host alone"
		}
	case policy.ReasonPace:
		return "the wait for a turn would have been too long, or too many waited (pace)"
	case policy.ReasonQuota:
		return "the client had sent all that it may send in a day (quota of its entry in clients)"
	case policy.ReasonShutdown:
		return "the proxy ended before the request had"
	case policy.ReasonLimit:
		return "the client had too many connections open (limits.connections_per_client), had more than 1,000 refusals or answers from a cached robots.txt to wait for, or memory was short (limits.memory)"
	case policy.ReasonAuth:
		return "who asked is none of clients, or could not show which"
	case policy.ReasonMalformed:
		return "the request was not one that a proxy can send on"
	case policy.ReasonLoop:
		return "the request had been through this proxy before"
	case policy.ReasonAudit:
		return "the record, or the robots.txt that it rests on, could not be kept (audit.on_error: refuse, audit.snapshot_max_size)"
	case policy.ReasonClient:
		return "the client left before its turn came"
	case policy.ReasonParent:
		return "the parent proxy did not serve (egress.parent)"
	case policy.ReasonInternal:
		return "a fault of the proxy's own"
	}
	f := checkcmd.Finding{Reason: e.Reason, Error: e.Error, Source: checkcmd.Source{Dialect: e.Dialect}, Asker: checkcmd.Asker{Group: e.Group}}
	if x.Fetch != nil {
		f.Status, f.Barred = x.Fetch.Status, x.Fetch.Barred
	}
	return cli.Harmless(f.Why())
}

// rests says on what a decision rests that is not on a file.
func (x *explanation) rests() string {
	switch {
	case x.entry.RobotsURL == "":
		return "on no robots.txt: none was asked"
	case x.Fetch == nil:
		return "on no file: there was none, and the index does not have the fetch any more"
	case x.Fetch.Lost:
		return "on no file: the redirects of robots.txt lead to none"
	case x.Fetch.Barred:
		return "on no file: a redirect of robots.txt was disallowed where it leads"
	case x.Fetch.Status > 0:
		return fmt.Sprintf("on no file: the answer had status %d", x.Fetch.Status)
	}
	return "on no file: there was no whole answer"
}

// naming gives the User-agent lines to show: those that name the group first.
func naming(agents []excerptLine, group string) (shown []excerptLine, more int) {
	names := func(l excerptLine) bool { return strings.Contains(strings.ToLower(l.Text), group) }
	shown = slices.Clone(agents)
	slices.SortStableFunc(shown, func(a, b excerptLine) int {
		switch {
		case names(a) == names(b):
			return 0
		case names(a):
			return -1
		}
		return 1
	})
	most := min(len(shown), maxAgents)
	more = len(shown) - most
	shown = shown[:most]
	slices.SortFunc(shown, func(a, b excerptLine) int { return a.Line - b.Line })
	return shown, more
}
