package audit

import (
	"sync/atomic"
	"time"
)

// Stats is the state of a Log.
type Stats struct {
	// Err is why the audit cannot be written at present; nil: it can.
	Err error

	// Seq is the number of the last line.
	Seq uint64

	// Waiting is the number of lines that are not in the file yet, and Lag is the age of the oldest of them.
	Waiting int
	Lag     time.Duration

	// Unsynced is the number of lines in the file that the disk may not have yet; 0 with SyncNone.
	Unsynced int

	// Lines and Bytes are what was written so far.
	Lines uint64
	Bytes uint64

	// Failures is the number of failed writes and waits for the disk so far, with those of retries.
	Failures uint64

	// Lost is the number of records so far that could be neither written nor held in memory.
	Lost uint64

	// Rotations is the number of segments so far that were rotated because they were full.
	Rotations uint64

	// Counted is the number of cheap refusals so far without a record: beyond maxCheap of one client, or maxCheapOfAll of all.
	Counted uint64

	// Removed is the number of lines that retention has removed so far, by the name of the option that it followed.
	Removed map[string]uint64

	// Space is as it was last measured.
	Space Space
}

// Stats returns the present Stats. It waits for no disk.
func (l *Log) Stats() Stats {
	c := &l.counts
	s := Stats{
		Err: l.Err(), Lines: c.lines.Load(), Bytes: c.bytes.Load(), Failures: c.failures.Load(),
		Lost: c.lost.Load(), Rotations: c.rotations.Load(), Counted: c.counted.Load(), Removed: map[string]uint64{},
	}
	for i, cause := range removalCauses {
		s.Removed[cause] = c.removed[i].Load()
	}
	if space := l.space.Load(); space != nil {
		s.Space = *space
	}
	// The order matters, since synced <= written <= seq must hold in the result.
	synced := l.synced.Load()
	written := l.written.Load()
	l.mu.Lock()
	last, writingSeq, writingSince, bufSince := l.seq, l.writingSeq, l.writingSince, l.bufSince
	empty := len(l.buf) == 0
	l.mu.Unlock()
	s.Seq, s.Waiting = last, int(last-written)
	if l.options.Load().Sync != SyncNone {
		s.Unsynced = int(written - synced)
	}
	switch {
	case written < writingSeq:
		s.Lag = time.Since(writingSince)
	case !empty:
		s.Lag = time.Since(bufSince)
	}
	return s
}

// counts are the counters in Stats.
type counts struct {
	lines, bytes, failures, lost, rotations, counted atomic.Uint64
	removed                                          [len(removalCauses)]atomic.Uint64
}
