package cache

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// Lookup returns what the robots.txt of q says now. It returns at once if memory has an entry
// that is usable under d. Otherwise it loads from the Store or fetches. All callers with the
// same Origin and Token get the same entry, and pass their d to [Entry.Under]. The error is that
// of ctx, ErrStopped, or ErrUnknown. If ctx ends, the fetch continues for other callers.
func (c *Cache) Lookup(ctx context.Context, q Query, d robots.Dialect) (*Entry, error) {
	if c.stopped.Load() {
		return nil, ErrStopped
	}
	if e := c.hit(key{origin: q.Origin, token: q.Token}, d); e != nil {
		return e, nil
	}
	if q.OnlyKnown {
		return nil, ErrUnknown
	}
	k := c.variants.admit(q)
	if k.token != q.Token || k.direct {
		if e := c.hit(k, d); e != nil {
			return e, nil
		}
	}
	c.counters.misses.Add(1)
	// The copy is made only here, so that a hit does not allocate.
	missed := d
	return c.wait(ctx, k, q.Client, &missed)
}

// Refetch fetches the robots.txt of q now, whatever its age. If a fetch is in progress, here or
// in another process that shares the Store, it waits for that. It returns the new entry; after
// a failed fetch that entry has the stale file. The other processes load the entry at their
// next lookup. The error is as with Lookup.
func (c *Cache) Refetch(ctx context.Context, q Query) (*Entry, error) {
	return c.wait(ctx, c.variants.admit(q), q.Client, nil)
}

// hit returns the entry in memory that is usable under d, or nil.
func (c *Cache) hit(k key, d robots.Dialect) *Entry {
	e, ok := c.entries.GetIfPresent(k)
	if !ok {
		return nil
	}
	if e = c.touch(e, d, time.Now()); e != nil {
		c.counters.hits.Add(1)
	}
	return e
}

// usableFor returns e, or e without its stale file, if that is usable under d. With a nil d it
// returns nil: the caller needs a fetch.
func (c *Cache) usableFor(e *Entry, d *robots.Dialect) *Entry {
	if d == nil {
		return nil
	}
	return c.touch(e, *d, time.Now())
}

// touch returns e, or e without its stale file, if that is usable under d at now, and marks it
// as used. It returns nil if the caller must wait for a fetch.
func (c *Cache) touch(e *Entry, d robots.Dialect, now time.Time) *Entry {
	e = e.usableAt(d, now, c.running.Load())
	l := lifetimeOf(d)
	// The bit is read first, because many processors may use the entry.
	if e == nil || e.useBits.Load()&usedBit(l) != 0 {
		return e
	}
	if was := e.useBits.Or(usedBit(l)); was&usedBit(l) == 0 && was&missedBit(l) != 0 {
		// Its refresh was skipped while it was unused.
		c.schedule.add(e, now)
	}
	return e
}

// errNoAnswer is used if a Fetcher has returned nil.
var errNoAnswer = errors.New("fetcher returned no result")

// wait returns the entry of a flight of k, or one in memory that has become usable under d
// meanwhile. It waits for several flights if the first one loads an entry that is not usable.
// client is the client that causes the fetch.
func (c *Cache) wait(ctx context.Context, k key, client string, d *robots.Dialect) (*Entry, error) {
	// known is the entry that was loaded; memory may have evicted it again.
	var known *Entry
	for {
		f, e, err := c.join(ctx, k, client, d, known)
		if err != nil {
			c.mu.Lock()
			c.removeUnused(k)
			c.mu.Unlock()
		}
		if f == nil {
			return e, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if f.entry == nil {
			return nil, ErrStopped
		}
		if !f.loaded {
			return f.entry, nil
		}
		// The purge may have come after the load. Otherwise memory has what was loaded again.
		if f.purged {
			known = nil
			continue
		}
		if e := c.usableFor(f.entry, d); e != nil {
			return e, nil
		}
		// With it, the next flight fetches.
		known = f.entry
	}
}

// join returns the flight of k, or a usable entry in memory. If there is no flight, it starts
// one.
func (c *Cache) join(ctx context.Context, k key, client string, d *robots.Dialect, known *Entry) (*flight, *Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	f := c.flights[k]
	if f != nil {
		f.await(d)
	}
	c.mu.Unlock()
	if f != nil {
		return f, nil, nil
	}
	release := func() {}
	// For a direct lookup, the fetch that was redirected already has a slot.
	if !k.direct {
		var err error
		if release, err = c.slots.acquire(ctx, c.baseCtx, client); err != nil {
			return nil, nil, err
		}
	}
	f, e := c.start(k, client, d, known, release)
	if f == nil && e == nil {
		return nil, nil, ErrStopped
	}
	return f, e, nil
}

// start starts a flight with the slot of its caller. If another caller has started it meanwhile,
// or memory has a usable entry, start releases the slot. Both results are nil if the cache is
// stopped.
func (c *Cache) start(k key, client string, d *robots.Dialect, known *Entry, release func()) (*flight, *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Load() {
		release()
		return nil, nil
	}
	if f := c.flights[k]; f != nil {
		release()
		f.await(d)
		return f, nil
	}
	before, ok := c.entries.GetIfPresent(k)
	if ok {
		if e := c.usableFor(before, d); e != nil {
			release()
			return nil, e
		}
	} else {
		before = known
	}
	// A substring of a request's head would keep the whole head in memory.
	k.origin.Host, k.token = strings.Clone(k.origin.Host), strings.Clone(k.token)
	f := c.launch(k, strings.Clone(client), before, release, d)
	f.await(d)
	return f, nil
}

// await notes what a caller needs that waits for the flight; d is nil as for usableFor. The caller
// holds c.mu.
func (f *flight) await(d *robots.Dialect) {
	if d == nil {
		f.refetch = true
	} else if f.since.IsZero() {
		f.since = time.Now()
	}
}

// refresh fetches e in the background once it has a slot. ctx is that of Run.
func (c *Cache) refresh(ctx context.Context, e *Entry) {
	if wanted, next := e.refreshWanted(time.Now()); !wanted {
		// The next use of the entry schedules it again.
		c.postpone(e, next)
		return
	}
	select {
	case c.refreshSlots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, ok := c.entries.GetEntryQuietly(e.key)
	if !ok || now.Value != e || c.flights[e.key] != nil || c.stopped.Load() {
		// The entry was evicted or fetched, or a fetch is in progress.
		<-c.refreshSlots
		return
	}
	c.launch(e.key, "", e, func() { <-c.refreshSlots }, nil)
}

// postpone schedules a refresh of e at next, unless next is zero.
func (c *Cache) postpone(e *Entry, next time.Time) {
	if next.IsZero() {
		return
	}
	c.schedule.add(e, next)
	if now, ok := c.entries.GetEntryQuietly(e.key); !ok || now.Value != e {
		// The entry was evicted or replaced before it was scheduled.
		c.schedule.remove(e)
	}
}

// launch starts a flight that keeps its slot until release. With d the flight compiles the file
// under d before it releases the slot, so that no more files than there are slots wait for
// compilation. The caller holds c.mu.
func (c *Cache) launch(k key, client string, before *Entry, release func(), d *robots.Dialect) *flight {
	f := &flight{done: make(chan struct{}), gen: c.gen.Load()}
	f.gen.flights++
	c.flights[k] = f
	c.wg.Go(func() {
		f.entry = c.loadOrFetch(k, client, before, f)
		if d != nil && f.entry != nil {
			f.entry.Under(*d)
		}
		c.mu.Lock()
		// This comes after the entry was put, so that a caller that finds no flight finds the entry.
		delete(c.flights, k)
		c.removeUnused(k)
		f.gen.release()
		// This comes here, because a Refetch may join until now.
		if f.refetch && f.saved {
			c.sharedStore.Announce(f.gen.storeKey(k), Replaced)
		}
		c.mu.Unlock()
		close(f.done)
		release()
	})
	return f
}

// loadOrFetch returns the entry of a flight. It loads the entry from the Store if memory has
// nothing. Otherwise it fetches, with a Lease if several processes share the Store.
// It returns nil if the cache was stopped meanwhile.
func (c *Cache) loadOrFetch(k key, client string, before *Entry, f *flight) *Entry {
	if c.inStore(k) && before == nil {
		if e := c.load(k, f, nil); e != nil {
			f.loaded = true
			return e
		}
	}
	if c.inStore(k) && c.sharedStore != nil {
		release, e, known := c.waitForLease(k, before, f)
		if release != nil {
			defer release()
		}
		if e != nil || c.baseCtx.Err() != nil {
			return e
		}
		before = known
	}
	return c.fetch(k, client, before, f)
}

// removeUnused frees the token of k if there is neither a file of k nor a flight. The caller
// holds c.mu.
func (c *Cache) removeUnused(k key) {
	if _, ok := c.entries.GetEntryQuietly(k); !ok && c.flights[k] == nil {
		c.variants.remove(k)
	}
}

// fetch fetches a file and puts it into memory and the Store. It returns nil if the cache was
// stopped meanwhile, because the failure then says nothing about the origin.
func (c *Cache) fetch(k key, client string, before *Entry, f *flight) *Entry {
	a := f.gen.fetcher.Fetch(c.baseCtx, fetch.Request{
		Origin: k.origin, UserAgent: cmp.Or(k.token, f.gen.userAgent), Token: k.token, Client: client, Direct: k.direct,
	})
	if c.baseCtx.Err() != nil {
		return nil
	}
	if a == nil {
		a = &fetch.Result{MaxAge: -1, Err: errNoAnswer, Fetched: time.Now()}
	}
	c.counters.fetches[FetchOutcomeOf(a)].Add(1)
	e := newEntry(k, a, before, time.Now(), f.gen.timing)
	e.compileLike(before)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.gen.Load()
	if f.purged {
		e, before = newEntry(k, a, nil, time.Now(), f.gen.timing), nil
	}
	if t != f.gen {
		e = e.withTiming(f.gen.timing, t.timing)
	}
	if now, ok := c.entries.GetEntryQuietly(k); ok {
		// Reconfigure or RetryUnconnected may have replaced it.
		before = now.Value
	}
	if f.retry {
		e = e.retriedAt(time.Now(), t.timing)
	}
	e.reweigh = c.reweigh
	if a.OwnFailure {
		// Only the waiting callers get this entry. The one in memory stays, and the next lookup
		// that cannot use it fetches.
		e.retryAfter = 0
		if before != nil && !before.lifetimes[byCacheControl].refreshAt.IsZero() {
			c.postpone(before, e.lastFailure.Add(t.timing.retry))
		}
		return e
	}
	c.put(e, before)
	c.save(e, f.gen, client)
	f.saved = c.inStore(k) && c.sharedStore != nil
	return e
}

// Run refreshes entries in use before they expire, and retries failing origins that have a stale
// file. It returns nil after ctx has ended, the cache is stopped and all its fetches have ended.
// Call it once. While Run is not running, only Lookup fetches, and only what it waits for.
func (c *Cache) Run(ctx context.Context) error {
	if c.stopped.Load() {
		return ErrStopped
	}
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("robots cache is already running")
	}
	if c.sharedStore != nil {
		c.wg.Go(func() { c.sharedStore.Watch(ctx, c.onChange) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		e, wait := c.schedule.take(time.Now())
		if e != nil {
			c.refresh(ctx, e)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-c.schedule.wake:
		case <-ctx.Done():
		}
	}
	c.stop()
	return nil
}

func (c *Cache) stop() {
	c.mu.Lock()
	c.stopped.Store(true)
	c.mu.Unlock()
	c.cancel(ErrStopped)
	c.wg.Wait()
}
