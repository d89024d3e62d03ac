package cache

import (
	"slices"
	"time"

	"github.com/maypok86/otter/v2"
)

// terms are the Options that may be changed, as one value.
type terms struct {
	fetcher   Fetcher
	clock     clock
	userAgent string

	// guarded by Cache.mu
	flights int           // that are made under them, and one for the terms before, while theirs are not over
	next    *terms        // that are in force instead, or were; nil: these are
	over    chan struct{} // closed when others are in force and no flight is left
}

func (o Options) terms() *terms {
	return &terms{
		fetcher:   o.Fetcher,
		clock:     clock{minAge: o.MinAge, maxAge: o.MaxAge, retry: o.Retry, fetchTimeout: o.FetchTimeout},
		userAgent: o.UserAgent,
		over:      make(chan struct{}),
	}
}

// landed ends a flight. Cache.mu is held.
func (t *terms) landed() {
	t.flights--
	t.end()
}

// yield has other terms in force. Cache.mu is held.
func (t *terms) yield(next *terms) {
	t.next = next
	next.flights++
	t.end()
}

// end ends the time of the terms, if it is over.
func (t *terms) end() {
	if t.flights == 0 && t.next != nil {
		close(t.over)
		t.next.landed()
	}
}

// Use puts other Options in force, but for MaxBytes, MaxFetches and Store, which stay as
// they were made. What is known of origins stays known, and is from now on as old, and in
// a row of failures as far on, as it is by the new times; nothing is fetched for that
// unless it is due. Fetches under way go on as they were begun; over is closed when
// the last of them has ended, by whichever Options of before it is made, and their
// Fetchers are of no more use here. After an error nothing has changed.
//
// A new User-Agent is sent from the next fetch of each file on.
func (c *Cache) Reconfigure(o Options) (over <-chan struct{}, err error) {
	if o, err = o.whole(); err != nil {
		return nil, err
	}
	t := o.terms()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.terms.Swap(t)
	before.yield(t)
	if before.clock != t.clock {
		c.replaceAll(func(e *Entry) *Entry { return e.retimed(before, t) })
	}
	return before.over, nil
}

// Reroute is for a Fetcher that goes another way than the one before Use: an origin
// that could not be reached at all is tried again when it is next asked for.
func (c *Cache) RetryUnconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, clock := time.Now(), c.terms.Load().clock
	c.replaceAll(func(e *Entry) *Entry {
		if e.last.kind != noConnection || !now.Before(e.retry()) {
			return e
		}
		return failing(e.key, e.last, e.held, e.row, now, clock)
	})
}

// replaceAll puts other entries in the place of those in memory. c.mu is held, so
// that nobody else does.
func (c *Cache) replaceAll(other func(*Entry) *Entry) {
	for _, e := range slices.Collect(c.entries.Values()) {
		next := other(e)
		if next == e {
			continue
		}
		next.weighAgain = c.weighAgain
		next.use.Store(e.use.Load() & (used(said) | used(whole)))
		if due := next.life[said].due; !due.IsZero() {
			c.schedule.add(next, due) // first: an eviction takes it out again
		}
		stays := false
		c.entries.ComputeIfPresent(e.key, func(now *Entry) (*Entry, otter.ComputeOp) {
			if stays = now == e; !stays {
				return now, otter.CancelOp
			}
			return next, otter.WriteOp
		})
		if !stays {
			c.schedule.remove(next) // it has been evicted
		}
		c.schedule.remove(e)
	}
	c.entries.CleanUp()
}

// retimed is e by other terms.
func (e *Entry) retimed(before, t *terms) *Entry {
	last := e.last.retimed(t.clock)
	if last.kind.settled() {
		return settled(e.key, last, last.answer.Fetched, t.clock)
	}
	failures := e.row
	failures.delay = t.clock.scaled(failures.delay, before.clock)
	retry := failures.tried.Add(failures.delay)
	return failing(e.key, last, e.held.retimed(t.clock), failures, retry, t.clock)
}

// retimed is r by another clock, with what has been compiled of it; nil for nil.
func (r *reply) retimed(c clock) *reply {
	if r == nil {
		return nil
	}
	next := newReply(r.answer, r.answer.Fetched, c)
	files := r.files.Load() // what is compiled meanwhile is compiled again
	next.files.Store(files)
	for f := files; f != nil; f = f.next {
		next.size.Add(int64(f.file.Size()))
	}
	return next
}

// scaled is the wait that a row of failures is at, which was one of before's, by the
// times of c.
func (c clock) scaled(delay time.Duration, before clock) time.Duration {
	if c.retry == before.retry {
		return delay
	}
	most := max(maxRetry, c.retry)
	x := delay.Seconds() / before.retry.Seconds() * c.retry.Seconds()
	if !(x < most.Seconds()) {
		return most
	}
	return max(c.retry, time.Duration(x*float64(time.Second)))
}
