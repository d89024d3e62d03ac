package cache

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

var errNoDialect = errors.New("a dialect without a name reads nothing")

// An Entry is what an origin's robots.txt says now: its last answer, and the
// one held from before where the last one failed. It does not change; any
// number of goroutines may share it, whatever their dialects.
type Entry struct {
	key
	last *reply
	held *reply // the one before, while the origin fails; nil without one
	row         // zero with a settled last

	life [lives]life // when it is answered with; see answers
	bare *Entry      // with held: what remains without it

	use  atomic.Uint32 // used and missed, of each life
	slot int           // place in the schedule, from 1; guarded by schedule.mu

	weighAgain func(key, *reply) // after a compilation; nil: no cache holds it
}

// A row is one of failures, 429 being one.
type row struct {
	failed time.Time     // the first
	tried  time.Time     // the last
	delay  time.Duration // from then to the next try
}

// The lives of an Entry. The one said is never longer than the whole.
const (
	said  = iota // by the origin's Cache-Control
	whole        // for the dialects that heed none
	lives
)

func lifeOf(d robots.Dialect) int {
	if d.IgnoreCacheControl {
		return whole
	}
	return said
}

// The bits of Entry.use.
func used(by int) uint32   { return 1 << by }           // somebody asked by this life since the fetch: it will be refreshed
func missed(by int) uint32 { return 1 << (lives + by) } // its refresh was due, and maybe nobody had asked

// A Ruling is what an Entry means under a dialect. The zero Ruling refuses.
type Ruling struct {
	Outcome Outcome
	File    *robots.File  // with Rules
	Result  *fetch.Result // the one in force: the held copy's when Stale, the failed one when nothing is
	Stale   bool          // a held copy rules while the origin fails
	Err     error         // why, with Unreachable, NoConnection and Stale, and with NoFile if only because the origin is given up
	Retry   time.Time     // when it is next tried, with Unreachable and NoConnection

	brief *brief // of Answer; nil: its body is small
}

// Release lets go of what an Entry may drop while somebody still holds the Ruling: of File, and of
// the body of Answer, unless it is small. large reports whether it was not.
func (r *Ruling) Shrink() (large bool) {
	r.File = nil
	if r.brief == nil {
		return false
	}
	r.Result = &r.brief.answer
	return true
}

// Whole gives Answer with its body, after Release too; nil: it was dropped since then.
func (r *Ruling) FullResult() *fetch.Result {
	if r.brief == nil || r.Result != &r.brief.answer {
		return r.Result
	}
	return r.brief.whole.Value()
}

// smallBody is the length, in bytes, up to which Release keeps a body: a request under way takes several
// times that.
const smallBody = 8 << 10

// A brief is an answer without its body.
type brief struct {
	answer fetch.Result
	whole  weak.Pointer[fetch.Result]
}

// briefOf gives nil for an answer with a small body.
func briefOf(a *fetch.Result) *brief {
	if len(a.Body) <= smallBody {
		return nil
	}
	b := &brief{answer: *a, whole: weak.Make(a)}
	b.answer.Body = nil
	return b
}

// Fetched is when what is in force was fetched; zero where nothing is.
func (r Ruling) Fetched() time.Time {
	if r.Outcome.refuses() || r.Outcome == NoFile && r.Err != nil { // given up
		return time.Time{}
	}
	return r.Result.Fetched
}

// Under judges the entry by a dialect. A file is compiled once a dialect, by
// who asks first. A nil Entry gives the zero Ruling; a Dialect without a name
// has nothing allowed.
func (e *Entry) Under(d robots.Dialect) Ruling {
	if e == nil {
		return Ruling{}
	}
	if d.Name == "" {
		return Ruling{Err: errNoDialect}
	}
	if e.holds(d, e.tried) {
		if outcome(e.held.kind, d) == NoFile { // fresh in its own right
			return Ruling{Outcome: NoFile, Result: e.held.answer, brief: e.held.brief}
		}
		return Ruling{Outcome: Rules, File: e.file(e.held, d), Result: e.held.answer, brief: e.held.brief, Stale: true, Err: e.last.err}
	}
	switch o := outcome(e.last.kind, d); {
	case o == Rules:
		return Ruling{Outcome: Rules, File: e.file(e.last, d), Result: e.last.answer, brief: e.last.brief}
	case o == NoFile:
		return Ruling{Outcome: NoFile, Result: e.last.answer, brief: e.last.brief}
	case o == Unreachable && e.givenUp(d):
		return Ruling{Outcome: NoFile, Result: e.last.answer, brief: e.last.brief, Err: e.last.err}
	default:
		return Ruling{Outcome: o, Result: e.last.answer, brief: e.last.brief, Err: e.last.err, Retry: e.retry()}
	}
}

// givenUp says whether the origin has failed for as long as d goes on asking
// before it takes it to have no rules.
func (e *Entry) givenUp(d robots.Dialect) bool {
	return d.NoFileAfter > 0 && e.tried.Sub(e.failed) >= d.NoFileAfter
}

// holds says whether the copy from before is in force under d at a time: while
// the origin fails (RFC 9309 2.3.1.4, 2.4), for 30 days. A dialect that would
// give the origin up goes by it for good: Google's documents set "the last
// copy" no end, and it may forbid what giving up allows.
func (e *Entry) holds(d robots.Dialect, at time.Time) bool {
	if e.held == nil || d.NoStale || !outcome(e.last.kind, d).refuses() {
		return false
	}
	switch outcome(e.held.kind, d) {
	case Rules:
		return d.NoFileAfter > 0 || at.Before(e.held.force)
	case NoFile:
		return at.Before(e.held.fresh)
	}
	return false
}

// retry is when a failing origin is next tried.
func (e *Entry) retry() time.Time { return e.tried.Add(e.delay) }

func (e *Entry) file(r *reply, d robots.Dialect) *robots.File {
	file, compiled := r.file(d)
	if compiled && e.weighAgain != nil {
		e.weighAgain(e.key, r)
	}
	return file
}

// answers gives the entry to answer with under d at now without waiting: e, or
// what remains of it; nil: a fetch must be waited for. refreshing: the
// background refreshes run, so that an entry in use may be used until they are
// through.
func (e *Entry) answers(d robots.Dialect, now time.Time, refreshing bool) *Entry {
	if e.bare != nil && !e.holds(d, now) {
		e = e.bare
	}
	by := lifeOf(d)
	l := &e.life[by]
	if now.Before(l.expires) || refreshing && e.use.Load()&used(by) != 0 && now.Before(l.until) {
		return e
	}
	return nil
}

// wanted says whether e is used by a life whose refresh is due at now; if not,
// next is when that of another will be, zero without one.
func (e *Entry) wanted(now time.Time) (wanted bool, next time.Time) {
	for by := range e.life {
		if due := e.life[by].due; now.Before(due) {
			return false, due
		}
		if e.use.Or(missed(by))&used(by) != 0 {
			return true, time.Time{}
		}
	}
	return false, time.Time{}
}

// heldReply is what is held if the next fetch fails at now.
func (e *Entry) heldReply(now time.Time) *reply {
	if e == nil {
		return nil
	}
	r := e.held
	if e.last.kind.settled() {
		r = e.last
	}
	if r == nil || !r.kind.hasText() && !now.Before(r.fresh) {
		return nil
	}
	return r
}

// newEntry makes the entry for an answer that was complete at now; before is
// the origin's entry until now, nil without one.
func newEntry(k key, a *fetch.Result, before *Entry, now time.Time, c clock) *Entry {
	r := newReply(a, now, c)
	if r.kind.settled() {
		return settled(k, r, now, c)
	}
	failures := row{failed: now, tried: now}
	if before != nil && !before.failed.IsZero() {
		failures.failed, failures.delay = before.failed, before.delay
	}
	failures.delay = c.backoff(failures.delay)
	return failing(k, r, before.heldReply(now), failures, now.Add(failures.delay), c)
}

// settled makes the entry for a reply that was complete at a time.
func settled(k key, r *reply, at time.Time, c clock) *Entry {
	lives := [...]life{said: c.life(at, r.fresh.Sub(at)), whole: c.life(at, c.maxAge)}
	return &Entry{key: k, last: r, life: lives}
}

// failing makes the entry for a reply that is a failure, the last of a row; held
// is nil without a copy, and the origin is tried again at retry.
func failing(k key, r, held *reply, failures row, retry time.Time, c clock) *Entry {
	l := life{expires: retry, until: retry}
	bare := &Entry{key: k, last: r, row: failures, life: [...]life{said: l, whole: l}}
	if held == nil {
		return bare
	}
	l = life{due: retry, expires: later(retry, held.fresh)}
	l.until = later(l.expires, retry.Add(c.overtime()))
	return &Entry{key: k, last: r, row: failures, held: held, bare: bare, life: [...]life{said: l, whole: l}}
}

// compileAs compiles e under the dialects that before is in use under; it may be nil.
// Here rather than in a request.
func (e *Entry) compileAs(before *Entry) {
	if before == nil {
		return
	}
	for _, r := range []*reply{before.last, before.held} {
		if r == nil {
			continue
		}
		for f := r.files.Load(); f != nil; f = f.next {
			if outcome(e.last.kind, f.dialect) == Rules {
				e.last.file(f.dialect)
			}
		}
	}
}

// entryOverhead is what an entry costs beside its octets and its compiled
// files: the structs, its places in the map and in the schedule (measured: 800
// to 1,100 with 100 octets of text). A copy held costs half as much again.
const entryOverhead = 1 << 10

// weight is the memory an entry holds, in octets.
func (e *Entry) weight() uint32 {
	n := entryOverhead + int64(len(e.origin.Host)+len(e.token)) + e.last.weight()
	if e.held != nil {
		n += entryOverhead/2 + e.held.weight()
	}
	return uint32(min(n, math.MaxUint32))
}

// A reply is an answer and what became of it here. Entries share it while it
// is held.
type reply struct {
	answer *fetch.Result
	brief  *brief // of answer
	kind   kind
	err    error     // why it is no answer to go by; nil when settled
	fresh  time.Time // the end of its ttl; zero unless settled
	force  time.Time // until when it stays in force if its origin fails; zero without a text
	words  int       // octets of err's text

	mu    sync.Mutex // taken to compile
	files atomic.Pointer[compiled]
	size  atomic.Int64 // of files
}

// compiled is a list, one a dialect; a program knows a handful.
type compiled struct {
	dialect robots.Dialect
	file    *robots.File
	next    *compiled
}

func newReply(a *fetch.Result, now time.Time, c clock) *reply {
	r := &reply{answer: a, brief: briefOf(a), kind: kindOf(a), err: Failure(a)}
	if r.kind.settled() {
		r.fresh = now.Add(c.ttl(a.MaxAge))
		if r.kind.hasText() {
			r.force = now.Add(max(maxHeld, r.fresh.Sub(now)))
		}
	}
	if r.err != nil {
		r.words = len(r.err.Error())
	}
	return r
}

// Failure says why nothing can be decided by an answer; nil: it can.
func Failure(a *fetch.Result) error {
	switch {
	case kindOf(a).settled():
		return nil
	case a.Err != nil:
		return a.Err
	}
	return fmt.Errorf("fetch %s: answered with status %d", a.URL, a.Status)
}

// file gives the compiled file, and whether it was compiled just now.
func (r *reply) file(d robots.Dialect) (file *robots.File, now bool) {
	if f := r.find(d); f != nil {
		return f, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.find(d); f != nil {
		return f, false
	}
	f := compile(r.text(), d)
	r.files.Store(&compiled{dialect: d, file: f, next: r.files.Load()})
	r.size.Add(int64(f.Size()))
	return f, true
}

// largeText is the length, in bytes, from which texts are compiled only as many at once as there are
// processors: during its compilation a file takes up to 30 times the memory of its text.
const largeText = 64 << 10

// compiling has a place for each compilation of a large text.
var compiling = make(chan struct{}, runtime.GOMAXPROCS(0))

func compile(text string, d robots.Dialect) *robots.File {
	if len(text) >= largeText {
		compiling <- struct{}{}
		defer func() { <-compiling }()
	}
	return robots.ParseString(text, d)
}

// text gives the body as the string that it is: nobody writes to it any more.
func (r *reply) text() string {
	return unsafe.String(unsafe.SliceData(r.answer.Body), len(r.answer.Body))
}

func (r *reply) find(d robots.Dialect) *robots.File {
	for c := r.files.Load(); c != nil; c = c.next {
		if c.dialect == d {
			return c.file
		}
	}
	return nil
}

func (r *reply) weight() int64 {
	return int64(len(r.answer.Body)+len(r.answer.URL)+r.answer.Headers.Size()+r.words) + r.size.Load()
}
