package audit

import (
	"testing"
	"time"
)

// TestSettledClock: a wall clock that is wrong for some hours, or that was set, is not followed before
// it has shown later times only for settleTime.
func TestSettledClock(t *testing.T) {
	var clock SettledClock
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const jump = 2 * 365 * day
	for _, c := range []struct {
		uptime, wrong time.Duration // how long the process has run, and how far the wall clock is ahead
		want          time.Duration // from start; negative: there is no time yet
	}{
		{0, 0, -1},
		{settleTime - 1, 0, -1},
		{settleTime, 0, 0},
		{settleTime + time.Hour, jump, 0},
		{2 * settleTime, jump, settleTime},
		{2*settleTime + time.Hour, -time.Hour, settleTime},
		{3 * settleTime, 0, settleTime * 2},
		{3*settleTime + 1, jump, settleTime * 2},
		{4 * settleTime, jump, 3 * settleTime},
		{5 * settleTime, jump, 4*settleTime + jump}, // as a clock that was behind and was set
	} {
		got := clock.at(start.Add(c.uptime+c.wrong), start.Add(c.uptime))
		if c.want < 0 && !got.IsZero() || c.want >= 0 && !got.Equal(start.Add(c.want)) {
			t.Errorf("after %v, %v ahead: %v", c.uptime, c.wrong, got.Sub(start))
		}
	}
}
