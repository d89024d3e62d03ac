package pace

import "time"

// wallTime converts a monotonic time of this process to the current wall clock, which may have been set in the
// meantime.
func wallTime(t, now time.Time) time.Time { return now.Round(0).Add(t.Sub(now)).UTC() }

// localTime converts a wall-clock time to this process's monotonic clock and limits it to most. A zero time stays
// zero.
func localTime(t, now, most time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = now.Add(t.Sub(now)); t.After(most) {
		return most
	}
	return t
}
