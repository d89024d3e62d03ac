package audit

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"time"

	"robotsproxy/policy/osfile"
)

// setFailure stores whether the file could be written, and returns the error wrapped in
// ErrUnwritable. The caller holds l.io.
func (l *Log) setFailure(err error) error {
	if err == nil {
		if l.failure.Swap(nil) != nil {
			l.rotated.Set()
		}
		return nil
	}
	err = unwritable(err)
	if l.failure.Swap(&err) == nil {
		// What is known of the space may be a minute old.
		l.rotated.Set()
	}
	l.unreported.Store(&err)
	l.counts.failures.Add(1)
	return err
}

func unwritable(err error) error { return fmt.Errorf("%w: %w", ErrUnwritable, err) }

// lastFailure returns the error that setFailure has stored.
func (l *Log) lastFailure() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// writeError returns why the file cannot be written: the last write has failed, or an operation hangs. It notes a hang for
// logStates.
func (l *Log) writeError() error {
	if err := l.lastFailure(); err != nil {
		return err
	}
	if err := l.disk.Err(); err != nil {
		err = unwritable(err)
		l.unreported.Store(&err)
		return err
	}
	return nil
}

// Err returns why the audit cannot be written at present; nil: it can. Health checks report
// it, whatever Options.Continue says.
func (l *Log) Err() error { return cmp.Or(l.writeError(), l.unsaved.err()) }

// Refusal is Err, but nil with Options.Continue.
func (l *Log) Refusal() error {
	if l.options.Load().Continue {
		return nil
	}
	return l.Err()
}

// lock locks l.io for an operation on the file. If an operation on the disk hangs meanwhile, lock returns an error that
// wraps ErrUnwritable and osfile.ErrHangs.
func (l *Log) lock() error {
	if err := l.io.Lock(&l.disk); err != nil {
		return unwritable(err)
	}
	if !l.enter() {
		return unwritable(fs.ErrClosed)
	}
	return nil
}

// tryLock is lock without waiting. It reports whether it has locked l.io.
func (l *Log) tryLock() bool { return l.io.TryLock() && l.enter() }

// enter begins an operation after l.io was locked. If the Log is closed, it unlocks l.io and returns false.
func (l *Log) enter() bool {
	if l.closed {
		l.io.Unlock()
		return false
	}
	l.writer = l.disk.Begin(osfile.MaxWrite)
	return true
}

func (l *Log) unlock() {
	l.writer.End()
	l.io.Unlock()
}

// syncAside waits until the disk has the file. The caller does not hold l.io, so that a slow disk holds up no request.
func (l *Log) syncAside() error {
	defer l.disk.Begin(osfile.MaxSync).End()
	return l.segment.sync()
}

// logStates logs when the audit cannot be written any more, and when it can again, until ctx ends.
func (l *Log) logStates(ctx context.Context) error {
	tick := time.NewTicker(batchDelay)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err, past := l.Err(), l.unreported.Swap(nil)
		if err == nil && past != nil && !failing {
			// The failure came and went since the last tick.
			failing = true
			l.logState(*past)
		}
		if failing != (err != nil) {
			failing = err != nil
			l.logState(err)
		}
	}
}

// logState logs that the audit cannot be written, or, if err is nil, that it can again.
func (l *Log) logState(err error) {
	if err != nil {
		l.opened.Log.Error("audit write failed", "file", l.opened.File, "error", err)
		return
	}
	l.opened.Log.Info("audit written again", "file", l.opened.File)
}
