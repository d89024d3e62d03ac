package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/klauspost/compress/gzip"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/osfile"
)

// An Erasure says which values Log.Erase replaces by their commitments.
type Erasure struct {
	// Matches reports whether the values of a line are erased.
	Matches func(e *trail.Entry) bool

	// Hides reports whether the value of a member of such a line is erased; nil: all are.
	Hides func(e *trail.Entry, member string) bool

	// Each is called for each line with values that are erased, as it is before and after; nil: nothing is called.
	Each func(before, after *trail.Entry)

	// Earlier is called for each other line with values that were erased before; nil: nothing is called.
	Earlier func(e *trail.Entry)

	// Kept is called for each line that matches and of which nothing can be erased (Erased.Kept); nil: nothing is called.
	Kept func(e *trail.Entry)

	// Prepare is called before anything changes, and after Each and Earlier were called for all lines. It returns the number of
	// captures that Elsewhere will erase; nil: there are none.
	Prepare func() (captures int, err error)

	// Elsewhere erases what other files have of these lines. It is called before a line loses what it matches by, so that an Erase
	// that did not end can be repeated; nil: nothing is called.
	Elsewhere func() error

	// Reason stands in the event that says so.
	Reason string
}

// Erased says what Log.Erase has found.
type Erased struct {
	// Lines is the number of lines with values that are erased, Values that of the values, and Captures that of captures.
	Lines, Values, Captures int

	// Before is the number of other lines whose values were erased before.
	Before int

	// Kept is the number of lines that match, and of which nothing can be erased: lines of earlier versions, and lines that were
	// changed, so that their hash does not hold.
	Kept int
}

// String says what is erased.
func (e *Erased) String() string {
	text := humanize.Count(e.Values, "value") + " of " + humanize.Count(e.Lines, "line")
	if e.Captures > 0 {
		text += ", and " + humanize.Count(e.Captures, "capture")
	}
	return text
}

// Find finds what Log.Erase would erase in the trail that is written to file.
func (er *Erasure) Find(ctx context.Context, file string) (Erased, error) {
	found, _, err := er.find(ctx, file)
	return found, err
}

// find also returns the segments that have values to erase. It calls Prepare.
func (er *Erasure) find(ctx context.Context, file string) (found Erased, matching []trail.Segment, err error) {
	segments, err := trail.Segments(file)
	if err != nil {
		return found, nil, err
	}
	for _, s := range segments {
		before := found.Values
		if err := er.countSegment(ctx, s, &found); err != nil {
			return found, nil, fmt.Errorf("%s: %w", s.Path, err)
		}
		if found.Values > before {
			matching = append(matching, s)
		}
	}
	if er.Prepare != nil {
		found.Captures, err = er.Prepare()
	}
	return found, matching, err
}

func (er *Erasure) countSegment(ctx context.Context, s trail.Segment, found *Erased) error {
	f, err := osfile.Open(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	return readLines(ctx, f, s.Gzip, func(line []byte) error { return er.count(line, found) })
}

// Erase replaces the values of lines by their commitments (trail.Hide), in all segments, after the disk has the event that says
// so. The hashes of the lines stay the same. Call it after Open, and before Run. After an error, or if ctx ends, it may have
// erased some of them, and can be called again.
func (l *Log) Erase(ctx context.Context, x Erasure) (found Erased, err error) {
	o := *l.options.Load()
	// The event must not rotate the file: it is rewritten under its name.
	o.MaxSize = math.MaxInt64
	l.SetOptions(o)
	found, matching, err := x.find(ctx, l.opened.File)
	if err != nil || found.Values+found.Captures == 0 {
		return found, err
	}
	about := event{Event: trail.EventErased, Count: int64(found.Lines), Detail: found.String() + ": " + x.Reason}
	if err := l.writeEvent(&about); err != nil {
		return found, err
	}
	if x.Elsewhere != nil {
		if err := x.Elsewhere(); err != nil {
			return found, err
		}
	}
	for _, s := range matching {
		if s.FirstSeq > 0 {
			err = x.rewrite(ctx, s)
		} else {
			err = l.rewriteActive(ctx, &x, s)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// rewriteActive rewrites the active segment, which is then written on.
func (l *Log) rewriteActive(ctx context.Context, x *Erasure, s trail.Segment) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	if err := l.flush(); err != nil {
		return err
	}
	if err := x.rewrite(ctx, s); err != nil {
		return err
	}
	return errors.Join(l.segment.closeFile(), l.segment.openFile(0))
}

// readLines calls each for each line of a file, with its line feed; the last one may have none. Of a line that is longer than all
// lines of a trail, it gets parts.
func readLines(ctx context.Context, f io.Reader, zipped bool, each func(line []byte) error) error {
	if zipped {
		zip, err := gzip.NewReader(f)
		if err != nil {
			return err
		}
		f = zip
	}
	lines := bufio.NewReaderSize(f, trail.MaxLine)
	for ctx.Err() == nil {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			if err := each(line); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && err != bufio.ErrBufferFull:
			return err
		}
	}
	return context.Cause(ctx)
}

// RewriteLines replaces a file (osfile.Rewrite) by one with the lines that change returns for its lines, each with its line feed.
// If ctx ends or an error is returned, the file is as before.
func RewriteLines(ctx context.Context, path string, zipped bool, change func(line []byte) []byte) error {
	err := osfile.Rewrite(path, func(in *os.File, _ int64, w io.Writer) (err error) {
		out := bufio.NewWriterSize(w, compressChunk)
		defer func() { err = errors.Join(err, out.Flush()) }()
		to := io.Writer(out)
		if zipped {
			zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, zip.Close()) }()
			to = zip
		}
		return readLines(ctx, in, zipped, func(line []byte) error {
			_, err := to.Write(change(line))
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// hide returns a line without the values to erase, and their number. A line that does not match, or is not of a trail, stays. The
// error is that of trail.Hide, for a line that matches; it stays, too.
func (er *Erasure) hide(line []byte) (result []byte, e trail.Entry, n int, err error) {
	e, err = trail.Read(line)
	if err != nil || !er.Matches(&e) {
		return line, e, 0, nil
	}
	text, ended := bytes.CutSuffix(line, []byte("\n"))
	result, n, err = trail.Hide(text, func(member string, _ []byte) bool { return er.Hides == nil || er.Hides(&e, member) })
	if err != nil {
		return line, e, 0, err
	}
	if ended {
		result = append(result, '\n')
	}
	return result, e, n, nil
}

// count counts what is erased in a line, and calls Each.
func (er *Erasure) count(line []byte, found *Erased) error {
	hidden, e, n, err := er.hide(line)
	switch {
	case err != nil:
		er.keep(&e, found)
	case n > 0:
		found.Lines++
		found.Values += n
		if er.Each != nil {
			after, err := trail.Read(hidden)
			if err != nil {
				return err
			}
			er.Each(&e, &after)
		}
	case e.Hidden():
		found.Before++
		if er.Earlier != nil {
			er.Earlier(&e)
		}
	case e.Seq > 0 && e.Version < 3 && er.Matches(&e):
		er.keep(&e, found)
	}
	return nil
}

func (er *Erasure) keep(e *trail.Entry, found *Erased) {
	found.Kept++
	if er.Kept != nil {
		er.Kept(e)
	}
}

// rewrite replaces a segment by one without the values to erase. What a crash has left of its compression is removed.
func (er *Erasure) rewrite(ctx context.Context, s trail.Segment) error {
	err := RewriteLines(ctx, s.Path, s.Gzip, func(line []byte) []byte {
		result, _, _, _ := er.hide(line)
		return result
	})
	if err != nil || s.Gzip || s.FirstSeq == 0 {
		return err
	}
	for _, copied := range []string{trail.GzipPath(s.Path), s.Path + partialExt} {
		if failed := os.Remove(copied); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
