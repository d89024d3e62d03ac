package proxy

import (
	"errors"
	"sync"
	"time"
)

var (
	// errSilent ends a transfer without progress for too long.
	errSilent = errors.New("no data for too long")

	// errTooSlow ends a transfer that keeps other clients waiting, see [pace.Transfer].
	errTooSlow = errors.New("the transfer was too slow while others waited for the host")
)

// lastWait is how long the proxy waits for requests whose connections it has closed or will close.
const lastWait = 5 * time.Second

// A watch ends a transfer without progress for longer than its limit, after at most twice
// that time.
type watch struct {
	limit time.Duration

	// pool has stopped alarms; nil: there is none.
	pool *sync.Pool

	// mu guards the fields below. It may be locked while an alarm's is.
	mu sync.Mutex

	// moves is the number of reads and writes so far.
	moves uint64

	// ended is why the watch has ended the transfer: errSilent or errTooSlow; nil: it has not.
	ended error

	// paused says that the transfer waits for its turn, so that nothing moves.
	paused bool

	// alarm is nil if the transfer is not watched.
	alarm *alarm
}

// An alarm is the timer of a watch. It is a separate struct because the runtime may keep a
// stopped timer until its time: a stopped alarm must not keep the request in memory.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer

	// watch is that which the alarm serves; nil: it serves none.
	watch *watch
	seen  uint64
	what  watched
}

// A watched is something that a watch can end.
type watched interface {
	// abandon ends it. It is called at most once, and must not wait.
	abandon()
}

// begin starts the watch of a transfer, until stop.
func (w *watch) begin(what watched) {
	var a *alarm
	if w.pool != nil {
		a, _ = w.pool.Get().(*alarm)
	}
	if a == nil {
		a = new(alarm)
	}
	w.mu.Lock()
	w.alarm = a
	moves := w.moves
	w.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch, a.what, a.seen = w, what, moves
	if a.timer == nil {
		a.timer = time.AfterFunc(w.limit, a.check)
	} else {
		a.timer.Reset(w.limit)
	}
}

func (a *alarm) check() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watch == nil {
		return
	}
	a.watch.mu.Lock()
	now, paused := a.watch.moves, a.watch.paused
	a.watch.mu.Unlock()
	if now != a.seen || paused {
		a.seen = now
		a.timer.Reset(a.watch.limit)
		return
	}
	a.end(errSilent)
}

// endSlow ends the transfer because it is too slow, unless it is no longer watched.
func (w *watch) endSlow() {
	w.mu.Lock()
	a := w.alarm
	w.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watch == w {
		a.end(errTooSlow)
	}
}

// end ends the transfer for err. The caller holds a.mu.
func (a *alarm) end(err error) {
	a.watch.setEnded(err)
	a.what.abandon()
	a.watch, a.what = nil, nil
}

// setEnded notes why the watch has ended the transfer; nil: it counts as not ended.
func (w *watch) setEnded(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = err
}

// err returns why the watch has ended the transfer; nil: it has not.
func (w *watch) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// stop ends the watch. The transfer is not abandoned after that.
func (w *watch) stop() {
	w.mu.Lock()
	a := w.alarm
	w.alarm = nil
	w.mu.Unlock()
	if a == nil {
		// The watch was stopped before.
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch, a.what = nil, nil
	// If the timer could not be stopped, check may be about to run.
	if a.timer.Stop() && w.pool != nil {
		w.pool.Put(a)
	}
}

// moved records progress.
func (w *watch) moved() {
	w.mu.Lock()
	w.moves++
	w.mu.Unlock()
}

// pause says whether the transfer waits for its turn. The end of a pause counts as progress.
func (w *watch) pause(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = paused
	w.moves++
}
