package trail

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"time"

	"robotsproxy/policy/osfile"
)

// ErrNoRecord is the error of Find for an ID that no record has.
var ErrNoRecord = errors.New("no such record")

// Find returns the record of the request with this ID, and its line, from the trail that is written to path; without a
// record, the line of KindBegun with this ID. It reads the newest segment first. If it cannot read a part of the trail,
// it goes on with the rest, and joins that error to ErrNoRecord.
func Find(path, id string) (Line, Entry, error) { return find(path, id, Segments) }

// find is Find with the function that lists the segments.
func find(path, id string, list func(string) ([]Segment, error)) (Line, Entry, error) {
	// A segment may be rotated or compressed during the search.
	const tries = 3
	var err error
	for range tries {
		var segments []Segment
		if segments, err = list(path); err != nil {
			return Line{}, Entry{}, err
		}
		if len(segments) == 0 {
			return Line{}, Entry{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		missed := false
		err = ErrNoRecord
		for _, segment := range slices.Backward(segments) {
			line, entry, ferr := findIn(segment, id)
			switch {
			case ferr == nil:
				return line, entry, nil
			case errors.Is(ferr, fs.ErrNotExist):
				missed = true
			case ferr != ErrNoRecord:
				err = errors.Join(err, ferr)
			case segment.FirstSeq == 0:
				// The active segment may have been rotated before it was opened, so that the one after it was searched.
				now, failed := list(path)
				missed = failed == nil && newestFull(now) != newestFull(segments)
			}
		}
		if !missed {
			break
		}
	}
	return Line{}, Entry{}, err
}

// newestFull returns the FirstSeq of the newest segment that is full; 0: there is none.
func newestFull(segments []Segment) (first uint64) {
	for _, s := range segments {
		first = max(first, s.FirstSeq)
	}
	return first
}

// findIn is Find in one segment.
func findIn(segment Segment, id string) (Line, Entry, error) {
	value, err := json.Marshal(id)
	if err != nil {
		return Line{}, Entry{}, err
	}
	member := append([]byte(`"id":`), value...)
	var begun Line
	var begunEntry Entry
	for line, err := range wholeLines(segment) {
		if err != nil {
			return Line{}, Entry{}, err
		}
		if !bytes.Contains(line.Text, member) {
			continue
		}
		entry, err := Read(line.Text)
		if err == nil && entry.ID == id && entry.IsRequest() {
			line.Text = bytes.Clone(line.Text)
			return line, entry, nil
		}
		if err == nil && entry.ID == id && entry.Kind == KindBegun {
			begun, begunEntry = line, entry
			begun.Text = bytes.Clone(line.Text)
		}
	}
	if begun.Text != nil {
		return begun, begunEntry, nil
	}
	return Line{}, Entry{}, ErrNoRecord
}

// wholeLines reads one segment, without torn lines and lines that are too long. An error
// ends it.
func wholeLines(segment Segment) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		r, err := openSegment(segment)
		if err != nil {
			yield(Line{}, err)
			return
		}
		defer r.Close()
		for {
			line, err := r.Next()
			if err == io.EOF {
				return
			}
			if errors.Is(err, ErrTorn) || errors.Is(err, ErrTooLong) {
				continue
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// ErrNoChain is the error of LastLink for a file that has no line of a trail.
var ErrNoChain = errors.New("the file does not end with a line of the chain")

// LastLink returns the Link of the last whole line of a trail in a file of size bytes, and
// the offset of the end of this line. What follows the line is not a line of a trail.
// If the error is ErrChanged, the Link has the values that the line states.
func LastLink(f io.ReaderAt, size int64) (l Link, end int64, err error) {
	for line, err := range backward(f, size, MaxLine) {
		if err != nil {
			return Link{}, 0, err
		}
		if l, err := ReadLink(line.Text); err == nil || errors.Is(err, ErrChanged) {
			return l, line.End, err
		}
	}
	return Link{}, 0, ErrNoChain
}

// FindLink returns the Link of the line seq in the trail that is written to path. The error is
// ErrNoRecord if the segment has no line with this seq, or ErrChanged as in ReadLink.
func FindLink(path string, seq uint64) (Link, error) {
	line, err := findLine(path, seq)
	if err != nil {
		return Link{}, err
	}
	return ReadLink(line)
}

// TimeOf returns the time of the line that an anchor is of, in the trail that is written to path. The error is
// ErrNoRecord if there is no such line.
func TimeOf(path string, a Anchor) (time.Time, error) {
	line, err := findLine(path, a.Seq)
	if err != nil {
		return time.Time{}, err
	}
	if l, err := ReadLink(line); err != nil || !a.Matches(l.Hash) {
		return time.Time{}, cmp.Or(err, ErrNoRecord)
	}
	e, err := Read(line)
	return e.Time, err
}

// findLine returns the line seq of the trail that is written to path.
func findLine(path string, seq uint64) ([]byte, error) {
	segments, err := Segments(path)
	if err != nil {
		return nil, err
	}
	for _, segment := range slices.Backward(segments) {
		if segment.FirstSeq > seq {
			continue
		}
		for line, err := range wholeLines(segment) {
			if err != nil {
				return nil, err
			}
			if l, _, _, ok := splitLink(line.Text); ok && l.Seq == seq {
				return bytes.Clone(line.Text), nil
			}
		}
		if segment.FirstSeq > 0 {
			break
		}
	}
	return nil, ErrNoRecord
}

// LastSegmentLink returns the Link of the last line in the full segments of the trail that
// is written to path, and the zero Link if there are none. It skips what is not a line of a
// trail. If the error is ErrChanged, the Link has the values that the line states.
func LastSegmentLink(path string) (last Link, err error) {
	segments, err := Segments(path)
	if err != nil {
		return Link{}, err
	}
	// changed is ErrChanged if the last line was changed.
	var changed error
	for _, segment := range slices.Backward(segments) {
		if segment.FirstSeq == 0 {
			continue
		}
		for line, err := range wholeLines(segment) {
			if err != nil {
				return Link{}, err
			}
			if l, lerr := ReadLink(line.Text); lerr == nil || errors.Is(lerr, ErrChanged) {
				last, changed = l, lerr
			}
		}
		if last.Seq > 0 {
			return last, changed
		}
	}
	return Link{}, nil
}

// FirstEntry returns the first line of the trail that is written to path.
func FirstEntry(path string) (Entry, error) {
	r, err := Open(path)
	if err != nil {
		return Entry{}, err
	}
	defer r.Close()
	line, err := r.Next()
	if err != nil {
		return Entry{}, err
	}
	return Read(line.Text)
}

// erasedEvent is a part of each event [EventErased], and of no other line: quotes in strings are escaped.
var erasedEvent = []byte(`,"event":"` + EventErased + `"`)

// LastEntry returns the last line of the proxy in the last MiB of the trail that is written to path. It skips an [EventErased],
// which is written while no proxy runs, and what is not a line of a trail.
func LastEntry(path string) (Entry, error) {
	r, _, err := OpenLast(path, MaxLine+1)
	if err != nil {
		return Entry{}, err
	}
	defer r.Close()
	var last []byte
	for {
		line, err := r.Next()
		_, _, _, chained := splitLink(line.Text)
		switch {
		case err == io.EOF:
			return Read(last)
		case errors.Is(err, ErrTorn), errors.Is(err, ErrTooLong):
		case err != nil:
			return Entry{}, err
		case chained && !bytes.Contains(line.Text, erasedEvent):
			last = append(last[:0], line.Text...)
		}
	}
}

// Unfinished returns the IDs of the requests and tunnels that have a line of KindBegun with a seq of at least from
// and at most to, and neither a record nor a mention in an EventUnfinished, in the trail that is written to path. It
// returns the cause if ctx ends.
func Unfinished(ctx context.Context, path string, from, to uint64) (ids []string, err error) {
	// A segment may be rotated, compressed or removed during the search.
	const tries = 3
	for range tries {
		if ids, err = unfinished(ctx, path, from, to); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return ids, err
}

// segmentsFrom returns the segments of the trail that is written to path, without those that end before the line from.
func segmentsFrom(path string, from uint64) ([]Segment, error) {
	segments, err := Segments(path)
	for len(segments) > 1 && segments[1].FirstSeq > 0 && segments[1].FirstSeq <= from {
		segments = segments[1:]
	}
	return segments, err
}

// Links reads what the lines from the line from on state as their number and hash, in the trail that is written to path.
// Nothing is compared with the lines. An error ends it: fs.ErrNotExist if a segment was rotated, compressed or removed
// meanwhile.
func Links(path string, from uint64) iter.Seq2[Link, error] {
	return func(yield func(Link, error) bool) {
		segments, err := segmentsFrom(path, from)
		if err != nil {
			yield(Link{}, err)
			return
		}
		for _, segment := range segments {
			for line, err := range wholeLines(segment) {
				l, _, _, ok := splitLink(line.Text)
				if err == nil && (!ok || l.Seq < from) {
					continue
				}
				if !yield(l, err) || err != nil {
					return
				}
			}
		}
	}
}

// unfinished is Unfinished, but fails if a segment is rotated, compressed or removed meanwhile.
func unfinished(ctx context.Context, path string, from, to uint64) (ids []string, err error) {
	segments, err := segmentsFrom(path, from)
	if err != nil {
		return nil, err
	}
	open := map[string]uint64{}
	for _, segment := range segments {
		if segment.FirstSeq > to {
			break
		}
		for line, err := range wholeLines(segment) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				return nil, err
			}
			id, begun := lineID(line.Text)
			switch {
			case begun:
				if l, _, _, ok := splitLink(line.Text); ok && l.Seq >= from && l.Seq <= to {
					open[string(id)] = l.Seq
				}
			case bytes.Contains(line.Text, unfinishedEvent):
				e, err := Read(line.Text)
				if err != nil {
					return nil, err
				}
				for _, id := range e.IDs {
					delete(open, id)
				}
			default:
				delete(open, string(id))
			}
		}
	}
	return slices.SortedFunc(maps.Keys(open), func(a, b string) int { return cmp.Compare(open[a], open[b]) }), nil
}

// unfinishedEvent is in the line of an EventUnfinished alone: strings of strangers have no quotation marks that are not
// escaped.
var unfinishedEvent = []byte(`"event":"` + EventUnfinished + `"`)

// lineID returns the ID of a request's record, or of the line that says that it has begun. It returns "" for other lines.
func lineID(line []byte) (id []byte, begun bool) {
	const before = len(`{"time":"2006-01-02T15:04:05.000000000Z",`)
	rest := line[min(before, len(line)):]
	rest, begun = bytes.CutPrefix(rest, []byte(`"kind":"`+KindBegun+`",`))
	if rest, found := bytes.CutPrefix(rest, []byte(`"id":"`)); found {
		id, _, _ = bytes.Cut(rest, []byte(`"`))
	}
	return id, begun
}

// A BackwardLine is a line that Backward has read.
type BackwardLine struct {
	// Text is the line without its line feed, valid until the next line is read.
	Text []byte

	// End is the offset behind the line feed.
	End int64
}

// blockSize is how many bytes Backward reads at once.
const blockSize = 64 << 10

// Backward reads the whole lines of a file, the last line first. It skips lines of more than maxLine bytes. An error ends
// it.
func Backward(path string, maxLine int) iter.Seq2[BackwardLine, error] {
	return func(yield func(BackwardLine, error) bool) {
		f, err := osfile.Open(path)
		if err != nil {
			yield(BackwardLine{}, err)
			return
		}
		defer f.Close()
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			yield(BackwardLine{}, err)
			return
		}
		backward(f, size, maxLine)(yield)
	}
}

// backward is Backward for the first size bytes of a file.
func backward(f io.ReaderAt, size int64, maxLine int) iter.Seq2[BackwardLine, error] {
	return func(yield func(BackwardLine, error) bool) {
		// tail is what was read, without the lines behind it; whole reports that it ends where a line ends.
		var tail []byte
		whole := false
		for at := size; at > 0; {
			n := min(at, blockSize)
			at -= n
			block := make([]byte, n, int(n)+len(tail))
			if _, err := f.ReadAt(block, at); err != nil {
				yield(BackwardLine{}, err)
				return
			}
			tail = append(block, tail...)
			for {
				end := bytes.LastIndexByte(tail, '\n')
				if end < 0 {
					break
				}
				line := BackwardLine{tail[end+1:], at + int64(len(tail)) + 1}
				tail = tail[:end]
				if whole && len(line.Text) <= maxLine && !yield(line, nil) {
					return
				}
				whole = true
			}
			if len(tail) > maxLine {
				// The line is too long, and so is the rest of it.
				tail, whole = nil, false
			}
		}
		if whole {
			yield(BackwardLine{tail, int64(len(tail)) + 1}, nil)
		}
	}
}
