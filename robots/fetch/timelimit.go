package fetch

import "time"

// A timeLimit calls a function when its time is over. It can be stopped, and keeps the
// time that is left for the next start. Only one goroutine at a time may use it.
type timeLimit struct {
	timer *time.Timer
	left  time.Duration // how much time was left at the last start
	since time.Time     // the last start
}

// newTimeLimit makes a timeLimit, started.
func newTimeLimit(left time.Duration, over func()) *timeLimit {
	return &timeLimit{timer: time.AfterFunc(left, over), left: left, since: time.Now()}
}

func (l *timeLimit) stop() {
	if l.timer.Stop() {
		l.left -= time.Since(l.since)
	}
}

// start starts the limit again, unless its time was over before stop.
func (l *timeLimit) start() {
	if l.left > 0 {
		l.since = time.Now()
		l.timer.Reset(l.left)
	}
}
