package cache

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unique"

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

// usable gives what of an entry may be answered with; nil: a fetch must be waited for.
// A nil usable is of who wants a fetch whatever is known.
type usable func(*Entry) *Entry

func (good usable) of(e *Entry) *Entry {
	if good == nil {
		return nil
	}
	return good(e)
}

// wait gives the entry that a flight of o brings, by as many as it takes, unless there
// is one meanwhile that is good.
func (c *Cache) wait(ctx context.Context, o robots.Origin, userAgent string, good usable) (*Entry, error) {
	var known *Entry // loaded; memory may have dropped it again
	for {
		f, e, err := c.join(ctx, o, userAgent, good, known)
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
		if e := good.of(f.entry); e != nil {
			return e, nil
		}
		known = f.entry // so that the next that is begun is a fetch
	}
}

// join gives the flight of o, or starts it; or the entry, where that is there by now.
func (c *Cache) join(ctx context.Context, o robots.Origin, userAgent string, good usable, known *Entry) (*flight, *Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	f := c.flights[o]
	if f != nil {
		f.anew = f.anew || good == nil
	}
	c.mu.Unlock()
	if f != nil {
		return f, nil, nil
	}
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-c.base.Done():
		return nil, nil, ErrStopped
	}
	f, e := c.start(o, userAgent, good, known)
	if f == nil && e == nil {
		return nil, nil, ErrStopped
	}
	return f, e, nil
}

// start uses the place that its caller took, or gives it back: another caller
// may have started the flight, and it may even be over. Both nil: stopped.
func (c *Cache) start(o robots.Origin, userAgent string, good usable, known *Entry) (*flight, *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Load() {
		<-c.places
		return nil, nil
	}
	if f := c.flights[o]; f != nil {
		<-c.places
		f.anew = f.anew || good == nil
		return f, nil
	}
	before, ok := c.entries.GetIfPresent(o)
	if ok {
		if e := good.of(before); e != nil {
			<-c.places
			return nil, e
		}
	} else {
		before = known
	}
	userAgent = cmp.Or(c.terms.Load().userAgent, userAgent)
	// Copies: a header's string holds on to the whole head it was cut from.
	o.Host = strings.Clone(o.Host)
	userAgent = unique.Make(userAgent[:min(len(userAgent), fetch.MaxUserAgent)]).Value() // a few clients ask for many origins
	f := c.launch(o, userAgent, before, c.places)
	f.anew = good == nil
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
	now, ok := c.entries.GetEntryQuietly(e.origin)
	if !ok || now.Value != e || c.flights[e.origin] != nil || c.stopped.Load() {
		<-c.refreshes // evicted, fetched, or being fetched
		return
	}
	c.launch(e.origin, e.agent, e, c.refreshes)
}

// postpone has e refreshed at next, where it is not zero.
func (c *Cache) postpone(e *Entry, next time.Time) {
	if next.IsZero() {
		return
	}
	c.schedule.add(e, next)
	if now, ok := c.entries.GetEntryQuietly(e.origin); !ok || now.Value != e {
		c.schedule.remove(e) // evicted or replaced before it was back in the schedule
	}
}

// launch starts a flight that holds a place in places: a fetch, but where nothing
// is known of o the Store is asked first. c.mu is held.
func (c *Cache) launch(o robots.Origin, agent string, before *Entry, places chan struct{}) *flight {
	f := &flight{done: make(chan struct{}), terms: c.terms.Load()}
	f.terms.flights++
	c.flights[o] = f
	c.wg.Go(func() {
		if before == nil {
			f.entry = c.load(o, f, nil)
			f.loaded = f.entry != nil
		}
		switch {
		case f.loaded:
		case c.shared != nil:
			f.entry = c.fetchShared(o, agent, before, f)
		default:
			f.entry = c.fetch(o, agent, before, f)
		}
		c.mu.Lock()
		delete(c.flights, o) // after the entry is stored: whoever finds no flight finds the entry
		f.terms.landed()
		c.mu.Unlock()
		close(f.done)
		<-places
	})
	return f
}

// fetch fetches and stores; nil: the cache was stopped meanwhile, and the
// failure that this was says nothing about the origin.
func (c *Cache) fetch(o robots.Origin, agent string, before *Entry, f *flight) *Entry {
	ctx, cancel := context.WithTimeout(c.base, f.terms.clock.fetchTimeout)
	defer cancel()
	a := f.terms.fetcher.Fetch(ctx, o, agent)
	if c.base.Err() != nil {
		return nil
	}
	if a == nil {
		a = &fetch.Answer{MaxAge: -1, Err: errNoAnswer, Fetched: time.Now()}
	}
	c.tally.count(a)
	e := newEntry(o, agent, a, before, time.Now(), f.terms.clock)
	e.compileAs(before)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.terms.Load()
	if f.purged {
		e, before = newEntry(o, agent, a, nil, time.Now(), f.terms.clock), nil
	}
	if t != f.terms {
		e = e.retimed(f.terms, t)
		if now, ok := c.entries.GetEntryQuietly(o); ok {
			before = now.Value // by the times of t too
		}
	}
	e.weighAgain = c.weighAgain
	if a.Ours {
		// Whoever waits is told. What is known of the origin stays as it was, its
		// row of failures too, and whoever asks next begins a fetch.
		e.delay = 0
		if before != nil && !before.life[said].due.IsZero() {
			c.postpone(before, e.tried.Add(t.clock.retry))
		}
		return e
	}
	c.store(e, before)
	c.keep(e)
	if f.anew && c.shared != nil {
		c.shared.Announce(o, Replaced)
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
