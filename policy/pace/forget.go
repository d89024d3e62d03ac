package pace

import (
	"slices"
	"time"
)

// roomPart is the divisor that gives how much of a full table is made free at once: a
// sixteenth, 16,384 hosts of 262,144. This spreads the cost of a look at all hosts over as
// many new hosts. It also keeps a client from making the table forget one host again and
// again: as many other new hosts have to be asked in between.
const roomPart = 16

// A rank says which of a client's hosts is forgotten first: the one with the lowest rank.
// A host with patience has a negative rank, the lower the longer its patience is. The other
// ranks are in the order of the last requests.
type rank int64

// A holding is the hosts that count against one client.
type holding struct {
	hosts int    // how many there are, in use or not
	free  []rank // of the hosts that are not in use
	take  int    // how many of free are to be forgotten
	last  rank   // the highest rank of these
}

// makeRoom reports whether the table has room for another host. It forgets the idle hosts
// of a full table and, if these are too few, hosts of the clients that have the most.
func (t *table) makeRoom() bool {
	t.roomMu.Lock()
	defer t.roomMu.Unlock()
	now := time.Now()
	switch {
	case t.known.Load() < t.max:
		return true // another goroutine has made room
	case now.Sub(t.crowded) < sweepEvery:
		return false
	}
	holdings := t.holdings(now)
	if want := max(1, t.max/roomPart) - (t.max - t.known.Load()); want > 0 {
		t.evict(holdings, int(want), now)
	}
	if t.known.Load() < t.max {
		return true
	}
	t.crowded = now
	return false
}

// evict forgets up to n hosts that are not in use. The clients with the most hosts lose
// their most patient hosts until they have no more than the next client.
func (t *table) evict(holdings map[string]*holding, n int, now time.Time) {
	counts := make([]int, 0, len(holdings))
	for _, o := range holdings {
		counts = append(counts, o.hosts)
	}
	most := level(counts, n)
	var all []rank
	for _, o := range holdings {
		if o.take = min(max(0, o.hosts-most), len(o.free)); o.take > 0 {
			slices.Sort(o.free)
			o.last = o.free[o.take-1]
			all = append(all, o.free[:o.take]...)
		}
	}
	if len(all) > n {
		slices.Sort(all)
		for _, o := range holdings {
			o.last = min(o.last, all[n-1])
		}
	}
	t.drop(holdings, n, now)
}

// level gives how many hosts each client may keep so that the clients with more lose at
// least n. It reorders the counts.
func level(counts []int, n int) int {
	slices.SortFunc(counts, func(a, b int) int { return b - a })
	sum := 0
	for i, c := range counts {
		sum += c
		if most := (sum - n) / (i + 1); sum >= n && (i+1 == len(counts) || most >= counts[i+1]) {
			return most
		}
	}
	return 0
}

// holdings looks at all hosts, one shard after the other, and forgets the idle ones. It
// gives the others by client.
func (t *table) holdings(now time.Time) map[string]*holding {
	all := make(map[string]*holding)
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for key, h := range sh.hosts {
			if !h.mu.TryLock() {
				continue // in use
			}
			if h.idle(now) {
				sh.forget(key, h)
				t.known.Add(-1)
			} else {
				hold(all, h.owner).add(h, now)
			}
			h.mu.Unlock()
		}
		sh.mu.Unlock()
	}
	return all
}

func hold(all map[string]*holding, client string) *holding {
	o := all[client]
	if o == nil {
		o = new(holding)
		all[client] = o
	}
	return o
}

// add counts h. The caller holds h.mu.
func (o *holding) add(h *host, now time.Time) {
	o.hosts++
	if !h.inUse() {
		o.free = append(o.free, h.rank(now))
	}
}

// drop forgets up to n of the hosts that the holdings are to lose, except for those that
// have come into use.
func (t *table) drop(holdings map[string]*holding, n int, now time.Time) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for key, h := range sh.hosts {
			if n == 0 {
				break
			}
			if !h.mu.TryLock() {
				continue // in use
			}
			if o := holdings[h.owner]; o != nil && o.take > 0 && !h.inUse() && h.rank(now) <= o.last {
				sh.forget(key, h)
				t.known.Add(-1)
				o.take--
				n--
			}
			h.mu.Unlock()
		}
		sh.mu.Unlock()
	}
}

func (h *host) rank(now time.Time) rank {
	if d := h.patience(now); d > 0 {
		return rank(-d)
	}
	return max(0, rank(h.pages.rates.last.Sub(epoch)))
}

// epoch is a time before all requests.
var epoch = time.Unix(0, 0)

// patience gives how long h may still keep the next request waiting; zero if that is no
// longer than minQuiet.
func (h *host) patience(now time.Time) time.Duration {
	d := h.pause.left(now)
	if d <= minQuiet { // else what its clocks say makes little difference
		h.lanes(func(ln *lane) { d = max(d, ln.rates.left(now)) })
	}
	if d <= minQuiet {
		return 0
	}
	return d
}
