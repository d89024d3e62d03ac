package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"robotsproxy/robots"
)

// How long a cache waits for a Store.
const (
	// maxLoad is how long a cache waits for a Store. After that the Store counts as empty.
	maxLoad = time.Second

	// minPoll and maxPoll are the first and the longest time between two requests for a Lease that
	// another Cache holds.
	minPoll = 25 * time.Millisecond
	maxPoll = 200 * time.Millisecond
)

// load loads the entry of o from the Store into memory. It returns nil if there is no usable
// entry or, with before, no newer one. Only the flight f of o calls it, so no other goroutine
// puts an entry of o meanwhile.
func (c *Cache) load(o robots.Origin, f *flight, before *Entry) *Entry {
	if c.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.baseCtx, maxLoad)
	defer cancel()
	for ctx.Err() == nil {
		saved, err := c.store.Load(ctx, f.gen.storeKey(o))
		if errors.Is(err, ErrPurged) {
			c.onChange(f.gen.storeKey(o), Purged)
		}
		if err != nil {
			return nil
		}
		e, again := c.addLoaded(saved, o, f, before)
		if again {
			continue
		}
		if e != nil && before != nil {
			e.compileLike(before)
			c.reweigh(e.key, e.last)
		}
		return e
	}
	return nil
}

// addLoaded puts an entry from the Store into memory. again reports that the Store has changed
// meanwhile, so that it must be loaded again.
func (c *Cache) addLoaded(saved []byte, o robots.Origin, f *flight, before *Entry) (e *Entry, again bool) {
	k, err := decode(saved)
	if err != nil || k.origin != o.String() {
		k = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.reload {
		f.reload = false
		return nil, true
	}
	if k == nil {
		return nil, false
	}
	t := c.gen.Load()
	if c.sharedStore != nil && kindOf(k.last) == noConnection {
		k.retryAfter = 0 // another process may have no connection; each has its own retry time
		if before != nil {
			k.retryAfter = before.retryAfter
		}
	}
	if e = k.entry(o, time.Now(), t.timing); e == nil || !e.newerThan(before) {
		return nil, false
	}
	e.reweigh = c.reweigh
	known, _ := c.entries.GetEntryQuietly(key{origin: o})
	c.put(e, known.Value)
	return e, false
}

// save saves e, which was fetched in g, in the Store.
func (c *Cache) save(e *Entry, g *generation, client string) {
	if c.store == nil || !e.inStore() {
		return
	}
	if saved := encode(e); len(saved) <= MaxSaved {
		c.store.Save(g.storeKey(e.origin), saved, e.usefulUntil(), client)
	}
}

// waitForLease asks for the right to fetch until it gets the right (release is not nil) or
// another Cache has fetched an entry e since before. With neither the caller fetches at once:
// the Store fails, or the Caches that had the right returned nothing. known is the newest known
// entry.
func (c *Cache) waitForLease(o robots.Origin, before *Entry, f *flight) (release func(), e, known *Entry) {
	c.mu.Lock()
	refetch := f.refetch
	c.mu.Unlock()
	term := f.gen.timing.refreshLimit()
	deadline := time.Now().Add(2 * term) // one term for a Cache that died with the right, and one for its successor
	asked, version := false, ""
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		lease, err := c.requestLease(f.gen.storeKey(o), term)
		if err != nil {
			return nil, nil, before
		}
		changed := asked && lease.Version != version
		asked, version = true, lease.Version
		if changed || lease.Release != nil {
			e := c.load(o, f, before)
			switch {
			case e == nil:
			case e.isFresh(time.Now()) && (changed || !refetch):
				f.loaded = !refetch
				return lease.Release, e, nil
			default:
				before = e
				if e.last.kind == noConnection { // perhaps only that Cache has no connection: do not wait for each such Cache in turn
					deadline = earlier(deadline, time.Now().Add(storeTime))
				}
			}
		}
		if lease.Release != nil || !time.Now().Before(deadline) || !c.sleep(pause/2+rand.N(pause/2)) {
			return lease.Release, nil, before
		}
	}
}

// requestLease asks the Store for a Lease, and waits at most maxLoad.
func (c *Cache) requestLease(k StoreKey, term time.Duration) (Lease, error) {
	ctx, cancel := context.WithTimeout(c.baseCtx, maxLoad)
	defer cancel()
	return c.sharedStore.Lease(ctx, k, term)
}

// sleep waits for d. It returns false if the cache was stopped.
func (c *Cache) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.baseCtx.Done():
		return false
	}
}

// onChange handles a change that another process has announced: the memory is now older than
// the Store.
func (c *Cache) onChange(k StoreKey, what Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k == c.gen.Load().storeKey(k.Origin) { // otherwise it is another agent's
		c.forgetInMemory(k.Origin, what)
	}
}

// Purge deletes the files of o, including stale ones, and their failures from memory and
// from the Store. It reports whether memory had any. The next Lookup waits for a fetch. With
// a SharedStore the other processes delete the files too.
func (c *Cache) Purge(o robots.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	had, k := c.forgetInMemory(o, Purged), c.gen.Load().storeKey(o)
	switch {
	case c.sharedStore != nil:
		c.sharedStore.Announce(k, Purged)
	case c.store != nil:
		c.store.Save(k, []byte{0}, time.Now(), "") // not an entry, and already expired
	}
	return had
}

// forgetInMemory deletes the proxy's own file of o from memory and, for Purged, the files for
// product tokens and those of flights. It reports whether memory had any. The caller holds c.mu.
func (c *Cache) forgetInMemory(o robots.Origin, what Change) (had bool) {
	keys := []key{{origin: o}}
	if what == Purged {
		keys = append(keys, key{origin: o, direct: true})
		for _, token := range c.variants.tokens(o) {
			keys = append(keys, key{o, token, false}, key{o, token, true})
		}
	}
	for _, k := range keys {
		if f := c.flights[k]; f != nil {
			f.reload = true
			f.purged = f.purged || what == Purged
		}
		if _, ok := c.entries.Invalidate(k); ok {
			had = true
		}
	}
	return had
}
