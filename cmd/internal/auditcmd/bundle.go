package auditcmd

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/archivecmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/cmd/internal/version"
	"robotsproxy/policy/audit/bundle"
	auditreport "robotsproxy/policy/audit/report"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
)

// bundleFlags are the flags of audit bundle.
type bundleFlags struct {
	auditFlags
	requests                 requestFlags
	since, until             string
	ids, hidden, checkpoints []string
	complete, withContent    bool
	archive, output          string
	retired                  publicKeys
}

func auditBundleCommand() *cobra.Command {
	var f bundleFlags
	cmd := &cobra.Command{
		Use:   "bundle (--host HOST | --client NAME | --label KEY=VALUE | --id ID) -o FILE.zip",
		Short: "Write some records, with proofs, into a file for somebody else",
		Long: `Write a zip file with some records, and with what a stranger needs to verify that they are
in the audit: proofs that lead to signed checkpoints, time-stamps, the robots.txt files
that the records were decided by, and a report. README.txt in it says what it proves,
and what not. robotsproxy audit verify FILE.zip verifies it on any machine. Give the
reader the public key (audit key --public) in another way.

--hide leaves out values of the records: commitments stand for them, and the proofs stay
valid. --complete adds all other lines between two checkpoints, with hidden values but
readable hosts: the reader sees that no record of the host was left out.

The command verifies the audit first. Records after the newest checkpoint are not
covered by a proof; serve makes a checkpoint at each stop. Read what the bundle says of
others before you send it: the command prints how many clients and hosts it names.`,
		Example: `  robotsproxy audit bundle --host site.example --since 7d -o site.zip
  robotsproxy audit bundle --id 1q3k8vz0w9rtp --hide client,user_agent -o one.zip
  robotsproxy audit verify --key audit.pub site.zip`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.bundle(cmd, time.Now()) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	f.requests.add(cmd)
	flags.StringVar(&f.since, "since", "", "only requests that arrived at this `TIME` or later")
	flags.StringVar(&f.until, "until", "", "only requests that arrived before this `TIME`")
	flags.StringArrayVar(&f.ids, "id", nil, "only the record with this `ID`; repeat it for more")
	flags.StringSliceVar(&f.hidden, "hide", nil, "hide these `VALUES` of the records: client, labels, user_agent, url")
	flags.BoolVar(&f.complete, "complete", false, "add all other lines between two checkpoints, with hidden values")
	flags.BoolVar(&f.withContent, "with-content", false, "add what the archive has of the records")
	flags.StringVar(&f.archive, "archive", "", "archive in `DIR`, in place of archive.dir in the configuration")
	cli.OfferDirs(cmd, "archive")
	flags.StringArrayVar(&f.checkpoints, "checkpoint", nil, "also show the checkpoints in `FILE`, kept elsewhere; repeat it for more")
	addKeys(flags, &f.retired, "`FILE` with public keys that were retired, for older checkpoints; repeat it for more")
	flags.StringVarP(&f.output, "output", "o", "", "write the bundle to `FILE`")
	return cmd
}

// bundle writes a bundle of the audit that the flags name.
func (f *bundleFlags) bundle(cmd *cobra.Command, now time.Time) error {
	o, err := f.options(now)
	if err != nil {
		return err
	}
	at, err := f.audit()
	if err != nil {
		return err
	}
	if at.part {
		return fmt.Errorf("%s is a closed file of an audit: name the file that the proxy writes", at.file)
	}
	source, done, err := f.source(cmd.Context(), at, o)
	if err != nil {
		return err
	}
	defer done()
	var found *bundle.Findings
	err = cli.ReplaceFile(f.output, func(w io.Writer) (err error) {
		found, err = bundle.Write(w, source, o)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := (&verification{}).verifyBundle(f.output, &knownCheckpoints{}); err != nil {
		return fmt.Errorf("the bundle was written, but verify will refuse it: %w", err)
	}
	return writeRows(cmd.OutOrStdout(), writtenText, struct {
		*bundle.Findings
		File string
	}{found, f.output})
}

// options returns what the flags select.
func (f *bundleFlags) options(now time.Time) (*bundle.Options, error) {
	err := errors.Join(NotEmpty(f.Flags, "since", "until", "output", "archive"), f.requests.read(&f.auditFlags))
	if err != nil {
		return nil, err
	}
	if f.requests.host == "" && f.requests.client == "" && f.requests.labels == "" && len(f.ids) == 0 {
		return nil, cli.UsageErrorf("say whose records with --host, --client, --label or --id")
	}
	if f.complete && f.requests.host == "" {
		return nil, cli.UsageErrorf("--complete needs --host: only hosts can be read in the other lines")
	}
	if f.output == "" || f.output == "-" {
		return nil, cli.UsageErrorf("name the file with -o")
	}
	if f.archive != "" && !f.withContent {
		return nil, cli.UsageErrorf("--archive needs --with-content")
	}
	if f.Flags.Changed("hide") && len(f.hidden) == 0 {
		return nil, cli.UsageErrorf("--hide: must not be empty")
	}
	for _, name := range f.hidden {
		if !slices.Contains(bundle.HideableNames(), name) {
			return nil, cli.UsageErrorf("--hide %q: use %s", name, cli.OneOf(bundle.HideableNames()))
		}
	}
	if f.requests.labels != "" && slices.Contains(f.hidden, "labels") {
		return nil, cli.UsageErrorf("--hide labels: records that --label selects must show theirs")
	}
	if f.withContent && slices.Contains(f.hidden, "url") {
		return nil, cli.UsageErrorf("--hide url: the records of an archive name the URL, so leave out --with-content")
	}
	since, errSince := moment(f.since, now)
	until, errUntil := moment(f.until, now)
	if err := errors.Join(errSince, errUntil); err != nil {
		return nil, cli.UsageErrorf("--since, --until: %w", err)
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return nil, cli.UsageErrorf("--until must be later than --since")
	}
	host := f.requests.host
	if host != "" {
		// The pattern was parsed before.
		host, _ = bundle.NormalHost(host)
	}
	slices.Sort(f.hidden)
	info, _ := debug.ReadBuildInfo()
	number, _ := version.Of(info)
	return &bundle.Options{
		Selection: bundle.Selection{
			Host: host, Client: f.requests.client, Labels: string(f.requests.labels),
			Since: since, Until: until, IDs: f.ids, Hidden: slices.Compact(f.hidden),
		},
		Complete: f.complete, Made: now, Version: number,
	}, nil
}

// source returns what a bundle of an audit is made of, after the audit was verified. The caller calls done.
func (f *bundleFlags) source(ctx context.Context, at auditFiles, o *bundle.Options) (s *bundle.Source, done func(), err error) {
	v := verification{out: io.Discard, checkpoints: f.checkpoints, retired: f.retired.lists, snapshots: at.snapshots != ""}
	known, err := v.readCheckpoints([]auditFiles{at})
	if err != nil {
		return nil, nil, err
	}
	r, err := openAudit(at.file)
	if err != nil {
		return nil, nil, err
	}
	if _, err := v.verify(r, at, known, ""); err != nil {
		return nil, nil, err
	}
	if err := known.unmatched(); err != nil {
		return nil, nil, err
	}
	trees, err := openTrees(at.file)
	if err == nil && len(trees) == 0 {
		err = fmt.Errorf("%s has no tree, which the proofs need: copy audit.tree too, or start the proxy once with this audit", at.file)
	}
	done = func() {
		for _, t := range trees {
			t.Tree.Close()
		}
	}
	s = &bundle.Source{
		Open:     func() (*trail.Reader, error) { return trail.OpenContext(ctx, at.file) },
		Notes:    known.notes,
		Snapshot: func(sha string) ([]byte, error) { return snapshot.Read(at.snapshots, sha) },
		Report:   func(lines io.Reader) ([]byte, error) { return reportOf(lines, o) },
	}
	for _, t := range trees {
		s.Trees = append(s.Trees, t.Tree)
	}
	slices.SortFunc(s.Trees, func(a, b *tree.Tree) int { return cmp.Compare(a.First(), b.First()) })
	if err == nil {
		s.Keys, err = (notary.KeyFile{Path: at.key}).Public()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			err = nil
		}
		s.Keys += f.retired.text
	}
	if err == nil && f.withContent {
		err = f.addContent(s, &at)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return s, done, nil
}

// reportOf returns the report of the lines of a bundle.
func reportOf(lines io.Reader, o *bundle.Options) ([]byte, error) {
	b := auditreport.New(auditreport.Options{Partial: true})
	if err := b.Read(trail.NewReader("records.jsonl", lines)); err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err := b.Report(o.Made, o.Version).HTML(&page, TopOfPage)
	return page.Bytes(), err
}

//go:embed bundle.tmpl
var writtenText string

// addContent lets the bundle have what the archive has.
func (f *bundleFlags) addContent(s *bundle.Source, at *auditFiles) error {
	cfg, err := f.Load()
	if err != nil {
		return err
	}
	dir := at.archiveDir(f.archive, &cfg)
	if dir == "" {
		return cli.UsageErrorf("--with-content: no archive is configured: name its directory with --archive")
	}
	s.Content = func(w io.Writer, ids map[string]bool, all bool) error { return archivecmd.Extract(w, dir, ids, all) }
	return nil
}
