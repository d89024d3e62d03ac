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

// errNoAnswer stands for a Fetcher that gave nil.
var errNoAnswer = errors.New("fetcher gave no answer")

// A flight is a fetch under way, or a look into the Store before there is one;
// there is one an origin at most.
type flight struct {
	done   chan struct{} // closed when the others are set
	entry  *Entry        // nil: the cache was stopped first
	loaded bool          // from the Store: it may be too old for some who wait
	terms  *terms        // that it is made under

	// guarded by Cache.mu
	purged bool // what was known before is forgotten
	again  bool // what is being loaded is no longer what the Store has
	anew   bool // somebody wants what is fetched from now on, whatever is known
}

// usable gives what is usable of e under d; nil: the caller must wait for a fetch, as it
// always must if d is nil.
func (c *Cache) usable(e *Entry, d *robots.Dialect) *Entry {
	if d == nil {
		return nil
	}
	return c.use(e, *d, time.Now())
}

// wait gives the entry that a flight of k brings, by as many flights as it takes, unless
// memory has an entry meanwhile that is usable under d. client is the one that causes a
// fetch.
func (c *Cache) wait(ctx context.Context, k key, client string, d *robots.Dialect) (*Entry, error) {
	var known *Entry // loaded; memory may have dropped it again
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
		if e := c.usable(f.entry, d); e != nil {
			return e, nil
		}
		known = f.entry // so that the next that is begun is a fetch
	}
}

// join gives the flight of k, or starts it; or the entry, where that is there by now.
func (c *Cache) join(ctx context.Context, k key, client string, d *robots.Dialect, known *Entry) (*flight, *Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	f := c.flights[k]
	if f != nil {
		f.anew = f.anew || d == nil
	}
	c.mu.Unlock()
	if f != nil {
		return f, nil, nil
	}
	giveBack := func() {}
	if !k.direct { // else the fetch that is redirected has a place
		var err error
		if giveBack, err = c.places.take(ctx, c.base, client); err != nil {
			return nil, nil, err
		}
	}
	f, e := c.start(k, client, d, known, giveBack)
	if f == nil && e == nil {
		return nil, nil, ErrStopped
	}
	return f, e, nil
}

// start uses the place that its caller took, or gives it back: another caller
// may have started the flight, and it may even be over. Both nil: stopped.
func (c *Cache) start(k key, client string, d *robots.Dialect, known *Entry, giveBack func()) (*flight, *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Load() {
		giveBack()
		return nil, nil
	}
	if f := c.flights[k]; f != nil {
		giveBack()
		f.anew = f.anew || d == nil
		return f, nil
	}
	before, ok := c.entries.GetIfPresent(k)
	if ok {
		if e := c.usable(before, d); e != nil {
			giveBack()
			return nil, e
		}
	} else {
		before = known
	}
	// Copies: a header's string holds on to the whole head it was cut from.
	k.origin.Host, k.token = strings.Clone(k.origin.Host), strings.Clone(k.token)
	f := c.launch(k, strings.Clone(client), before, giveBack, d)
	f.anew = d == nil
	return f, nil
}

// refresh fetches e anew in the background, once there is a place. ctx is Run's.
func (c *Cache) refresh(ctx context.Context, e *Entry) {
	if wanted, next := e.wanted(time.Now()); !wanted {
		c.postpone(e, next) // nobody asked for it: whoever does next will bring it back
		return
	}
	select {
	case c.refreshes <- struct{}{}:
	case <-ctx.Done():
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, ok := c.entries.GetEntryQuietly(e.key)
	if !ok || now.Value != e || c.flights[e.key] != nil || c.stopped.Load() {
		<-c.refreshes // evicted, fetched, or being fetched
		return
	}
	c.launch(e.key, "", e, func() { <-c.refreshes }, nil)
}

// postpone has e refreshed at next, where it is not zero.
func (c *Cache) postpone(e *Entry, next time.Time) {
	if next.IsZero() {
		return
	}
	c.schedule.add(e, next)
	if now, ok := c.entries.GetEntryQuietly(e.key); !ok || now.Value != e {
		c.schedule.remove(e) // evicted or replaced before it was back in the schedule
	}
}

// launch starts a flight that holds a place until giveBack. The flight is a fetch; if
// nothing is known of the proxy's own file, it asks the Store first. With d the flight
// compiles the file under d before it gives the place back, so that no more files than
// there are places wait to be compiled. The caller holds c.mu.
func (c *Cache) launch(k key, client string, before *Entry, giveBack func(), d *robots.Dialect) *flight {
	f := &flight{done: make(chan struct{}), terms: c.terms.Load()}
	f.terms.flights++
	c.flights[k] = f
	c.wg.Go(func() {
		if k.stored() && before == nil {
			f.entry = c.load(k.origin, f, nil)
			f.loaded = f.entry != nil
		}
		switch {
		case f.loaded:
		case k.stored() && c.shared != nil:
			f.entry = c.fetchShared(k.origin, client, before, f)
		default:
			f.entry = c.fetch(k, client, before, f)
		}
		if d != nil && f.entry != nil {
			f.entry.Under(*d)
		}
		c.mu.Lock()
		delete(c.flights, k) // after the entry is stored: whoever finds no flight finds the entry
		c.removeUnused(k)
		f.terms.landed()
		c.mu.Unlock()
		close(f.done)
		giveBack()
	})
	return f
}

// removeUnused frees k's token where there is neither a file for k nor a fetch of it.
// c.mu is held.
func (c *Cache) removeUnused(k key) {
	if _, ok := c.entries.GetEntryQuietly(k); !ok && c.flights[k] == nil {
		c.variants.remove(k)
	}
}

// fetch fetches and stores; nil: the cache was stopped meanwhile, and the
// failure that this was says nothing about the origin.
func (c *Cache) fetch(k key, client string, before *Entry, f *flight) *Entry {
	a := f.terms.fetcher.Fetch(c.base, fetch.Request{
		Origin: k.origin, UserAgent: cmp.Or(k.token, f.terms.userAgent), Token: k.token, Client: client, Direct: k.direct,
	})
	if c.base.Err() != nil {
		return nil
	}
	if a == nil {
		a = &fetch.Result{MaxAge: -1, Err: errNoAnswer, Fetched: time.Now()}
	}
	c.tally.count(a)
	e := newEntry(k, a, before, time.Now(), f.terms.clock)
	e.compileAs(before)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.terms.Load()
	if f.purged {
		e, before = newEntry(k, a, nil, time.Now(), f.terms.clock), nil
	}
	if t != f.terms {
		e = e.retimed(f.terms, t)
		if now, ok := c.entries.GetEntryQuietly(k); ok {
			before = now.Value // by the times of t too
		}
	}
	e.weighAgain = c.weighAgain
	if a.OwnFailure {
		// Whoever waits is told. What is known of the origin stays as it was, its
		// row of failures too, and whoever asks next begins a fetch.
		e.delay = 0
		if before != nil && !before.life[said].due.IsZero() {
			c.postpone(before, e.tried.Add(t.clock.retry))
		}
		return e
	}
	c.store(e, before)
	c.keep(e, client)
	if f.anew && k.stored() && c.shared != nil {
		c.shared.Announce(k.origin, Replaced)
	}
	return e
}

// Run refreshes entries in use before they expire and retries origins that
// fail while a copy of theirs is held. It returns nil when ctx has ended, the
// cache is stopped and every fetch it started is over. Run it once; until then
// Lookup fetches only what it waits for.
func (c *Cache) Run(ctx context.Context) error {
	if c.stopped.Load() {
		return ErrStopped
	}
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("robots cache runs already")
	}
	if c.shared != nil {
		c.wg.Go(func() { c.shared.Watch(ctx, c.heard) })
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
	c.cancel()
	c.wg.Wait()
}
