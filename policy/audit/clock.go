package audit

import "time"

// settleTime is how long the wall clock must have shown later times than the one that a SettledClock
// returns. It is longer than a night, and shorter than the life of a process that is restarted daily.
const settleTime = 12 * time.Hour

// A SettledClock is a wall clock for deciding what is old enough to be deleted. It disregards a time
// that the wall clock shows only for some hours, for example because a time server was wrong. The zero
// SettledClock is ready for use, by one goroutine.
type SettledClock struct {
	// begun is when the current period of settleTime began; it has a monotonic reading.
	begun time.Time

	// current is the earliest wall time in the current period, and previous that in the one before.
	current, previous time.Time
}

// Now returns the earliest time that the wall clock has shown at a call within the last settleTime or
// more; the zero Time in the first settleTime. Call it at least once an hour.
func (c *SettledClock) Now() time.Time {
	now := time.Now()
	return c.at(now.Round(0), now)
}

// at is Now for a time of the wall clock and one of a clock that is never set.
func (c *SettledClock) at(wall, steady time.Time) time.Time {
	if c.begun.IsZero() || steady.Sub(c.begun) >= settleTime {
		c.begun, c.previous, c.current = steady, c.current, wall
	}
	if wall.Before(c.current) {
		c.current = wall
	}
	if c.previous.Before(c.current) {
		return c.previous
	}
	return c.current
}
