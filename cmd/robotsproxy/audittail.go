package main

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
		Use:   "tail",
		Short: "Show the last records of the audit, and follow it",
		Long: `Show the last records of the audit, one a line, and with -f those that come, in
whatever file they are, until it is interrupted. Times are local. A decision
that was not enforced (mode: monitor) stands with a question mark.

With --file - records are read from standard input, to its end; with -f as they
come.`,
		Example: `  robotsproxy audit tail -f
  robotsproxy audit tail -n 100 --blocked --host example.com
  robotsproxy audit tail -n 1000 --json | jq .url`,
		Args: noArgs,
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
	flags := cmd.Flags()
	flags.IntVarP(&f.lines, "lines", "n", 20, "how `MANY` records to begin with")
	flags.BoolVarP(&f.follow, "follow", "f", false, "show what comes, until interrupted")
	f.filter.add(cmd)
	flags.BoolVar(&f.filter.blocked, "blocked", false, "only requests that were decided against")
	flags.BoolVar(&f.json, "json", false, "the lines as they stand")
	flags.StringVar(&f.colour, "color", "auto", "`WHEN` to use colours: "+oneOf(colours))
	offer(cmd, "color", colours...)
	return cmd
}

// colours are when colours may be used.
var colours = []string{"auto", "always", "never"}

// tail makes a tail of what the flags say.
func (f *tailFlags) tail(cmd *cobra.Command) (*tail, error) {
	if f.lines < 0 || f.lines > maxTail {
		return nil, usageError{fmt.Errorf("-n %d: a number from 0 to %d is wanted", f.lines, maxTail)}
	}
	if !slices.Contains(colours, f.colour) {
		return nil, usageError{fmt.Errorf("--color %q: %s is wanted", f.colour, oneOf(colours))}
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
		t.print = newRecordLines(f.colour == "always" || f.colour == "auto" && colourful(cmd.OutOrStdout()), time.Local).line
	}
	if f.path == "-" {
		t.r = trail.NewReader(stdinName, cmd.InOrStdin())
		return t, nil
	}
	var err error
	t.path, _, err = f.where()
	return t, err
}

// jsonLine is a line as it stands. Those of the proxy are printable; what somebody
// else has put into the file is made so.
func jsonLine(line []byte) string { return string(audit.EscapeJSON(line)) }

// A tail prints the records of a trail.
type tail struct {
	path   string // "": r is of one stream
	r      *trail.Reader
	filter *tailFilter
	print  func(line []byte) string
	out    *bufio.Writer
	errOut io.Writer
}

func (t *tail) close() {
	if t.r != nil {
		t.r.Close()
	}
}

// run prints the last n records, and then those that come.
func (t *tail) run(ctx context.Context, n int, follow bool) error {
	if t.path == "" && follow {
		return t.copy(ctx)
	}
	if follow {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		if there, err := t.await(ctx); !there || err != nil {
			return err
		}
	}
	last, err := t.last(ctx, n)
	if err != nil {
		return err
	}
	for _, line := range last {
		t.show(line)
	}
	for follow {
		if err := t.copy(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) { // its directory may come again
			return err
		}
		if !pause(ctx) {
			return nil
		}
	}
	return t.out.Flush()
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
		files, err := trail.Files(t.path)
		if len(files) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
		if !said {
			report(t.errOut, fmt.Errorf("%s is not there yet", t.path))
		}
		if !pause(ctx) {
			return false, nil
		}
	}
}

// last leads t.r to the end of what is there, and gives the last n lines that the
// filter lets pass.
func (t *tail) last(ctx context.Context, n int) ([][]byte, error) {
	for octets := int64(tailFirst); ; octets *= 4 {
		all := true // as is a stream
		if t.path != "" {
			var err error
			t.close()
			if t.r, all, err = trail.OpenLast(t.path, octets); err != nil {
				return nil, err
			}
		}
		lines, read, remark, err := t.scan(ctx, n)
		if err != nil {
			return nil, err
		}
		if all || read && len(lines) == n || octets > 1<<60 {
			if remark != nil {
				report(t.errOut, remark)
			}
			return lines, nil
		}
	}
}

// scan reads to the end of what is there: the last n lines that the filter lets pass,
// whether there was any line, and the last remark about one.
func (t *tail) scan(ctx context.Context, n int) (ring [][]byte, read bool, remark, err error) {
	for found := 0; ; {
		line, about, err := t.next()
		switch {
		case err == io.EOF || ctx.Err() != nil:
			if found > n && n > 0 { // the oldest is not the first
				ring = slices.Concat(ring[found%n:], ring[:found%n])
			}
			return ring, read, remark, nil
		case err != nil:
			return nil, read, nil, err
		case about != nil:
			remark = about
			continue
		}
		if read = true; n == 0 || !t.filter.passes(line) {
			continue
		}
		if found++; found <= n {
			ring = append(ring, slices.Clone(line))
		} else {
			i := (found - 1) % n
			ring[i] = append(ring[i][:0], line...)
		}
	}
}

// copy prints what there is to be read now.
func (t *tail) copy(ctx context.Context) error {
	for ctx.Err() == nil {
		line, remark, err := t.next()
		switch {
		case err == io.EOF:
			return t.out.Flush()
		case err != nil:
			return errors.Join(t.out.Flush(), err)
		case remark != nil:
			t.out.Flush()
			report(t.errOut, remark)
		case t.filter.passes(line):
			t.show(line)
		}
		if t.path == "" { // nobody knows when the next comes
			if err := t.out.Flush(); err != nil {
				return err
			}
		}
	}
	return t.out.Flush()
}

// next gives the next line, or a remark in the place of one that cannot be had.
func (t *tail) next() (text []byte, remark, err error) {
	line, err := t.r.Next()
	if !errors.Is(err, trail.ErrTorn) && !errors.Is(err, trail.ErrTooLong) && !errors.Is(err, trail.ErrRemoved) {
		return line.Text, nil, err
	}
	place := line.File
	if line.Number > 0 {
		place = fmt.Sprintf("%s:%d", place, line.Number)
	}
	return nil, fmt.Errorf("%s: %w", place, err), nil
}

func (t *tail) show(line []byte) {
	t.out.WriteString(t.print(line))
	t.out.WriteByte('\n')
}
