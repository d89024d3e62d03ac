package live

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Span is the length of a Series, and of its steps.
type Span uint8

// The spans of a Series.
const (
	Hour        Span = iota // in steps of 5 s
	Day                     // in steps of 2 min
	QuarterHour             // the end of Hour
)

// steps is the number of steps in Hour and in Day.
const steps = 720

// quarterSteps is the number of steps of Hour in a quarter of an hour.
const quarterSteps = steps / 4

var stepOf = [...]time.Duration{Hour: 5 * time.Second, Day: 2 * time.Minute}

// A Series has counts for each step, the oldest first. The last step has not ended.
type Series struct {
	// Start is that of the first step, a multiple of Step.
	Start time.Time
	Step  time.Duration

	// Counts are those of the requests of each step.
	Counts []Counts

	// Waiting is how many requests waited, sampled every five seconds; in longer steps, the maximum.
	Waiting []int64
}

// counts has the counts of all spans.
type counts struct {
	// pending is the number of requests since the last addPending, by Class.
	pending [classes]atomic.Int64

	// mu guards spans.
	mu    sync.Mutex
	spans [len(stepOf)]spanSteps
}

// spanSteps has the ended steps of a span, and the current one.
type spanSteps struct {
	step time.Duration

	// start is that of the current step.
	start   time.Time
	current step
	past    [steps - 1]step

	// ended is the number of steps that have ended so far.
	ended int
}

type step struct {
	counts  Counts
	waiting int64
}

func (c *counts) init(now time.Time) {
	for i := range c.spans {
		c.spans[i].step = stepOf[i]
		c.spans[i].start = now.Truncate(stepOf[i])
	}
}

func (c *counts) count(class Class) { c.pending[class].Add(1) }

// addPending adds the pending counts, and the number of waiting requests, to the current steps.
// The caller holds c.mu.
func (c *counts) addPending(now time.Time, waiting int) {
	var more Counts
	for i := range more {
		more[i] = c.pending[i].Swap(0)
	}
	for i := range c.spans {
		s := &c.spans[i]
		// This counts in the step that was current, even if it has just ended.
		s.current.counts.Add(&more)
		s.current.waiting = max(s.current.waiting, int64(waiting))
		s.advance(now)
	}
}

// advance ends the steps before now. If the clock was set back, the current step continues.
func (s *spanSteps) advance(now time.Time) {
	// The machine may have been suspended.
	if ahead := now.Sub(s.start); ahead > steps*s.step {
		s.start, s.current, s.ended = now.Truncate(s.step), step{}, 0
		return
	}
	for !now.Before(s.start.Add(s.step)) {
		s.past[s.ended%len(s.past)] = s.current
		s.ended++
		s.start, s.current = s.start.Add(s.step), step{}
	}
}

func (c *counts) series(which Span, now time.Time, waiting int) Series {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addPending(now, waiting)
	s, most := &c.spans[Hour], len(c.spans[Hour].past)
	switch which {
	case Day:
		s = &c.spans[Day]
	case QuarterHour:
		most = quarterSteps - 1
	}
	kept := min(s.ended, most)
	out := Series{Start: s.start.Add(-time.Duration(kept) * s.step), Step: s.step}
	add := func(b step) {
		out.Counts = append(out.Counts, b.counts)
		out.Waiting = append(out.Waiting, b.waiting)
	}
	for i := s.ended - kept; i < s.ended; i++ {
		add(s.past[i%len(s.past)])
	}
	add(s.current)
	return out
}
