package trail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// maxListed bounds Result.ListedEvents.
const maxListed = 100

// A Result describes a trail up to its first fault.
type Result struct {
	// Files is the number of segments that have a line, and Lines that of their lines.
	Files, Lines int

	// First is the seq of the first line; above 1: earlier segments were removed.
	First uint64

	// Last is the Link of the last line.
	Last Link

	// From and To are the times of the first and the last line.
	From, To time.Time

	// Erased is the number of values that were replaced by their commitments, see Hide.
	Erased int

	// Counted is the number of refusals that were counted instead of recorded, by the events that say so.
	Counted int64

	// Events is the number of other events, and ListedEvents are the first of them.
	Events       int
	ListedEvents []Entry

	// Removed reports that segments were removed during the reading, and the Result is of the lines after them.
	Removed bool

	// Pruned reports that an event says that the writer removed the lines before the first one.
	Pruned bool
}

// VerifyOptions are requirements that Verify adds to those of the chain, and a receiver of its
// lines. The zero value adds none.
type VerifyOptions struct {
	// From is the seq of a line that must be there, and before which lines are not judged; 0: see Verify.
	From uint64

	// Since is the anchor of a line that must be there, or that the first line must follow; zero: there is none.
	Since Anchor

	// Each is called for each correct line, valid until it returns; nil: nothing is called.
	Each func(line []byte, l Link)
}

// Anchor returns the Anchor of the last line, or the zero Anchor if there is no line.
func (r *Result) Anchor() Anchor { return r.Last.Anchor() }

// ChainLimit says what a chain does not prove by itself.
const ChainLimit = "Without a checkpoint or an anchor, two things cannot be detected: " +
	"lines cut off the end, and lines changed together with all later hashes."

// A Fault is a place where a trail is not as it was written.
type Fault struct {
	File string `json:"file,omitempty"`

	// Line is the number of the line in the file; 0: unknown.
	Line int `json:"line,omitempty"`

	// Seq is what the line states or what was expected; 0: unknown.
	Seq uint64 `json:"seq,omitempty"`

	// Kind is changed, missing, reordered, repeated, torn, foreign (no line of a trail), anew (another chain begins), unlinked
	// (prev is not the hash of the line before) or anchor (the trail does not fit the anchor).
	Kind string `json:"kind"`

	// Detail is a sentence.
	Detail string `json:"detail"`
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

// Verify reads a trail from the position of r to the end of the segment that is active when
// Verify is called. It compares each line with its hash and with the line before it, and the
// trail with the options. Lines that are gone from the beginning are missing, unless an event
// says that the writer removed them, or the first line is of an earlier version, which wrote no
// such events. An [EventChanged] is a fault, since the chain of a trail that was written anew has
// none. The error is a [*Fault] for the first fault, after which Verify reads only as
// much as it needs to describe it, or an error of reading.
func Verify(r *Reader, o VerifyOptions) (Result, error) {
	v := verifier{r: r, opts: o}
	defer v.ahead.wait()
	return v.verify()
}

// VerifyEach is Verify with the zero VerifyOptions. It calls each for every line, also for
// lines after the fault, and with ErrTorn or ErrTooLong for a line that cannot be read. The
// error is of reading.
func VerifyEach(r *Reader, each func(Line, error)) (res Result, fault *Fault, err error) {
	v := verifier{r: r, each: each}
	defer v.ahead.wait()
	res, err = v.verify()
	if fault, _ = errors.AsType[*Fault](err); fault == nil {
		return res, nil, err
	}
	if _, err = v.find(noLine); err == io.EOF {
		err = nil
	}
	return res, fault, err
}

// noLine is a seq that no line has.
const noLine = 0

// A verifier verifies one trail.
type verifier struct {
	Result
	r     *Reader
	ahead readAhead
	opts  VerifyOptions

	// each is called for each line; nil: nothing is called.
	each func(Line, error)

	// missingStart says that lines are missing at the beginning; nil: none are, or an event says that the writer removed them.
	missingStart *Fault

	// lastPlace is the place of the last line, without its text, and lastHead has its first bytes.
	lastPlace Line
	lastHead  [64]byte
}

// read returns the next line, and calls v.each. Before the first line is checked, nothing is read ahead: where the Reader is counts.
func (v *verifier) read() (*aheadLine, Line, error) {
	l, line, err := v.ahead.read(v.r, v.Lines > 0)
	if v.each != nil && (err == nil || errors.Is(err, ErrTorn) || errors.Is(err, ErrTooLong)) {
		v.each(line, err)
	}
	return l, line, err
}

func (v *verifier) verify() (Result, error) {
	if err := v.r.bound(); err != nil {
		return Result{}, err
	}
	return v.lines()
}

// lines reads and checks lines up to the end of the bounded reading.
func (v *verifier) lines() (Result, error) {
	for {
		l, line, err := v.read()
		switch {
		case err == io.EOF:
			return v.end()
		case v.isEarlier(line, err):
			continue
		case errors.Is(err, ErrRemoved):
			v.Result, v.missingStart = Result{Removed: true}, nil
			continue
		case errors.Is(err, ErrTorn):
			return v.Result, v.fault(line, 0, "torn",
				"the line is incomplete, as after a crash: the proxy moves it to another file when it starts")
		case errors.Is(err, ErrTooLong):
			return v.Result, v.fault(line, 0, "foreign", "not a line of the audit: %v", err)
		case err != nil:
			return v.Result, err
		}
		if err := v.line(l); err != nil {
			return v.Result, err
		}
	}
}

// isEarlier reports whether a line comes before the line opts.From.
func (v *verifier) isEarlier(line Line, err error) bool {
	if v.Lines > 0 || v.opts.From == 0 || err != nil && !errors.Is(err, ErrTorn) && !errors.Is(err, ErrTooLong) {
		return false
	}
	l, _, _, ok := splitLink(line.Text)
	return !ok || l.Seq < v.opts.From
}

// fault returns a Fault of a line. If seq is 0, since the line states none, the Fault has the expected seq.
func (v *verifier) fault(line Line, seq uint64, kind, detail string, args ...any) *Fault {
	if seq == 0 && v.Lines > 0 {
		seq = v.Last.Seq + 1
	}
	return &Fault{File: line.File, Line: line.Number, Seq: seq, Kind: kind, Detail: fmt.Sprintf(detail, args...)}
}

// line checks a line against the chain.
func (v *verifier) line(read *aheadLine) error {
	line := read.Line
	l, erased, err := read.readLink()
	if errors.Is(err, ErrChanged) {
		return v.fault(line, l.Seq, "changed", "the hash does not match the bytes of the line")
	}
	if err != nil {
		return v.fault(line, 0, "foreign", "not a line of the audit: it does not end with seq, prev and hash")
	}
	if v.Lines == 0 {
		err = v.first(line, l)
	} else {
		err = v.next(line, l)
	}
	if err != nil {
		return err
	}
	if l.Seq == v.opts.Since.Seq && !v.opts.Since.Matches(l.Hash) {
		return v.fault(line, l.Seq, "anchor", "the line is not the anchor's line: its hash begins with %s", l.Hash.String()[:anchorDigits])
	}
	v.Erased += erased
	return v.count(line, l)
}

// first checks the first line of the trail.
func (v *verifier) first(line Line, l Link) error {
	v.First, v.From = l.Seq, timeOf(line.Text)
	switch begins := v.r.src.FirstSeq; {
	case l.Seq < begins || l.Seq == 1 && l.Prev == Hash{}:
	case l.Seq == 1:
		return v.fault(line, 1, "unlinked", "the first line has the hash of a previous line")
	case begins > 0 && l.Seq > max(begins, v.opts.From):
		return v.fault(line, l.Seq, "missing", "%s before it", seqRange(begins, l.Seq-1))
	}
	entry, err := Read(line.Text)
	if from := max(1, v.opts.From); l.Seq > from && (v.opts.From > 0 || err == nil && entry.Version > 0) {
		// If segments were removed, the event may be in a line that is not read.
		if v.Removed = v.Removed || v.r.oldestRemoved(); !v.Removed {
			v.missingStart = v.fault(line, l.Seq, "missing",
				"%s before it, and no line says that the proxy removed them", seqRange(from, l.Seq-1))
		}
	}
	switch since := v.opts.Since.Seq; {
	case since == 0 || l.Seq <= since:
	case l.Seq > since+1:
		return v.fault(line, l.Seq, "anchor",
			"the audit now begins with this line: between the anchor and this line, %s are missing", seqRange(since+1, l.Seq-1))
	case !v.opts.Since.Matches(l.Prev):
		return v.fault(line, l.Seq, "anchor",
			"the line does not follow the anchor's line: its prev begins with %s", l.Prev.String()[:anchorDigits])
	}
	return nil
}

// next checks whether a line follows the previous one.
func (v *verifier) next(line Line, l Link) error {
	want := v.Last.Seq + 1
	switch {
	case l.Seq == want && l.Prev == v.Last.Hash:
		return nil
	case l.Seq == want:
		return v.fault(line, l.Seq, "unlinked", "prev is not the hash of seq %d, the line before it", v.Last.Seq)
	}
	kind, detail := "reordered", "the line follows seq %d"
	if l.Seq >= v.First {
		kind, detail = "repeated", "the line follows seq %d, but occurred before"
	}
	// This comes before find, which overwrites line.Text.
	noticed := ""
	if e, err := Read(line.Text); err == nil && e.Event == EventCut {
		noticed = ", which the proxy noticed when it started"
	}
	place := v.fault(line, l.Seq, kind, detail, v.Last.Seq)
	later, err := v.find(want)
	found := err == nil
	switch {
	case l.Seq > want && found:
		place.Kind, place.Detail = "reordered", fmt.Sprintf("seq %d belongs here, but is at %s:%d", want, later.File, later.Number)
	case l.Seq > want:
		return v.fault(line, l.Seq, "missing", "%s before it%s", seqRange(want, l.Seq-1), noticed)
	case l.Seq == 1 && l.Prev == Hash{} && !found:
		place.Kind, place.Detail = "anew", fmt.Sprintf("another chain begins after seq %d", v.Last.Seq)
	}
	return place
}

// seqRange describes a range of lines.
func seqRange(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("seq %d (1 line)", from)
	}
	return fmt.Sprintf("seq %d to %d (%d lines)", from, to, to-from+1)
}

// find searches for a line among all that follow. The error is io.EOF if it is not there.
func (v *verifier) find(seq uint64) (Line, error) {
	for {
		l, line, err := v.read()
		switch {
		case errors.Is(err, ErrTorn), errors.Is(err, ErrTooLong), errors.Is(err, ErrRemoved):
			continue
		case err != nil:
			return Line{}, err
		}
		if link, _, err := l.readLink(); err == nil && link.Seq == seq {
			return line, nil
		}
	}
}

// eventName begins the member that makes a line an event. Within a string its quotes would
// be escaped.
var eventName = []byte(`"event":"`)

// count adds a correct line to the result.
func (v *verifier) count(line Line, l Link) error {
	if line.File != v.lastPlace.File || line.Number == 1 {
		v.Files++
	}
	v.Lines++
	if v.opts.Each != nil {
		v.opts.Each(line.Text, l)
	}
	v.Last, v.lastPlace = l, Line{File: line.File, Number: line.Number}
	clear(v.lastHead[copy(v.lastHead[:], line.Text):])
	if !bytes.Contains(line.Text, eventName) {
		return nil
	}
	e, err := Read(line.Text)
	if err != nil || e.Event == "" {
		return nil
	}
	v.event(e)
	if e.Event == EventChanged && v.Lines > 1 {
		return v.fault(line, l.Seq, "changed", "the proxy noticed when it started that seq %d had been changed", e.FirstSeq)
	}
	return nil
}

func (v *verifier) event(e Entry) {
	switch {
	case e.Event == EventCounted:
		v.Counted += max(0, min(e.Count, math.MaxInt64-v.Counted))
		return
	case e.Event == EventPruned && e.FirstSeq < v.First && e.LastSeq >= v.First-1:
		v.Pruned, v.missingStart = true, nil
	}
	v.Events++
	if len(v.ListedEvents) < maxListed {
		v.ListedEvents = append(v.ListedEvents, e)
	}
}

// timeOf returns the time at the beginning of a line, or the zero Time if there is none.
func timeOf(line []byte) time.Time {
	rest, _ := bytes.CutPrefix(line, []byte(`{"time":"`))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return time.Time{}
	}
	return t
}

// end checks the requirements that concern the whole trail.
func (v *verifier) end() (Result, error) {
	v.To = timeOf(v.lastHead[:])
	since := v.opts.Since.Seq
	const cutOff = ": the end was cut off, or another audit is in its place"
	switch {
	case v.missingStart != nil:
		return v.Result, v.missingStart
	case v.Lines == 0 && v.opts.From > 0:
		detail := "the audit has no line with this seq or a later one"
		return v.Result, &Fault{File: v.r.name, Seq: v.opts.From, Kind: "missing", Detail: detail}
	case since == 0:
	case v.Lines == 0:
		return v.Result, v.fault(Line{File: v.r.name}, 0, "anchor", "the audit has no line, but the anchor is seq %d"+cutOff, since)
	case v.Last.Seq < since:
		return v.Result, v.fault(v.lastPlace, v.Last.Seq, "anchor", "this is the last line, but the anchor is seq %d"+cutOff, since)
	}
	return v.Result, nil
}
