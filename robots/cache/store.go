package cache

import (
	"context"
	"errors"
	"time"

	"robotsproxy/robots"
)

const (
	// maxLoad is how long a Store is waited for; then it knows nothing.
	maxLoad = time.Second

	// maxAhead is how far in the future an answer may have come, by a wall
	// clock that was set back a little since. One further off is not believed:
	// it would stay fresh for as long as it is ahead.
	maxAhead = time.Minute
)

// A Store keeps what is known of origins for longer than memory does. To it an
// entry is octets, which are this package's alone. Any number of goroutines may
// use it; robots/cache/storetest tells whether one keeps to this.
type Store interface {
	// Load gives what was saved last for o, which is not to be written to; nil:
	// there is nothing. It returns soon after ctx ends.
	Load(ctx context.Context, o robots.Origin) ([]byte, error)

	// Save takes over entry, which is of no use after until. It waits for no
	// disk and no network, and what becomes of the entry is not said. The entry
	// counts against the share of client, which caused its fetch; "": no client did.
	Save(o robots.Origin, entry []byte, until time.Time, client string)
}

// load brings what the Store has of o into memory; nil: nothing that is of use, or, with
// before, nothing newer. It is o's flight f that calls it, so that nothing else is stored
// meanwhile.
func (c *Cache) load(o robots.Origin, f *flight, before *Entry) *Entry {
	if c.saved == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.base, maxLoad)
	defer cancel()
	for ctx.Err() == nil {
		octets, err := c.saved.Load(ctx, o)
		if errors.Is(err, ErrPurged) {
			c.heard(o, Purged)
		}
		if err != nil {
			return nil
		}
		e, again := c.take(octets, o, f, before)
		if again {
			continue
		}
		if e != nil && before != nil {
			e.compileAs(before)
			c.weighAgain(e.key, e.last)
		}
		return e
	}
	return nil
}

// take is load with what the Store gave; again: that is no longer what it has.
func (c *Cache) take(octets []byte, o robots.Origin, f *flight, before *Entry) (e *Entry, again bool) {
	k, err := decode(octets)
	if err != nil || k.origin != o.String() {
		k = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.again {
		f.again = false
		return nil, true
	}
	if k == nil {
		return nil, false
	}
	t := c.terms.Load()
	if c.shared != nil && kindOf(k.last) == noConnection {
		k.delay = 0 // whoever it was that could not get there; the wait is each one's own
		if before != nil {
			k.delay = before.delay
		}
	}
	if e = k.entry(o, time.Now(), t.clock); e == nil || !e.newerThan(before) {
		return nil, false
	}
	e.weighAgain = c.weighAgain
	known, _ := c.entries.GetEntryQuietly(key{origin: o})
	c.store(e, known.Value)
	return e, false
}

// stored reports whether a Store has entries for k, that is, whether k names one of the
// proxy's own files. Each process fetches the others for itself, and again after a restart.
func (k key) stored() bool { return k.token == "" && !k.direct }

// keep hands e to the Store.
func (c *Cache) keep(e *Entry, client string) {
	if c.saved == nil || !e.stored() {
		return
	}
	if octets := encode(e); len(octets) <= maxSaved {
		c.saved.Save(e.origin, octets, e.useful(), client)
	}
}

// useful is until when there is any use for e in a Store: to answer with, as a
// copy, or to go on with its row of failures.
func (e *Entry) useful() time.Time {
	t := later(later(e.life[said].until, e.life[whole].until), e.last.force)
	if e.held != nil {
		t = later(t, e.held.force)
	}
	if !e.tried.IsZero() {
		t = later(t, e.tried.Add(maxHeld))
	}
	return t
}

// entry makes the entry that k was, as it is at now by the times of c; nil where
// a time of it has not come yet.
func (k *kept) entry(o robots.Origin, now time.Time, c clock) *Entry {
	for _, t := range k.times() {
		if t.After(now.Add(maxAhead)) {
			return nil
		}
	}
	at := earlier(k.last.Fetched, now)
	last := newReply(k.last, at, c)
	if last.kind.settled() {
		return settled(key{origin: o}, last, at, c)
	}
	var held *reply
	if k.held != nil {
		held = newReply(k.held, earlier(k.held.Fetched, now), c)
	}
	failures := row{earlier(k.failed, now), earlier(k.tried, now), min(k.delay, max(maxRetry, c.retry))}
	retry := failures.tried.Add(failures.delay)
	if last.kind == noConnection {
		// It holds nothing up: by its error, whose type is lost, requests are
		// answered, and the configuration may lead somewhere else by now.
		retry = now
	}
	return failing(key{origin: o}, last, held, failures, retry, c)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
