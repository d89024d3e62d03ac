package auditcmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/archivecmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/osfile"
)

type eraseFlags struct {
	auditFlags
	client, match, id, reason, archive string
	dryRun, withoutCaptures            bool

	// hashed is the name of client under audit.clients: hash.
	hashed string
}

func auditEraseCommand() *cobra.Command {
	var f eraseFlags
	cmd := &cobra.Command{
		Use:   "erase (--client NAME | --match TEXT | --id ID) --reason TEXT",
		Short: "Erase what records say about a person",
		Long: `Erase what records say about a person: the name of the client, the path and the query
of the URL, and the User-Agent header. Commitments replace them, which say nothing about
the values; the hashes of the lines cover the commitments, so the chain, the tree and
all checkpoints stay valid. audit verify says how many values were erased. Blank records
replace what the archive has of the requests; all other captures stay where they are.

--client selects the records of a client, and --id those of a request. --match selects
those that have a text in one of these values, exactly as the record has it. Of a fetch
of a robots.txt, and of records that name it, only the User-Agent header with which it
was fetched is erased, if it has the text.

Stop the proxy first. An event in the audit says how much was erased, and the reason,
which must not name the person. What is erased cannot be restored: begin with --dry-run,
which only shows the records. Hosts, rules and product tokens stay. Copies of the audit,
reports and logs are not changed. In a fleet, erase in the audit of each replica.

Records of versions before 3 cannot be erased, since their hashes cover the values; if
any match, the exit status is 1.`,
		Example: `  robotsproxy audit erase --client lab-a --reason "request 17" --dry-run
  robotsproxy audit erase --match user=maria --reason "request 18"`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.erase(cmd) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.client, "client", "", "erase the records of the client with this `NAME`")
	flags.StringVar(&f.match, "match", "", "erase the records that have this `TEXT` in the values")
	flags.StringVar(&f.id, "id", "", "erase the records of the request with this `ID`")
	flags.StringVar(&f.reason, "reason", "", "the reason, a `TEXT` for the audit")
	flags.StringVar(&f.archive, "archive", "", "archive in `DIR`, in place of archive.dir in the configuration")
	cli.OfferDirs(cmd, "archive")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only show the records")
	flags.BoolVar(&f.withoutCaptures, "without-captures", false, "go on if the archive does not have all captures of the records")
	return cmd
}

// check returns an error if the flags do not say what to erase, and why.
func (f *eraseFlags) check() error {
	if err := NotEmpty(f.Flags, "client", "match", "id", "reason", "archive"); err != nil {
		return err
	}
	what := f.client + f.match + f.id
	switch {
	case what == "" || what != f.client && what != f.match && what != f.id:
		return cli.UsageErrorf("say what to erase with one of --client, --match and --id")
	case strings.TrimSpace(f.reason) == "":
		return cli.UsageErrorf("say why with --reason")
	case strings.Contains(f.reason, what):
		return cli.UsageErrorf("--reason stays in the audit, so it must not have what is erased")
	}
	return nil
}

// erase erases the values in the audit that the flags name.
func (f *eraseFlags) erase(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	at, err := f.audit()
	if err != nil {
		return err
	}
	if err := canErase(&at); err != nil {
		return err
	}
	if f.hashed, err = f.clientName(f.client); err != nil {
		return err
	}
	cfg, err := f.Load()
	if err != nil {
		return err
	}
	r := &eraseRun{
		eraseFlags: f, cmd: cmd, log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), at: at,
		captures: archivecmd.NewErasure(at.archiveDir(f.archive, &cfg)), commitments: map[int64]string{},
	}
	found, err := r.run()
	if err != nil {
		return err
	}
	r.report(&found)
	if found.Kept > 0 {
		return fmt.Errorf("%s cannot be erased: of format version 2 or earlier, or changed since the proxy wrote them",
			humanize.Count(found.Kept, "matching line"))
	}
	return nil
}

// canErase returns an error if the audit is none that the command may change.
func canErase(at *auditFiles) error {
	info, err := os.Stat(at.file)
	if err != nil {
		return noAudit(at.file, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", at.file)
	}
	if at.part {
		return fmt.Errorf("%s is a closed file of an audit: name the file that the proxy writes", at.file)
	}
	if owner := osfile.Owner(info); os.Geteuid() == 0 && owner != 0 {
		return fmt.Errorf("%s belongs to user %d, and the proxy could not write what root makes in its place: run the command as that user",
			at.file, owner)
	}
	return nil
}

// An eraseRun is one run of the command.
type eraseRun struct {
	*eraseFlags
	cmd      *cobra.Command
	log      *slog.Logger
	at       auditFiles
	captures *archivecmd.Erasure

	// commitments are those of the fetches that have ended at these times, in nanoseconds.
	commitments map[int64]string
}

// run erases the values, or with --dry-run only finds them.
func (r *eraseRun) run() (found audit.Erased, err error) {
	lines := newRecordLines(cli.SupportsColour(r.cmd.OutOrStdout()), time.Local)
	show := func(e *trail.Entry) {
		if r.isAbout(e) {
			r.captures.Add(e.WARC.ID, true)
		}
		if r.dryRun {
			fmt.Fprintln(r.cmd.OutOrStdout(), lines.entry(e))
		}
	}
	what := audit.Erasure{
		Reason:  r.reason,
		Matches: func(e *trail.Entry) bool { return r.isAbout(e) || r.fetchedAs(e) },
		Hides:   r.hides,
		Each: func(before, after *trail.Entry) {
			if before.IsFetch() {
				r.commitments[before.Fetched.UnixNano()] = after.UserAgent
			}
			show(before)
		},
		// Their captures can be erased.
		Kept: show,
		// What was left in the archive can still be erased.
		Earlier:   func(e *trail.Entry) { r.captures.Add(e.WARC.ID, false) },
		Prepare:   r.prepare,
		Elsewhere: r.elsewhere,
	}
	if r.dryRun {
		return what.Find(r.cmd.Context(), r.at.file)
	}
	// The event names the same replica as the other lines.
	last, err := trail.LastEntry(r.at.file)
	if err != nil {
		return found, err
	}
	l, err := audit.Open(audit.Options{File: r.at.file, Replica: last.Replica, Log: r.log})
	if errors.Is(err, audit.ErrInUse) {
		return found, fmt.Errorf("%w: stop the proxy first", err)
	}
	if err != nil {
		return found, err
	}
	found, err = l.Erase(r.cmd.Context(), what)
	return found, errors.Join(err, r.captures.Close(), l.Close())
}

// prepare looks for the captures, and returns how many there are.
func (r *eraseRun) prepare() (int, error) {
	// A capture may have no record: the proxy was killed, the record was removed by age, or audit.include is blocked.
	if err := errors.Join(r.captures.Search(r.isCaptureAbout), r.captures.Find()); err != nil {
		return 0, err
	}
	if n := r.captures.Missing(); n > 0 && !r.withoutCaptures {
		return 0, fmt.Errorf("the archive lacks %s of these records: name its directory with --archive, or use --without-captures "+
			"if the proxy has removed them", humanize.Count(n, "capture"))
	}
	if r.dryRun {
		return r.captures.Found.Captures, nil
	}
	return r.captures.Found.Captures, r.captures.Lock(r.log)
}

// elsewhere erases the captures, and User-Agent headers in the index of the robots.txt files.
func (r *eraseRun) elsewhere() error {
	if err := r.captures.Erase(r.log); err != nil {
		return err
	}
	if r.match == "" {
		return nil
	}
	return snapshot.ReplaceAgents(r.cmd.Context(), r.at.snapshots, func(fetched *snapshot.Fetch) string {
		if !strings.Contains(fetched.UserAgent, r.match) {
			return ""
		}
		return r.commitments[fetched.Fetched.UnixNano()]
	})
}

// report says what was found.
func (r *eraseRun) report(found *audit.Erased) {
	out := r.cmd.OutOrStdout()
	switch {
	case found.Values+found.Captures+found.Kept == 0:
		fmt.Fprintln(out, "Nothing matches. Names and texts are compared exactly.")
	case r.dryRun:
		fmt.Fprintf(out, "Would erase %s.\n", found)
	default:
		fmt.Fprintf(out, "Erased %s.\n", found)
	}
	if n := r.captures.Found.Orphans; n > 0 && found.Captures > 0 {
		fmt.Fprintf(out, "%s had the same content as one of these, and the archive has it only there.\n",
			humanize.Count(n, "other capture"))
	}
	if found.Before > 0 {
		fmt.Fprintf(out, "Erased before: values of %s.\n", humanize.Count(found.Before, "line"))
	}
}

// hides reports whether the value of a member is erased in a line that matches.
func (r *eraseRun) hides(e *trail.Entry, member string) bool {
	return r.isAbout(e) || member == "robots_agent" || member == "tdmrep_agent" || e.IsFetch() && member == "user_agent"
}

// isAbout reports whether all values of a line are erased.
func (r *eraseRun) isAbout(e *trail.Entry) bool {
	switch {
	case e.IsFetch():
		return false
	case r.match == "":
		return r.client != "" && (e.Client == r.client || e.Client == r.hashed) || r.id != "" && e.ID == r.id
	}
	// The record shows a URL that is not UTF-8 percent-encoded.
	url, _ := e.RequestURL()
	return slices.ContainsFunc([]string{e.Client, e.UserAgent, trail.PathQuery(e.URL), trail.PathQuery(url)}, r.has)
}

// isCaptureAbout reports whether a capture is erased, given its URL and what its metadata say.
func (r *eraseRun) isCaptureAbout(url string, value func(name string) string) bool {
	if r.match != "" {
		return r.has(trail.PathQuery(url)) || r.has(value("client"))
	}
	client := value("client")
	return client != "" && (client == r.client || client == r.hashed) || r.id != "" && value("id") == r.id
}

// fetchedAs reports whether the User-Agent header of a fetch by the proxy itself, which the line names, has the text.
func (r *eraseRun) fetchedAs(e *trail.Entry) bool {
	if r.match == "" {
		return false
	}
	if e.IsFetch() {
		return r.has(e.UserAgent)
	}
	return r.has(e.RobotsAgent) || r.has(e.TDMRepAgent)
}

// has reports whether a value has the text.
func (r *eraseRun) has(value string) bool { return strings.Contains(value, r.match) }
