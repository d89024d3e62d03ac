package snapshot

import "sync/atomic"

// Stats is what a Store is at, to be shown.
type Stats struct {
	Bytes       int64  // bytes that all files take on the disk
	MaxBytes    int64  // bytes that they may take; zero: no limit
	Saved       uint64 // answers kept so far; one that is in use is kept once a day
	SaveFailed  uint64 // answers that could not be kept for another reason than space
	Refused     uint64 // answers that could not be kept because there was no space
	Unindexed   uint64 // lines of the index that were left out because there was no space
	SyncFailed  uint64 // waits for the disk that did
	PruneFailed uint64 // removals of what is too old or too much that did, at least in part
}

// Stats waits for no disk.
func (s *Store) Stats() Stats {
	c := &s.done
	total, most := s.ledger.used()
	return Stats{
		Bytes: total, MaxBytes: most, Refused: c.refused.Load(), Unindexed: c.unindexed.Load(),
		Saved: c.kept.Load(), SaveFailed: c.keepFailed.Load(), SyncFailed: c.syncFailed.Load(), PruneFailed: c.pruneFailed.Load(),
	}
}

// counts is what Stats have of what was.
type counts struct{ kept, keepFailed, refused, unindexed, syncFailed, pruneFailed atomic.Uint64 }
