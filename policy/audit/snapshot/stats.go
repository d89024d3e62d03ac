package snapshot

import "sync/atomic"

// Stats is what a Store is at, to be shown.
type Stats struct {
	Bytes       int64  // of all files; known once Run has counted them
	Kept        uint64 // answers kept so far; one that is in use is kept once a day
	KeepFailed  uint64 // tries to that failed
	SyncFailed  uint64 // waits for the disk that did
	PruneFailed uint64 // removals of what is too old or too much that did, at least in part
}

// Stats waits for no disk.
func (s *Store) Stats() Stats {
	c := &s.done
	return Stats{
		Bytes: s.size.Load(),
		Kept:  c.kept.Load(), KeepFailed: c.keepFailed.Load(), SyncFailed: c.syncFailed.Load(), PruneFailed: c.pruneFailed.Load(),
	}
}

// counts is what Stats have of what was.
type counts struct{ kept, keepFailed, syncFailed, pruneFailed atomic.Uint64 }
