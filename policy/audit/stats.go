package audit

import (
	"sync/atomic"
	"time"
)

// Stats is what a Log is at, to be shown.
type Stats struct {
	Err       error         // why the audit cannot be written at present; nil: it can
	Waiting   int           // lines that are not in the file yet
	Lag       time.Duration // how old the oldest of them is
	Unsynced  int           // lines in the file that the disk was not waited for yet; 0 with SyncNone: it never is
	Lines     uint64        // written so far
	Bytes     uint64        // of them
	Failures  uint64        // of writing or waiting for the disk so far, tries again included
	Lost      uint64        // records so far that could neither be written nor kept
	Rotations uint64        // files set aside so far because they were full
	Counted   uint64        // refusals so far that were only counted, because too many came from one client
}

// Stats waits for no disk.
func (l *Log) Stats() Stats {
	c := &l.counts
	s := Stats{
		Err: l.Err(), Lines: c.lines.Load(), Bytes: c.octets.Load(), Failures: c.failures.Load(),
		Lost: c.lost.Load(), Rotations: c.turns.Load(), Counted: c.counted.Load(),
	}
	synced := l.synced.Load() // first: what the disk has is in the file, and what is there was chained
	written := l.written.Load()
	l.mu.Lock()
	last, until, taken, gathered := l.seq, l.until, l.taken, l.since
	empty := len(l.buf) == 0
	l.mu.Unlock()
	s.Waiting = int(last - written)
	if l.terms.Load().Sync != SyncNone {
		s.Unsynced = int(written - synced)
	}
	switch {
	case written < until:
		s.Lag = time.Since(taken)
	case !empty:
		s.Lag = time.Since(gathered)
	}
	return s
}

// counts is what Stats have of what was.
type counts struct{ lines, octets, failures, lost, turns, counted atomic.Uint64 }
