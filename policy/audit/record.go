// Package audit records one [Record] for each request, and hands it to every [Sink]: the audit
// trail ([Log]) and counters.
//
// Package proxy builds the Record, and does not change it after it was handed over. The Log is
// the first Sink. It writes the line of a refusal to the file before the client can read the
// response, and that of an allowed request when the request ends. Before either, it stores the
// robots.txt that the decision rests on. Package trail has the format of lines and segment
// files, and reads them without a lock.
//
// There is one exception. Refusals that the request and the configuration alone decide
// ([IsCheap]) cost their sender nothing, and a record of each would fill the segments, so that
// older ones are removed sooner. The Log records at most 100 of these refusals a second for one
// client. It counts the others, and writes one line a second that says how many there were and
// why.
//
// Long strings cannot fill the segments either: a line without its URL has at most 5 KiB,
// whatever clients and origins send, and a URL takes at most five times the bytes that it was sent
// with.
//
// A Log may be unable to write: the disk is full, or the file was removed or may only be read.
// Then [Log.Err] returns an error until a probe succeeds, and the proxy refuses requests
// (unless the configuration says otherwise). The Log holds the lines in memory up to a bound,
// and adds a line with the number of records beyond it. After a crash, Open moves what follows
// the last complete line to another file, and adds a line about it; the line of a refusal that
// was answered is never incomplete. A Log never writes to a trail that another process writes.
//
// Any number of goroutines may share a Sink.
package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/usage"
	"robotsproxy/robots/cache"
)

// A Record describes one request.
type Record struct {
	// Time is when the request arrived.
	Time time.Time

	// ID identifies the request, here and in the response to the client.
	ID string

	// Request is what the client requested.
	Request policy.Request

	// Target is the target as the client sent it. The line has it if it could not be normalised.
	Target string

	// Remote is the address and port of the client. No line has it, and it is removed from errors if Options.Client is set.
	Remote string

	// Decision is the decision with its reasons.
	Decision policy.Decision

	// Transparent reports that the client's connection was redirected to the proxy.
	Transparent bool

	// Monitor reports that the decision was only recorded, not enforced.
	Monitor bool

	// Slot reports that the pacer gave the request a slot, at once or after a wait.
	Slot bool

	// Waited is the wait for a slot, whether or not the request got one.
	Waited time.Duration

	// BackOff is the host's back-off that delayed the request, or that its response began; zero: none.
	BackOff time.Duration

	// BackOffBy is the ID of the request whose response began that back-off, or the URL of a robots.txt; "": there is none,
	// or it is unknown.
	BackOffBy string

	// Slowed is the interval between requests that delayed the request, since the host responds slowly; zero: none did.
	Slowed time.Duration

	// Sent is when the first byte of the request went out, the last time that it was sent; zero: it was not sent.
	Sent time.Time

	// Interval is the time between two requests of a long queue, by the limits under which the request was sent, and Burst the
	// number of requests that may go at once after a quiet time; zero: no limits applied.
	Interval time.Duration
	Burst    int

	// StoreAway reports that the shared store was unavailable: the request was paced without it, or refused.
	StoreAway bool

	// Signed is the ID of the key with which the proxy signed the request; "": it did not.
	Signed string

	// Unsigned is why the request was sent without a signature of the proxy; "": it has one, or none is configured.
	Unsigned policy.Unsigned

	// LegacyTLS reports that the connection to the origin had a version of TLS before 1.2, or a weak cipher suite.
	LegacyTLS bool

	// Dropped is the number of fields of the response that were left out, because they cannot be passed on.
	Dropped int

	// Cached reports that the request for robots.txt was answered from the cache.
	Cached bool

	// Withheld reports that the origin was requested and its response not passed on, since a usage preference in it forbids
	// the use.
	Withheld bool

	// Archived says where the archive has the response; zero: it does not.
	Archived Archived

	// Received is what was received of the body of the response; zero: nothing was, or its digest is not recorded.
	Received Received

	// Preferences are those in the header of the origin's response.
	Preferences Preferences

	// Status is that of the response; 0: no response was possible.
	Status int

	// Bytes is the length of the body, or of both directions of a tunnel.
	Bytes int64

	// Took is the time from the arrival of the request to its end.
	Took time.Duration

	// Err is the error in detail, for the record only.
	Err error

	// snapshotSaved reports that Log.SaveSnapshot was called.
	snapshotSaved bool
}

// Received is what was received of a body, before any decoding of its content.
type Received struct {
	SHA256 [sha256.Size]byte

	// Bytes is the length; 0: there is no body.
	Bytes int64
}

// Blocked reports whether the request was decided against.
func (r *Record) Blocked() bool { return r.Decision.Verdict != policy.Allow }

// Outcome returns what became of the request, in the words by which people count; with Monitor, what
// would have become of it.
func (r *Record) Outcome() policy.Outcome {
	return policy.OutcomeOf(r.Decision.Verdict, r.Decision.Reason)
}

// Refused reports whether the request was decided against and therefore not sent on.
func (r *Record) Refused() bool { return r.Blocked() && !r.Monitor }

// A Sink takes Records. Write must not keep or change r. Except for the Log, whose error
// refuses the request, it must not wait.
type Sink interface {
	Write(r *Record) error
}

// Fanout returns a Sink that hands each Record to all sinks, in their order. It returns the
// first error, but still calls the others.
func Fanout(sinks ...Sink) Sink { return fanout(sinks) }

type fanout []Sink

func (f fanout) Write(r *Record) error {
	var first error
	for _, s := range f {
		if err := s.Write(r); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// NewID returns an ID for a Record: 64 random bits, in base 36. From the IDs of its own requests, a client learns
// nothing about those of others.
func NewID() string { return strconv.FormatUint(rand.Uint64(), 36) }

// appendWithin appends the record of a request. It is written by hand because encoding/json takes longer than all else that
// a record needs, and escapes less. A table of the fields of trail.Entry, which has the names and the order, would take 20
// to 40 % more time.
func (r *Record) appendWithin(b []byte, o *Options, limit int) (line []byte, url int) {
	d := &r.Decision
	begun := r.Begun()
	b, url = begun.append(b, "", o, limit)
	b = appendOptional(b, `,"labels":"`, string(r.Request.Labels), len(r.Request.Labels))
	b = appendOptional(b, `,"entry":"`, d.Entry, limit)
	b = appendOptional(b, `,"entry_reason":"`, d.EntryReason, limit)
	b = appendOptional(b, `,"rule":"`, d.Rule, limit)
	b = appendNumber(b, `,"line":`, d.Line)
	b = appendNumber(b, `,"joined_line":`, d.JoinedLine)
	b = appendOptional(b, `,"reading":"`, d.Form.String(), limit)
	b = appendOptional(b, `,"group":"`, d.Group, limit)
	b = appendRuling(b, &robotsMembers, &d.Ruling, d.Dialect, o, limit)
	b = appendOptional(b, `,"robots_decoded":"`, d.Decoded, limit)
	b = appendRuling(b, &tdmrepMembers, &d.TDMRep, "", o, limit)
	b = appendOptional(b, `,"robots_content_signal":"`, d.Signals.String(), limit)
	b = appendOptional(b, `,"robots_content_usage":"`, d.ContentUsage, limit)
	b = appendLicenses(b, d.Licenses, r.Preferences.License, o, limit)
	b = appendUsage(b, d, limit)
	b = r.appendPace(b, limit)
	b = appendOptional(b, `,"signed":"`, r.Signed, limit)
	b = appendOptional(b, `,"unsigned":"`, string(r.Unsigned), limit)
	if r.LegacyTLS {
		b = append(b, `,"tls":"legacy"`...)
	}
	b = appendNumber(b, `,"dropped_fields":`, r.Dropped)
	b = appendTrue(b, `,"cached":`, r.Cached)
	b = appendTrue(b, `,"store_away":`, r.StoreAway)
	b = appendTrue(b, `,"withheld":`, r.Withheld)
	b = r.Preferences.RobotsTag.append(b, `,"x_robots_tag":"`, limit)
	b = r.Preferences.ContentSignal.append(b, `,"content_signal":"`, limit)
	b = r.Preferences.ContentUsage.append(b, `,"content_usage":"`, limit)
	b = r.Preferences.TDMReservation.append(b, `,"tdm_reservation":"`, limit)
	terms := o.withoutQueriesIn(*r.tdmPolicy())
	b = terms.append(b, `,"tdm_policy":"`, limit)
	b = r.Preferences.CrawlerPrice.append(b, `,"crawler_price":"`, limit)
	b = appendArchived(b, &r.Archived)
	if r.Received.Bytes > 0 {
		b = hex.AppendEncode(append(b, `,"body_sha256":"`...), r.Received.SHA256[:])
		b = appendNumber(append(b, '"'), `,"body_bytes":`, r.Received.Bytes)
	}
	b = appendNumber(b, `,"status":`, r.Status)
	b = strconv.AppendInt(append(b, `,"bytes":`...), r.Bytes, 10)
	b = appendMillis(append(b, `,"duration_ms":`...), r.Took)
	if err := cmp.Or(r.Err, d.Err); err != nil {
		b = appendOptional(b, `,"error":"`, redact(humanize.Error(err), r.Remote, r.Target, o), limit)
	}
	return b, url
}

// appendPace appends the members about the wait for a slot, and the pace of the host.
func (r *Record) appendPace(b []byte, limit int) []byte {
	d := &r.Decision
	if d.Asked > 0 {
		b = appendSeconds(append(b, `,"crawl_delay_s":`...), d.Pace.CrawlDelay)
		b = appendSeconds(append(b, `,"crawl_delay_asked_s":`...), d.Asked)
		b = appendNumber(b, `,"crawl_delay_line":`, d.DelayLine)
	}
	b = appendMillis(append(b, `,"wait_ms":`...), r.Waited)
	if !r.Sent.IsZero() {
		b = append(appendTime(append(b, `,"sent":"`...), r.Sent), '"')
	}
	if r.Interval > 0 {
		b = appendMillis(append(b, `,"pace_ms":`...), r.Interval)
	}
	if r.Burst > 1 {
		b = appendNumber(b, `,"burst":`, r.Burst)
	}
	b = appendDelay(b, `,"back_off_s":`, r.BackOff)
	b = appendOptional(b, `,"back_off_by":"`, r.BackOffBy, limit)
	b = appendDelay(b, `,"slowed_s":`, r.Slowed)
	if !d.Retry.IsZero() {
		b = append(appendTime(append(b, `,"not_before":"`...), d.Retry), '"')
	}
	return b
}

// rulingMembers are the members about a file that a decision is based on, each as it begins.
type rulingMembers struct{ url, fetched, agent, sha256, stale string }

var (
	robotsMembers = rulingMembers{`,"robots_url":"`, `,"robots_fetched":"`, `,"robots_agent":"`, `,"robots_sha256":"`, `,"robots_stale":`}
	tdmrepMembers = rulingMembers{`,"tdmrep_url":"`, `,"tdmrep_fetched":"`, `,"tdmrep_agent":"`, `,"tdmrep_sha256":"`, `,"tdmrep_stale":`}
)

// appendRuling appends the members about a file that a decision is based on, if there is one.
func appendRuling(b []byte, m *rulingMembers, r *cache.Ruling, dialect string, o *Options, limit int) []byte {
	a := r.Result
	if a == nil {
		return b
	}
	b = appendOptional(b, m.url, o.withoutQueries(a.URL), limit)
	if at := r.Fetched(); !at.IsZero() {
		b = append(appendTime(append(b, m.fetched...), at), '"')
	}
	b = appendOptional(b, m.agent, a.UserAgent, limit)
	b = appendOptional(b, m.sha256, a.SHA256, limit)
	b = appendOptional(b, `,"dialect":"`, dialect, limit)
	return appendTrue(b, m.stale, r.Stale)
}

// tdmPolicy returns the TDM-Policy in the header of the response, or that in tdmrep.json. A TDM-Reservation in
// the header takes the place of the file (TDM Reservation Protocol, Processing priority).
func (r *Record) tdmPolicy() *Preference {
	p := &r.Preferences
	if p.TDMReservation.Text != "" || p.TDMPolicy.Text != "" || r.Decision.TDMPolicy == "" {
		return &p.TDMPolicy
	}
	return &Preference{r.Decision.TDMPolicy, len(r.Decision.TDMPolicy)}
}

// appendLicenses appends the licenses that robots.txt and the response name.
func appendLicenses(b []byte, inRobots string, inResponse Preference, o *Options, limit int) []byte {
	inRobots, inResponse = o.withoutQueries(inRobots), o.withoutQueriesIn(inResponse)
	const member = `,"license":"`
	switch inResponse.Text {
	case "", inRobots:
		return appendOptional(b, member, inRobots, limit)
	}
	if inRobots == "" {
		return inResponse.append(b, member, limit)
	}
	both := Preference{inRobots + " " + inResponse.Text, len(inRobots) + len(" ") + inResponse.Bytes}
	return both.append(b, member, limit)
}

// appendUsage appends what the site states about the purposes of the client, and which statement
// decided.
func appendUsage(b []byte, d *policy.Decision, limit int) []byte {
	if d.Usage.Purposes == 0 {
		return b
	}
	b = append(b, `,"usage":{`...)
	for c := range d.Usage.Purposes.All {
		said, by := usage.Decide(c, d.Statements)
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(append(append(b, '"'), c.String()...), `":{"outcome":"`...), said.String()...), '"')
		if by != nil {
			b = appendOptional(b, `,"statement":"`, by.String(), limit)
			b = appendOptional(b, `,"source":"`, by.Source, limit)
			b = appendNumber(b, `,"line":`, by.Line)
		}
		b = append(b, '}')
	}
	return appendOptional(append(b, '}'), `,"usage_source":"`, d.Forbidding().Source, limit)
}

// Archived says where an archive has the WARC record of a response.
type Archived = trail.Archived

// appendArchived appends the member warc, if the response was archived.
func appendArchived(b []byte, a *Archived) []byte {
	if a.ID == "" {
		return b
	}
	b = appendString(append(b, `,"warc":{"file":`...), a.File)
	b = strconv.AppendInt(append(b, `,"offset":`...), a.Offset, 10)
	return append(appendString(append(b, `,"id":`...), a.ID), '}')
}
