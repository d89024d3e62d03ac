package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"robotsproxy/policy/audit"
)

const (
	// begunAfter is how long after it was sent a request that has not ended leaves a line in the audit. With
	// RecordFirst the disk has the line within begunWithin, or no more of the response is passed on.
	begunAfter  = 900 * time.Millisecond
	begunWithin = time.Second
)

var errLineHangs = fmt.Errorf("%w: the line about the request is still being written", audit.ErrUnwritable)

// sentRequests are the requests that were sent and have not ended. A line in the audit (audit.Begun) is written for each
// that lasts longer than begunAfter, so that a crash leaves a trace of it. Any number of goroutines may share it.
type sentRequests struct {
	write func(...*audit.Begun) error

	// mu guards what follows, and the links of all sentRequests.
	mu sync.Mutex

	// first and last are the ends of the list of those without a line, in the order in which they were sent.
	first, last *sentRequest

	// timer runs for the first; nil: none was sent yet.
	timer *time.Timer
}

// A sentRequest is one request in sentRequests. Only the goroutine that serves the request passes it to the methods.
type sentRequest struct {
	// at is when it was sent; zero: it was not, or it has ended. It is written under sentRequests.mu.
	at time.Time

	// inTime says that await waits for the line.
	inTime bool
	line   audit.Begun

	before, after *sentRequest

	// linked says that it is in the list, because it has no line yet.
	linked bool

	// written is closed when the line is written; nil: nobody waits for that, and it is not being written.
	written chan struct{}

	// err is why the line could not be written.
	err error
}

// add adds a request that was sent. If inTime is set, await waits for its line.
func (r *sentRequests) add(s *sentRequest, rec *audit.Record, inTime bool) {
	if !s.at.IsZero() {
		// The request is sent once more.
		return
	}
	s.inTime, s.line = inTime, rec.Begun()
	if inTime {
		s.written = make(chan struct{})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.at, s.linked, s.before = time.Now(), true, r.last
	if r.last != nil {
		r.last.after = s
	} else {
		r.first = s
		r.wake()
	}
	r.last = s
}

// wake sets the timer for the first request. The caller holds r.mu.
func (r *sentRequests) wake() {
	if wait := time.Until(r.first.at.Add(begunAfter)); r.timer == nil {
		r.timer = time.AfterFunc(wait, r.writeDue)
	} else {
		r.timer.Reset(wait)
	}
}

// unlink takes s out of the requests without a line. The caller holds r.mu.
func (r *sentRequests) unlink(s *sentRequest) {
	if s.before != nil {
		s.before.after = s.after
	} else {
		r.first = s.after
	}
	if s.after != nil {
		s.after.before = s.before
	} else {
		r.last = s.before
	}
	s.before, s.after, s.linked = nil, nil, false
}

// writeDue writes the lines that are due.
func (r *sentRequests) writeDue() {
	r.mu.Lock()
	var due []*sentRequest
	var lines []*audit.Begun
	for now := time.Now(); r.first != nil && now.Sub(r.first.at) >= begunAfter; {
		s := r.first
		r.unlink(s)
		if s.written == nil {
			s.written = make(chan struct{})
		}
		due, lines = append(due, s), append(lines, &s.line)
	}
	r.mu.Unlock()
	if len(due) > 0 {
		err := r.write(lines...)
		for _, s := range due {
			s.err = err
			close(s.written)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first != nil {
		r.wake()
	}
}

// writeNow writes the line of a request at once. Its error says why the line is not in the audit.
func (r *sentRequests) writeNow(s *sentRequest) error {
	if noLine, err := r.end(s); !noLine {
		return err
	}
	return r.write(&s.line)
}

// end takes a request out, before its record is written. If its line is being written, end waits for it, for at most
// lastWait. It reports whether the request has no line yet, or returns why the line could not be written.
func (r *sentRequests) end(s *sentRequest) (noLine bool, err error) {
	if s.at.IsZero() {
		return false, nil
	}
	r.mu.Lock()
	linked, written := s.linked, s.written
	s.at, s.inTime = time.Time{}, false
	if linked {
		r.unlink(s)
	}
	r.mu.Unlock()
	if linked {
		return true, nil
	}
	select {
	case <-written:
		return false, s.err
	// The record still follows the line, which has its number already.
	case <-time.After(lastWait):
		return false, errLineHangs
	}
}

// await waits until the disk has the line of a request that was sent begunWithin ago, and returns an error if it could
// not be written, if ctx ends, or after lastWait.
func (s *sentRequest) await(ctx context.Context) error {
	if !s.inTime || time.Since(s.at) < begunWithin {
		return nil
	}
	select {
	case <-s.written:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lastWait):
		return errLineHangs
	}
}
