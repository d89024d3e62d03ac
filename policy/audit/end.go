package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
)

// CompareEnd compares the end of the trail at path with the line known, which the disk had at the end of the
// previous writer. It returns the difference that Open would report, or "". CompareEnd changes nothing.
func CompareEnd(path string, known trail.Link) (string, error) {
	last, err := lastLink(path)
	if err != nil && !errors.Is(err, trail.ErrChanged) {
		return "", err
	}
	if _, e := compareEnd(path, last, known); e != nil {
		return e.Detail, nil
	}
	if err != nil {
		return changedEvent(last.Seq, unlikeItsHash).Detail, nil
	}
	return "", nil
}

// lastLink returns the last line of the trail at path; zero: it has none. The error may be trail.ErrChanged.
func lastLink(path string) (trail.Link, error) {
	f, err := osfile.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return trail.Link{}, err
	}
	if err == nil {
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return trail.Link{}, err
		}
		if last, _, err := trail.LastLink(f, info.Size()); !errors.Is(err, trail.ErrNoChain) {
			return last, err
		}
	}
	return trail.LastSegmentLink(path)
}

// compareEnd compares the trail at path, which ends with the line last, with the line known,
// which the disk had at the end of the previous writer. It returns the line after which the chain
// continues, and an event if the trail differs. If lines are missing at the end, the chain
// continues after known, so that their numbers are not used again.
func compareEnd(path string, last, known trail.Link) (from trail.Link, e *event) {
	if last.Seq < known.Seq {
		return known, cutEvent(last.Seq+1, known.Seq)
	}
	if known.Seq == 0 {
		return last, nil
	}
	found, err := last, error(nil)
	if last.Seq > known.Seq {
		found, err = trail.FindLink(path, known.Seq)
	}
	switch {
	case errors.Is(err, trail.ErrNoRecord), errors.Is(err, fs.ErrNotExist):
		// The segment of the line was removed, or its absence is a gap that verification finds.
		return last, nil
	case err != nil && !errors.Is(err, trail.ErrChanged):
		return last, changedEvent(known.Seq, fmt.Sprintf("cannot be read: %v", err))
	case err != nil || found.Hash != known.Hash:
		return last, changedEvent(known.Seq, "is not the line that was on the disk when the proxy last ran")
	}
	return last, nil
}

// cutEvent returns the event that lines are missing at the end.
func cutEvent(first, last uint64) *event {
	return &event{
		Event: trail.EventCut, FirstSeq: first, LastSeq: last,
		Detail: fmt.Sprintf("the lines seq %d to %d are missing, but were on the disk when the proxy last ran", first, last),
	}
}

// differences returns those of the events that say something different. They come before others, since they explain the gap
// before them.
func differences(byEnd, byTree *event) []*event {
	all := []*event{byEnd, byTree}
	if byEnd != nil && byTree != nil && byEnd.Event == byTree.Event {
		all = []*event{byEnd}
		if byTree.LastSeq > byEnd.LastSeq {
			all = []*event{byTree}
		}
	}
	return slices.DeleteFunc(all, func(e *event) bool { return e == nil })
}

// setSynced stores that the disk has the lines up to last.
func (l *Log) setSynced(last trail.Link) {
	l.synced.Store(max(l.synced.Load(), last.Seq))
	l.mu.Lock()
	defer l.mu.Unlock()
	if last.Seq > l.syncedLink.Seq {
		l.syncedLink = last
	}
}

// An openMark says that when the last line was at, the oldest line of kind begun without its record was oldest.
type openMark struct{ at, oldest uint64 }

// OnDisk returns what the disk has for certain, for Options.Known of the next process; the zero End while that is
// nothing, as with SyncNone or if the trail is not a regular file. Each call also advances End.Open.
func (l *Log) OnDisk() End {
	if !l.segment.regular {
		return End{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// If the disk has the line marked.at, it has the records of the requests that had ended then.
	if l.syncedLink.Seq >= l.marked.at {
		l.openBound = l.marked.oldest
		l.marked = openMark{at: l.seq, oldest: l.seq + 1}
		for _, seq := range l.open {
			l.marked.oldest = min(l.marked.oldest, seq)
		}
	}
	if l.syncedLink.Seq == 0 {
		return End{}
	}
	open := l.openBound
	if l.started.Load() && !l.searched.Load() {
		open = min(open, l.opened.Known.Open)
	}
	return End{l.syncedLink, open}
}
