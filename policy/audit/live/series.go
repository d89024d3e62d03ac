package live

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Span is how far back a Series reaches, and its step.
type Span uint8

// The spans there are.
const (
	Hour Span = iota // in steps of 5 s
	Day              // in steps of 2 min
)

// steps are so many in every span.
const steps = 720

var stepOf = [...]time.Duration{Hour: 5 * time.Second, Day: 2 * time.Minute}

// A Series is what has happened in each step, the oldest first; the last step is not
// over yet.
type Series struct {
	Start            time.Time // of the first step, which is a multiple of Step
	Step             time.Duration
	Allowed, Blocked []int64 // requests
	Waiting          []int64 // that waited, looked at every five seconds; of a longer step the most
}

// counts are those of all spans.
type counts struct {
	allowed, blocked atomic.Int64 // since the last settle

	mu    sync.Mutex // guards spans
	spans [len(stepOf)]span
}

// A span is the steps that are over, and the one that is not.
type span struct {
	step  time.Duration
	start time.Time // of the one that is not over
	now   bucket
	past  [steps - 1]bucket
	n     int // steps that have ever been over
}

type bucket struct{ allowed, blocked, waiting int64 }

func (c *counts) begin(now time.Time) {
	for i := range c.spans {
		c.spans[i].step = stepOf[i]
		c.spans[i].start = now.Truncate(stepOf[i])
	}
}

func (c *counts) count(blocked bool) {
	if blocked {
		c.blocked.Add(1)
	} else {
		c.allowed.Add(1)
	}
}

// settle puts what has been counted into the steps that now is in, and how many wait.
// The caller holds c.mu.
func (c *counts) settle(now time.Time, waiting int) {
	b := bucket{c.allowed.Swap(0), c.blocked.Swap(0), int64(waiting)}
	for i := range c.spans {
		s := &c.spans[i]
		s.now.allowed += b.allowed // of the step that was, where it has just ended: it is nearer
		s.now.blocked += b.blocked
		s.now.waiting = max(s.now.waiting, b.waiting)
		s.advance(now)
	}
}

// advance ends the steps that are over. Where the clock was set back the present one goes on.
func (s *span) advance(now time.Time) {
	if ahead := now.Sub(s.start); ahead > steps*s.step { // the machine slept
		s.start, s.now, s.n = now.Truncate(s.step), bucket{}, 0
		return
	}
	for !now.Before(s.start.Add(s.step)) {
		s.past[s.n%len(s.past)] = s.now
		s.n++
		s.start, s.now = s.start.Add(s.step), bucket{}
	}
}

func (c *counts) series(which Span, now time.Time, waiting int) Series {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(now, waiting)
	s := &c.spans[min(int(which), len(c.spans)-1)]
	kept := min(s.n, len(s.past))
	out := Series{Start: s.start.Add(-time.Duration(kept) * s.step), Step: s.step}
	add := func(b bucket) {
		out.Allowed = append(out.Allowed, b.allowed)
		out.Blocked = append(out.Blocked, b.blocked)
		out.Waiting = append(out.Waiting, b.waiting)
	}
	for i := s.n - kept; i < s.n; i++ {
		add(s.past[i%len(s.past)])
	}
	add(s.now)
	return out
}
