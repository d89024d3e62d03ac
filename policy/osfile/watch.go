package osfile

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// MaxWrite is how long a write, or another short operation on files, may take before it counts as failed.
	MaxWrite = 2 * time.Second
	// MaxSync is how long a wait for the disk may take, which a busy disk makes long.
	MaxSync = 10 * time.Second
)

// ErrHangs is the error while an operation on files does not return, as on a frozen file system, or on a
// network file system whose server is gone. Nothing can end such an operation before the system does.
var ErrHangs = errors.New("the disk does not respond")

var errPanic = errors.New("an operation on the disk failed with an internal error")

// A Watch knows the operations on files that are in progress, and how long each may take. The zero Watch is ready to
// use. Any number of goroutines may share it.
type Watch struct {
	// mu guards running.
	mu      sync.Mutex
	running []*Operation
}

// An Operation is in progress.
type Operation struct {
	of    *Watch
	began time.Time
	limit time.Duration
}

// Begin begins an operation that may take as long as limit. The caller ends it.
func (w *Watch) Begin(limit time.Duration) *Operation {
	o := &Operation{w, time.Now(), limit}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = append(w.running, o)
	return o
}

// End ends the operation.
func (o *Operation) End() {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.of.running = slices.DeleteFunc(o.of.running, func(r *Operation) bool { return r == o })
}

// Do calls op, and returns its error. If op takes longer than limit, Do returns an error that wraps ErrHangs, and op
// goes on in its goroutine until the system lets it return. While an operation hangs, Do returns w.Err() at once and
// does not call op, so that stuck goroutines cannot pile up. A panic of op becomes its error.
func (w *Watch) Do(limit time.Duration, op func() error) error {
	if err := w.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		running := w.Begin(limit)
		err := errPanic
		defer func() {
			if fault := recover(); fault != nil {
				err = fmt.Errorf("%w: %v", err, fault)
			}
			running.End()
			done <- err
		}()
		err = op()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return hangs(limit)
	}
}

// Err returns an error that wraps ErrHangs while an operation takes longer than its limit.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.running {
		if took := time.Since(o.began); took >= o.limit {
			return hangs(took)
		}
	}
	return nil
}

func hangs(d time.Duration) error { return fmt.Errorf("%w for %s", ErrHangs, d.Truncate(time.Second)) }

// A Mutex is a lock under which operations on files are made. Those who wait for it give up when an operation hangs.
// Make one with make(Mutex, 1).
type Mutex chan struct{}

// Lock locks m. If an operation of w hangs meanwhile, Lock returns w.Err() instead.
func (m Mutex) Lock(w *Watch) error {
	if m.TryLock() {
		return nil
	}
	tick := time.NewTicker(MaxWrite / 8)
	defer tick.Stop()
	for {
		select {
		case m <- struct{}{}:
			return nil
		case <-tick.C:
			if err := w.Err(); err != nil {
				return err
			}
		}
	}
}

// TryLock locks m if it is unlocked, and reports whether it was.
func (m Mutex) TryLock() bool {
	select {
	case m <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock unlocks m.
func (m Mutex) Unlock() { <-m }
