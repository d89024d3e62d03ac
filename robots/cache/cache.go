// Package cache keeps what the robots.txt of each origin says now, or the tdmrep.json: a [Cache]
// has the files that its [Fetcher] fetches, and a dialect says how to read them. It fetches each
// file once, however many callers wait for it, refreshes files in use before they expire, uses
// stale files while an origin fails, and decides what a response means under a dialect.
//
// It does not fetch (robots/fetch does), does not parse (robots and robots/tdmrep do), and decides
// about no request. It writes nothing to disk; a [Store] may. The Cache asks the Store for an
// origin that is not in memory before it fetches, and gives it the outcome of every fetch. The
// Cache keeps the raw results of fetches and the times of failures, and derives all else from the
// Options and the dialect.
//
// How it fails:
//
//   - A failed fetch is an [Entry] like any other. Its [Ruling] refuses unless a stale file may
//     be used. Until the next retry, Lookup returns it at once.
//   - A failure of the proxy's own ([fetch.Result].OwnFailure) goes to the callers that wait,
//     and is not kept.
//   - [Cache.Lookup] returns an error, and a nil Entry, only if its context ends or the cache is
//     stopped. A nil Entry refuses.
//   - When memory is short, the cache evicts entries and, with a Store, loads them again when
//     they are needed. Without a Store, an evicted file is fetched again; its retry time and the
//     start of its failures are lost, which refuses.
//   - A Store that fails, is slow, or returns unreadable data counts as empty.
//
// After a restart with a Store, the cache fetches nothing that is fresh, and continues stale use
// (at most 30 days), retry times, and the failure time that some dialects count. It retries only
// origins without a connection, since the Store keeps an error as text only, and the network may
// have changed.
//
// A Store may be a [SharedStore]. Then several Caches, each in its process, fetch a file once
// for all of them, and share entries and failures. If the Cache that fetches dies, the others
// wait no longer than a fetch may take. If it cannot connect to an origin, the others try for
// themselves. While the SharedStore fails, each Cache fetches for itself.
//
// Any number of goroutines may share a Cache. It owns the goroutines of its fetches: [Cache.Run]
// waits for them.
package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

const (
	// DefaultFetches is how many files are fetched at once for callers that wait; more callers wait
	// for a slot, see [fetchSlots]. It limits the memory that fetches take beside the entries.
	DefaultFetches = 512

	// FetchBytes is how much memory one fetch may take, in bytes: the text while it grows, the text
	// that is kept, and the buffers of the connection.
	FetchBytes = 1 << 20

	// DefaultBytes is how many bytes of memory results and compiled files may take.
	DefaultBytes = 64 << 20

	// refreshPart divides Options.MaxFetches to give how many files are refreshed at once.
	// Refreshes have slots of their own, so that requests for new hosts cannot stop files in use
	// from being refreshed.
	refreshPart = 8
)

// ErrUnknown is the error of Lookup for a Query with OnlyKnown.
var ErrUnknown = errors.New("no robots.txt in memory")

// ErrStopped is the error of Lookup once Run has ended.
var ErrStopped = errors.New("robots cache is stopped")

// A Fetcher fetches the robots.txt of an origin once. It must return soon after ctx ends, and
// must not return nil. It limits its own time: the cache sets no timeout.
type Fetcher interface {
	Fetch(ctx context.Context, r fetch.Request) *fetch.Result
}

// Options configure a [Cache]. [Cache.Reconfigure] may change all but MaxFetches, Store and
// StoreTokens.
type Options struct {
	// Fetcher is required.
	Fetcher Fetcher

	// MaxAge is the maximum time that a file is used without a fetch. Zero means 24 hours.
	MaxAge time.Duration

	// MinAge is the minimum time between two fetches of a file. Zero means a minute, or MaxAge if
	// that is less.
	MinAge time.Duration

	// Retry is the time before the first retry of a failing origin, which doubles with each failure,
	// up to 30 minutes. Zero means 30 seconds.
	Retry time.Duration

	// FetchTimeout is how long a fetch may take. Zero means 20 seconds.
	FetchTimeout time.Duration

	// MaxBytes is the maximum memory of results and compiled files, in bytes. Zero means 64 MiB.
	MaxBytes int64

	// MaxFetches is the maximum number of fetches at once for callers that wait. Zero means
	// DefaultFetches.
	MaxFetches int

	// UserAgent is sent with the fetches of Queries without a Token. "" means "robotsproxy".
	UserAgent string

	// Store keeps entries beyond the life of the Cache. With nil, entries are in memory only.
	Store Store

	// StoreTokens lets the Store also keep the files that are fetched for product tokens. It has no effect with a
	// SharedStore. Purge then deletes from the Store the files for the tokens that the Cache knows.
	StoreTokens bool
}

// A Cache keeps the robots.txt files of origins. The zero Cache is not usable; see [New].
type Cache struct {
	// store may be nil.
	store Store

	// sharedStore is store if that is a SharedStore, else nil.
	sharedStore SharedStore

	// storeTokens is Options.StoreTokens, but false with sharedStore.
	storeTokens bool
	gen         atomic.Pointer[optionsInUse]

	counters counters
	entries  *otter.Cache[key, *Entry]
	variants variants
	schedule schedule

	// running says that Run is running.
	running atomic.Bool

	// stopped is set under mu.
	stopped atomic.Bool

	// slots are those of fetches for callers that wait, and refreshSlots those of fetches in the
	// background.
	slots        *fetchSlots
	refreshSlots chan struct{}

	// baseCtx is the parent of the context of every fetch: it ends with the cache, not with a caller.
	baseCtx context.Context
	cancel  context.CancelCauseFunc

	// mu guards flights, and puts of entries under the current generation. It ensures that no fetch
	// starts after stopped is set. Otter's locks are taken while it is held.
	mu      sync.Mutex
	flights map[key]*flight
	wg      sync.WaitGroup
}

// A flight is a fetch in progress, or a load from the Store before it. There is at most one
// flight for each key.
type flight struct {
	// done is closed when entry and loaded are set.
	done chan struct{}

	// entry is nil if the cache was stopped first.
	entry *Entry

	// loaded says that entry is from the Store: it may be too old for some callers.
	loaded bool

	// saved says that entry was fetched, and saved for other processes.
	saved bool

	// gen is the generation in which the flight began.
	gen *optionsInUse

	// The fields below are guarded by Cache.mu, and constant once done is closed.

	// purged says that the origin was purged: earlier state must not be used.
	purged bool

	// reload says that the Store has changed during the load.
	reload bool

	// refetch says that a caller needs a new fetch, whatever is in memory.
	refetch bool

	// retry says that RetryUnconnected was called: if the fetch finds no connection, the next lookup
	// retries it.
	retry bool

	// since is when the first caller of Lookup came. It is zero if none has.
	since time.Time
}

// A generation is the Options of one call of New or Reconfigure, and the number of flights that
// still use them.
type optionsInUse struct {
	fetcher   Fetcher
	timing    timing
	userAgent string

	// agent is the name of the agent with this userAgent; see agentOf.
	agent string

	// The fields below are guarded by Cache.mu.

	// flights is the number of flights of this generation, plus one for the previous generation while
	// that has any.
	flights int

	// next is the next generation. It is nil if this is the current one.
	next *optionsInUse

	// drained is closed when this generation is replaced and no flight uses it or an earlier one.
	drained chan struct{}
}

// storeKey returns the key of the file of k in a Store.
func (o *optionsInUse) storeKey(k key) StoreKey {
	if k.token != "" {
		return StoreKey{k.origin, agentOf(k.token)}
	}
	return StoreKey{k.origin, o.agent}
}

// release ends a flight. The caller holds Cache.mu.
func (o *optionsInUse) release() {
	o.flights--
	o.checkDrained()
}

// checkDrained closes drained if the generation is replaced and has no flights.
func (o *optionsInUse) checkDrained() {
	if o.flights == 0 && o.next != nil {
		close(o.drained)
		o.next.release()
	}
}

// New creates a Cache. It starts no goroutine; see [Cache.Run].
func New(o Options) (*Cache, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	c := &Cache{
		store:        o.Store,
		schedule:     schedule{wake: make(chan struct{}, 1)},
		slots:        newFetchSlots(o.MaxFetches),
		refreshSlots: make(chan struct{}, max(1, o.MaxFetches/refreshPart)),
		flights:      make(map[key]*flight),
		counters:     counters{fetches: make(map[FetchOutcome]*atomic.Uint64)},
	}
	for _, o := range fetchOutcomes {
		c.counters.fetches[o] = new(atomic.Uint64)
	}
	c.sharedStore, _ = o.Store.(SharedStore)
	c.storeTokens = o.StoreTokens && c.sharedStore == nil
	c.gen.Store(o.generation())
	c.entries, err = otter.New(&otter.Options[key, *Entry]{
		MaximumWeight: uint64(o.MaxBytes),
		Weigher:       func(_ key, e *Entry) uint32 { return e.weight() },
		// With maintenance on the goroutine of the caller and without expiration, otter starts no
		// goroutine of its own.
		Executor:   func(work func()) { work() },
		OnDeletion: c.onDeletion,
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	c.baseCtx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

// All returns the entries in memory, in no order. The call does not count as use of an
// entry.
func (c *Cache) All() iter.Seq[*Entry] { return c.entries.Values() }

// Peek returns the proxy's own entry of o in memory, or nil. It fetches nothing, and the call
// does not count as use.
func (c *Cache) Peek(o robots.Origin) *Entry {
	e, _ := c.entries.GetEntryQuietly(key{origin: o})
	return e.Value
}

// Awaited returns the origin for whose file callers of Lookup have waited longest, and since when.
// The time is zero if nobody waits. A caller that has left counts until the file has come.
func (c *Cache) Awaited() (o robots.Origin, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, f := range c.flights {
		if !f.since.IsZero() && (since.IsZero() || f.since.Before(since)) {
			o, since = k.origin, f.since
		}
	}
	return o, since
}

// Stats are the current numbers of a Cache.
type Stats struct {
	Entries int

	// Bytes is how much memory they take, as Options.MaxBytes counts it.
	Bytes int64

	// Hits counts the lookups that memory answered.
	Hits uint64

	// Misses counts the lookups that had to wait for the Store or a fetch.
	Misses uint64

	// Fetching is how many files are being fetched, or loaded from the Store.
	Fetching int

	// Fetches counts the fetches by their outcome.
	Fetches map[FetchOutcome]uint64
}

// Stats returns the current numbers. Fetches contains every outcome.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	fetching := len(c.flights)
	c.mu.Unlock()
	s := Stats{
		Entries:  c.entries.EstimatedSize(),
		Bytes:    int64(c.entries.WeightedSize()),
		Hits:     c.counters.hits.Load(),
		Misses:   c.counters.misses.Load(),
		Fetching: fetching,
		Fetches:  make(map[FetchOutcome]uint64),
	}
	for o, n := range c.counters.fetches {
		s.Fetches[o] = n.Load()
	}
	return s
}

// counters are the counters behind Stats.
type counters struct {
	hits, misses atomic.Uint64

	// fetches has every FetchOutcome.
	fetches map[FetchOutcome]*atomic.Uint64
}

// checked returns the Options with their defaults, or an error if they are invalid.
func (o Options) checked() (Options, error) {
	if o.Fetcher == nil {
		return Options{}, errors.New("cache: Options.Fetcher is required")
	}
	if min(o.MaxAge, o.MinAge, o.Retry, o.FetchTimeout) < 0 || o.MaxBytes < 0 || o.MaxFetches < 0 {
		return Options{}, errors.New("cache: a negative value in Options")
	}
	o.MaxAge = cmp.Or(o.MaxAge, 24*time.Hour)
	o.MinAge = cmp.Or(o.MinAge, min(time.Minute, o.MaxAge))
	o.Retry = cmp.Or(o.Retry, 30*time.Second)
	o.FetchTimeout = cmp.Or(o.FetchTimeout, 20*time.Second)
	o.MaxFetches = cmp.Or(o.MaxFetches, DefaultFetches)
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultBytes)
	o.UserAgent = cmp.Or(o.UserAgent, "robotsproxy")
	if o.MinAge > o.MaxAge {
		return Options{}, fmt.Errorf("cache: Options.MinAge %v is more than MaxAge %v", o.MinAge, o.MaxAge)
	}
	return o, nil
}

func (o Options) generation() *optionsInUse {
	return &optionsInUse{
		fetcher:   o.Fetcher,
		timing:    timing{minAge: o.MinAge, maxAge: o.MaxAge, retry: o.Retry, fetchTimeout: o.FetchTimeout},
		userAgent: o.UserAgent,
		agent:     agentOf(o.UserAgent),
		drained:   make(chan struct{}),
	}
}

// put puts e in place of before.
func (c *Cache) put(e, before *Entry) {
	if due := e.lifetimes[byCacheControl].refreshAt; !due.IsZero() {
		// This comes before the entry is put, because an eviction removes it again.
		c.schedule.add(e, due)
	}
	c.entries.Set(e.key, e)
	c.variants.remember(e.key)
	if before != nil {
		// This comes after the entry is put; see postpone.
		c.schedule.remove(before)
	}
	// Otter evicts now, not at the next use.
	c.entries.CleanUp()
}

// reweigh tells otter that r has grown by a compiled file.
func (c *Cache) reweigh(k key, r *response) {
	c.entries.ComputeIfPresent(k, func(e *Entry) (*Entry, otter.ComputeOp) {
		if e.last != r && e.stale != r {
			return e, otter.CancelOp
		}
		return e, otter.WriteOp
	})
	c.entries.CleanUp()
}

// onDeletion is called under otter's locks.
func (c *Cache) onDeletion(d otter.DeletionEvent[key, *Entry]) {
	// put and replaceAll have already updated the schedule.
	if d.Cause != otter.CauseReplacement {
		c.schedule.remove(d.Value)
		c.variants.remove(d.Key)
	}
}

// Reconfigure replaces the Options, except MaxFetches, Store and StoreTokens, which do not change.
// Entries stay as far as MaxBytes permits, and their lifetimes and retries follow the new times. The
// cache fetches only what is due under these. Fetches in progress continue with their old Options. drained is
// closed when the last of them has ended, including those of earlier Options; their Fetchers
// are not used after that. After an error nothing has changed.
//
// The cache sends a new User-Agent with the next fetch of each file, and from now on uses the Store's
// entries for its agent.
func (c *Cache) Reconfigure(o Options) (drained <-chan struct{}, err error) {
	if o, err = o.checked(); err != nil {
		return nil, err
	}
	t := o.generation()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.gen.Swap(t)
	before.next = t
	t.flights++
	before.checkDrained()
	if before.timing != t.timing {
		c.replaceAll(func(e *Entry) *Entry { return e.withTiming(before.timing, t.timing) })
	}
	if most := uint64(o.MaxBytes); most != c.entries.GetMaximum() {
		c.entries.SetMaximum(most)
	}
	return before.drained, nil
}

// RetryUnconnected ends the wait for the next retry of all origins without a connection, also of those
// to which a fetch with earlier Options finds none afterwards. Call it after a Reconfigure whose Fetcher
// connects in another way.
func (c *Cache) RetryUnconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, gen := time.Now(), c.gen.Load()
	c.replaceAll(func(e *Entry) *Entry { return e.retriedAt(now, gen.timing) })
	for _, f := range c.flights {
		f.retry = f.gen != gen
	}
}

// replaceAll replaces the entries in memory. The caller holds c.mu, so no other goroutine
// puts entries.
func (c *Cache) replaceAll(replacement func(*Entry) *Entry) {
	for _, e := range slices.Collect(c.entries.Values()) {
		next := replacement(e)
		if next == e {
			continue
		}
		next.reweigh = c.reweigh
		next.useBits.Store(e.useBits.Load() & (usedBit(byCacheControl) | usedBit(byMaxAge)))
		if due := next.lifetimes[byCacheControl].refreshAt; !due.IsZero() {
			// This comes before the entry is put, because an eviction removes it again.
			c.schedule.add(next, due)
		}
		replaced := false
		c.entries.ComputeIfPresent(e.key, func(now *Entry) (*Entry, otter.ComputeOp) {
			if replaced = now == e; !replaced {
				return now, otter.CancelOp
			}
			return next, otter.WriteOp
		})
		if !replaced {
			// e was evicted.
			c.schedule.remove(next)
		}
		c.schedule.remove(e)
	}
	c.entries.CleanUp()
}
