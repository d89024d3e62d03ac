package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"robotsproxy/robots"
)

const (
	// A Sharer is asked so often whether another's fetch is over: at first, and at last.
	minPoll = 25 * time.Millisecond
	maxPoll = 200 * time.Millisecond
)

// ErrPurged is the error of a Sharer's Load for what was forgotten, and not saved since:
// what the caller knows of it from before is not to be used.
var ErrPurged = errors.New("it was purged")

// A Sharer is a Store that the Caches of several processes have in common, each by a
// Sharer of its own: they fetch a file once for all of them, and forget it together.
//
// Over a purge nothing is saved by one that neither has announced it nor was told of
// it, by Watch or, since its Claim, by Load: it may rest on what was known before.
type SharedStore interface {
	// Claim asks for the right to fetch the file of o, which is one Cache's at a time
	// and ends by itself after term. It returns soon, whoever has the right. An error:
	// nobody knows, and everyone fetches for itself.
	Lease(ctx context.Context, o robots.Origin, term time.Duration) (Lease, error)

	// Announce tells the others, and where o is Purged has what is saved of it
	// forgotten. It waits for no disk and no network.
	Announce(o robots.Origin, what Change)

	// Watch calls heard for whatever others announce, one after the other, until ctx
	// ends. What was saved before they announced it can be loaded by then. What is
	// heard twice does no harm.
	Watch(ctx context.Context, heard func(robots.Origin, Change))
}

// A Claim is what came of one.
type Lease struct {
	Release func() // gives the right back, when all that was saved before can be loaded, and waits for nothing; nil: another has it
	Version string // stands for what is saved of the origin: every Save makes another of it
}

// A Change is what happened to what is known of an origin.
type Change uint8

// The changes. Zero is none.
const (
	Purged   Change = iota + 1 // it is forgotten
	Replaced                   // it was fetched before its time
)

// fetchShared is fetch where others share the Store: one of us fetches, and the rest
// take what it has saved.
func (c *Cache) fetchShared(o robots.Origin, client string, before *Entry, f *flight) *Entry {
	release, e, before := c.claim(o, before, f)
	if release != nil {
		defer release()
	}
	if e != nil || c.base.Err() != nil {
		return e
	}
	return c.fetch(key{origin: o}, client, before, f)
}

// claim asks for the right to fetch, until it is given or the entry e is there, which
// another has fetched since before. With neither, nobody is to be waited for any more:
// the Store fails, or those who had the right bring nothing. What was known is then
// the entry that it returns as the last.
func (c *Cache) claim(o robots.Origin, before *Entry, f *flight) (release func(), e, known *Entry) {
	c.mu.Lock()
	anew := f.anew
	c.mu.Unlock()
	term := f.terms.clock.overtime()
	patience := time.Now().Add(2 * term) // that of one who had the right and died, and another
	waited, saved := false, ""
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		claim, err := c.ask(o, term)
		if err != nil {
			return nil, nil, before
		}
		changed := waited && claim.Version != saved
		waited, saved = true, claim.Version
		if changed || claim.Release != nil {
			e := c.load(o, f, before)
			switch {
			case e == nil:
			case e.fresh(time.Now()) && (changed || !anew):
				f.loaded = !anew
				return claim.Release, e, nil
			default:
				before = e
				if e.last.kind == noConnection { // it may be that other's fault: who cannot get there is not waited for by all in turn
					patience = earlier(patience, time.Now().Add(handover))
				}
			}
		}
		if claim.Release != nil || !time.Now().Before(patience) || !c.pause(pause/2+rand.N(pause/2)) {
			return claim.Release, nil, before
		}
	}
}

// ask is Claim, for no longer than a Store is waited for.
func (c *Cache) ask(o robots.Origin, term time.Duration) (Lease, error) {
	ctx, cancel := context.WithTimeout(c.base, maxLoad)
	defer cancel()
	return c.shared.Lease(ctx, o, term)
}

// pause waits; false: the cache was stopped.
func (c *Cache) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.base.Done():
		return false
	}
}

// heard is told what others have announced: memory is behind the Store then.
func (c *Cache) heard(o robots.Origin, what Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(o, what)
}

// forget has memory forget the proxy's own file of o and, if what is Purged, the files for
// product tokens, also those of fetches under way. was reports whether there was any. The
// caller holds c.mu.
func (c *Cache) forget(o robots.Origin, what Change) (was bool) {
	keys := []key{{origin: o}}
	if what == Purged {
		keys = append(keys, key{origin: o, direct: true})
		for _, token := range c.variants.tokens(o) {
			keys = append(keys, key{o, token, false}, key{o, token, true})
		}
	}
	for _, k := range keys {
		if f := c.flights[k]; f != nil {
			f.again = true
			f.purged = f.purged || what == Purged
		}
		if _, had := c.entries.Invalidate(k); had {
			was = true
		}
	}
	return was
}

// fresh says whether e, which another has fetched, is to be answered with rather than
// fetched once more.
func (e *Entry) fresh(now time.Time) bool { return now.Before(e.life[said].expires) }

// newerThan says whether e came after before, which may be nil. Nothing is fetched twice
// within a minute, by which clocks do not differ; where they do, it costs a fetch.
func (e *Entry) newerThan(before *Entry) bool {
	return before == nil || e.came().After(before.came())
}

func (e *Entry) came() time.Time { return later(e.last.answer.Fetched, e.tried) }
