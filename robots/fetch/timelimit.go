package fetch

import "time"

// A timeLimit calls a function when its time has passed. While it is stopped, no time passes.
// Only one goroutine at a time may use it.
type timeLimit struct {
	timer *time.Timer

	// left is the time that was left at the last start.
	left time.Duration

	// since is when the last start was.
	since time.Time
}

// newTimeLimit makes a timeLimit and starts it.
func newTimeLimit(left time.Duration, over func()) *timeLimit {
	return &timeLimit{timer: time.AfterFunc(left, over), left: left, since: time.Now()}
}

func (l *timeLimit) stop() {
	if l.timer.Stop() {
		l.left -= time.Since(l.since)
	}
}

// start starts the limit again, unless its time had passed before stop.
func (l *timeLimit) start() {
	if l.left > 0 {
		l.since = time.Now()
		l.timer.Reset(l.left)
	}
}
