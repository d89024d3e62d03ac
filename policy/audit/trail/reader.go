package trail

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// ErrRemoved is the error of Reader.Next if segments were removed before they were read.
var ErrRemoved = errors.New("removed while the audit was read")

// maxOpenTries bounds how often a Reader lists the segments again because the segment that
// it opens has been rotated, compressed or removed.
const maxOpenTries = 20

// A Line is a line and its place.
type Line struct {
	// File is the path of the segment.
	File string

	// Number is that of the line in the segment, from 1; 0: unknown, since reading began within the segment.
	Number int

	// Text is the line without its line feed, valid until the next line is read.
	Text []byte
}

// A Reader reads the lines of a trail, the oldest first and each once. Lines may be written
// and segments be rotated, compressed and removed meanwhile. It is for one goroutine.
type Reader struct {
	// ctx ends the reading; nil: nothing does.
	ctx context.Context

	// path is that of the active segment; "": there is only src. name is path, or the name of src.
	path, name string

	// src is the segment that is read; nil: the next one has to be opened.
	src *source
	in  *bufio.Reader

	// finished is the greatest FirstSeq of the segments that have been read.
	finished uint64

	// lastSeq is the seq of the last line that has one; 0: none has yet.
	lastSeq uint64

	// started reports that a line of src has been read.
	started bool

	// rotated reports that src was the active segment, and no lines are added to it any more.
	rotated bool

	// pending is the first line of src, which Next returns after ErrRemoved.
	pending []byte

	// bounded reports that the reading ends with the first segment after boundSeq, which is the FirstSeq of the newest full
	// segment when the reading was bounded; 0: there was none.
	bounded  bool
	boundSeq uint64

	// oldestSeq is the FirstSeq of the oldest segment then; 0: there was only the active one.
	oldestSeq uint64
}

func newReader(path string) *Reader {
	return &Reader{path: path, name: path, in: bufio.NewReaderSize(nil, MaxLine+1)}
}

// Open returns a Reader for the trail that is written to path.
func Open(path string) (*Reader, error) {
	segments, err := Segments(path)
	if err != nil {
		return nil, err
	}
	if len(segments) == 0 {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return newReader(path), nil
}

// OpenContext is Open for a reading that may take long: once ctx has ended, Next returns its cause.
func OpenContext(ctx context.Context, path string) (*Reader, error) {
	r, err := Open(path)
	if err == nil {
		r.ctx = ctx
	}
	return r, err
}

// OpenLast returns a Reader that begins at least size bytes before the end of a trail, as
// the bytes are on disk. all reports whether this is the beginning of the trail.
func OpenLast(path string, size int64) (r *Reader, all bool, err error) {
	for range maxOpenTries {
		if r, err = Open(path); err != nil {
			return nil, false, err
		}
		if all, err = r.seekLast(size); err == nil {
			return r, all, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
	}
	return nil, false, errUnstable(path)
}

// seekLast opens the segment in which the last size bytes begin. The error is fs.ErrNotExist
// if a segment was rotated or removed meanwhile.
func (r *Reader) seekLast(size int64) (all bool, err error) {
	segments, err := Segments(r.path)
	if err != nil {
		return false, err
	}
	for i, segment := range slices.Backward(segments) {
		info, err := os.Stat(segment.Path)
		switch {
		case err != nil:
			return false, err
		case info.Size() < size && i > 0:
			size -= info.Size()
			continue
		case i == 0 && (segment.Gzip || info.Size() <= size):
			return true, nil
		case i > 0:
			r.finished = segments[i-1].FirstSeq
		}
		src, err := openSource(segment, r.in)
		if err != nil {
			return false, err
		}
		r.src = src
		if src.plain == nil {
			return false, nil
		}
		if src.size < size {
			// The file was replaced meanwhile.
			return false, errors.Join(fs.ErrNotExist, r.Close())
		}
		return false, src.skipTo(src.size - size)
	}
	return false, fs.ErrNotExist
}

// errUnstable is the error for a trail whose segments change faster than they can be opened.
func errUnstable(path string) error {
	return fmt.Errorf("%s: its files were renamed or removed repeatedly while they were opened", path)
}

// openSegment returns a Reader for one segment.
func openSegment(segment Segment) (*Reader, error) {
	r := newReader("")
	var err error
	r.src, err = openSource(segment, r.in)
	return r, err
}

// NewReader returns a Reader for a trail in one stream, whose lines name it as their file.
func NewReader(name string, in io.Reader) *Reader {
	r := newReader("")
	r.name = name
	r.in.Reset(in)
	r.src = &source{Segment: Segment{Path: name}, in: r.in, closer: io.NopCloser(nil)}
	return r
}

// Next returns the next line, or io.EOF after the last one. After io.EOF, Next returns the
// lines that have been written since. It takes a fifth of a second to find that a line has no
// end (ErrTorn). With ErrTorn and ErrTooLong it returns the place of that line, with
// ErrRemoved the place of the first line after the gap. Reading can go on after these three
// errors, and not after others.
func (r *Reader) Next() (Line, error) {
	if r.ctx != nil && r.ctx.Err() != nil {
		return Line{File: r.path}, context.Cause(r.ctx)
	}
	if text := r.pending; text != nil {
		r.pending = nil
		return r.lineAt(text), nil
	}
	for {
		if r.src == nil {
			if err := r.openNext(); err != nil {
				return Line{File: r.path}, err
			}
		}
		text, err := r.src.next()
		switch {
		case err == io.EOF:
			err = r.endOfSource()
		case err != nil:
			return r.lineAt(text), err
		default:
			skipped, failed := r.checkOrder(text)
			switch {
			case failed != nil:
				return r.lineAt(nil), failed
			case !skipped:
				return r.lineAt(text), nil
			}
			err = r.Close()
		}
		if err != nil {
			return Line{File: r.path}, err
		}
	}
}

// lineAt returns the current line of src, or the part of it that is there.
func (r *Reader) lineAt(text []byte) Line {
	return Line{File: r.src.Path, Number: r.src.lineNumber(), Text: text}
}

// nextSegment returns the segment to read next, and whether it is the oldest one.
func (r *Reader) nextSegment() (next Segment, oldest bool, err error) {
	segments, err := Segments(r.path)
	if err != nil {
		return Segment{}, false, err
	}
	i := slices.IndexFunc(segments, func(s Segment) bool { return s.FirstSeq == 0 || s.FirstSeq > r.finished })
	if i < 0 {
		// The next segment does not exist yet.
		return Segment{}, false, io.EOF
	}
	return segments[i], i == 0, nil
}

// openNext opens the next segment.
func (r *Reader) openNext() error {
	for range maxOpenTries {
		next, _, err := r.nextSegment()
		if err != nil {
			return err
		}
		if opened, err := r.tryOpen(next); opened || err != nil {
			return err
		}
	}
	return errUnstable(r.path)
}

// tryOpen opens a segment, unless it was rotated, compressed or removed after it was listed.
func (r *Reader) tryOpen(next Segment) (opened bool, err error) {
	src, err := openSource(next, r.in)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if next.FirstSeq == 0 {
		// The segment may have been rotated before it was opened, so that src is the one after it.
		if now, _, err := r.nextSegment(); err != nil || now != next {
			return false, src.closer.Close()
		}
	}
	r.src, r.started, r.rotated = src, false, false
	return true, nil
}

// checkOrder takes the seq of a line. Before the first line of a segment it checks whether a
// segment that comes before was missed: either it can still be read (skipped), or it was
// removed (ErrRemoved).
func (r *Reader) checkOrder(text []byte) (skipped bool, err error) {
	seq, ok := seqOf(text)
	if !ok {
		r.started = true
		return false, nil
	}
	if !r.started && r.lastSeq > 0 && seq > r.lastSeq+1 && r.path != "" {
		next, oldest, nerr := r.nextSegment()
		switch {
		case nerr != nil:
			return false, nerr
		case next.FirstSeq != r.src.FirstSeq && next.FirstSeq < seq && next.FirstSeq > 0:
			return true, nil
		case oldest:
			r.pending = text
			err = fmt.Errorf("lines %d to %d: %w", r.lastSeq+1, seq-1, ErrRemoved)
		}
	}
	r.started, r.lastSeq = true, seq
	return false, err
}

// endOfSource moves on at the end of src. The error is io.EOF if src is the last segment.
func (r *Reader) endOfSource() error {
	switch {
	case r.path == "":
		return io.EOF
	case r.bounded && (r.rotated || r.src.FirstSeq > r.boundSeq):
		return io.EOF
	case r.src.FirstSeq > 0:
		r.finished = r.src.FirstSeq
	case !r.rotated:
		if r.rotated = r.isReplaced(); !r.rotated {
			return io.EOF
		}
		// What was written before the rotation is read first.
		return nil
	case r.lastSeq > 0:
		r.finished = r.lastSeq
	}
	return r.Close()
}

// isReplaced reports whether another file than src is the active segment now. It is false
// while there is no active segment.
func (r *Reader) isReplaced() bool {
	if r.src.plain == nil {
		return false
	}
	now, err := os.Stat(r.path)
	if err != nil {
		return false
	}
	was, err := r.src.plain.Stat()
	return err == nil && !os.SameFile(was, now)
}

// bound makes the reading end with the segment that is active now, however quickly others
// follow it.
func (r *Reader) bound() error {
	if r.path == "" {
		return nil
	}
	if r.src != nil {
		r.boundSeq = r.src.FirstSeq
	}
	segments, err := Segments(r.path)
	for _, s := range segments {
		r.boundSeq = max(r.boundSeq, s.FirstSeq)
	}
	if len(segments) > 0 {
		r.oldestSeq = segments[0].FirstSeq
	}
	r.bounded = true
	return err
}

// oldestRemoved reports whether the oldest segment has been removed since the reading was
// bounded.
func (r *Reader) oldestRemoved() bool {
	if r.oldestSeq == 0 {
		// There was only the active segment, and it was rotated.
		return r.path != "" && r.src.FirstSeq > 0
	}
	segments, err := Segments(r.path)
	return err == nil && len(segments) > 0 && segments[0].FirstSeq != r.oldestSeq
}

// Close closes the segment that is read.
func (r *Reader) Close() error {
	if r.src == nil {
		return nil
	}
	err := r.src.closer.Close()
	r.src = nil
	return err
}
