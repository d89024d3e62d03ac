package trail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// maxListed is how many events a Result lists at most.
const maxListed = 100

// A Result is what was found of a trail, up to its first fault.
type Result struct {
	Files, Lines int    // that have a line, and these
	First        uint64 // the number of the first line; above 1: the files before were removed
	Last         Link   // of the last line
	From, To     time.Time
	Counted      int64   // refusals that were counted and not recorded, by the lines that say so
	Events       int     // other lines about the trail itself
	ListedEvents []Entry // the first of these lines
	Removed      bool    // files were removed while it was read, and it was begun anew behind them
	Pruned       bool    // the writer removed what was before the first line, as a line says
}

// Known is what is known of a trail from elsewhere. The zero Known means nothing.
type VerifyOptions struct {
	From  uint64 // the first line that has to be there, earlier ones may be missing; 0: no line may be missing, but see Verify
	Since Anchor // the anchor's line has to be there, or the line after it has to follow it
}

// Anchor gives the anchor of the last line, the zero Anchor where there is no line.
func (r *Result) Anchor() Anchor {
	if r.Lines == 0 {
		return Anchor{}
	}
	return Anchor{Seq: r.Last.Seq, Hash: r.Last.Hash.String()[:anchorDigits]}
}

// A Fault is where a trail is not as it was written.
type Fault struct {
	File   string
	Line   int    // in its file; 0: unknown
	Seq    uint64 // what the line says of itself, or what was expected; 0: unknown
	Kind   string // changed, missing, reordered, repeated, torn, foreign (no line of a trail), anew (another chain), unlinked (it does not fit the line before), or anchor (it does not hold)
	Detail string // what that means here
}

func (f *Fault) Error() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d", place, f.Line)
	}
	if f.Seq > 0 {
		place = fmt.Sprintf("%s: seq %d", place, f.Seq)
	}
	return fmt.Sprintf("%s: %s: %s", place, f.Kind, f.Detail)
}

// Verify reads a trail from where r stands to the end of the file that is written when
// it begins. It compares each line with its hash and the line before it, and the whole with
// what is known. Lines that are gone from the beginning are missing, unless a line says that
// the writer removed them, or the first line is of an earlier version, which wrote no such
// lines. The first fault is a [*Fault], and r is read no further than it takes to describe
// it; other errors are of the reading.
func Verify(r *Reader, known VerifyOptions) (Result, error) {
	v := verifier{r: r, known: known}
	return v.verify()
}

// VerifyEach is Verify with the zero Known, and hands on each line when it is read, also
// those behind the fault: with ErrTorn or ErrTooLong in the place of one that cannot be
// had. The error is of the reading.
func VerifyEach(r *Reader, each func(Line, error)) (res Result, fault *Fault, err error) {
	v := verifier{r: r, each: each}
	res, err = v.verify()
	if fault, _ = errors.AsType[*Fault](err); fault == nil {
		return res, nil, err
	}
	if _, err = v.find(noLine); err == io.EOF {
		err = nil
	}
	return res, fault, err
}

// noLine is a number that no line has.
const noLine = 0

// read gives the next line, and hands it on.
func (v *verifier) read() (Line, error) {
	line, err := v.r.Next()
	if v.each != nil && (err == nil || errors.Is(err, ErrTorn) || errors.Is(err, ErrTooLong)) {
		v.each(line, err)
	}
	return line, err
}

func (v *verifier) verify() (Result, error) {
	if err := v.r.bound(); err != nil {
		return Result{}, err
	}
	return v.lines()
}

// lines reads and checks lines up to where the reading is bounded.
func (v *verifier) lines() (Result, error) {
	for {
		line, err := v.read()
		switch {
		case err == io.EOF:
			return v.end()
		case errors.Is(err, ErrRemoved):
			v.Result, v.lacking = Result{Removed: true}, nil
			continue
		case errors.Is(err, ErrTorn):
			return v.Result, v.fault(line, 0, "torn", "the line has no end, as after a crash: the next start sets it aside")
		case errors.Is(err, ErrTooLong):
			return v.Result, v.fault(line, 0, "foreign", "no line of a trail: %v", err)
		case err != nil:
			return v.Result, err
		}
		if err := v.line(line); err != nil {
			return v.Result, err
		}
	}
}

type verifier struct {
	Result
	r     *Reader
	known VerifyOptions
	each  func(Line, error) // takes each line that is read; nil: nobody does

	lacking *Fault   // lines are missing at the beginning; nil once a line says that the writer removed them
	at      Line     // where the last line stood; without its text
	head    [64]byte // how it begins
}

// fault makes a Fault of a line; one that does not say its number has the expected one.
func (v *verifier) fault(line Line, seq uint64, kind, detail string, args ...any) *Fault {
	if seq == 0 && v.Lines > 0 {
		seq = v.Last.Seq + 1
	}
	return &Fault{File: line.File, Line: line.Number, Seq: seq, Kind: kind, Detail: fmt.Sprintf(detail, args...)}
}

// line holds a line against the chain.
func (v *verifier) line(line Line) error {
	l, err := ReadLink(line.Text)
	if errors.Is(err, ErrChanged) {
		return v.fault(line, l.Seq, "changed", "the hash is not that of the line's octets")
	}
	if err != nil {
		return v.fault(line, 0, "foreign", "no line of a trail: it does not end with seq, prev and hash")
	}
	if v.Lines == 0 {
		err = v.first(line, l)
	} else {
		err = v.next(line, l)
	}
	if err != nil {
		return err
	}
	if l.Seq == v.known.Since.Seq && !v.known.Since.names(l.Hash) {
		return v.fault(line, l.Seq, "anchor", "this is another line than the anchor's: its hash begins with %s", l.Hash.String()[:anchorDigits])
	}
	v.count(line, l)
	return nil
}

// first looks at the line that the trail begins with.
func (v *verifier) first(line Line, l Link) error {
	v.First, v.From = l.Seq, timeOf(line.Text)
	switch begins := v.r.src.FirstSeq; {
	case l.Seq < begins || l.Seq == 1 && l.Prev == Hash{}:
	case l.Seq == 1:
		return v.fault(line, 1, "unlinked", "the first line names one before it")
	case begins > 0 && l.Seq > begins:
		return v.missing(line, l, begins)
	}
	if from := max(1, v.known.From); l.Seq > from && (v.known.From > 0 || versionOf(line.Text) > 0) {
		if v.Removed = v.Removed || v.r.shortened(); !v.Removed { // else the pruned line may be one that is not read
			v.lacking = v.fault(line, l.Seq, "missing", "%s before it, and no line says that the proxy removed them", numbers(from, l.Seq-1))
		}
	}
	switch since := v.known.Since.Seq; {
	case since == 0 || l.Seq <= since:
	case l.Seq > since+1:
		return v.fault(line, l.Seq, "anchor", "the trail begins here by now, and lacks %s that would lead here from the anchor", numbers(since+1, l.Seq-1))
	case !v.known.Since.names(l.Prev):
		return v.fault(line, l.Seq, "anchor", "the line does not follow the anchor's: its prev begins with %s", l.Prev.String()[:anchorDigits])
	}
	return nil
}

// versionOf gives the version that a line states; 0: it is of an earlier version.
func versionOf(line []byte) int {
	e, err := Read(line)
	if err != nil {
		return 0
	}
	return e.Version
}

// next looks whether a line follows the one before it.
func (v *verifier) next(line Line, l Link) error {
	want := v.Last.Seq + 1
	switch {
	case l.Seq == want && l.Prev == v.Last.Hash:
		return nil
	case l.Seq == want:
		return v.fault(line, l.Seq, "unlinked", "prev is not the hash of seq %d, which stands before it", v.Last.Seq)
	}
	kind, detail := "reordered", "it stands behind seq %d"
	if l.Seq >= v.First {
		kind, detail = "repeated", "it stands behind seq %d once more"
	}
	place := v.fault(line, l.Seq, kind, detail, v.Last.Seq) // before line is read over
	later, err := v.find(want)
	found := err == nil
	switch {
	case l.Seq > want && found:
		place.Kind, place.Detail = "reordered", fmt.Sprintf("seq %d should stand here, and stands at %s:%d", want, later.File, later.Number)
	case l.Seq > want:
		return v.missing(line, l, want)
	case l.Seq == 1 && l.Prev == Hash{} && !found:
		place.Kind, place.Detail = "anew", fmt.Sprintf("another chain begins behind seq %d", v.Last.Seq)
	}
	return place
}

func (v *verifier) missing(line Line, l Link, from uint64) error {
	return v.fault(line, l.Seq, "missing", "%s before it", numbers(from, l.Seq-1))
}

// numbers puts a range of lines into words.
func numbers(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("seq %d (1 line)", from)
	}
	return fmt.Sprintf("seq %d to %d (%d lines)", from, to, to-from+1)
}

// find looks for a line among all that follow; io.EOF: it is not there.
func (v *verifier) find(seq uint64) (Line, error) {
	for {
		line, err := v.read()
		switch {
		case errors.Is(err, ErrTorn), errors.Is(err, ErrTooLong), errors.Is(err, ErrRemoved):
			continue
		case err != nil:
			return Line{}, err
		}
		if l, err := ReadLink(line.Text); err == nil && l.Seq == seq {
			return line, nil
		}
	}
}

// eventName begins the member that makes a line an event. In a string its quotes would
// be escaped.
var eventName = []byte(`"event":"`)

// count takes a line that is in order into the result.
func (v *verifier) count(line Line, l Link) {
	if line.File != v.at.File || line.Number == 1 {
		v.Files++
	}
	v.Lines++
	v.Last, v.at = l, Line{File: line.File, Number: line.Number}
	clear(v.head[copy(v.head[:], line.Text):])
	if bytes.Contains(line.Text, eventName) {
		if e, err := Read(line.Text); err == nil && e.Event != "" {
			v.event(e)
		}
	}
}

func (v *verifier) event(e Entry) {
	switch {
	case e.Event == EventCounted:
		v.Counted += max(0, min(e.Count, math.MaxInt64-v.Counted))
		return
	case e.Event == EventPruned && e.FirstSeq < v.First && e.LastSeq >= v.First-1:
		v.Pruned, v.lacking = true, nil
	}
	v.Events++
	if len(v.ListedEvents) < maxListed {
		v.ListedEvents = append(v.ListedEvents, e)
	}
}

// timeOf gives the time that a line begins with, zero where it does not.
func timeOf(line []byte) time.Time {
	rest, _ := bytes.CutPrefix(line, []byte(`{"time":"`))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return time.Time{}
	}
	return t
}

// end looks at what is known when all lines have been read.
func (v *verifier) end() (Result, error) {
	v.To = timeOf(v.head[:])
	since := v.known.Since.Seq
	switch {
	case v.lacking != nil:
		return v.Result, v.lacking
	case since == 0:
	case v.Lines == 0:
		return v.Result, v.fault(Line{File: v.r.path}, 0, "anchor", "there is no line, and the anchor's is seq %d: the end was cut off", since)
	case v.Last.Seq < since:
		return v.Result, v.fault(v.at, v.Last.Seq, "anchor", "this is the last line, and the anchor's is seq %d: the end was cut off", since)
	}
	return v.Result, nil
}
