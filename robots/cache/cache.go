// Package cache keeps what each origin's robots.txt says now: one fetch an
// origin however many wait, a time to live, refreshes before it is over,
// copies held while an origin fails, and what an answer means under a dialect.
//
// It does not fetch (robots/fetch does, behind [Fetcher]), does not read the
// text (robots does) and decides about no request. It writes nothing to disk
// itself: a [Store] may, which is asked for what is not in memory before its
// origin is, and is given the outcome of every fetch. What it keeps is the raw
// answers and the row of failures; what follows from Options or a dialect is
// worked out anew.
//
// How it fails: a fetch that fails is an [Entry] like any other, and its
// [Ruling] refuses unless a copy is held; it is answered at once until its next
// try. One that no origin is to blame for ([fetch.Answer].Ours) is told to those
// who wait, and not kept. [Cache.Lookup] itself fails only when its caller
// leaves or the cache is stopped, and then gives no Entry; a nil Entry refuses.
// When memory is short the entries least worth keeping are dropped. With a
// Store they are loaded again when asked for, after a restart too: what is fresh
// is not fetched, copies are held on for their 30 days, the wait before a retry
// and the count for a dialect that gives origins up go on. Only an origin that
// could not be reached at all is tried once more: the reason is kept as words, and
// whether there is a way may have changed. A Store that fails, is slow, or gives
// what cannot be read is one that knows nothing. Without a Store, what was dropped
// is fetched anew when asked for, its retry time is gone, and the count begins
// anew, which refuses.
//
// A Store may be a [Sharer]: then several Caches fetch a file once for all of them,
// whose copies and rows of failures are theirs together. One that dies while it fetches
// holds the others up for no longer than a fetch may take; that it cannot reach an
// origin at all binds nobody else. While the Sharer fails each fetches for itself.
//
// A Cache may be shared by any number of goroutines. It owns the goroutines of
// its fetches: [Cache.Run] waits for them.
package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

const (
	// DefaultFetches is how many files are fetched at once for callers that wait;
	// further callers wait for a place, see [places]. It bounds what strangers'
	// hosts can make the cache hold beside its entries.
	DefaultFetches = 512

	// FetchBytes is how much memory one fetch may take, in bytes: its text while it
	// grows, the text that is kept, and the buffers of the connection.
	FetchBytes = 1 << 20

	// DefaultBytes is how many bytes of memory answers and compiled files may take.
	DefaultBytes = 64 << 20

	// refreshPart is the divisor of Options.MaxFetches that gives how many files are
	// refreshed at once. Refreshes have places of their own, so that strangers' hosts
	// cannot keep files in use from being refreshed.
	refreshPart = 8
)

// ErrStopped is what Lookup answers once Run has ended.
var ErrStopped = errors.New("robots cache is stopped")

// A Fetcher gets an origin's robots.txt once. It must return soon after ctx
// ends, and never nil. It bounds its own time: the cache sets no timeout.
type Fetcher interface {
	Fetch(ctx context.Context, r fetch.Request) *fetch.Result
}

// A Query says which file a caller wants, and which client causes its fetch.
//
// An origin's answer may depend on the User-Agent of the request. The files and outcomes
// of different Tokens are therefore kept apart, so that no client's User-Agent header
// decides for another client. Tokens that differ only in the case of letters are one token,
// and the file is fetched with the one that was asked for first. The number of Tokens for
// one origin is bounded; see [MaxTokens]. A Query with a Token beyond the bounds gets the
// proxy's own file.
type Query struct {
	Origin robots.Origin
	Token  string // product token to fetch as; "": the file is fetched with Options.UserAgent
	Client string // the client whose fair share a fetch counts against; any string

	// Direct is for the fetch of another origin's file that is redirected to Origin, to
	// learn whether it may go there. With Direct, redirects of Origin's own file to a third
	// origin are not followed, and the lookup waits for no place: the other fetch has one.
	// An entry that is known without Direct is used too.
	Direct bool
}

// Options make a [Cache]; all but MaxBytes, MaxFetches and Store may be changed, by [Cache.Use].
type Options struct {
	Fetcher      Fetcher       // required
	MaxAge       time.Duration // the longest a file is used without a fetch; zero means 24 hours
	MinAge       time.Duration // the least time between two fetches of a file; zero means a minute (or MaxAge, if less)
	Retry        time.Duration // before the first retry of a failing origin; doubles up to 30 minutes; zero means 30 seconds
	FetchTimeout time.Duration // zero means 20 seconds
	MaxBytes     int64         // of memory for answers and compiled files; zero means 64 MiB
	MaxFetches   int           // fetches at once for callers that wait; zero means DefaultFetches
	UserAgent    string        // sent with the fetches of Queries without a Token; "" means "robotsproxy"
	Store        Store         // outlives the Cache; nil: what is known is in memory alone
}

// A Cache answers for origins. The zero Cache is not usable; see [New].
type Cache struct {
	saved  Store       // may be nil
	shared SharedStore // saved, if it is one; or nil
	terms  atomic.Pointer[terms]

	tally    tally
	entries  *otter.Cache[key, *Entry]
	variants variants
	schedule schedule
	running  atomic.Bool // Run takes from the schedule
	stopped  atomic.Bool // written under mu

	places    *places       // fetches for callers that wait
	refreshes chan struct{} // fetches in the background

	base   context.Context // of every fetch: ends with the cache, not with a caller
	cancel context.CancelFunc

	mu      sync.Mutex // guards flights, that what is stored is by the terms, and that no fetch starts once stopped; otter's locks are taken under it
	flights map[key]*flight
	wg      sync.WaitGroup
}

// New makes a Cache. It starts nothing; see [Cache.Run].
func New(o Options) (*Cache, error) {
	o, err := o.whole()
	if err != nil {
		return nil, err
	}
	c := &Cache{
		saved:     o.Store,
		schedule:  schedule{wake: make(chan struct{}, 1)},
		places:    newPlaces(o.MaxFetches),
		refreshes: make(chan struct{}, max(1, o.MaxFetches/refreshPart)),
		flights:   make(map[key]*flight),
	}
	c.shared, _ = o.Store.(SharedStore)
	c.terms.Store(o.terms())
	c.entries, err = otter.New(&otter.Options[key, *Entry]{
		MaximumWeight: uint64(o.MaxBytes),
		Weigher:       func(_ key, e *Entry) uint32 { return e.weight() },
		// Maintenance on the goroutine of the caller, and no expiration:
		// otter starts no goroutine of its own.
		Executor:   func(work func()) { work() },
		OnDeletion: c.dropped,
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	c.base, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// whole gives the Options with what zero stands for, or says what is wrong with them.
func (o Options) whole() (Options, error) {
	if o.Fetcher == nil {
		return Options{}, errors.New("cache: Options.Fetcher is required")
	}
	if min(o.MaxAge, o.MinAge, o.Retry, o.FetchTimeout) < 0 || o.MaxBytes < 0 || o.MaxFetches < 0 {
		return Options{}, errors.New("cache: a negative value in Options")
	}
	o = o.withDefaults()
	if o.MinAge > o.MaxAge {
		return Options{}, fmt.Errorf("cache: Options.MinAge %v is more than MaxAge %v", o.MinAge, o.MaxAge)
	}
	return o, nil
}

func (o Options) withDefaults() Options {
	if o.MaxAge == 0 {
		o.MaxAge = 24 * time.Hour
	}
	if o.MinAge == 0 {
		o.MinAge = min(time.Minute, o.MaxAge)
	}
	if o.Retry == 0 {
		o.Retry = 30 * time.Second
	}
	if o.FetchTimeout == 0 {
		o.FetchTimeout = 20 * time.Second
	}
	if o.MaxFetches == 0 {
		o.MaxFetches = DefaultFetches
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultBytes
	}
	if o.UserAgent == "" {
		o.UserAgent = "robotsproxy"
	}
	return o
}

// Lookup gives what the robots.txt that q asks for says now: at once where that is
// known and usable under d, else after a look into the Store, or a fetch. All callers
// with the same Origin and Token get the same entry, to be judged by the same d. The
// error is ctx's own, or ErrStopped; the fetch goes on for others when ctx ends.
func (c *Cache) Lookup(ctx context.Context, q Query, d robots.Dialect) (*Entry, error) {
	if c.stopped.Load() {
		return nil, ErrStopped
	}
	if e := c.hit(key{origin: q.Origin, token: q.Token}, d); e != nil {
		return e, nil
	}
	k := c.variants.admit(q)
	if k.token != q.Token || k.direct {
		if e := c.hit(k, d); e != nil {
			return e, nil
		}
	}
	c.tally.misses.Add(1)
	missed := d // only here: the hot path allocates nothing
	return c.wait(ctx, k, q.Client, &missed)
}

// hit gives the entry in memory that is usable under d; nil: there is none.
func (c *Cache) hit(k key, d robots.Dialect) *Entry {
	e, ok := c.entries.GetIfPresent(k)
	if !ok {
		return nil
	}
	if e = c.use(e, d, time.Now()); e != nil {
		c.tally.hits.Add(1)
	}
	return e
}

// use gives the entry to answer with under d at now, nil where a fetch must be
// waited for, and remembers that it was used.
func (c *Cache) use(e *Entry, d robots.Dialect, now time.Time) *Entry {
	e = e.answers(d, now, c.running.Load())
	by := lifeOf(d)
	if e == nil || e.use.Load()&used(by) != 0 { // read first: a hot entry is shared between processors
		return e
	}
	if was := e.use.Or(used(by)); was&used(by) == 0 && was&missed(by) != 0 {
		c.schedule.add(e, now) // its refresh passed it by while it was idle
	}
	return e
}

// store puts e in place of before.
func (c *Cache) store(e, before *Entry) {
	if due := e.life[said].due; !due.IsZero() {
		c.schedule.add(e, due) // first: an eviction takes it out again
	}
	c.entries.Set(e.key, e)
	c.variants.keep(e.key)
	if before != nil {
		c.schedule.remove(before) // then: see postpone
	}
	c.entries.CleanUp() // evict now; otter may leave it to the next use
}

// weighAgain tells otter that r has grown by a compiled file.
func (c *Cache) weighAgain(k key, r *reply) {
	c.entries.ComputeIfPresent(k, func(e *Entry) (*Entry, otter.ComputeOp) {
		if e.last != r && e.held != r {
			return e, otter.CancelOp
		}
		return e, otter.WriteOp
	})
	c.entries.CleanUp()
}

// dropped runs under otter's locks.
func (c *Cache) dropped(d otter.DeletionEvent[key, *Entry]) {
	if d.Cause != otter.CauseReplacement { // store has seen to that
		c.schedule.remove(d.Value)
		c.variants.remove(d.Key)
	}
}
