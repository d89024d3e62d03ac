package pace

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shards     = 64
	sweepSteps = 8           // hosts looked at for each new one: the idle stay few beside the busy
	sweepEvery = time.Second // after every host of a full table was in use, the table counts as full for so long
	minQuiet   = time.Minute // a host is remembered so long after its last request, whatever its limits then
)

// A table finds the host of a key. Lock order: a shard, then a host. Hosts of
// different keys share nothing but, briefly, a shard.
type table struct {
	seed   maphash.Seed
	max    int64
	since  time.Time    // see Options.Since; zero: as never
	known  atomic.Int64 // hosts in all shards
	shards [shards]shard

	roomMu  sync.Mutex // held while room is made; guards crowded
	crowded time.Time  // when every host of a full table was last in use
}

type shard struct {
	mu    sync.Mutex // guards hosts
	hosts map[string]*host
}

func newTable(maxHosts int, since time.Time) *table {
	t := &table{seed: maphash.MakeSeed(), max: int64(maxHosts), since: since}
	for i := range t.shards {
		t.shards[i].hosts = make(map[string]*host)
	}
	return t
}

// lock gives the host of key, locked, a new one where there is none; nil where the
// table is full of hosts that are in use.
func (t *table) lock(key string) *host {
	h := t.find(key)
	for h == nil && t.makeRoom() {
		h = t.find(key)
	}
	return h
}

func (t *table) shard(key string) *shard { return &t.shards[maphash.String(t.seed, key)%shards] }

func (t *table) find(key string) *host {
	sh := t.shard(key)
	for {
		sh.mu.Lock()
		h := sh.hosts[key]
		if h == nil {
			h = t.add(sh, key)
		}
		sh.mu.Unlock()
		if h == nil {
			return nil
		}
		h.mu.Lock()
		if !h.gone {
			return h
		}
		h.mu.Unlock() // forgotten in between
	}
}

// add makes a host in sh, whose lock is held, and forgets a few idle ones for it.
func (t *table) add(sh *shard, key string) *host {
	t.known.Add(-sh.sweep(sweepSteps))
	if t.known.Add(1) > t.max {
		t.known.Add(-1)
		return nil
	}
	h := new(host)
	if !t.since.IsZero() && time.Since(t.since) < maxPresumed {
		h.pages.rates.presumed = t.since
	}
	sh.hosts[strings.Clone(key)] = h // the key may be a piece of something large
	return h
}

// sweep looks at n hosts and says how many it forgot. The shard's lock is held.
func (sh *shard) sweep(n int) int64 {
	now := time.Now()
	var forgot int64
	for key, h := range sh.hosts { // a random few
		if n--; n < 0 {
			break
		}
		if !h.mu.TryLock() {
			continue // in use
		}
		if h.idle(now) {
			sh.forget(key, h)
			forgot++
		}
		h.mu.Unlock()
	}
	return forgot
}

// forget takes h out for good. Both locks are held.
func (sh *shard) forget(key string, h *host) {
	h.gone = true
	delete(sh.hosts, key)
}
