package proxy

import (
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

// An underway has the requests that were sent, and leaves a line in the audit for those that do not end soon. A crash
// would otherwise leave no trace of them.
type underway struct {
	write func(...*audit.Begun) error

	mu          sync.Mutex   // guards what follows, and the links of all sentRequests
	first, last *sentRequest // those without a line, in the order in which they were sent
	timer       *time.Timer  // for the first; nil: none was sent yet
}

// A sentRequest is the place of a request in an underway. The goroutine that serves the request calls its methods.
type sentRequest struct {
	at     time.Time // when it was sent; zero: it was not, or it has ended
	inTime bool      // see awaitLine
	line   audit.Begun

	before, after *sentRequest
	waits         bool          // it is among those without a line
	written       chan struct{} // closed when the line is written; nil: nobody waits for that, and it is not being written
	err           error         // why it could not be written
}

// add adds a request that was sent. If inTime is set, awaitLine may be called.
func (u *underway) add(s *sentRequest, r *audit.Record, inTime bool) {
	if !s.at.IsZero() {
		return // it is sent once more
	}
	s.at, s.inTime, s.line = time.Now(), inTime, r.Begun()
	if inTime {
		s.written = make(chan struct{})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	s.waits, s.before = true, u.last
	if u.last != nil {
		u.last.after = s
	} else {
		u.first = s
		u.wake()
	}
	u.last = s
}

// wake sets the timer for the first request. The caller holds u.mu.
func (u *underway) wake() {
	if wait := time.Until(u.first.at.Add(begunAfter)); u.timer == nil {
		u.timer = time.AfterFunc(wait, u.writeDue)
	} else {
		u.timer.Reset(wait)
	}
}

// unlink takes s out of the requests without a line. The caller holds u.mu.
func (u *underway) unlink(s *sentRequest) {
	if s.before != nil {
		s.before.after = s.after
	} else {
		u.first = s.after
	}
	if s.after != nil {
		s.after.before = s.before
	} else {
		u.last = s.before
	}
	s.before, s.after, s.waits = nil, nil, false
}

// writeDue writes the lines that are due.
func (u *underway) writeDue() {
	u.mu.Lock()
	var due []*sentRequest
	var lines []*audit.Begun
	for now := time.Now(); u.first != nil && now.Sub(u.first.at) >= begunAfter; {
		s := u.first
		u.unlink(s)
		if s.written == nil {
			s.written = make(chan struct{})
		}
		due, lines = append(due, s), append(lines, &s.line)
	}
	u.mu.Unlock()
	if len(due) > 0 {
		err := u.write(lines...)
		for _, s := range due {
			s.err = err
			close(s.written)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.first != nil {
		u.wake()
	}
}

// writeNow writes the line of a request at once.
func (u *underway) writeNow(s *sentRequest) error {
	if !u.end(s) {
		return s.err
	}
	return u.write(&s.line)
}

// end takes out a request, before its record is written. It waits for the line if that is being written, so that the
// record follows the line. It reports whether there is no line.
func (u *underway) end(s *sentRequest) bool {
	if s.at.IsZero() {
		return false
	}
	s.at, s.inTime = time.Time{}, false
	u.mu.Lock()
	waits := s.waits
	if waits {
		u.unlink(s)
	}
	u.mu.Unlock()
	if !waits {
		select {
		case <-s.written:
		case <-time.After(lastWait): // the disk hangs; the line has its place
		}
	}
	return waits
}

// awaitLine waits until the disk has the line of a request that was sent begunWithin ago, and returns an error if it could
// not be written.
func (s *sentRequest) awaitLine() error {
	if !s.inTime || time.Since(s.at) < begunWithin {
		return nil
	}
	<-s.written
	return s.err
}
