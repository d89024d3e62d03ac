package bolt

import "sync/atomic"

// Stats is what a Store is at, to be shown.
type Stats struct {
	Bytes    int64  // of the file, when it was last written to
	Pending  int    // octets of entries that are gathered, or being written
	Failures uint64 // times so far that the disk took nothing, or the file could not be opened
	Damaged  uint64 // files set aside so far
	Lost     uint64 // entries so far that there was no room for while the disk took none
}

// Stats waits for no disk.
func (s *Store) Stats() Stats {
	c := &s.counts
	st := Stats{Bytes: c.size.Load(), Failures: c.failures.Load(), Damaged: c.damaged.Load(), Lost: c.lost.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Pending = s.pending.octets + s.writing.octets
	return st
}

// counts is what Stats have that other locks guard, or none.
type counts struct {
	size                    atomic.Int64
	failures, damaged, lost atomic.Uint64
}

// measure notes how large the file is. The caller has the turn.
func (s *Store) measure() {
	if s.handle == nil {
		return
	}
	if info, err := s.handle.Stat(); err == nil {
		s.counts.size.Store(info.Size())
	}
}
