package audit

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run writes batches, probes what failed, waits for the disk when it is time, and
// compresses and removes old files, until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.beat(ctx) })
	g.Go(func() error { return l.tidy(ctx) })
	return g.Wait()
}

func (l *Log) beat(ctx context.Context) error {
	tick := time.NewTicker(batchDelay)
	defer tick.Stop()
	var probed, settled time.Time
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			l.mu.Lock()
			l.tellSurplus(cheapSpan)
			l.mu.Unlock()
			if l.Err() != nil && now.Sub(probed) < probeDelay {
				continue
			}
			probed = now
			due := now.Sub(settled) >= syncDelay
			if due {
				settled = now
			}
			l.probe(due)
			err, past := l.Err(), l.trouble.Swap(nil)
			if err == nil && past != nil && !failing {
				failing = true // and it is over already
				l.say(*past)
			}
			if failing != (err != nil) {
				failing = err != nil
				l.say(err)
			}
		}
	}
}

// probe writes what there is, and has the disk write it too where that is due.
func (l *Log) probe(due bool) {
	l.io.Lock()
	err := l.flush()
	if err != nil {
		l.note(err)
	}
	written := l.written.Load()
	how := l.terms.Load().Sync
	sync := (how == SyncAlways || how == SyncInterval && due) && l.synced.Load() < written
	l.io.Unlock()
	if due || sync {
		l.unkept.settle(l.o.Snapshots) // first, as above
	}
	if err != nil {
		return
	}
	if sync {
		err = l.sheet.sync() // without the lock: nobody is held up by a slow disk
	}
	l.io.Lock()
	defer l.io.Unlock()
	if sync && err == nil {
		l.synced.Store(max(l.synced.Load(), written))
	}
	if err != nil || len(l.writing) == 0 { // else another has failed meanwhile
		l.note(err)
	}
}

// say says that the audit cannot be written, or can again.
func (l *Log) say(err error) {
	if err != nil {
		l.o.Log.Error("the audit cannot be written", "file", l.o.File, "error", err)
		return
	}
	l.o.Log.Info("the audit can be written again", "file", l.o.File)
}
