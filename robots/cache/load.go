package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"robotsproxy/robots"
)

const (
	// maxLoad is how long a cache waits for a Store. After that the Store counts as empty.
	maxLoad = time.Second

	// minPoll and maxPoll are the first and the longest time between two requests for a Lease that
	// another Cache holds.
	minPoll = 25 * time.Millisecond
	maxPoll = 200 * time.Millisecond
)

// load loads the entry of k from the Store into memory. It returns nil if there is no usable
// entry or, with before, no newer one. Only the flight f of k calls it, so no other goroutine
// puts an entry of k meanwhile.
func (c *Cache) load(k key, f *flight, before *Entry) *Entry {
	ctx, cancel := context.WithTimeout(c.baseCtx, maxLoad)
	defer cancel()
	for ctx.Err() == nil {
		saved, err := c.store.Load(ctx, f.gen.storeKey(k))
		if errors.Is(err, ErrPurged) {
			c.onChange(f.gen.storeKey(k), Purged)
		}
		if err != nil {
			return nil
		}
		e, again := c.addLoaded(saved, k, f, before)
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
func (c *Cache) addLoaded(saved []byte, k key, f *flight, before *Entry) (e *Entry, again bool) {
	s, err := decode(saved)
	if err != nil || s.origin != k.origin.String() {
		s = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.reload {
		f.reload = false
		return nil, true
	}
	if s == nil {
		return nil, false
	}
	t := c.gen.Load()
	if c.sharedStore != nil && kindOf(s.last) == noConnection {
		// Another process may have no connection; each has its own retry time.
		s.retryAfter = 0
		if before != nil {
			s.retryAfter = before.retryAfter
		}
	}
	if e = s.entry(k, time.Now(), t.timing); e == nil || !e.newerThan(before) {
		return nil, false
	}
	e.reweigh = c.reweigh
	known, _ := c.entries.GetEntryQuietly(k)
	c.put(e, known.Value)
	return e, false
}

// save saves e, which was fetched in g, in the Store.
func (c *Cache) save(e *Entry, g *optionsInUse, client string) {
	if !c.inStore(e.key) {
		return
	}
	if saved := encode(e); len(saved) <= MaxSaved {
		c.store.Save(g.storeKey(e.key), saved, e.usefulUntil(), client)
	}
}

// waitForLease asks for the right to fetch until it gets the right (release is not nil) or
// another Cache has fetched an entry e since before. With neither the caller fetches at once:
// the Store fails, or the Caches that had the right returned nothing. known is the newest known
// entry.
func (c *Cache) waitForLease(k key, before *Entry, f *flight) (release func(), e, known *Entry) {
	c.mu.Lock()
	refetch := f.refetch
	c.mu.Unlock()
	term := f.gen.timing.refreshLimit()
	// One term for a Cache that died with the right, and one for its successor.
	deadline := time.Now().Add(2 * term)
	asked, version := false, ""
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		lease, err := c.requestLease(f.gen.storeKey(k), term)
		if err != nil {
			return nil, nil, before
		}
		changed := asked && lease.Version != version
		asked, version = true, lease.Version
		if changed || lease.Release != nil {
			e := c.load(k, f, before)
			switch {
			case e == nil:
			case e.isFresh(time.Now()) && (changed || !refetch):
				f.loaded = !refetch
				return lease.Release, e, nil
			default:
				before = e
				// Perhaps only that Cache has no connection. Waiting for each such Cache in turn takes long.
				if e.last.kind == noConnection {
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
	// The entry of another agent does not count.
	if k == c.gen.Load().storeKey(key{origin: k.Origin}) {
		c.forgetInMemory(k.Origin, what)
	}
}

// Purge deletes the files of o, including stale ones, and their failures from memory and
// from the Store. It reports whether memory had any. The next Lookup waits for a fetch. With
// a SharedStore the other processes delete the files too.
func (c *Cache) Purge(o robots.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := []key{{origin: o}}
	if c.storeTokens {
		for _, token := range c.variants.tokens(o) {
			stored = append(stored, key{origin: o, token: token})
		}
	}
	had := c.forgetInMemory(o, Purged)
	for _, k := range stored {
		switch {
		case c.sharedStore != nil:
			c.sharedStore.Announce(c.gen.Load().storeKey(k), Purged)
		case c.store != nil:
			// The byte is no entry, and has already expired.
			c.store.Save(c.gen.Load().storeKey(k), []byte{0}, time.Now(), "")
		}
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
