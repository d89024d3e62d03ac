package report

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"path/filepath"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// A Trail is one of several that are summed up together, as each replica of a fleet
// writes one.
type Trail struct {
	Name  string // how the report calls the file that is written to, which may have directories before it
	Lines *trail.Reader
}

// ReadAll is Read for several trails at once. Each is held against its own chain; their
// lines are added in the order of the times when the requests ended, as lines stand in
// one trail, so that of what several say of a host the last is the last. The error is
// of all that could not be read to their ends.
func (s *Sum) ReadAll(trails []Trail) error {
	if len(trails) == 1 {
		return s.Read(trails[0].Lines)
	}
	s.sources = make([]*source, len(trails))
	lanes := make([]*lane, len(trails))
	for i, t := range trails {
		s.sources[i] = newSource(t.Name)
		lanes[i] = newLane(s.sources[i], t.Lines)
		defer lanes[i].stop()
	}
	for first := range inOrder(lanes) {
		s.take(first.source, first.line.File, &first.entry, first.bad)
	}
	var errs []error
	for _, l := range lanes {
		s.finish(l.source, &l.verdict)
		errs = append(errs, l.verdict.err)
	}
	return errors.Join(errs...)
}

// A verdict is what was found of a trail when it was read to its end.
type verdict struct {
	result trail.Result
	fault  *trail.Fault
	err    error
}

// A lane is a trail that is read line by line, and the line whose turn is next.
type lane struct {
	source  *source
	verdict verdict // good when there is no more line
	next    func() (trail.Line, error, bool)
	stop    func()

	line  trail.Line
	entry trail.Entry
	bad   error     // the line is no record
	at    time.Time // when it was written, as far as it tells; never before the one before it
	more  bool
}

func newLane(s *source, r *trail.Reader) *lane {
	l := &lane{source: s}
	l.next, l.stop = iter.Pull2(func(yield func(trail.Line, error) bool) {
		wanted := true
		l.verdict.result, l.verdict.fault, l.verdict.err = trail.VerifyEach(r, func(line trail.Line, err error) {
			wanted = wanted && yield(line, err)
		})
	})
	l.advance()
	return l
}

// advance reads the next line.
func (l *lane) advance() {
	var err error
	if l.line, err, l.more = l.next(); !l.more {
		return
	}
	l.entry = trail.Entry{}
	if l.bad = err; err == nil {
		l.entry, l.bad = trail.Read(l.line.Text)
	}
	if end := l.entry.End(); end.After(l.at) {
		l.at = end
	}
}

// inOrder gives the lane of the line that was written first, until there is none.
func inOrder(lanes []*lane) iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		for {
			var first *lane
			for _, l := range lanes {
				if l.more && (first == nil || l.at.Before(first.at)) {
					first = l
				}
			}
			if first == nil || !yield(first) {
				return
			}
			first.advance()
		}
	}
}

// finish takes what was found of a trail's chain.
func (s *Sum) finish(of *source, v *verdict) {
	if v.err != nil {
		v.err = fmt.Errorf("the trail could not be read to its end: %w", v.err)
	}
	of.judge(&v.result, v.fault, v.err)
}

// called is what a file of a trail is called: its own name, behind the directories of
// the trail's where it is one of several.
func (s *source) called(file string) string {
	if s.Name == "" {
		return filepath.Base(file)
	}
	return path.Join(path.Dir(filepath.ToSlash(s.Name)), filepath.Base(file))
}

// A strand is one of several trails.
type strand struct {
	Name       string `json:"name"`
	Files      int64  `json:"files"`
	Lines      int64  `json:"lines"`
	Requests   int64  `json:"requests"`
	Fetches    int64  `json:"fetches"`
	Events     int64  `json:"events"`
	Lost       int64  `json:"lost"`
	Counted    int64  `json:"counted"`
	Unreadable int64  `json:"unreadable"`
	Chain      chain  `json:"chain"`
}

// together is what several trails come to: of their chains, whether all held, and the
// first fault of the first that did not.
func together(all []*source) source {
	if len(all) == 1 {
		return all[0].copy()
	}
	sum := source{Files: list[file]{Most: maxFiles, Rows: []file{}}, Chain: chain{Held: true}}
	for _, s := range all {
		files := int64(len(s.Files.Rows)) + s.Files.Others
		sum.Trails = append(sum.Trails, strand{humanize.Clip(s.Name, maxText), files, s.Lines, s.Requests, s.Fetches, s.Events, s.Lost, s.Counted, s.Unreadable, s.Chain})
		for _, f := range s.Files.Rows {
			sum.Files.add(f)
		}
		sum.Files.Others += s.Files.Others
		sum.Lines += s.Lines
		sum.Requests += s.Requests
		sum.Fetches += s.Fetches
		sum.Events += s.Events
		sum.Lost = plus(sum.Lost, s.Lost)
		sum.Counted = plus(sum.Counted, s.Counted)
		sum.Unreadable += s.Unreadable
		sum.Chain.Held = sum.Chain.Held && s.Chain.Held
		sum.Chain.Removed = sum.Chain.Removed || s.Chain.Removed
		if sum.Chain.Fault == nil {
			sum.Chain.Fault = s.Chain.Fault
		}
	}
	return sum
}
