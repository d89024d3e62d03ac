package report

import (
	"container/heap"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
)

// A pacing says how fast requests to one host went out.
type pacing struct {
	Host string `json:"host"`

	// Replica names the replica, or its audit, whose requests alone these are; "": the requests are those of all.
	Replica string `json:"replica,omitempty"`

	// Sent is the number of requests that were sent. The time when Estimated of them were sent is that of their arrival plus
	// their wait, since records of earlier versions have no other.
	Sent      int64 `json:"sent"`
	Estimated int64 `json:"estimated"`

	// Late requests are not part of what follows: they ended so late that the ones after them were counted already.
	Late int64 `json:"late"`

	// Shortest and Median are of the intervals from one request to the next; the median is within 4 %.
	Shortest seconds `json:"interval_min_s"`
	Median   seconds `json:"interval_median_s"`

	// In10s and InMinute are the most requests in any 10 s, and in any 60 s, which end at In10sAt and InMinuteAt.
	In10s      int       `json:"most_in_10_s"`
	In10sAt    time.Time `json:"most_in_10_s_at"`
	InMinute   int       `json:"most_in_60_s"`
	InMinuteAt time.Time `json:"most_in_60_s_at"`

	// Compared is the number of intervals for which the records have the delay that was in force, and Shorter are those that were
	// shorter than it.
	Compared int64   `json:"compared"`
	Shorter  shorter `json:"shorter"`

	// OverTime is that of all requests to the host, without the times in which there was none.
	OverTime *overTime `json:"over_time,omitempty"`

	// intervals are for Median, and longest is the longest one.
	intervals waits
	longest   time.Duration
	recent    recent

	// last is the last request, and tokens is how many more a burst permits after it.
	last   *sending
	tokens float64

	spans spans[paced]
}

// shorter counts intervals that were shorter than the delay in force, by what the records say about them.
type shorter struct {
	StoreAway int64 `json:"store_away"`
	Audits    int64 `json:"several_audits"`
	Burst     int64 `json:"burst"`
	Unknown   int64 `json:"unknown"`
}

// A shorterCause is a cause of shorter intervals as people see it.
type shorterCause struct {
	// word is the name of the column.
	word string
	of   func(*shorter) *int64

	// is reports whether it is the cause of an interval that is shorter than the delay of the second request. permitted says that a
	// burst permits the second one.
	is func(a, b *sending, permitted bool) bool
}

// shorterCauses are in the order in which they are tried.
var shorterCauses = []shorterCause{
	{"store unavailable", func(s *shorter) *int64 { return &s.StoreAway }, func(a, b *sending, _ bool) bool {
		return a.storeAway || b.storeAway
	}},
	{"several audits", func(s *shorter) *int64 { return &s.Audits }, func(a, b *sending, _ bool) bool { return a.from != b.from }},
	{"burst", func(s *shorter) *int64 { return &s.Burst }, func(_, _ *sending, permitted bool) bool { return permitted }},
	{"unknown", func(s *shorter) *int64 { return &s.Unknown }, func(_, _ *sending, _ bool) bool { return true }},
}

// Sum returns the number of intervals.
func (s *shorter) Sum() (n int64) {
	for _, c := range shorterCauses {
		n += *c.of(s)
	}
	return n
}

// slack is by how much an interval may be shorter than the delay: clocks are set, and replicas have several.
func slack(delay time.Duration) time.Duration { return max(2*time.Millisecond, delay/100) }

// A sending is a request that was sent, or the beginning of a back-off.
type sending struct {
	at        time.Time
	estimated bool

	// from is the trail that has the record.
	from   *source
	client string

	// delay is the interval that was in force; zero: unknown, or none. burst is how many requests may follow each other at once.
	delay time.Duration
	burst float64

	storeAway bool

	// whole has all requests to the host, and own those of one replica; nil: there is only one.
	whole, own *pacing

	// begins is the back-off that begins instead of a request; nil: this is a request.
	begins *backOff
}

// maxUnordered is how many requests a paceBuilder puts in order at once. A record is written when its request ends: one that takes
// longer than as many others is late.
const maxUnordered = 1 << 16

// maxPaced bounds the pairs of host and replica.
const maxPaced = 2_000

type pacingKey struct{ host, replica string }

// A paceBuilder puts requests into the order in which they were sent, and counts how fast they followed each other.
type paceBuilder struct {
	waiting  sendings
	rows     groups[pacingKey, pacing]
	delays   groups[delayKey, effectiveDelay]
	backOffs groups[backOffKey, backOff]

	// delaysOf is the number of rows of delays by host.
	delaysOf map[string]int

	// current are the back-offs of each host that may not have ended.
	current map[string][]*backOff

	// swept is when the last sweep was, in the time of the requests, and sinceSweep how many there were since.
	swept      time.Time
	sinceSweep int

	// ended is when the last request of each trail has ended.
	ended map[*source]time.Time

	// unsent is the number of requests that were allowed, and of whose sending the records say nothing. others is that of
	// requests to hosts that came when the rows were full, and notListed that of requests that met other back-offs.
	unsent, others, notListed int64
}

func newPaceBuilder() paceBuilder {
	return paceBuilder{
		rows: newGroups[pacingKey, pacing](maxPaced), delays: newGroups[delayKey, effectiveDelay](maxDelays),
		backOffs: newGroups[backOffKey, backOff](maxBackOffs), current: map[string][]*backOff{}, delaysOf: map[string]int{},
		ended: map[*source]time.Time{},
	}
}

// sentAt returns when a request was sent; zero: it was not, or the record does not say so.
func sentAt(e *trail.Entry) (at time.Time, estimated bool) {
	sent := !(e.Blocked() && e.Enforced) || e.Withheld
	switch {
	case !isPlausible(e.Sent) && !e.Sent.IsZero():
		return at, false
	case !e.Sent.IsZero():
		return e.Sent, false
	case e.Version >= sentVersion || !sent || e.Cached || !isPlausible(e.Time):
		return at, false
	}
	return e.Time.Add(waitOf(e)), true
}

// isPlausible reports whether a time can be that of a request. JSON has no years of five digits.
func isPlausible(t time.Time) bool { return t.Unix() >= 0 && t.UTC().Year() < 9000 }

// sentVersion is the version of the lines that say when their requests were sent.
const sentVersion = 3

// add adds the record of a request. several says that there are several trails.
func (b *paceBuilder) add(e *trail.Entry, from *source, several bool) {
	b.checkClock(e.End(), from)
	b.addBackOff(e)
	s := &sending{
		from: from, client: e.Client, delay: milliseconds(e.PaceMS), burst: float64(max(1, e.Burst)), storeAway: e.StoreAway,
	}
	if s.at, s.estimated = sentAt(e); s.at.IsZero() {
		b.unsent += oneIf(!e.Blocked() && e.Version >= sentVersion)
		return
	}
	s.whole = b.row(pacingKey{host: e.Host})
	if several {
		s.own = b.row(pacingKey{e.Host, replicaName(e, from)})
	}
	if s.whole == nil {
		b.others++
		return
	}
	b.push(s)
	b.addDelay(e, s)
}

// maxBack is by how much a line can be older than the one before it in its trail.
const maxBack = 5 * time.Second

// checkClock begins anew if the clock was set back, given when a request ended: the order of the times is not that of the requests.
func (b *paceBuilder) checkClock(ended time.Time, from *source) {
	if ended.Before(b.ended[from].Add(-maxBack)) {
		b.end()
		for _, p := range b.rows.rows {
			p.last, p.recent = nil, nil
		}
	}
	b.ended[from] = ended
}

// row returns the row of a key; nil: there are too many.
func (b *paceBuilder) row(k pacingKey) *pacing {
	p, own := b.rows.at(k)
	if !own {
		return nil
	}
	if p.spans.buckets == nil {
		p.Host, p.Replica, p.spans = k.host, k.replica, newSpans(maxPacedBuckets, (*paced).merge)
	}
	return p
}

// replicaName names the replica that has written a line, or its audit.
func replicaName(e *trail.Entry, from *source) string {
	if e.Replica != "" {
		return e.Replica
	}
	return clip(from.Name)
}

// push adds a sending, and counts the first one if there are too many.
func (b *paceBuilder) push(s *sending) {
	heap.Push(&b.waiting, s)
	if len(b.waiting) > maxUnordered {
		b.pop()
	}
}

// pop counts the first sending.
func (b *paceBuilder) pop() {
	s := heap.Pop(&b.waiting).(*sending)
	if s.begins != nil {
		b.begin(s.begins)
		return
	}
	b.sweep(s.at)
	b.addDuring(s)
	if s.own != nil {
		s.own.add(s)
	}
	s.whole.add(s)
}

// sweep frees the times of rows without a request in the last minute, at most once a minute, and for at least as many requests as
// there are rows.
func (b *paceBuilder) sweep(now time.Time) {
	if b.sinceSweep++; now.Sub(b.swept) < time.Minute || b.sinceSweep < len(b.rows.rows) {
		return
	}
	b.swept, b.sinceSweep = now, 0
	for _, p := range b.rows.rows {
		if p.last != nil && now.Sub(p.last.at) > time.Minute {
			p.recent = nil
		}
	}
}

// end counts what is left.
func (b *paceBuilder) end() {
	for len(b.waiting) > 0 {
		b.pop()
	}
}

func milliseconds(ms float64) time.Duration {
	if !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms/1000, maxWait.Seconds()) * float64(time.Second)).Round(time.Microsecond)
}

// add adds a request that was sent after those before it.
func (p *pacing) add(s *sending) {
	p.Sent++
	p.Estimated += oneIf(s.estimated)
	before := p.last
	if before != nil && s.at.Before(before.at) {
		p.Late++
		return
	}
	p.last = s
	p.recent.add(s.at)
	if n := p.recent.in(10 * time.Second); n > p.In10s {
		p.In10s, p.In10sAt = n, s.at
	}
	if n := p.recent.in(time.Minute); n > p.InMinute {
		p.InMinute, p.InMinuteAt = n, s.at
	}
	p.addOverTime(s)
	if before == nil {
		p.tokens = s.burst - 1
		return
	}
	p.interval(before, s)
}

// interval adds the interval between two requests.
func (p *pacing) interval(a, b *sending) {
	interval := b.at.Sub(a.at)
	if p.intervals == nil || interval < time.Duration(p.Shortest) {
		p.Shortest = seconds(interval)
	}
	p.intervals.add(max(interval, minWait))
	p.longest = max(p.longest, interval)
	if b.delay == 0 {
		p.tokens = b.burst - 1
		return
	}
	p.Compared++
	p.tokens = min(b.burst, p.tokens+float64(interval+slack(b.delay))/float64(b.delay)) - 1
	permitted := p.tokens >= 0
	p.tokens = max(0, p.tokens)
	if interval >= b.delay-slack(b.delay) {
		return
	}
	for _, c := range shorterCauses {
		if c.is(a, b, permitted) {
			*c.of(&p.Shorter)++
			break
		}
	}
}

// merge adds the requests to another host.
func (p *pacing) merge(o *pacing) {
	p.Sent += o.Sent
	p.Estimated += o.Estimated
	p.Late += o.Late
	if o.intervals != nil && (p.intervals == nil || o.Shortest < p.Shortest) {
		p.Shortest = o.Shortest
	}
	p.intervals = p.intervals.merged(o.intervals)
	p.longest = max(p.longest, o.longest)
	if o.In10s > p.In10s {
		p.In10s, p.In10sAt = o.In10s, o.In10sAt
	}
	if o.InMinute > p.InMinute {
		p.InMinute, p.InMinuteAt = o.InMinute, o.InMinuteAt
	}
	p.Compared += o.Compared
	for _, c := range shorterCauses {
		*c.of(&p.Shorter) += *c.of(&o.Shorter)
	}
}

// maxRecent bounds a recent.
const maxRecent = 60_000

// recent are the times of the requests in the last minute, in their order, in microseconds since 1970.
type recent []int64

func (r *recent) add(at time.Time) {
	*r = append(*r, at.UnixMicro())
	*r = (*r)[max(len(*r)-maxRecent, len(*r)-r.in(time.Minute)):]
}

// in returns how many are less than a time before the last one.
func (r recent) in(length time.Duration) int {
	after, _ := slices.BinarySearch(r, r[len(r)-1]-length.Microseconds()+1)
	return len(r) - after
}

// sendings are a heap, with the first one at the root (container/heap).
type sendings []*sending

func (s sendings) Len() int           { return len(s) }
func (s sendings) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s sendings) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *sendings) Push(x any)        { *s = append(*s, x.(*sending)) }
func (s *sendings) Pop() any {
	old := *s
	last := len(old) - 1
	x := old[last]
	old[last] = nil
	*s = old[:last]
	return x
}
