package snapshot

import "sync/atomic"

// Stats is what a Store is at, to be shown.
type Stats struct {
	Bytes       int64  // that all files take on the disk
	MaxBytes    int64  // that they may take; zero: no limit
	Kept        uint64 // answers kept so far; one that is in use is kept once a day
	KeepFailed  uint64 // tries to keep one that failed otherwise
	Refused     uint64 // tries to for which there was no room
	Unindexed   uint64 // lines of the index that were left out since there was no room
	SyncFailed  uint64 // waits for the disk that did
	PruneFailed uint64 // removals of what is too old or too much that did, at least in part
}

// Stats waits for no disk.
func (s *Store) Stats() Stats {
	c := &s.done
	total, most := s.ledger.used()
	return Stats{
		Bytes: total, MaxBytes: most, Refused: c.refused.Load(), Unindexed: c.unindexed.Load(),
		Kept: c.kept.Load(), KeepFailed: c.keepFailed.Load(), SyncFailed: c.syncFailed.Load(), PruneFailed: c.pruneFailed.Load(),
	}
}

// counts is what Stats have of what was.
type counts struct{ kept, keepFailed, refused, unindexed, syncFailed, pruneFailed atomic.Uint64 }
