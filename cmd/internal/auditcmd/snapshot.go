package auditcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
)

// maxLatest is how many fetches of one snapshot are shown.
const maxLatest = 10

type auditSnapshotFlags struct {
	auditFlags
	list, info, json bool
	host             string
}

func auditSnapshotCommand() *cobra.Command {
	var f auditSnapshotFlags
	cmd := &cobra.Command{
		Use:   "snapshot [flags] [SHA256]",
		Short: "Print the robots.txt that a decision is based on",
		Long: `Print a robots.txt or tdmrep.json that decisions are based on, byte by byte as it was
fetched. Name it by the robots_sha256 or tdmrep_sha256 of a record, or by at least the
first eight digits of it. On a terminal, characters that are not printable are escaped.

--info prints when the file was fetched, from where, and with which result, instead of
the file itself.
--list prints all fetches that decisions are based on, the newest first, including
those that found no file.

The exit status is 1 if there is no such file, or if the proxy has removed it.`,
		Example: `  robotsproxy audit snapshot 6c5b9c5f > robots.txt
  robotsproxy audit snapshot --info 6c5b9c5f
  robotsproxy audit snapshot --list --host example.com --json`,
		Args: func(_ *cobra.Command, args []string) error { return f.usage(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := f.audit()
			dir := at.snapshots
			switch {
			case err != nil && !errors.Is(err, errStdout):
				return err
			case f.list:
				return f.printIndex(cmd.OutOrStdout(), dir)
			case f.info:
				return f.printInfo(cmd.OutOrStdout(), dir, args[0])
			}
			return printFile(cmd.OutOrStdout(), cmd.ErrOrStderr(), dir, args[0])
		},
	}
	f.add(cmd)
	cmd.Flags().Lookup("file").Usage = "audit `FILE` that the snapshots belong to, in place of the configured one"
	cmd.Flags().BoolVar(&f.list, "list", false, "list the fetches that decisions are based on")
	cmd.Flags().BoolVar(&f.info, "info", false, "instead of the file, print when and from where it was fetched")
	cmd.Flags().StringVar(&f.host, "host", "", "with --list: only fetches from this `HOST`")
	cmd.Flags().BoolVar(&f.json, "json", false, "with --list or --info: print one JSON object a line")
	return cmd
}

// usage returns an error for flags and arguments that do not go together.
func (f *auditSnapshotFlags) usage(args []string) error {
	switch {
	case f.list && f.info:
		return errors.New("--list and --info exclude each other")
	case f.list && len(args) > 0:
		return fmt.Errorf("--list takes no arguments, got %q", args[0])
	case !f.list && len(args) != 1:
		return errors.New("expected exactly one SHA-256, or --list")
	case f.host != "" && !f.list:
		return errors.New("--host needs --list")
	case f.json && !f.list && !f.info:
		return errors.New("--json needs --list or --info")
	}
	if f.host == "" {
		return nil
	}
	host, err := robots.ParseHost(f.host)
	f.host = host
	return err
}

// noSnapshot explains an error about a snapshot.
func noSnapshot(digits string, err error) error {
	switch {
	case errors.Is(err, snapshot.ErrName):
		return cli.UsageErrorf("%q: %w", digits, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no snapshot %s: it may have been removed (audit.snapshot_max_age, audit.snapshot_max_size)", digits)
	}
	return fmt.Errorf("snapshot %s: %w", digits, err)
}

// printFile prints a snapshot unchanged. On a terminal it escapes characters that are not
// printable.
func printFile(out, errOut io.Writer, dir, digits string) error {
	sha, err := snapshot.Find(dir, digits)
	if err != nil {
		return noSnapshot(digits, err)
	}
	text, err := snapshot.Read(dir, sha)
	if err != nil {
		return noSnapshot(sha, err)
	}
	return cli.CopyBytes(out, errOut, bytes.NewReader(text))
}

// printIndex lists fetches.
func (f *auditSnapshotFlags) printIndex(out io.Writer, dir string) error {
	none := true
	for fetched, err := range snapshot.Index(dir, f.host) {
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if f.host != "" && !isOf(fetched.URL, f.host) {
			continue
		}
		none = false
		if f.json {
			err = cli.WriteJSON(out, fetched)
		} else {
			_, err = io.WriteString(out, indexLine(fetched)+"\n")
		}
		if err != nil {
			return err
		}
	}
	switch {
	case none && f.host != "":
		return fmt.Errorf("no decision based on a robots.txt of %s in %s", f.host, dir)
	case none:
		return fmt.Errorf("no decision based on a robots.txt in %s", dir)
	}
	return nil
}

// isOf reports whether a URL is one of a host.
func isOf(address, host string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	o, err := robots.ParseOrigin(u.Scheme, u.Host)
	return err == nil && o.Host == host
}

// indexLine formats a fetch of the index: the time of a decision based on it, the first digits
// of the hash, the URL, and the result.
func indexLine(f snapshot.Fetch) string {
	sha := "-"
	if f.SHA256 != "" {
		sha = humanize.Escape(f.SHA256[:min(len(f.SHA256), 12)])
	}
	return fmt.Sprintf("%s  %-12s  %s  fetched %s", f.Saved.UTC().Format(time.RFC3339), sha, humanize.Brief(f.URL), fetchText(f))
}

// fetchText says when a fetch was made, with what response, and what went wrong.
func fetchText(f snapshot.Fetch) string {
	text := f.Fetched.UTC().Format(time.RFC3339)
	if f.Status > 0 {
		text += fmt.Sprintf(", status %d", f.Status)
	} else {
		text += ", no response"
	}
	if f.UserAgent != "" {
		text += ", as " + humanize.Brief(f.UserAgent)
	}
	if f.SHA256 != "" {
		text += ", " + humanize.Count(f.Bytes, "byte")
	}
	if f.Coding != "" {
		text += " of " + humanize.Brief(f.Coding)
	}
	if f.Redirects > 0 {
		text += ", after " + humanize.Count(f.Redirects, "redirect")
	}
	if f.TooManyRedirects {
		text += "; the next was not followed"
	}
	if f.Error != "" {
		text += ": " + humanize.Prose(f.Error)
	}
	return text
}

// A snapshotInfo is what is known of one snapshot.
type snapshotInfo struct {
	SHA256 string `json:"sha256"`

	// State is isThere, isRemoved or isDamaged.
	State string `json:"state"`
	Bytes int    `json:"octets"`

	// Lines is the number of lines of the index about the snapshot. First and Last are the times of two of them, and
	// Latest are the last maxLatest fetches.
	Lines  int64            `json:"lines"`
	First  time.Time        `json:"first_kept,omitzero"`
	Last   time.Time        `json:"last_kept,omitzero"`
	Latest []snapshot.Fetch `json:"latest"`
}

// The states of a snapshot.
const (
	isThere   = "there"
	isRemoved = "removed"
	isDamaged = "damaged"
)

// stateOf returns the snapshot of a hash and its state.
func stateOf(dir, sha string) (text []byte, state string, err error) {
	text, err = snapshot.Read(dir, sha)
	switch {
	case err == nil:
		return text, isThere, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, isRemoved, nil
	case errors.Is(err, snapshot.ErrDamaged):
		return nil, isDamaged, nil
	}
	return nil, "", err
}

func (f *auditSnapshotFlags) printInfo(out io.Writer, dir, digits string) error {
	sha, err := snapshot.Find(dir, digits)
	if errors.Is(err, fs.ErrNotExist) && len(digits) == 64 {
		// The index may still contain it.
		sha, err = strings.ToLower(digits), nil
	}
	if err != nil {
		return noSnapshot(digits, err)
	}
	info := snapshotInfo{SHA256: sha}
	text, state, err := stateOf(dir, sha)
	if err != nil {
		return noSnapshot(sha, err)
	}
	info.State, info.Bytes = state, len(text)
	for fetched, err := range snapshot.Index(dir, sha) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		info.add(fetched)
	}
	if info.Lines == 0 && state == isRemoved {
		return noSnapshot(sha, fs.ErrNotExist)
	}
	if f.json {
		return cli.WriteJSON(out, info)
	}
	s := &cli.Details{Colours: cli.SupportsColour(out)}
	fmt.Fprintf(&s.Text, "%s\n", sha)
	info.print(s)
	_, err = io.WriteString(out, s.Text.String())
	return err
}

// add counts a line of the index. The newest line comes first.
func (i *snapshotInfo) add(f snapshot.Fetch) {
	if f.SHA256 != i.SHA256 {
		return
	}
	if i.Lines++; i.Lines == 1 {
		i.Last = f.Saved
	}
	i.First, i.Bytes = f.Saved, max(i.Bytes, f.Bytes)
	for n := range i.Latest {
		if l := &i.Latest[n]; l.URL == f.URL && l.Fetched.Equal(f.Fetched) {
			// Only the first line of a fetch has its headers.
			*l = f
			return
		}
	}
	if len(i.Latest) < maxLatest {
		i.Latest = append(i.Latest, f)
	}
}

func (i *snapshotInfo) print(s *cli.Details) {
	state := humanize.Count(i.Bytes, "byte")
	switch i.State {
	case isRemoved:
		state += ", removed (audit.snapshot_max_age, audit.snapshot_max_size)"
	case isDamaged:
		state = s.Paint(cli.Red, "damaged: the bytes of the file have another SHA-256")
	}
	s.Row("size", state)
	if i.Lines == 0 {
		s.Row("fetched", "unknown: the index no longer has the fetch")
		return
	}
	s.Row("in the index", fmt.Sprintf("%s, from %s to %s", humanize.Count(i.Lines, "time"), day(i.First), day(i.Last)))
	for _, f := range i.Latest {
		s.Row("fetched", humanize.Brief(f.URL), fetchText(f))
		s.Row("headers", headerRows(f)...)
	}
}

// headerRows returns the headers of a fetch as printable rows.
func headerRows(f snapshot.Fetch) (rows []string) {
	for _, h := range []struct{ name, value string }{
		{"Content-Type", f.Headers.ContentType}, {"Content-Encoding", f.Headers.ContentEncoding}, {"Last-Modified", f.Headers.LastModified},
		{"ETag", f.Headers.ETag}, {"Cache-Control", f.Headers.CacheControl}, {"Age", f.Headers.Age},
	} {
		if h.value != "" {
			rows = append(rows, h.name+": "+humanize.Escape(h.value))
		}
	}
	return rows
}
