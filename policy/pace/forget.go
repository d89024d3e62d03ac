package pace

import (
	"cmp"
	"slices"
	"time"
)

// roomPart is which part of a full table is made free at once: a sixteenth, 16,384
// hosts of 262,144. It spreads the cost of a look at all hosts over as many new ones,
// and it keeps a client from having one host forgotten again and again: as many other
// new hosts have to be asked in between.
const roomPart = 16

// A candidate is a host that may be forgotten before its time.
type candidate struct {
	host     *host
	key      string
	patience time.Duration // see host.patience
	last     time.Time     // the last request; zero: none is remembered
}

// before orders the candidates: the most patient first, then those that were asked
// longest ago.
func (c candidate) before(o candidate) int {
	return cmp.Or(cmp.Compare(o.patience, c.patience), c.last.Compare(o.last))
}

// A holding is the hosts that count against one client.
type holding struct {
	hosts int // with those that are in use
	free  []candidate
}

// makeRoom says whether the table has room for another host. It forgets the idle hosts
// of a full table, and where these are too few, hosts of the clients that have the most.
func (t *table) makeRoom() bool {
	t.roomMu.Lock()
	defer t.roomMu.Unlock()
	now := time.Now()
	switch {
	case t.known.Load() < t.max:
		return true // somebody else has made it
	case now.Sub(t.crowded) < sweepEvery:
		return false
	}
	t.sweepAll()
	want := max(1, t.max/roomPart) - (t.max - t.known.Load())
	if want > 0 {
		t.evict(int(want), now)
	}
	if t.known.Load() < t.max {
		return true
	}
	t.crowded = now
	return false
}

// evict forgets up to n hosts that are not in use. Clients that have more hosts than
// others lose their most patient ones until they have no more than the next.
func (t *table) evict(n int, now time.Time) {
	holdings := t.holdings(now)
	counts := make([]int, 0, len(holdings))
	for _, o := range holdings {
		counts = append(counts, o.hosts)
	}
	most := level(counts, n)
	var all []candidate
	for _, o := range holdings {
		if over := o.hosts - most; over > 0 {
			slices.SortFunc(o.free, candidate.before)
			all = append(all, o.free[:min(over, len(o.free))]...)
		}
	}
	slices.SortFunc(all, candidate.before)
	for _, c := range all[:min(n, len(all))] {
		t.drop(c)
	}
}

// level is how many each client may keep so that at least n are taken from those that
// have more. It reorders the counts.
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

// holdings looks at all hosts, one shard after the other.
func (t *table) holdings(now time.Time) map[string]*holding {
	all := make(map[string]*holding)
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for key, h := range sh.hosts {
			if !h.mu.TryLock() {
				continue // in use
			}
			o := all[h.owner]
			if o == nil {
				o = new(holding)
				all[h.owner] = o
			}
			o.hosts++
			if !h.inUse() {
				o.free = append(o.free, candidate{h, key, h.patience(now), h.pages.rates.last})
			}
			h.mu.Unlock()
		}
		sh.mu.Unlock()
	}
	return all
}

// drop forgets a host unless it has come into use.
func (t *table) drop(c candidate) {
	sh := t.shard(c.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	if !c.host.gone && !c.host.inUse() {
		sh.forget(c.key, c.host)
		t.known.Add(-1)
	}
}

// patience is for how long h may still keep the next request waiting; zero where that is
// no longer than minQuiet.
func (h *host) patience(now time.Time) time.Duration {
	d := h.pause.left(now)
	h.lanes(func(ln *lane) { d = max(d, ln.rates.left(now)) })
	if d <= minQuiet {
		return 0
	}
	return d
}
