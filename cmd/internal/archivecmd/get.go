package archivecmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/archive/warc"
)

type getFlags struct {
	flags
	head bool
	at   time.Time
}

func getCommand() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "get [flags] URL|ID",
		Short: "Print an archived page as it was received",
		Long: `Print the payload of a capture, byte by byte as the origin sent it: a content coding
such as gzip is not removed. On a terminal, characters that are not printable are
escaped.

Of several captures of a URL, the command prints the newest one, or with --at the newest
one up to a time. ID is a WARC-Record-ID, or the id of a record in the audit. If the
payload is in an earlier record (revisit), the command prints it from there.

The exit status is 1 if there is no such capture.`,
		Example: `  robotsproxy archive get -c robotsproxy.yaml https://example.com/ > page.html
  robotsproxy archive get --head --at 2026-11-25T10:00:00Z --dir crawl https://example.com/
  robotsproxy archive get -c robotsproxy.yaml ab12cd34-17 | gunzip`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return errors.New("expected exactly one URL or ID")
			}
			return nil
		},
		RunE: f.forFiles(func(cmd *cobra.Command, files archive, args []string) error {
			return f.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), files, args[0])
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.head, "head", false, "print the HTTP head before the payload")
	cmd.Flags().Func("at", "print the newest capture up to `TIME`, as in 2026-11-25T10:00:00Z", func(text string) (err error) {
		if f.at, err = time.Parse(time.RFC3339, text); err != nil {
			return errors.New("must be a time such as 2026-11-25T10:00:00Z")
		}
		return nil
	})
	return cmd
}

// print prints the capture that a URL or an ID names.
func (f *getFlags) print(out, errOut io.Writer, in archive, name string) error {
	var at place
	var err error
	if strings.Contains(name, "://") {
		at, err = in.byURL(name, f.at)
	} else if !f.at.IsZero() {
		return cli.UsageErrorf("--at needs a URL, got %q", name)
	} else {
		at, err = in.byID(name)
	}
	if err != nil {
		return err
	}
	return at.read(func(rec *warc.Record) error {
		if rec.Type() != warc.TypeRevisit {
			return f.printRecord(out, errOut, nil, rec)
		}
		head, _, err := rec.Payload()
		if err != nil && rec.Length > 0 {
			return err
		}
		original, err := in.original(rec.Header)
		if err != nil {
			return err
		}
		return original.read(func(rec *warc.Record) error { return f.printRecord(out, errOut, head, rec) })
	})
}

// printRecord prints the payload of a record. head is the HTTP head of the revisit that refers to the record; nil: the
// record's own head is printed.
func (f *getFlags) printRecord(out, errOut io.Writer, head []byte, rec *warc.Record) error {
	if rec.IsBlank() {
		return errors.New("the record was erased (robotsproxy audit erase)")
	}
	if rec.Get("WARC-Segment-Number") != "" {
		return errors.New("the record is a segment of a larger one: robotsproxy does not join segments")
	}
	own, payload, err := rec.Payload()
	if err != nil {
		return err
	}
	if head == nil {
		head = own
	}
	if f.head {
		payload = io.MultiReader(bytes.NewReader(head), payload)
	}
	if why := rec.Get("WARC-Truncated"); why != "" {
		fmt.Fprintf(errOut, "robotsproxy: the payload is not complete (WARC-Truncated: %s)\n", humanize.Brief(why))
	}
	return cli.CopyBytes(out, errOut, payload)
}
