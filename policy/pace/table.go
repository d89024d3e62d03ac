package pace

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shards = 64

	// sweepSteps is how many hosts are checked for each new one, so that few idle hosts stay.
	sweepSteps = 8

	// sweepEvery is how long a table in which every host was in use counts as full.
	sweepEvery = time.Second

	// evictPart is the divisor for the part of a full table that is evicted at once: a
	// sixteenth, which is 16,384 hosts of 262,144. This spreads the cost of scanning all
	// hosts over as many new hosts. It also prevents a client from making the table forget
	// one host repeatedly: as many other new hosts must be requested in between.
	evictPart = 16
)

// A table finds the host of a key. Lock order: a shard, then a host. Hosts of different
// keys share only a shard, for a short time.
type table struct {
	seed maphash.Seed
	max  int64

	// since is Options.Since; zero means never.
	since time.Time

	// known is the number of hosts in all shards.
	known  atomic.Int64
	shards [shards]shard

	// evictMu is held while hosts are evicted, and guards fullAt.
	evictMu sync.Mutex

	// fullAt is when every host of a full table was last in use.
	fullAt time.Time
}

type shard struct {
	// mu guards hosts.
	mu    sync.Mutex
	hosts map[string]*host
}

func newTable(maxHosts int, since time.Time) *table {
	t := &table{seed: maphash.MakeSeed(), max: int64(maxHosts), since: since}
	for i := range t.shards {
		t.shards[i].hosts = make(map[string]*host)
	}
	return t
}

// lock returns the host of key, locked. It adds a host if there is none. It returns nil if
// the table is full of hosts that are in use.
func (t *table) lock(key string) *host {
	h := t.find(key, true)
	for h == nil && t.makeSpace() {
		h = t.find(key, true)
	}
	return h
}

// lockKnown returns the host of key, locked, or nil if the table does not contain it.
func (t *table) lockKnown(key string) *host { return t.find(key, false) }

func (t *table) shard(key string) *shard { return &t.shards[maphash.String(t.seed, key)%shards] }

// find returns the host of key, locked. If the table does not contain the host, find adds
// it if add is true and the table has space.
func (t *table) find(key string, add bool) *host {
	sh := t.shard(key)
	for {
		sh.mu.Lock()
		h := sh.hosts[key]
		if h == nil && add {
			h = t.add(sh, key)
		}
		sh.mu.Unlock()
		if h == nil {
			return nil
		}
		h.mu.Lock()
		// A host that was removed in the meantime is looked up again.
		if !h.gone {
			return h
		}
		h.mu.Unlock()
	}
}

// each calls f for each host, which is locked during the call.
func (t *table) each(f func(key string, h *host)) {
	for i := range t.shards {
		t.shards[i].each(f)
	}
}

// each calls f for the hosts of one shard, as table.each does.
func (sh *shard) each(f func(key string, h *host)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, h := range sh.hosts {
		h.mu.Lock()
		f(key, h)
		h.mu.Unlock()
	}
}

// add adds a host to sh, whose lock is held, and removes a few idle ones.
func (t *table) add(sh *shard, key string) *host {
	t.sweep(sh)
	if t.known.Add(1) > t.max {
		t.known.Add(-1)
		return nil
	}
	h := t.newHost()
	// The key may be part of a large string, which the clone does not keep.
	sh.hosts[strings.Clone(key)] = h
	return h
}

// newHost returns a host without any state.
func (t *table) newHost() *host {
	h := new(host)
	if !t.since.IsZero() && time.Since(t.since) < maxPresumed {
		h.pages.limiter.presumed = t.since
	}
	return h
}

// sweep checks a few hosts of sh, whose lock is held, and removes the idle ones.
func (t *table) sweep(sh *shard) {
	now := time.Now()
	sh.eachFree(sweepSteps, func(key string, h *host) {
		if h.idle(now) {
			t.forget(sh, key, h)
		}
	})
}

// forget removes h from the table. Both locks are held.
func (t *table) forget(sh *shard, key string, h *host) {
	h.gone = true
	delete(sh.hosts, key)
	t.known.Add(-1)
}

// eachFree calls f for up to n hosts that no other goroutine has locked. The shard's lock is held,
// and the host's during the call.
func (sh *shard) eachFree(n int, f func(key string, h *host)) {
	// The order of a map is random, so all hosts are checked sooner or later.
	for key, h := range sh.hosts {
		if n--; n < 0 {
			return
		}
		if h.mu.TryLock() {
			f(key, h)
			h.mu.Unlock()
		}
	}
}

// A rank says which of a client's hosts is removed first: the one with the lowest rank. A
// host that may still delay a request has a negative rank, which is lower the longer the
// delay is. The other hosts are ordered by their last requests.
type rank int64

// epoch is a time before all requests.
var epoch = time.Unix(0, 0)

func (h *host) rank(now time.Time) rank {
	d := h.backOff.get().longest(now)
	// After a longer back-off, the limiters make little difference.
	if d <= minQuiet {
		h.queues(func(q *queue) { d = max(d, q.limiter.left(now)) })
	}
	if d > minQuiet {
		return rank(-d)
	}
	return max(0, rank(h.pages.limiter.last.Sub(epoch)))
}

// A holding is the set of hosts that count against one client.
type holding struct {
	// hosts is the number of hosts, in use or not.
	hosts int

	// free are the ranks of the hosts that are not in use.
	free []rank

	// take is how many of the free hosts must be removed, and last is the highest of their ranks.
	take int
	last rank
}

// makeSpace reports whether the table has space for another host. It removes the idle hosts
// of a full table and, if there are too few, hosts of the clients that have the most.
func (t *table) makeSpace() bool {
	t.evictMu.Lock()
	defer t.evictMu.Unlock()
	now := time.Now()
	switch {
	case t.known.Load() < t.max:
		// Another goroutine has made space meanwhile.
		return true
	case now.Sub(t.fullAt) < sweepEvery:
		return false
	}
	holdings := t.holdings(now)
	if want := max(1, t.max/evictPart) - (t.max - t.known.Load()); want > 0 {
		t.evict(holdings, int(want), now)
	}
	if t.known.Load() < t.max {
		return true
	}
	t.fullAt = now
	return false
}

// evict removes up to n hosts that are not in use. It takes the hosts with the lowest
// ranks of the clients with the most hosts, until these have no more than the next
// client.
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
	t.eachFree(func(sh *shard, key string, h *host) {
		if o := holdings[h.owner]; n > 0 && o != nil && o.take > 0 && !h.inUse() && h.rank(now) <= o.last {
			t.forget(sh, key, h)
			o.take--
			n--
		}
	})
}

// level returns how many hosts each client may keep so that the clients with more lose at
// least n together. It reorders the counts.
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

// holdings removes the idle hosts and returns the other hosts by client.
func (t *table) holdings(now time.Time) map[string]*holding {
	all := make(map[string]*holding)
	t.eachFree(func(sh *shard, key string, h *host) {
		if h.idle(now) {
			t.forget(sh, key, h)
			return
		}
		o := all[h.owner]
		if o == nil {
			o = new(holding)
			all[h.owner] = o
		}
		o.hosts++
		if !h.inUse() {
			o.free = append(o.free, h.rank(now))
		}
	})
	return all
}

// eachFree calls f for each host that no other goroutine has locked, one shard after the
// other. Both locks are held during the call.
func (t *table) eachFree(f func(sh *shard, key string, h *host)) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		sh.eachFree(len(sh.hosts), func(key string, h *host) { f(sh, key, h) })
		sh.mu.Unlock()
	}
}
