// Package live has what the dashboard shows of requests as they come: the last lines of the audit
// trail and those that follow, what became of the requests over time, and of those of each host,
// client and entry of hosts, and the rules that decided the requests of each host.
//
// It is no evidence: it is bounded, and lost when the process ends. The lines are the bytes of
// the trail, so that they lack the clients and queries that the trail lacks.
//
// It never fails, and readers never hold up requests. A reader that is too slow learns how many
// lines it has missed. Any number of goroutines may share a Feed. It starts none; [Feed.Run]
// counts its time.
package live

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
)

// Options make a Feed.
type Options struct {
	// Waiting returns how many requests wait for a slot now; required.
	Waiting func() int

	// MaxLines is the number of lines of the trail; zero: 2,000.
	MaxLines int

	// MaxBytes is the size of these lines in bytes, at least trail.MaxLine; zero: 4 MiB.
	MaxBytes int

	// MaxHosts is the number of hosts, which are those last requested; zero: 10,000.
	MaxHosts int

	// MaxRules is the number of rules and reasons for each host; zero: 32.
	MaxRules int
}

// A Feed gets each request twice: as a Sink of the audit, and as a line of its Log
// (audit.Options.Tap). Make one with New.
type Feed struct {
	waiting func() int
	lines   lineBuffer
	counts  counts
	table   hostTable
	clients tally[string]
	entries tally[Entry]
}

// New returns a Feed.
func New(o Options) (*Feed, error) {
	if o.Waiting == nil {
		return nil, errors.New("live: Options lack Waiting")
	}
	o.MaxLines, o.MaxBytes = cmp.Or(o.MaxLines, 2000), cmp.Or(o.MaxBytes, 4<<20)
	o.MaxHosts, o.MaxRules = cmp.Or(o.MaxHosts, 10_000), cmp.Or(o.MaxRules, 32)
	if min(o.MaxLines, o.MaxHosts, o.MaxRules) < 0 || o.MaxBytes < trail.MaxLine {
		return nil, errors.New("live: a bound is negative, or has no room for a line")
	}
	f := &Feed{waiting: o.Waiting, lines: newLineBuffer(o.MaxLines, o.MaxBytes)}
	f.counts.init(time.Now())
	f.table.init(o.MaxHosts, o.MaxRules)
	// The configuration keeps the keys in memory.
	f.clients.byKey, f.entries.byKey = map[string]*Tallied{}, map[Entry]*Tallied{}
	return f, nil
}

// Run ends the steps of Series until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(now.Truncate(stepOf[Hour]).Add(stepOf[Hour]).Sub(now)):
			f.Series(Hour)
		}
	}
}

// Write counts a record. It never fails.
func (f *Feed) Write(r *audit.Record) error {
	c := ClassOf(r.Outcome(), !r.Monitor)
	f.counts.count(c)
	f.table.count(r, c)
	if name := r.Request.Client; name != "" && !policy.IsStranger(name) {
		f.clients.count(name, c, r.Time)
	} else {
		f.clients.count(byAddress, c, r.Time)
	}
	if r.Decision.Entry != "" {
		f.entries.count(Entry{r.Decision.Entry, r.Decision.EntryReason}, c, r.Time)
	}
	return nil
}

// Tap keeps a copy of a line of the trail, given with its line feed; seq is its number.
func (f *Feed) Tap(seq uint64, line []byte) {
	if n := len(line); n > 0 && line[n-1] == '\n' && n-1 <= trail.MaxLine {
		f.lines.add(seq, line[:n-1])
	}
}

// After returns the oldest lines after the one with the number after, at most most, and how many
// in between are lost. With zero, it begins with the oldest line.
func (f *Feed) After(after uint64, most int) (lines []Line, missed uint64) {
	return f.lines.after(after, most)
}

// Newest returns the number of the last line; zero: there is none.
func (f *Feed) Newest() uint64 { return f.lines.newest() }

// Series returns the counts of a span, with no step before the Feed was made.
func (f *Feed) Series(s Span) Series { return f.counts.series(s, time.Now(), f.waiting()) }

// Hosts returns the hosts, the last requested first.
func (f *Feed) Hosts() []Host { return f.table.hosts() }

// Host returns one host, and whether it is known.
func (f *Feed) Host(host string) (Host, bool) {
	h, _, ok := f.table.host(host)
	return h, ok
}

// Client returns the counts of the client with a name. "" means all clients that are known by their
// address.
func (f *Feed) Client(name string) Tallied { return f.clients.of(name) }

// Entry returns what became of the requests to which an entry of hosts applied.
func (f *Feed) Entry(e Entry) Tallied { return f.entries.of(e) }

// Blockers returns the Causes for which most requests were not allowed, the most frequent first, of
// all hosts and of requests without one.
func (f *Feed) Blockers(most int) []Cause { return f.table.blockers(most) }

// Causes returns the Causes of one host, the most frequent first.
func (f *Feed) Causes(host string) []Cause {
	_, causes, _ := f.table.host(host)
	return mostFrequent(causes, math.MaxInt)
}
