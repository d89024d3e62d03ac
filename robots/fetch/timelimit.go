package fetch

import "time"

// A timeLimit calls a function when its time is over. It can be stopped, and goes on
// from there when it is started again. It is in one goroutine's hands at a time.
type timeLimit struct {
	timer *time.Timer
	left  time.Duration // when it was started
	since time.Time     // it was started
}

// newTimeLimit makes one that is started.
func newTimeLimit(left time.Duration, over func()) *timeLimit {
	return &timeLimit{timer: time.AfterFunc(left, over), left: left, since: time.Now()}
}

func (l *timeLimit) stop() {
	if l.timer.Stop() {
		l.left -= time.Since(l.since)
	}
}

// start goes on, unless the time was over before stop.
func (l *timeLimit) start() {
	if l.left > 0 {
		l.since = time.Now()
		l.timer.Reset(l.left)
	}
}
