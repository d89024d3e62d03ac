package trail

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// What a Reader tells besides lines, and can be read on after.
var (
	// ErrTorn is a line without an end.
	ErrTorn = errors.New("torn: it has no end")
	// ErrTooLong is a line of more than MaxLine octets.
	ErrTooLong = fmt.Errorf("longer than %d octets", MaxLine)
	// ErrRemoved is of files that were removed before their turn came.
	ErrRemoved = errors.New("removed while the trail was read")
)

// maxTurns bounds how often a file that is gone when it is opened is looked for anew.
const maxTurns = 20

// A Line is a line and where it stands.
type Line struct {
	File   string // path
	Number int    // in its file, from 1; 0: unknown, the reading began within the file
	Text   []byte // without the line feed; good until the next is read
}

// A Reader reads the lines of a trail, the oldest first, while they are written and
// files are set aside, compressed and removed: each line once.
type Reader struct {
	path   string  // of the trail; "": one file or stream, and nothing follows
	src    *source // nil: the next has to be opened
	in     *bufio.Reader
	behind uint64 // files that begin with this line, or one before it, have been read
	last   uint64 // the number of the last line that has one; 0: none yet
	begun  bool   // a line of src has been read
	moved  bool   // src was the file at path, and is not any more: nothing is added to it
	held   []byte // the first line of src, to be given after ErrRemoved

	oldest  uint64 // the seq with which the oldest file began then; 0: there was only the file that is written
	bounded bool   // the reading ends with the first file that begins behind until
	until   uint64 // of the files that were set aside by then the newest; 0: there were none
}

func newReader(path string) *Reader {
	return &Reader{path: path, in: bufio.NewReaderSize(nil, MaxLine+1)}
}

// Open begins to read the trail that is written to path.
func Open(path string) (*Reader, error) {
	files, err := Segments(path)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return newReader(path), nil
}

// OpenLast begins to read a trail near its end: so many octets before it, as they are
// on disk, or somewhat more. All says that this is the beginning of the trail.
func OpenLast(path string, octets int64) (r *Reader, all bool, err error) {
	for range maxTurns {
		if r, err = Open(path); err != nil {
			return nil, false, err
		}
		if all, err = r.beginLast(octets); err == nil {
			return r, all, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
	}
	return nil, false, errRestless(path)
}

// beginLast opens the file that the last octets begin in. The error is fs.ErrNotExist
// where a file has changed its name or place meanwhile.
func (r *Reader) beginLast(octets int64) (all bool, err error) {
	files, err := Segments(r.path)
	if err != nil {
		return false, err
	}
	for i, f := range slices.Backward(files) {
		info, err := os.Stat(f.Path)
		switch {
		case err != nil:
			return false, err
		case info.Size() < octets && i > 0:
			octets -= info.Size()
			continue
		case i == 0 && (f.Gzip || info.Size() <= octets):
			return true, nil
		case i > 0:
			r.behind = files[i-1].FirstSeq
		}
		src, err := openSource(f, r.in)
		if err != nil {
			return false, err
		}
		r.src = src
		if src.plain == nil {
			return false, nil
		}
		if src.size < octets { // another file than a moment ago
			return false, errors.Join(fs.ErrNotExist, r.Close())
		}
		return false, src.skipTo(src.size - octets)
	}
	return false, fs.ErrNotExist
}

// errRestless is of a trail whose files are always gone when they are to be opened.
func errRestless(path string) error {
	return fmt.Errorf("%s: its files come and go faster than they can be opened", path)
}

// openFile begins to read a file of a trail alone.
func openFile(f Segment) (*Reader, error) {
	r := newReader("")
	var err error
	r.src, err = openSource(f, r.in)
	return r, err
}

// NewReader reads a trail that is in one piece, under a name for it.
func NewReader(name string, in io.Reader) *Reader {
	r := newReader("")
	r.in.Reset(in)
	r.src = &source{Segment: Segment{Path: name}, in: r.in, closer: io.NopCloser(nil)}
	return r
}

// Next gives the next line, and io.EOF behind the last: asked again then, what has
// been written since. Whether a line has no end (ErrTorn) is known after a fifth of a
// second. That and ErrTooLong come with the line's place, ErrRemoved with that of the
// first line there is; reading can go on after them, and not after other errors.
func (r *Reader) Next() (Line, error) {
	if text := r.held; text != nil {
		r.held = nil
		return r.place(text), nil
	}
	for {
		if r.src == nil {
			if err := r.advance(); err != nil {
				return Line{File: r.path}, err
			}
		}
		text, err := r.src.next()
		switch {
		case err == io.EOF:
			err = r.leave()
		case err != nil:
			return r.place(text), err
		default:
			overlooked, failed := r.follows(text)
			switch {
			case failed != nil:
				return r.place(nil), failed
			case !overlooked:
				return r.place(text), nil
			}
			err = r.Close()
		}
		if err != nil {
			return Line{File: r.path}, err
		}
	}
}

// place gives a line of src, or what is there of it.
func (r *Reader) place(text []byte) Line {
	return Line{File: r.src.Path, Number: r.src.place(), Text: text}
}

// turn finds the file whose turn it is, and says whether it is the oldest there is.
func (r *Reader) turn() (f Segment, oldest bool, err error) {
	files, err := Segments(r.path)
	if err != nil {
		return Segment{}, false, err
	}
	i := slices.IndexFunc(files, func(f Segment) bool { return f.FirstSeq == 0 || f.FirstSeq > r.behind })
	if i < 0 {
		return Segment{}, false, io.EOF // the next has not been begun yet
	}
	return files[i], i == 0, nil
}

// advance opens the file whose turn it is.
func (r *Reader) advance() error {
	for range maxTurns {
		f, _, err := r.turn()
		if err != nil {
			return err
		}
		if taken, err := r.take(f); taken || err != nil {
			return err
		}
	}
	return errRestless(r.path)
}

// take opens a file, unless it is not there any more, or its turn has passed.
func (r *Reader) take(f Segment) (taken bool, err error) {
	src, err := openSource(f, r.in)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // set aside, compressed or removed
	}
	if err != nil {
		return false, err
	}
	if f.FirstSeq == 0 {
		// It may have been set aside, and the one behind it opened.
		if now, _, err := r.turn(); err != nil || now != f {
			return false, src.closer.Close()
		}
	}
	r.src, r.begun, r.moved = src, false, false
	return true, nil
}

// follows takes note of a line, and looks at the first of a file whether others were
// to be read before: one that was overlooked, or, ErrRemoved, one that is gone.
func (r *Reader) follows(text []byte) (overlooked bool, err error) {
	l, _, ok := link(text)
	if !ok {
		r.begun = true
		return false, nil
	}
	if !r.begun && r.last > 0 && l.Seq > r.last+1 && r.path != "" {
		f, oldest, err := r.turn()
		switch {
		case err != nil:
			return false, err
		case f.FirstSeq != r.src.FirstSeq && f.FirstSeq < l.Seq && f.FirstSeq > 0:
			return true, nil
		case oldest:
			r.held = text
			err = fmt.Errorf("lines %d to %d: %w", r.last+1, l.Seq-1, ErrRemoved)
		}
		r.begun, r.last = true, l.Seq
		return false, err
	}
	r.begun, r.last = true, l.Seq
	return false, nil
}

// leave is what is done at the end of a file. The error is io.EOF where it is the last.
func (r *Reader) leave() error {
	switch {
	case r.path == "":
		return io.EOF
	case r.bounded && (r.moved || r.src.FirstSeq > r.until):
		return io.EOF
	case r.src.FirstSeq > 0:
		r.behind = r.src.FirstSeq
	case !r.moved:
		if r.moved = r.replaced(); !r.moved {
			return io.EOF
		}
		return nil // what was written until then is read first
	case r.last > 0:
		r.behind = r.last
	}
	return r.Close()
}

// replaced says whether another file stands at path by now. Where none does, the next
// has not been begun yet.
func (r *Reader) replaced() bool {
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

// bound has the reading end with the file that is written now, however quickly others
// follow it.
func (r *Reader) bound() error {
	if r.path == "" {
		return nil
	}
	if r.src != nil {
		r.until = r.src.FirstSeq
	}
	files, err := Segments(r.path)
	for _, f := range files {
		r.until = max(r.until, f.FirstSeq)
	}
	if len(files) > 0 {
		r.oldest = files[0].FirstSeq
	}
	r.bounded = true
	return err
}

// shortened reports whether the oldest file has been removed since the reading was bounded.
func (r *Reader) shortened() bool {
	if r.oldest == 0 {
		return r.path != "" && r.src.FirstSeq > 0 // there was no file but the one that is written
	}
	files, err := Segments(r.path)
	return err == nil && len(files) > 0 && files[0].FirstSeq != r.oldest
}

// Close ends the reading.
func (r *Reader) Close() error {
	if r.src == nil {
		return nil
	}
	err := r.src.closer.Close()
	r.src = nil
	return err
}
