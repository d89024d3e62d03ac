package cache

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// An Entry is what an origin's robots.txt says now: its last answer, and the
// one held from before where the last one failed. It does not change; any
// number of goroutines may share it.
type Entry struct {
	origin robots.Origin
	agent  string // the User-Agent it was fetched with
	last   *reply
	held   *reply        // in force while the origin fails; nil without one, and with a settled last
	delay  time.Duration // before the next try; 0 with a settled last
	retry  time.Time     // when that is; zero with a settled last

	// When it is answered with; see answers.
	due     time.Time // its refresh or retry in the background; zero: none
	expires time.Time // answered with before, used or not
	until   time.Time // answered with before, if in use: its refresh is under way
	bare    *Entry    // with held: what remains when held's time is over

	use  atomic.Uint32 // idle, used, lapsed
	slot int           // place in the schedule, from 1; guarded by schedule.mu

	weighAgain func(robots.Origin, *reply) // after a compilation; nil: no cache holds it
}

// The life of an Entry between two fetches.
const (
	idle   = iota // nobody asked since it was fetched
	used          // it will be refreshed
	lapsed        // its refresh was due while it was idle
)

// A Ruling is what an Entry means under a dialect. The zero Ruling refuses.
type Ruling struct {
	Outcome Outcome
	File    *robots.File  // with Rules
	Answer  *fetch.Answer // the one in force: the held copy's when Stale, the failed one when nothing is
	Stale   bool          // a held copy rules while the origin fails
	Err     error         // why, with Unreachable, NoConnection and Stale
	Retry   time.Time     // when it is next tried, with Unreachable and NoConnection
}

// Fetched is when what is in force was fetched; zero where nothing is.
func (r Ruling) Fetched() time.Time {
	if r.Outcome != Rules && r.Outcome != NoFile {
		return time.Time{}
	}
	return r.Answer.Fetched
}

// Under judges the entry by a dialect. A file is compiled once a dialect, by
// who asks first. A nil Entry gives the zero Ruling.
func (e *Entry) Under(d robots.Dialect) Ruling {
	if e == nil {
		return Ruling{}
	}
	switch o := outcome(e.last.kind, d); o {
	case Rules:
		return Ruling{Outcome: Rules, File: e.file(e.last, d), Answer: e.last.answer}
	case NoFile:
		return Ruling{Outcome: NoFile, Answer: e.last.answer}
	default:
		return e.failing(o, d)
	}
}

// failing judges an entry whose last answer is none: a copy fetched before
// stays in force (RFC 9309 2.3.1.4, 2.4).
func (e *Entry) failing(o Outcome, d robots.Dialect) Ruling {
	if e.held != nil {
		switch outcome(e.held.kind, d) {
		case Rules:
			return Ruling{Outcome: Rules, File: e.file(e.held, d), Answer: e.held.answer, Stale: true, Err: e.last.err}
		case NoFile: // held only while it is fresh in its own right
			return Ruling{Outcome: NoFile, Answer: e.held.answer}
		}
	}
	return Ruling{Outcome: o, Answer: e.last.answer, Err: e.last.err, Retry: e.retry}
}

func (e *Entry) file(r *reply, d robots.Dialect) *robots.File {
	file, compiled := r.file(d)
	if compiled && e.weighAgain != nil {
		e.weighAgain(e.origin, r)
	}
	return file
}

// answers gives the entry to answer with at now without waiting: e, or what
// remains of it; nil: a fetch must be waited for. refreshing: the background
// refreshes run, so that an entry in use may be used until they are through.
func (e *Entry) answers(now time.Time, refreshing bool) *Entry {
	if e.bare != nil && !now.Before(e.held.force) {
		e = e.bare
	}
	if now.Before(e.expires) || refreshing && e.use.Load() == used && now.Before(e.until) {
		return e
	}
	return nil
}

// settledReply is the reply that stays in force if the next fetch fails at now.
func (e *Entry) settledReply(now time.Time) *reply {
	if e == nil {
		return nil
	}
	r := e.held
	if e.last.kind.settled() {
		r = e.last
	}
	if r == nil || !now.Before(r.force) {
		return nil
	}
	return r
}

// newEntry makes the entry for an answer that was complete at now; before is
// the origin's entry until now, nil without one.
func newEntry(o robots.Origin, agent string, a *fetch.Answer, before *Entry, now time.Time, c clock) *Entry {
	r := newReply(a, now, c)
	e := &Entry{origin: o, agent: agent, last: r}
	if r.kind.settled() {
		refresh, until := c.plan(r.fresh.Sub(now))
		e.due, e.expires, e.until = now.Add(refresh), r.fresh, now.Add(until)
		return e
	}
	if before != nil {
		e.delay = before.delay
	}
	e.delay = c.backoff(e.delay)
	e.retry = now.Add(e.delay)
	e.expires, e.until = e.retry, e.retry
	if held := before.settledReply(now); held != nil {
		e.bare = &Entry{origin: o, agent: agent, last: r, delay: e.delay, retry: e.retry, expires: e.retry, until: e.retry}
		e.held, e.due = held, e.retry
		e.expires = earlier(held.force, later(e.retry, held.fresh))
		e.until = earlier(held.force, later(e.expires, e.retry.Add(c.overtime())))
	}
	return e
}

// entryOverhead is what an entry costs beside its octets and its compiled
// files: the structs, its places in the map and in the schedule (measured: 700
// to 1,000 with 100 octets of text).
const entryOverhead = 1 << 10

// weight is the memory an entry holds, in octets.
func (e *Entry) weight() uint32 {
	n := entryOverhead + int64(len(e.origin.Host)+len(e.agent)) + e.last.weight()
	if e.held != nil {
		n += e.held.weight()
	}
	return uint32(min(n, math.MaxUint32))
}

// A reply is an answer and what became of it here. Entries share it while it
// is held.
type reply struct {
	answer *fetch.Answer
	kind   kind
	err    error     // why it is no answer to go by; nil when settled
	fresh  time.Time // the end of its ttl; zero unless settled
	force  time.Time // until when it stays in force if its origin fails
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

func newReply(a *fetch.Answer, now time.Time, c clock) *reply {
	r := &reply{answer: a, kind: kindOf(a)}
	switch {
	case r.kind.settled():
		r.fresh = now.Add(c.ttl(a.MaxAge))
		r.force = r.fresh
		if r.kind == success {
			r.force = now.Add(max(maxHeld, r.fresh.Sub(now)))
		}
	case a.Err != nil:
		r.err = a.Err
	default:
		r.err = fmt.Errorf("fetch %s: answered with status %d", a.URL, a.Status)
	}
	if r.err != nil {
		r.words = len(r.err.Error())
	}
	return r
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
	f := robots.Parse(r.answer.Body, d)
	r.files.Store(&compiled{dialect: d, file: f, next: r.files.Load()})
	r.size.Add(int64(f.Size()))
	return f, true
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
	return int64(len(r.answer.Body)+len(r.answer.URL)+r.words) + r.size.Load()
}
