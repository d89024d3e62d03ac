// Package live is what an operator is shown of requests while they come: the last
// lines of the audit and those that follow, how many requests were allowed and
// blocked over time, and which rules decided those of each host.
//
// It is no evidence: all of it is in memory, bounded, and gone with the process. The
// lines are the audit's own octets, so that what it leaves out of clients and
// queries is left out here too.
//
// It never fails and holds nobody up: readers take what is there, and who reads too
// slowly is told how many lines it has missed. Any number of goroutines may share a
// Feed. It starts none; [Feed.Run] is its clock.
package live

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
)

// Options make a Feed.
type Options struct {
	Waiting  func() int // how many requests wait for their turn now; required
	MaxLines int        // of the audit that are kept; zero: 2,000
	MaxBytes int        // octets of them, a whole line at least; zero: 4 MiB
	MaxHosts int        // hosts told apart, those last asked for; zero: 10,000
	MaxRules int        // rules and reasons told apart for each; zero: 32
}

// A Feed is told of requests twice: by the audit as one of its Sinks, and by its
// Log line by line (audit.Options.Tap). New makes one.
type Feed struct {
	waiting func() int
	lines   lines
	counts  counts
	table   table
}

// New makes a Feed.
func New(o Options) (*Feed, error) {
	if o.Waiting == nil {
		return nil, errors.New("live: Options lack Waiting")
	}
	o.MaxLines, o.MaxBytes = cmp.Or(o.MaxLines, 2000), cmp.Or(o.MaxBytes, 4<<20)
	o.MaxHosts, o.MaxRules = cmp.Or(o.MaxHosts, 10_000), cmp.Or(o.MaxRules, 32)
	if min(o.MaxLines, o.MaxHosts, o.MaxRules) < 0 || o.MaxBytes < trail.MaxLine {
		return nil, errors.New("live: a bound is negative, or has no room for a line")
	}
	f := &Feed{waiting: o.Waiting, lines: newLines(o.MaxLines, o.MaxBytes)}
	f.counts.begin(time.Now())
	f.table.begin(o.MaxHosts, o.MaxRules)
	return f, nil
}

// Run counts time until ctx ends.
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
	f.counts.count(r.Blocked())
	f.table.count(r)
	return nil
}

// Tap keeps a copy of a line of the audit, given with its end; seq is its number.
func (f *Feed) Tap(seq uint64, line []byte) {
	if n := len(line); n > 0 && line[n-1] == '\n' && n-1 <= trail.MaxLine {
		f.lines.add(seq, line[:n-1])
	}
}

// After gives the oldest lines behind the one numbered after, most at the most, and
// how many in between are gone. Zero: from the oldest that there is.
func (f *Feed) After(after uint64, most int) (lines []Line, missed uint64) {
	return f.lines.after(after, most)
}

// Newest is the number of the last line; zero: there is none.
func (f *Feed) Newest() uint64 { return f.lines.newest() }

// Series gives what has been counted over a span; no step is older than the Feed.
func (f *Feed) Series(s Span) Series { return f.counts.series(s, time.Now(), f.waiting()) }

// Hosts gives those last asked for, the latest first.
func (f *Feed) Hosts() []Host { return f.table.hosts() }

// Host gives one of them, and whether it is known.
func (f *Feed) Host(host string) (Host, bool) {
	h, _, ok := f.table.one(host)
	return h, ok
}

// Blockers gives what has blocked most, the most frequent first, over all hosts and the
// requests without one.
func (f *Feed) Blockers(most int) []Cause { return f.table.blockers(most) }

// Causes gives what has decided the requests of one host, the most frequent first.
func (f *Feed) Causes(host string) []Cause {
	_, causes, _ := f.table.one(host)
	return mostFrequent(causes, math.MaxInt)
}
