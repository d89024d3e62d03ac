package pace

import "time"

// Stats is what a Pacer is at, to be shown.
type Stats struct {
	Hosts    int    // remembered
	Waiting  int    // requests in queues, or for a turn of the Store
	UnderWay int    // requests that have a place
	Streams  int    // that gave theirs back
	Paused   int    // hosts that nothing is sent to for now
	Slowed   int    // hosts whose rate slow answers have lowered
	BackOffs uint64 // pauses begun so far
	Missed   uint64 // turns of the Store so far that were over before they were used
}

// Stats looks at all hosts, one after the other.
func (p *Pacer) Stats() Stats {
	s := Stats{BackOffs: p.backOffs.Load(), Missed: p.missed.Load()}
	now := time.Now()
	for i := range p.hosts.shards {
		sh := &p.hosts.shards[i]
		sh.mu.Lock()
		for _, h := range sh.hosts {
			h.mu.Lock()
			s.Hosts++
			s.Waiting += h.waits()
			s.UnderWay += len(h.places)
			s.Streams += len(h.streams) + len(h.yielded)
			if h.pause.left(now) > 0 {
				s.Paused++
			}
			if h.slow.spacing(now) > 0 {
				s.Slowed++
			}
			h.mu.Unlock()
		}
		sh.mu.Unlock()
	}
	return s
}
