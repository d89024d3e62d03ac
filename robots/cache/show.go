package cache

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// Origin is whose robots.txt e is.
func (e *Entry) Origin() robots.Origin { return e.origin }

// Token gives the product token that e was fetched with; "": e is the proxy's own. See [Query].
func (e *Entry) Token() string { return e.token }

// Expires is until when e is answered with, whether or not anybody uses it; one in use
// is fetched anew before.
func (e *Entry) Expires() time.Time { return e.life[said].expires }

// All gives the entries in memory, in no order. To be shown in it counts as no use.
func (c *Cache) All() iter.Seq[*Entry] { return c.entries.Values() }

// Peek gives the proxy's own entry of o in memory, nil without one. It fetches nothing,
// and counts as no use.
func (c *Cache) Peek(o robots.Origin) *Entry {
	e, _ := c.entries.GetEntryQuietly(key{origin: o})
	return e.Value
}

// Purge forgets what is known of o, copies held and rows of failures too, in memory and
// in the Store, and says whether there was anything in memory. Who asks next waits for
// a fetch. With a Sharer the others forget it as well.
func (c *Cache) Purge(o robots.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.forget(o, Purged)
	switch {
	case c.shared != nil:
		c.shared.Announce(o, Purged)
	case c.saved != nil:
		c.saved.Save(o, []byte{0}, time.Now(), "") // which is no entry, and over
	}
	return was
}

// Refetch fetches the robots.txt that q asks for now, whatever its age, or waits for a
// fetch that is under way, here or in another process that shares the Store. It gives what
// is known then; after a failed fetch, with the copy held. The other processes load the
// entry when they are next asked. The error is as with Lookup.
func (c *Cache) Refetch(ctx context.Context, q Query) (*Entry, error) {
	return c.wait(ctx, c.variants.admit(q), q.Client, nil)
}

// Fetched is how a fetch came out. The set is closed.
type FetchOutcome string

// The outcomes of a fetch, as the standard dialect has them.
const (
	FetchedRules        FetchOutcome = "rules"         // a file
	FetchedNoFile       FetchOutcome = "no-file"       // there is none
	FetchedUnreachable  FetchOutcome = "unreachable"   // reached, but no usable answer
	FetchedNoConnection FetchOutcome = "no-connection" // never reached
	FetchedOwnFailure   FetchOutcome = "ours"          // no origin is to blame
)

// Stats is what a Cache is at, to be shown.
type Stats struct {
	Entries  int
	Bytes    int64  // of memory, as Options.MaxBytes counts them
	Hits     uint64 // look-ups answered from memory
	Misses   uint64 // look-ups that had to wait, for the Store or a fetch
	Fetching int    // origins that are being fetched, or looked for in the Store
	Fetches  map[FetchOutcome]uint64
}

// Stats gives them; every outcome is in Fetches.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	fetching := len(c.flights)
	c.mu.Unlock()
	s := Stats{
		Entries:  c.entries.EstimatedSize(),
		Bytes:    int64(c.entries.WeightedSize()),
		Hits:     c.tally.hits.Load(),
		Misses:   c.tally.misses.Load(),
		Fetching: fetching,
		Fetches:  map[FetchOutcome]uint64{FetchedOwnFailure: c.tally.ours.Load()},
	}
	for o, name := range fetchedAs {
		s.Fetches[name] = c.tally.fetches[o].Load()
	}
	return s
}

// A tally counts for Stats.
type tally struct {
	hits, misses, ours atomic.Uint64
	fetches            [len(fetchedAs)]atomic.Uint64 // by Outcome
}

// OutcomeOf gives the outcome of the fetch that had this answer.
func FetchOutcomeOf(a *fetch.Result) FetchOutcome {
	if a.OwnFailure {
		return FetchedOwnFailure
	}
	return fetchedAs[outcome(kindOf(a), robots.Standard())]
}

var fetchedAs = [...]FetchOutcome{
	Unreachable: FetchedUnreachable, NoConnection: FetchedNoConnection, NoFile: FetchedNoFile, Rules: FetchedRules,
}

func (t *tally) count(a *fetch.Result) {
	if a.OwnFailure {
		t.ours.Add(1)
		return
	}
	t.fetches[outcome(kindOf(a), robots.Standard())].Add(1)
}
