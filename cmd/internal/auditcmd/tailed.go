package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/trail"
)

// tailSome is how many octets of lines are read of one trail before the next is looked
// at: so many of each are held, to be put in order.
const tailSome = 1 << 20

// A tailed is one trail that is followed.
type tailed struct {
	path string // "": r is of one stream
	r    *trail.Reader
	at   time.Time // of the last line, as far as it tells
	more bool      // there is more to read now
}

func (d *tailed) close() {
	if d.r != nil {
		d.r.Close()
	}
}

func (d *tailed) isThere() (bool, error) {
	files, err := trail.Files(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return len(files) > 0, err
}

// last leads d.r to the end of what is there, and gives the last n lines that the
// filter lets pass, and the last remark about a line.
func (d *tailed) last(ctx context.Context, n int, filter *tailFilter) (lines [][]byte, remark, err error) {
	for octets := int64(tailFirst); ; octets *= 4 {
		all := true // as is a stream
		if d.path != "" {
			d.close()
			if d.r, all, err = trail.OpenLast(d.path, octets); err != nil {
				d.r = nil
				return nil, nil, err
			}
		}
		lines, read, remark, err := d.scan(ctx, n, filter)
		if err != nil || all || read && len(lines) == n || octets > 1<<60 {
			return lines, remark, err
		}
	}
}

// scan reads to the end of what is there: the last n lines that the filter lets pass,
// whether there was any line, and the last remark about one.
func (d *tailed) scan(ctx context.Context, n int, filter *tailFilter) (ring [][]byte, read bool, remark, err error) {
	for found := 0; ; {
		line, about, err := d.next()
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
		if read = true; n == 0 || !filter.passes(line) {
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

// some reads what there is to be read now, but not much more than tailSome. A trail that
// is not there may come yet.
func (d *tailed) some(t *tail) (lines [][]byte, err error) {
	d.more = false
	if d.r == nil {
		if d.r, err = trail.Open(d.path); err != nil {
			d.r = nil
			return nil, notYet(err)
		}
	}
	for octets := 0; octets < tailSome; {
		line, remark, err := d.next()
		switch {
		case err == io.EOF:
			return lines, nil
		case err != nil:
			return lines, notYet(err)
		case remark != nil:
			t.out.Flush()
			cli.Report(t.errOut, remark)
		case t.filter.passes(line):
			lines = append(lines, slices.Clone(line))
		}
		octets += len(line)
	}
	d.more = true
	return lines, nil
}

// notYet leaves out the error of a file that is gone: its directory may come again.
func notYet(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// next gives the next line, or a remark in the place of one that cannot be had.
func (d *tailed) next() (text []byte, remark, err error) {
	line, err := d.r.Next()
	if !errors.Is(err, trail.ErrTorn) && !errors.Is(err, trail.ErrTooLong) && !errors.Is(err, trail.ErrRemoved) {
		return line.Text, nil, err
	}
	place := line.File
	if line.Number > 0 {
		place = fmt.Sprintf("%s:%d", place, line.Number)
	}
	return nil, fmt.Errorf("%s: %w", place, err), nil
}

// A dated is a line, and when it was written, as far as it tells.
type dated struct {
	at   time.Time
	line []byte
}

// dated gives lines, in their order, with when they were written where that is asked.
func (d *tailed) dated(lines [][]byte, asked bool) (all []dated) {
	for _, line := range lines {
		if asked {
			if e, err := trail.Read(line); err == nil && e.End().After(d.at) {
				d.at = e.End()
			}
		}
		all = append(all, dated{d.at, line})
	}
	return all
}

// inTime puts lines of several trails in order; those of one stay in theirs.
func inTime(all []dated) {
	slices.SortStableFunc(all, func(a, b dated) int { return a.at.Compare(b.at) })
}
