package auditcmd

import (
	"bufio"
	"cmp"
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
	maxTail   = 100_000                // lines that are held in memory to be printed first; more are counted, and read again
	tailFirst = 256 << 10              // bytes at the end of the audit that are read at first; then more
	tailChunk = 1 << 20                // bytes of lines of one trail that are read, and held to be sorted, before the next trail
	tailPoll  = 200 * time.Millisecond // between two reads
)

type tailFlags struct {
	auditFlags
	lines        int
	since        string
	follow, json bool
	colour       string
	filter       tailFilter
}

func auditTailCommand() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail [flags] [FILE...]",
		Short: "Show the last records of the audit, and follow it",
		Long: `Show the last records of the audit, one per line. With -f, also show new records
until you interrupt the command. Times are local. If there is no record of a request
yet, the command says so on standard error.

The first word says what became of the request: allowed, disallowed (by robots.txt or
by the operator), deferred (the client may send the request later) or failed (the
origin, the network, the client or the proxy failed). A question mark after the word
means that the proxy only recorded the decision and sent the request (mode: monitor).

Records of several files, such as those of the replicas of a fleet, are sorted by the
time when the request ended.

With --file -, the command reads records from standard input, to its end; with -f, as
they arrive.`,
		Example: `  robotsproxy audit tail -f
  robotsproxy audit tail -n 100 --blocked --host example.com
  robotsproxy audit tail --since 2h --client lab-a
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
	flags.IntVarP(&f.lines, "lines", "n", 20, "show the last `NUMBER` records first")
	flags.StringVar(&f.since, "since", "", "show all records of requests that arrived at this `TIME` or later")
	flags.BoolVarP(&f.follow, "follow", "f", false, "show new records until interrupted")
	f.filter.add(cmd)
	flags.BoolVar(&f.filter.blocked, "blocked", false, "only requests that were disallowed, deferred or failed")
	flags.BoolVar(&f.json, "json", false, "print the lines of the audit unchanged, as JSON")
	flags.StringVar(&f.colour, "color", "auto", "`WHEN` to use colours: "+cli.OneOf(colours))
	cli.Offer(cmd, "color", colours...)
	return cmd
}

// colours are the values of --color.
var colours = []string{"auto", "always", "never"}

// tail makes a tail from the flags.
func (f *tailFlags) tail(cmd *cobra.Command) (*tail, error) {
	if f.lines < 0 {
		return nil, cli.UsageErrorf("-n %d: must not be negative", f.lines)
	}
	if f.since != "" && f.Flags.Changed("lines") {
		return nil, cli.UsageErrorf("--since and -n exclude each other")
	}
	var err error
	if f.filter.since, err = moment(f.since, time.Now()); err != nil {
		return nil, cli.UsageErrorf("--since: %w", err)
	}
	if !slices.Contains(colours, f.colour) {
		return nil, cli.UsageErrorf("--color %q: use %s", f.colour, cli.OneOf(colours))
	}
	if err := errors.Join(NotEmpty(f.Flags, "since"), f.filter.read(&f.auditFlags)); err != nil {
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
		t.print = newRecordLines(f.colour == "always" || f.colour == "auto" && cli.SupportsColour(cmd.OutOrStdout()), time.Local).line
	}
	if slices.Contains(f.paths, "-") {
		t.from = []*tailedTrail{{r: trail.NewReader(stdinName, cmd.InOrStdin())}}
		return t, nil
	}
	audits, err := f.audits()
	for _, at := range audits {
		t.from = append(t.from, &tailedTrail{path: at.file})
	}
	return t, err
}

// jsonLine returns a line unchanged. The proxy writes only printable lines. Characters that are
// not printable, because another program wrote them, are escaped.
func jsonLine(line []byte) string { return string(audit.EscapeJSON(line)) }

// A tailedTrail is one of the trails that are printed.
type tailedTrail struct {
	// path is that of the trail; "": r reads a stream.
	path string
	r    *trail.Reader

	// at is the time of the last line that has one.
	at time.Time
}

func (t *tailedTrail) close() {
	if t.r != nil {
		t.r.Close()
	}
}

func (t *tailedTrail) exists() (bool, error) {
	files, err := trail.Segments(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return len(files) > 0, err
}

// last reads to the end of the trail. It returns the last n lines that the filter selects, and the
// last remark about a line.
func (t *tailedTrail) last(ctx context.Context, n int, filter *tailFilter) (lines [][]byte, remark, err error) {
	for bytes := int64(tailFirst); ; bytes *= 4 {
		// A stream is read whole.
		all := true
		if t.path != "" {
			t.close()
			if t.r, all, err = trail.OpenLast(t.path, bytes); err != nil {
				t.r = nil
				return nil, nil, err
			}
		}
		lines, read, remark, err := t.scan(ctx, n, filter)
		if err != nil || all || read && len(lines) == n || bytes > 1<<60 {
			return lines, remark, err
		}
	}
}

// scan reads to the end. It returns the last n lines that the filter selects, whether there was
// any line, and the last remark about a line.
func (t *tailedTrail) scan(ctx context.Context, n int, filter *tailFilter) (last [][]byte, read bool, remark, err error) {
	for {
		line, about, err := t.next()
		switch {
		case err == io.EOF || ctx.Err() != nil:
			return last, read, remark, nil
		case err != nil:
			return nil, read, nil, err
		case about != nil:
			remark = about
			continue
		}
		if read = true; n > 0 && filter.passes(line) {
			last = append(last, slices.Clone(line))
			last = last[max(0, len(last)-n):]
		}
	}
}

// some reads the new lines, but not much more than tailChunk, and of a stream one line. more reports
// whether lines may be left. A trail that does not exist yet has none.
func (t *tailedTrail) some(to *tail) (lines [][]byte, more bool, err error) {
	if t.r == nil {
		if t.r, err = trail.Open(t.path); err != nil {
			t.r = nil
			return nil, false, notYet(err)
		}
	}
	for bytes := 0; bytes < tailChunk; {
		line, remark, err := t.next()
		switch {
		case err == io.EOF:
			return lines, false, nil
		case err != nil:
			return lines, false, notYet(err)
		case remark != nil:
			to.out.Flush()
			cli.Report(to.errOut, remark)
		case to.filter.passes(line):
			lines = append(lines, slices.Clone(line))
		}
		if bytes += len(line); t.path == "" {
			// The next line may take long.
			break
		}
	}
	return lines, true, nil
}

// notYet drops the error of a file that does not exist: it may be created.
func notYet(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// next returns the next line, or a remark in place of a line that cannot be read.
func (t *tailedTrail) next() (text []byte, remark, err error) {
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

// A datedLine is a line with the time when it was written, or that of the line before.
type datedLine struct {
	at   time.Time
	line []byte
}

// dated returns lines in their order, with their times if requested.
func (t *tailedTrail) dated(lines [][]byte, asked bool) (all []datedLine) {
	for _, line := range lines {
		if asked {
			if e, err := trail.Read(line); err == nil && e.End().After(t.at) {
				t.at = e.End()
			}
		}
		all = append(all, datedLine{t.at, line})
	}
	return all
}

// inTime sorts lines of several trails by time. Those of one trail stay in their order.
func inTime(all []datedLine) {
	slices.SortStableFunc(all, func(a, b datedLine) int { return a.at.Compare(b.at) })
}

// A tail prints the records of trails.
type tail struct {
	from   []*tailedTrail
	filter *tailFilter

	// skip is the number of records that are not shown before others, and shown says that one was.
	skip  int
	shown bool

	print  func(line []byte) string
	out    *bufio.Writer
	errOut io.Writer
}

func (t *tail) close() {
	for _, d := range t.from {
		d.close()
	}
}

// run prints the last n records and, with follow, those that are written then.
func (t *tail) run(ctx context.Context, n int, follow bool) error {
	if follow && t.from[0].path == "" {
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
	if err := t.first(ctx, n, follow); err != nil {
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

// pause waits until the next read is due: false if ctx ends before.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(tailPoll):
		return true
	}
}

// await waits until one of the trails exists: false if ctx ends before.
func (t *tail) await(ctx context.Context) (there bool, err error) {
	for said := false; ; said = true {
		for _, d := range t.from {
			switch yet, err := d.exists(); {
			case err != nil:
				return true, err
			case yet:
				there = true
			case !said:
				cli.Report(t.errOut, fmt.Errorf("%s does not exist yet", d.path))
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

// first prints what is there before new records: the last n, or with a time those since then.
func (t *tail) first(ctx context.Context, n int, follow bool) error {
	isStream := t.from[0].path == ""
	switch {
	case t.filter.since.IsZero() && (isStream || n <= maxTail):
		return t.last(ctx, n, follow)
	case t.filter.since.IsZero():
		all, err := t.count(ctx)
		if err != nil {
			return err
		}
		t.skip = max(0, all-n)
	}
	for _, d := range t.from {
		if there, err := d.exists(); !isStream && (err != nil || !there && !follow) {
			return cmp.Or(err, noAudit(d.path, fs.ErrNotExist))
		}
	}
	if err := t.copy(ctx); err != nil || t.shown {
		return err
	}
	cli.Report(t.errOut, errors.New(t.nothing(follow)))
	return nil
}

// count returns the number of records that the filter selects.
func (t *tail) count(ctx context.Context) (n int, err error) {
	for _, d := range t.from {
		if d.r, err = trail.OpenContext(ctx, d.path); err != nil {
			d.r = nil
			return 0, noAudit(d.path, err)
		}
		for {
			line, remark, err := d.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return 0, err
			}
			if remark == nil && t.filter.passes(line) {
				n++
			}
		}
		d.close()
		d.r = nil
	}
	return n, nil
}

// last prints the last n records of all trails. With follow, a trail of several may not exist yet.
func (t *tail) last(ctx context.Context, n int, follow bool) error {
	var all []datedLine
	for _, d := range t.from {
		lines, remark, err := d.last(ctx, n, t.filter)
		if errors.Is(err, fs.ErrNotExist) && follow && len(t.from) > 1 {
			continue
		}
		if err != nil {
			return noAudit(d.path, err)
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
	if err := t.out.Flush(); err != nil {
		return err
	}
	// Fewer lines than n are all that there are.
	if len(all) < n && !slices.ContainsFunc(all, isRequest) {
		cli.Report(t.errOut, errors.New(t.nothing(follow)))
	}
	return nil
}

func isRequest(d datedLine) bool {
	e, err := trail.Read(d.line)
	return err == nil && e.IsRequest()
}

// nothing says that there is no record of a request to show.
func (t *tail) nothing(follow bool) string {
	where := cmp.Or(t.from[0].path, stdinName)
	if len(t.from) > 1 {
		where = fmt.Sprintf("these %d audits", len(t.from))
	}
	said := "no request has been recorded yet in " + where
	if t.filter.selects() {
		said = "none of the recorded requests matches in " + where
	}
	if follow {
		said += ", waiting for one"
	}
	return said
}

// copy prints the new records.
func (t *tail) copy(ctx context.Context) error {
	for ctx.Err() == nil {
		var all []datedLine
		more := false
		for _, d := range t.from {
			lines, unread, err := d.some(t)
			if err != nil {
				return errors.Join(t.out.Flush(), err)
			}
			more = more || unread
			all = append(all, d.dated(lines, len(t.from) > 1)...)
		}
		if len(all) == 0 && !more {
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

func (t *tail) show(line []byte) {
	if t.skip > 0 {
		t.skip--
		return
	}
	t.shown = true
	t.out.WriteString(t.print(line))
	t.out.WriteByte('\n')
}
