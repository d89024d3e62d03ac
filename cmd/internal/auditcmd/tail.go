package auditcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
)

const (
	maxTail   = 100_000                // lines at the beginning of a tail; so many are held in memory
	tailFirst = 256 << 10              // octets at the end of the audit that are looked through at first; then more
	tailPoll  = 200 * time.Millisecond // between two looks for new lines
)

type tailFlags struct {
	auditFlags
	lines        int
	follow, json bool
	colour       string
	filter       tailFilter
}

func auditTailCommand() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail [flags] [FILE...]",
		Short: "Show the last records of the audit, and follow it",
		Long: `Show the last records of the audit, one a line, and with -f those that come, in
whatever file they are, until it is interrupted. Times are local. A decision
that was not enforced (mode: monitor) stands with a question mark.

Those of several files, as the replicas of a fleet have one each, stand in the order
of the times when their requests ended.

With --file - records are read from standard input, to its end; with -f as they
come.`,
		Example: `  robotsproxy audit tail -f
  robotsproxy audit tail -n 100 --blocked --host example.com
  robotsproxy audit tail -n 1000 --json | jq .url`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := f.tail(cmd)
			if err != nil {
				return err
			}
			defer t.close()
			return t.run(cmd.Context(), f.lines, f.follow)
		},
	}
	f.add(cmd)
	f.anyFiles(cmd)
	flags := cmd.Flags()
	flags.IntVarP(&f.lines, "lines", "n", 20, "how `MANY` records to begin with")
	flags.BoolVarP(&f.follow, "follow", "f", false, "show what comes, until interrupted")
	f.filter.add(cmd)
	flags.BoolVar(&f.filter.blocked, "blocked", false, "only requests that were decided against")
	flags.BoolVar(&f.json, "json", false, "the lines as they stand")
	flags.StringVar(&f.colour, "color", "auto", "`WHEN` to use colours: "+cli.OneOf(colours))
	cli.Offer(cmd, "color", colours...)
	return cmd
}

// colours are when colours may be used.
var colours = []string{"auto", "always", "never"}

// tail makes a tail of what the flags say.
func (f *tailFlags) tail(cmd *cobra.Command) (*tail, error) {
	if f.lines < 0 || f.lines > maxTail {
		return nil, cli.UsageErrorf("-n %d: a number from 0 to %d is wanted", f.lines, maxTail)
	}
	if !slices.Contains(colours, f.colour) {
		return nil, cli.UsageErrorf("--color %q: %s is wanted", f.colour, cli.OneOf(colours))
	}
	if err := f.filter.read(&f.auditFlags); err != nil {
		return nil, err
	}
	f.filter.prepare()
	t := &tail{
		filter: &f.filter,
		out:    bufio.NewWriter(cmd.OutOrStdout()),
		errOut: cmd.ErrOrStderr(),
		print:  jsonLine,
	}
	if !f.json {
		t.print = newRecordLines(f.colour == "always" || f.colour == "auto" && cli.Colourful(cmd.OutOrStdout()), time.Local).line
	}
	if slices.Contains(f.paths, "-") {
		t.from = []*tailed{{r: trail.NewReader(stdinName, cmd.InOrStdin())}}
		return t, nil
	}
	places, err := f.places()
	for _, at := range places {
		t.from = append(t.from, &tailed{path: at.file})
	}
	return t, err
}

// jsonLine is a line as it stands. Those of the proxy are printable; what somebody
// else has put into the file is made so.
func jsonLine(line []byte) string { return string(audit.EscapeJSON(line)) }

// A tail prints the records of trails.
type tail struct {
	from   []*tailed
	filter *tailFilter
	print  func(line []byte) string
	out    *bufio.Writer
	errOut io.Writer
}

func (t *tail) close() {
	for _, d := range t.from {
		d.close()
	}
}

// run prints the last n records, and then those that come.
func (t *tail) run(ctx context.Context, n int, follow bool) error {
	if follow && t.from[0].path == "" {
		return t.stream(ctx)
	}
	if follow {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		if there, err := t.await(ctx); !there || err != nil {
			return err
		}
	}
	if err := t.last(ctx, n, follow); err != nil {
		return err
	}
	for follow {
		if err := t.copy(ctx); err != nil {
			return err
		}
		if !pause(ctx) {
			return nil
		}
	}
	return nil
}

// pause waits until it is time for another look: false when ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(tailPoll):
		return true
	}
}

// await waits until there is something to read: false when ctx has ended before.
func (t *tail) await(ctx context.Context) (there bool, err error) {
	for said := false; ; said = true {
		for _, d := range t.from {
			switch yet, err := d.isThere(); {
			case err != nil:
				return true, err
			case yet:
				there = true
			case !said:
				cli.Report(t.errOut, fmt.Errorf("%s is not there yet", d.path))
			}
		}
		if there {
			return true, nil
		}
		if !pause(ctx) {
			return false, nil
		}
	}
}

// last prints the last n records of all. One that is not there is no error where it is
// waited for.
func (t *tail) last(ctx context.Context, n int, follow bool) error {
	var all []dated
	for _, d := range t.from {
		lines, remark, err := d.last(ctx, n, t.filter)
		if errors.Is(err, fs.ErrNotExist) && follow && len(t.from) > 1 {
			continue
		}
		if err != nil {
			return err
		}
		if remark != nil {
			cli.Report(t.errOut, remark)
		}
		all = append(all, d.dated(lines, len(t.from) > 1)...)
	}
	inTime(all)
	for _, d := range all[max(0, len(all)-n):] {
		t.show(d.line)
	}
	return t.out.Flush()
}

// copy prints what there is to be read now.
func (t *tail) copy(ctx context.Context) error {
	for ctx.Err() == nil {
		var all []dated
		for _, d := range t.from {
			lines, err := d.some(t)
			if err != nil {
				return errors.Join(t.out.Flush(), err)
			}
			all = append(all, d.dated(lines, len(t.from) > 1)...)
		}
		if len(all) == 0 && !t.more() {
			break
		}
		inTime(all)
		for _, d := range all {
			t.show(d.line)
		}
		if err := t.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// more says whether one of the trails was not read to its end.
func (t *tail) more() bool {
	return slices.ContainsFunc(t.from, func(d *tailed) bool { return d.more })
}

// stream prints the records of one stream as they come.
func (t *tail) stream(ctx context.Context) error {
	for ctx.Err() == nil {
		line, remark, err := t.from[0].next()
		switch {
		case err == io.EOF:
			return t.out.Flush()
		case err != nil:
			return errors.Join(t.out.Flush(), err)
		case remark != nil:
			cli.Report(t.errOut, remark)
		case t.filter.passes(line):
			t.show(line)
		}
		if err := t.out.Flush(); err != nil { // nobody knows when the next comes
			return err
		}
	}
	return nil
}

func (t *tail) show(line []byte) {
	t.out.WriteString(t.print(line))
	t.out.WriteByte('\n')
}
