package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// errSilent ends a transfer without progress for too long.
	errSilent = errors.New("no data for too long")

	// errTooSlow ends a transfer that keeps other clients waiting, see [pace.Transfer].
	errTooSlow = errors.New("the transfer was too slow while others waited for the host")
)

// A watch ends a transfer without progress for longer than its limit, after at most twice
// that time. Each read and write increases moves, which is cheap. The alarm checks
// whether moves has changed.
type watch struct {
	limit  time.Duration
	pool   *sync.Pool // of stopped alarms; nil: none
	moves  atomic.Uint64
	ended  atomic.Bool // the watch has ended the transfer
	slow   atomic.Bool // the transfer was too slow; false: nothing moved
	paused atomic.Bool // the transfer waits for its turn, so nothing moves
	alarm  atomic.Pointer[alarm]
}

// An alarm is the timer of a watch. It is a separate struct because the runtime may keep a
// stopped timer until its time: a stopped alarm must not keep the request in memory.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer
	watch *watch // nil: none
	seen  uint64
	what  transfer
}

// A transfer is something that a watch can end.
type transfer interface {
	abandon() // called at most once; must not wait
}

// begin starts the watch of a transfer, until stop.
func (w *watch) begin(what transfer) {
	var a *alarm
	if w.pool != nil {
		a, _ = w.pool.Get().(*alarm)
	}
	if a == nil {
		a = new(alarm)
	}
	w.alarm.Store(a)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch, a.what, a.seen = w, what, w.moves.Load()
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
	now := a.watch.moves.Load()
	if now != a.seen || a.watch.paused.Load() {
		a.seen = now
		a.timer.Reset(a.watch.limit)
		return
	}
	a.end()
}

// endSlow ends the transfer because it is too slow, unless it is no longer watched.
func (w *watch) endSlow() {
	a := w.alarm.Load()
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watch == w {
		w.slow.Store(true)
		a.end()
	}
}

// end ends the transfer. The caller holds a.mu.
func (a *alarm) end() {
	a.watch.ended.Store(true)
	a.what.abandon()
	a.watch, a.what = nil, nil
}

// cause returns why the watch has ended the transfer.
func (w *watch) cause() error {
	if w.slow.Load() {
		return errTooSlow
	}
	return errSilent
}

// stop ends the watch. The transfer is not abandoned after that.
func (w *watch) stop() {
	a := w.alarm.Swap(nil)
	if a == nil {
		return // stopped already
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch, a.what = nil, nil
	if a.timer.Stop() && w.pool != nil { // otherwise check may be about to run
		w.pool.Put(a)
	}
}

// moved records progress.
func (w *watch) moved() { w.moves.Add(1) }
