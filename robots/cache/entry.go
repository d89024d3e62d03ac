package cache

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

var errNoDialect = errors.New("the dialect has no name")

// An Entry is what the file of an origin says now: the last response and, if that is a
// failure, the earlier response as a stale file. It does not change. Any number of goroutines
// may share it, whatever their dialects.
type Entry struct {
	key
	last *response

	// stale is the last settled response, while the origin fails; nil: there is none.
	stale *response

	// failures are zero if last is settled.
	failures

	// lifetimes say how long the entry is used; see usableAt.
	lifetimes [lifetimeCount]lifetime

	// withoutStale is the entry to use when the stale file is too old. It is nil without one.
	withoutStale *Entry

	// useBits has usedBit and missedBit of each lifetime.
	useBits atomic.Uint32

	// scheduleIndex is the index in the schedule, from 1; 0: it is not there. It is guarded by
	// schedule.mu.
	scheduleIndex int

	// reweigh is called after a compilation. It is nil if no cache contains the entry.
	reweigh func(key, *response)
}

// failures are the consecutive failed fetches of an origin; 429 counts as one.
type failures struct {
	firstFailure time.Time
	lastFailure  time.Time

	// retryAfter is the time from lastFailure to the next try.
	retryAfter time.Duration
}

// The lifetimes of an Entry. The one by Cache-Control is never longer than the one by
// MaxAge.
const (
	byCacheControl = iota // as the origin's Cache-Control says
	byMaxAge              // for dialects that ignore Cache-Control
	lifetimeCount
)

func lifetimeOf(d robots.Dialect) int {
	if d.IgnoreCacheControl {
		return byMaxAge
	}
	return byCacheControl
}

// usedBit is set if the entry was used by this lifetime since its fetch: it will be refreshed.
func usedBit(by int) uint32 { return 1 << by }

// missedBit is set if the refresh of this lifetime was due while the entry may have been unused.
func missedBit(by int) uint32 { return 1 << (lifetimeCount + by) }

// Origin returns the origin of the robots.txt.
func (e *Entry) Origin() robots.Origin { return e.origin }

// Token returns the product token with which e was fetched. If it is "", e is the proxy's
// own file. See [Query].
func (e *Entry) Token() string { return e.token }

// Expires returns the time until which e is used without a fetch. An entry in use is refreshed
// earlier.
func (e *Entry) Expires() time.Time { return e.lifetimes[byCacheControl].expires }

// Under interprets the entry under a dialect. The first call for a dialect compiles the file. A
// nil Entry gives the zero Ruling. A Dialect without a name allows nothing.
func (e *Entry) Under(d robots.Dialect) Ruling {
	if e == nil {
		return Ruling{}
	}
	if d.Name == "" {
		return Ruling{Err: errNoDialect}
	}
	if e.usesStale(d, e.lastFailure) {
		r := e.stale.ruling(outcome(e.stale.kind, d))
		// A missing file, the other outcome, is itself fresh.
		if r.Meaning == Rules {
			r.Stale, r.Err = true, e.last.err
			r.setFile(e.file(e.stale, d), e.retryAt())
		}
		return r
	}
	r := e.last.ruling(outcome(e.last.kind, d))
	switch {
	case r.Meaning == Rules:
		r.setFile(e.file(e.last, d), e.lifetimes[lifetimeOf(d)].expires)
	case r.Meaning == Unreachable && e.givenUp(d):
		r.Meaning, r.Err = NoFile, e.last.err
	case r.Meaning.refuses():
		r.Err, r.Retry = e.last.err, e.retryAt()
	}
	return r
}

func (r *response) ruling(o Meaning) Ruling {
	return Ruling{Meaning: o, Result: r.result, short: r.short}
}

// givenUp reports whether the origin has failed for so long that it counts as having no
// file under d.
func (e *Entry) givenUp(d robots.Dialect) bool {
	return d.NoFileAfter > 0 && e.lastFailure.Sub(e.firstFailure) >= d.NoFileAfter
}

// usesStale reports whether the stale file is used under d at the given time: while the
// origin fails (RFC 9309 2.3.1.4, 2.4), for 30 days. A dialect with NoFileAfter has no limit:
// Google's documents set none for "the last copy", and the file may disallow what NoFileAfter
// would allow.
func (e *Entry) usesStale(d robots.Dialect, at time.Time) bool {
	if e.stale == nil || d.NoStale || !outcome(e.last.kind, d).refuses() {
		return false
	}
	switch outcome(e.stale.kind, d) {
	case Rules:
		return d.NoFileAfter > 0 || at.Before(e.stale.staleUntil)
	case NoFile:
		return at.Before(e.stale.freshUntil)
	}
	return false
}

// retryAt returns when a failing origin is tried again.
func (e *Entry) retryAt() time.Time { return e.lastFailure.Add(e.retryAfter) }

func (e *Entry) file(r *response, d robots.Dialect) *compiled {
	file, compiled := r.file(d, e.origin)
	if compiled && e.reweigh != nil {
		e.reweigh(e.key, r)
	}
	return file
}

// usableAt returns the entry to use under d at now without a fetch: e, or e without a stale file
// that is too old. It returns nil if the caller must wait for a fetch. refreshing says that
// refreshes run in the background, so that an entry in use is usable until its refresh ends.
func (e *Entry) usableAt(d robots.Dialect, now time.Time, refreshing bool) *Entry {
	if e.withoutStale != nil && !e.usesStale(d, now) {
		e = e.withoutStale
	}
	by := lifetimeOf(d)
	l := &e.lifetimes[by]
	if now.Before(l.expires) || refreshing && e.useBits.Load()&usedBit(by) != 0 && now.Before(l.usableUntil) {
		return e
	}
	return nil
}

// usefulUntil returns how long a Store should keep e: for use, for stale use, or to continue
// its failures.
func (e *Entry) usefulUntil() time.Time {
	t := later(later(e.lifetimes[byCacheControl].usableUntil, e.lifetimes[byMaxAge].usableUntil), e.last.staleUntil)
	if e.stale != nil {
		t = later(t, e.stale.staleUntil)
	}
	if !e.lastFailure.IsZero() {
		t = later(t, e.lastFailure.Add(maxStale))
	}
	return t
}

// isFresh reports whether an entry that another process has fetched is used, so that it
// need not be fetched again.
func (e *Entry) isFresh(now time.Time) bool { return now.Before(e.lifetimes[byCacheControl].expires) }

// newerThan reports whether e is newer than before, which may be nil. No file is fetched twice
// within a minute, and the clocks of replicas should differ by less. If they differ by more,
// one more fetch is made.
func (e *Entry) newerThan(before *Entry) bool {
	return before == nil || e.completedAt().After(before.completedAt())
}

func (e *Entry) completedAt() time.Time { return later(e.last.result.Fetched, e.lastFailure) }

// refreshWanted reports whether a lifetime for which e is in use has a refresh that is due at
// now. If not, next is when the refresh of another lifetime is due, or zero.
func (e *Entry) refreshWanted(now time.Time) (wanted bool, next time.Time) {
	for by := range e.lifetimes {
		if due := e.lifetimes[by].refreshAt; now.Before(due) {
			return false, due
		}
		if e.useBits.Or(missedBit(by))&usedBit(by) != 0 {
			return true, time.Time{}
		}
	}
	return false, time.Time{}
}

// nextStale returns the stale response of the next entry if the next fetch fails at now, or nil.
func (e *Entry) nextStale(now time.Time) *response {
	if e == nil {
		return nil
	}
	r := e.stale
	if e.last.kind.settled() {
		r = e.last
	}
	if r == nil || !r.kind.hasText() && !now.Before(r.freshUntil) {
		return nil
	}
	return r
}

// newEntry creates the entry for a result that was complete at now. before is the previous
// entry, or nil.
func newEntry(k key, a *fetch.Result, before *Entry, now time.Time, c timing) *Entry {
	r := newResponse(a, now, c)
	if r.kind.settled() {
		return newSettled(k, r, now, c)
	}
	failures := failures{firstFailure: now, lastFailure: now}
	if before != nil && !before.firstFailure.IsZero() {
		failures.firstFailure, failures.retryAfter = before.firstFailure, before.retryAfter
	}
	failures.retryAfter = c.backoff(failures.retryAfter)
	return newFailing(k, r, before.nextStale(now), failures, now.Add(failures.retryAfter), c)
}

// newSettled creates the entry for a settled response that was complete at the given
// time.
func newSettled(k key, r *response, at time.Time, c timing) *Entry {
	lives := [...]lifetime{byCacheControl: c.lifetime(at, r.freshUntil.Sub(at)), byMaxAge: c.lifetime(at, c.maxAge)}
	return &Entry{key: k, last: r, lifetimes: lives}
}

// newFailing creates the entry for a failed response. stale is nil if there is none. The
// origin is tried again at retry.
func newFailing(k key, r, stale *response, failures failures, retry time.Time, c timing) *Entry {
	l := lifetime{expires: retry, usableUntil: retry}
	withoutStale := &Entry{key: k, last: r, failures: failures, lifetimes: [...]lifetime{byCacheControl: l, byMaxAge: l}}
	if stale == nil {
		return withoutStale
	}
	l = lifetime{refreshAt: retry, expires: later(retry, stale.freshUntil)}
	l.usableUntil = later(l.expires, retry.Add(c.refreshLimit()))
	lifetimes := [...]lifetime{byCacheControl: l, byMaxAge: l}
	return &Entry{key: k, last: r, failures: failures, stale: stale, withoutStale: withoutStale, lifetimes: lifetimes}
}

// withTiming returns e with the times of another generation.
func (e *Entry) withTiming(before, t timing) *Entry {
	last := e.last.withTiming(t)
	if last.kind.settled() {
		return newSettled(e.key, last, last.result.Fetched, t)
	}
	failures := e.failures
	failures.retryAfter = t.scaleRetry(failures.retryAfter, before)
	retry := failures.lastFailure.Add(failures.retryAfter)
	return newFailing(e.key, last, e.stale.withTiming(t), failures, retry, t)
}

// retriedAt returns e with a retry at now, if e has no connection and would be retried later.
func (e *Entry) retriedAt(now time.Time, t timing) *Entry {
	if e.last.kind != noConnection || !now.Before(e.retryAt()) {
		return e
	}
	return newFailing(e.key, e.last, e.stale, e.failures, now, t)
}

// compileLike compiles e under each dialect under which before was compiled, so that no request waits
// for that. before may be nil.
func (e *Entry) compileLike(before *Entry) {
	if before == nil {
		return
	}
	for _, r := range []*response{before.last, before.stale} {
		if r == nil {
			continue
		}
		for f := r.files.Load(); f != nil; f = f.next {
			if d := f.dialect(); outcome(e.last.kind, d) == Rules {
				e.last.file(d, e.origin)
			}
		}
	}
}

// entryOverhead is the memory of an entry in addition to its text and its compiled files: the
// structs, and its space in the map and in the schedule (measured: 800 to 1,100 bytes with a
// text of 100 bytes). A stale file adds half as much.
const entryOverhead = 1 << 10

// weight returns the memory of an entry in bytes.
func (e *Entry) weight() uint32 {
	n := entryOverhead + int64(len(e.origin.Host)+len(e.token)) + e.last.weight()
	if e.stale != nil {
		n += entryOverhead/2 + e.stale.weight()
	}
	return uint32(min(n, math.MaxUint32))
}

// A response is the result of a fetch with what the cache derives from it. While it is stale,
// several entries share it.
type response struct {
	result *fetch.Result
	short  *shortResult
	kind   kind

	// err is why the response is not settled; nil if it is.
	err error

	// freshUntil is the end of its ttl. It is zero unless the response is settled.
	freshUntil time.Time

	// staleUntil is until when the response is used if its origin fails. It is zero without a text.
	staleUntil time.Time

	// errSize is the length of the text of err, in bytes.
	errSize int

	// mu is held during a compilation.
	mu    sync.Mutex
	files atomic.Pointer[compiled]

	// size is the memory of files, in bytes.
	size atomic.Int64
}

func newResponse(a *fetch.Result, now time.Time, c timing) *response {
	r := &response{result: a, short: newShortResult(a), kind: kindOf(a), err: Failure(a)}
	if r.kind.settled() {
		r.freshUntil = now.Add(c.ttl(a.MaxAge))
		if r.kind.hasText() {
			r.staleUntil = now.Add(max(maxStale, r.freshUntil.Sub(now)))
		}
	}
	if r.err != nil {
		r.errSize = len(r.err.Error())
	}
	return r
}

// withTiming returns r with the times of t, and with its compiled files; nil for nil.
func (r *response) withTiming(c timing) *response {
	if r == nil {
		return nil
	}
	next := newResponse(r.result, r.result.Fetched, c)
	// A dialect under which r is compiled meanwhile will be compiled again.
	files := r.files.Load()
	next.files.Store(files)
	for f := files; f != nil; f = f.next {
		next.size.Add(f.size())
	}
	return next
}

// file returns the file of an origin compiled under d. now reports whether this call compiled it.
func (r *response) file(d robots.Dialect, origin robots.Origin) (file *compiled, now bool) {
	if f := r.find(d); f != nil {
		return f, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.find(d); f != nil {
		return f, false
	}
	f := compile(r.result.Body, d, origin)
	f.next = r.files.Load()
	r.files.Store(f)
	r.size.Add(f.size())
	return f, true
}

func (r *response) find(d robots.Dialect) *compiled {
	for c := r.files.Load(); c != nil; c = c.next {
		if c.dialect() == d {
			return c
		}
	}
	return nil
}

func (r *response) weight() int64 {
	return int64(len(r.result.Body)+len(r.result.URL)+r.result.Headers.Size()+r.errSize) + r.size.Load()
}
