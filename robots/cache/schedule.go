package cache

import (
	"container/heap"
	"sync"
	"time"
)

// schedule keeps the entries that have a refresh to come, the next one first.
// It holds at most one place for each entry in the cache: what is evicted or
// replaced is taken out.
type schedule struct {
	mu      sync.Mutex
	entries byDue
	wake    chan struct{} // holds one token: the first entry changed
}

// add puts e in, or moves it, to be due at the given time.
func (s *schedule) add(e *Entry, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.slot > 0 {
		s.entries[e.slot-1].due = due
		heap.Fix(&s.entries, e.slot-1)
	} else {
		heap.Push(&s.entries, item{due: due, entry: e})
	}
	if e.slot == 1 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *schedule) remove(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.slot > 0 {
		heap.Remove(&s.entries, e.slot-1)
	}
}

// take removes and gives the first entry that is due at now; nil: none is, and
// the next will be after wait.
func (s *schedule) take(now time.Time) (e *Entry, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		return nil, time.Hour // until woken
	}
	if wait := s.entries[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&s.entries).(item).entry, 0
}

type item struct {
	due   time.Time
	entry *Entry
}

// byDue is a heap.Interface that keeps Entry.slot.
type byDue []item

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry.slot, h[j].entry.slot = i+1, j+1
}

func (h *byDue) Push(x any) {
	it := x.(item)
	*h = append(*h, it)
	it.entry.slot = len(*h)
}

func (h *byDue) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = item{}
	*h = (*h)[:last]
	it.entry.slot = 0
	return it
}
