package pace

import "time"

const (
	slowAnswer = time.Second      // answers that take longer on average slow a host down
	maxSpacing = 30 * time.Second // however long they take
	slowFor    = 10 * time.Minute // without an answer, and the host counts as quick again
	slowWeight = 4                // one answer moves the average by a fourth of the difference
)

// slowness is how long a host takes to answer, on a moving average. The zero
// value knows of no answer.
type slowness struct {
	average time.Duration
	at      time.Time // the last answer; zero: none
}

// note counts an answer that took so long. One that is an error may come quickly
// because the host is in trouble: it never lowers the average.
func (s *slowness) note(took time.Duration, fine bool, now time.Time) {
	switch {
	case s.forgotten(now):
		s.average = took
	case fine || took > s.average:
		s.average += (took - s.average) / slowWeight
	}
	s.at = now
}

// spacing is the least time between two requests that keeps one at a time under
// way on average; zero: the answers are not slow.
func (s *slowness) spacing(now time.Time) time.Duration {
	if s.average < slowAnswer || s.forgotten(now) {
		return 0
	}
	return min(s.average, maxSpacing)
}

func (s *slowness) forgotten(now time.Time) bool { return s.at.IsZero() || now.Sub(s.at) >= slowFor }
