package trail

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// ErrNoChain is of a file that does not end in lines of a trail.
var ErrNoChain = errors.New("no line of a trail stands at its end")

// Last finds the last whole line of a trail in a file of so many octets, and where it
// ends. What stands behind it is none. A line that was changed counts, and its Link is
// what it says of itself.
func LastLink(f io.ReaderAt, size int64) (l Link, end int64, err error) {
	const window = 2 * MaxLine
	for to := size; ; to -= window - MaxLine - 2 { // a line and both its line feeds are in one of the windows
		from := max(0, to-window)
		b := make([]byte, to-from)
		if _, err := f.ReadAt(b, from); err != nil {
			return Link{}, 0, err
		}
		if l, n, ok := lastIn(b, from == 0); ok {
			return l, from + int64(n), nil
		}
		if from == 0 {
			return Link{}, 0, ErrNoChain
		}
	}
}

// lastIn finds the last whole line of a trail in b, and where it ends. What stands
// before the first line feed is no whole line unless b is the beginning of a file.
func lastIn(b []byte, beginning bool) (l Link, end int, ok bool) {
	for {
		if end = bytes.LastIndexByte(b, '\n') + 1; end == 0 {
			return Link{}, 0, false
		}
		b = b[:end-1]
		begin := bytes.LastIndexByte(b, '\n') + 1
		if begin == 0 && !beginning {
			return Link{}, 0, false
		}
		l, err := ReadLink(b[begin:])
		if err == nil || errors.Is(err, ErrChanged) {
			return l, end, true
		}
		b = b[:begin]
	}
}

// LastAside gives the link of the last line of all files that were set aside of the
// trail that is written to path, the zero Link where there are none. What is no line
// there, or has no end, is passed over.
func LastSegmentLink(path string) (last Link, err error) {
	files, err := Segments(path)
	if err != nil {
		return Link{}, err
	}
	for _, f := range slices.Backward(files) {
		if f.FirstSeq == 0 {
			continue
		}
		if last, err = lastOf(f); err != nil || last.Seq > 0 {
			return last, err
		}
	}
	return Link{}, nil
}

// lastOf gives the link of the last line of a file.
func lastOf(f Segment) (last Link, err error) {
	r, err := openFile(f)
	if err != nil {
		return Link{}, err
	}
	defer r.Close()
	for {
		line, err := r.Next()
		switch {
		case err == io.EOF:
			return last, nil
		case errors.Is(err, ErrTorn), errors.Is(err, ErrTooLong):
			continue
		case err != nil:
			return Link{}, err
		}
		if l, err := ReadLink(line.Text); err == nil || errors.Is(err, ErrChanged) {
			last = l
		}
	}
}
