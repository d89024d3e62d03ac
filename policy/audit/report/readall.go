package report

import (
	"errors"
	"iter"
	"time"

	"robotsproxy/policy/audit/trail"
)

// A Trail is one of several trails that are summarised together, such as those of replicas.
type Trail struct {
	// Name is that of the active segment in the report, which may have directories.
	Name  string
	Lines *trail.Reader
}

// ReadAll is Read for several trails. It verifies each chain, and adds the lines in the order in
// which the requests ended, as in one trail, so that the last value of a host is the last one in
// time. The error joins those of all trails that could not be read to their end.
func (b *Builder) ReadAll(trails []Trail) error {
	if len(trails) == 1 {
		return b.Read(trails[0].Lines)
	}
	b.sources = make([]*source, len(trails))
	cursors := make([]*cursor, len(trails))
	for i, t := range trails {
		b.sources[i] = newSource(t.Name)
		cursors[i] = newCursor(b.sources[i], t.Lines)
		defer cursors[i].stop()
	}
	for first := range inOrder(cursors) {
		b.addEntry(first.source, first.line.File, &first.entry, first.parseErr)
	}
	var errs []error
	for _, l := range cursors {
		b.setVerification(l.source, &l.verdict)
		errs = append(errs, l.verdict.err)
	}
	return errors.Join(errs...)
}

// A cursor reads a trail line by line.
type cursor struct {
	source *source

	// verdict is valid when there are no more lines.
	verdict verification
	next    func() (trail.Line, error, bool)
	stop    func()

	line  trail.Line
	entry trail.Entry

	// parseErr is why the line cannot be read or parsed.
	parseErr error

	// at is about when the line was written, and never before the line before it.
	at time.Time

	// more reports that there is a line.
	more bool
}

func newCursor(s *source, r *trail.Reader) *cursor {
	l := &cursor{source: s}
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
func (c *cursor) advance() {
	var err error
	if c.line, err, c.more = c.next(); !c.more {
		return
	}
	c.entry = trail.Entry{}
	if c.parseErr = err; err == nil {
		c.entry, c.parseErr = trail.Read(c.line.Text)
	}
	if end := c.entry.End(); end.After(c.at) {
		c.at = end
	}
}

// inOrder yields the cursor whose line was written first, until there are no more lines.
func inOrder(cursors []*cursor) iter.Seq[*cursor] {
	return func(yield func(*cursor) bool) {
		for {
			var first *cursor
			for _, l := range cursors {
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
