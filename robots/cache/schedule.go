package cache

import (
	"container/heap"
	"sync"
	"time"
)

// A schedule is a queue of entries that will be refreshed, ordered by the time. It contains
// each entry at most once. Evicted and replaced entries are removed.
type schedule struct {
	mu      sync.Mutex
	entries byDue

	// wake contains a value if the first entry has changed.
	wake chan struct{}
}

// add adds e. If the schedule has e already, the earlier time counts: a use may have added e while a
// refresh postpones it.
func (s *schedule) add(e *Entry, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.scheduleIndex > 0 {
		s.entries[e.scheduleIndex-1].due = earlier(due, s.entries[e.scheduleIndex-1].due)
		heap.Fix(&s.entries, e.scheduleIndex-1)
	} else {
		heap.Push(&s.entries, scheduled{due: due, entry: e})
	}
	if e.scheduleIndex == 1 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *schedule) remove(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.scheduleIndex > 0 {
		heap.Remove(&s.entries, e.scheduleIndex-1)
	}
}

// take removes and returns the first entry if it is due at now. Otherwise it returns nil and the
// time until the first entry is due.
func (s *schedule) take(now time.Time) (e *Entry, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		// Whoever adds an entry wakes the caller.
		return nil, time.Hour
	}
	if wait := s.entries[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&s.entries).(scheduled).entry, 0
}

type scheduled struct {
	due   time.Time
	entry *Entry
}

// byDue is a heap.Interface that maintains Entry.scheduleIndex.
type byDue []scheduled

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due.Before(b[j].due) }

func (b byDue) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].entry.scheduleIndex, b[j].entry.scheduleIndex = i+1, j+1
}

func (b *byDue) Push(x any) {
	it := x.(scheduled)
	*b = append(*b, it)
	it.entry.scheduleIndex = len(*b)
}

func (b *byDue) Pop() any {
	last := len(*b) - 1
	it := (*b)[last]
	(*b)[last] = scheduled{}
	*b = (*b)[:last]
	it.entry.scheduleIndex = 0
	return it
}
