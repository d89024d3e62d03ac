package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// The kinds of agreements.
const (
	agreedHours    = "hours"
	agreedBudget   = "budget"
	agreedPause    = "pause"
	agreedCoolDown = "cool-down"
)

// An agreement is what was agreed about a host, by an entry of hosts as it is configured now, by an operator, or because the host
// refused requests, and what the records say about it.
type agreement struct {
	Kind string `json:"kind"`

	// Host is "" for a pause of all hosts.
	Host string `json:"host,omitempty"`

	// Entry is the entry of hosts, and Terms what was agreed: the hours, the budget, or why requests were stopped.
	Entry string `json:"entry,omitempty"`
	Terms string `json:"terms"`

	// From and Until are the time of a pause or a cool-down; a zero Until: it has not ended. By is the operator, and Client the client
	// that was stopped; "": all were.
	From   time.Time `json:"from,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	By     string    `json:"by,omitempty"`
	Client string    `json:"client,omitempty"`

	// Sent is the number of requests that were sent under the agreement, Against of those that it did not permit, and Deferred of
	// those that the proxy refused for it.
	Sent     int64 `json:"sent"`
	Against  int64 `json:"sent_against"`
	Deferred int64 `json:"deferred"`

	// Most is the most that was used of a budget in its period, which ended at MostUntil: requests and bytes.
	Most      policy.Use `json:"most,omitzero"`
	MostUntil time.Time  `json:"most_until,omitzero"`
}

const (
	// maxAgreements bounds the rows of hosts, and maxStops those of pauses and cool-downs.
	maxAgreements = 1_000
	maxStops      = 1_000

	// maxOpenStops bounds the pauses and cool-downs of a host that may not have ended.
	maxOpenStops = 100

	// maxBudgetBuckets bounds the buckets that are counted for a host.
	maxBudgetBuckets = 4_000
)

// An agreementBuilder finds out whether agreements were kept.
type agreementBuilder struct {
	entries []policy.Host

	// ofHosts are the patterns of the entries without Paths, whose positions are in whole.
	ofHosts *policy.HostPatterns
	whole   []int

	// named are the positions of entries by the names that records have for them.
	named map[string]int
	rows  groups[agreementKey, keptTerms]

	// stops are the pauses and cool-downs, and left is the number of requests and stops beyond the bounds.
	stops []*agreement
	left  int64

	// open has, by host, the pauses and cool-downs that may not have ended; those of all hosts are at "".
	open map[string][]*agreement
}

// An agreementKey is an entry, by its position, at one host.
type agreementKey struct {
	host  string
	entry int
}

// keptTerms is what the records say about an entry at one host.
type keptTerms struct {
	sent, against, overHours, overBudget int64

	// used is what was used in each bucket of the budget, by the number of the bucket since 1970.
	used map[int64]policy.Use
}

func newAgreementBuilder(entries []policy.Host) agreementBuilder {
	b := agreementBuilder{
		entries: entries, named: map[string]int{}, open: map[string][]*agreement{},
		rows: newGroups[agreementKey, keptTerms](maxAgreements),
	}
	var patterns []string
	for i := range entries {
		h := &entries[i]
		if len(h.Paths) == 0 {
			patterns, b.whole = append(patterns, h.Match), append(b.whole, i)
		}
		if len(h.Hours) == 0 && !h.RobotsHours && !h.Budget.IsSet() {
			continue
		}
		for _, name := range h.Names() {
			// The first entry with a name counts.
			name = clip(name)
			if _, known := b.named[name]; !known {
				b.named[name] = i
			}
		}
	}
	// The configuration has been checked. Without patterns, no fetch counts.
	b.ofHosts, _ = policy.NewHostPatterns(patterns)
	return b
}

// request counts a request.
func (b *agreementBuilder) request(e *trail.Entry) {
	sent, _ := sentAt(e)
	b.stopped(e, sent)
	i, known := b.named[e.Entry]
	if !known {
		return
	}
	kept, own := b.rows.at(agreementKey{e.Host, i})
	if !own {
		b.left++
		return
	}
	kept.overHours += oneIf(isRefused(e, policy.ReasonHours))
	kept.overBudget += oneIf(isRefused(e, policy.ReasonBudget))
	if sent.IsZero() {
		return
	}
	kept.sent++
	h := &b.entries[i]
	for _, s := range h.Hours {
		if open, _ := s.At(sent); !open {
			kept.against++
			break
		}
	}
	kept.use(h.Budget, sent, policy.Use{Requests: 1, Bytes: max(0, e.Bytes)})
}

// isRefused reports whether a request was refused for a reason. In mode: monitor it was sent.
func isRefused(e *trail.Entry, reason policy.Reason) bool {
	return e.Blocked() && e.Enforced && e.Reason == string(reason)
}

// fetch counts a fetch of a robots.txt.
func (b *agreementBuilder) fetch(e *trail.Entry) {
	if b.ofHosts == nil {
		return
	}
	n := b.ofHosts.First(e.Host)
	if n < 0 || !b.entries[b.whole[n]].Budget.IsSet() {
		return
	}
	if kept, own := b.rows.at(agreementKey{clip(e.Host), b.whole[n]}); own {
		kept.use(b.entries[b.whole[n]].Budget, e.Time, policy.Use{Requests: 1, Bytes: max(0, e.Bytes)})
	}
}

// use counts what was used of a budget at a time.
func (k *keptTerms) use(b policy.Budget, at time.Time, u policy.Use) {
	if !b.IsSet() {
		return
	}
	if k.used == nil {
		k.used = map[int64]policy.Use{}
	}
	bucket := at.UnixNano() / int64(b.Bucket())
	if was, known := k.used[bucket]; known || len(k.used) < maxBudgetBuckets {
		k.used[bucket] = was.Plus(u, 1)
	}
}

// most returns the most that was used of a budget in its period, and when that ended.
func (k *keptTerms) most(b policy.Budget) (most policy.Use, until time.Time) {
	width := b.Bucket()
	over := int64(b.Per / width)
	for _, last := range slices.Sorted(maps.Keys(k.used)) {
		var sum policy.Use
		for bucket := last - over; bucket <= last; bucket++ {
			sum = sum.Plus(k.used[bucket], 1)
		}
		if usedPart(sum, b) > usedPart(most, b) {
			most, until = sum, time.Unix(0, (last+1)*int64(width)).UTC()
		}
	}
	return most, until
}

// usedPart returns how much of a budget a use is.
func usedPart(u policy.Use, b policy.Budget) (most float64) {
	if b.Requests > 0 {
		most = float64(u.Requests) / float64(b.Requests)
	}
	if b.Bytes > 0 {
		most = max(most, float64(u.Bytes)/float64(b.Bytes))
	}
	return most
}

// stopped counts a request for the stops of its host and of all hosts.
func (b *agreementBuilder) stopped(e *trail.Entry, sent time.Time) {
	client := policy.ShareKey(e.Client)
	for _, host := range [...]string{e.Host, ""} {
		for _, s := range b.open[host] {
			if s.Client != "" && s.Client != client {
				continue
			}
			within := func(at time.Time) bool { return !at.Before(s.From) && (s.Until.IsZero() || at.Before(s.Until)) }
			reason := policy.ReasonPaused
			if s.Kind == agreedCoolDown {
				reason = policy.ReasonCoolDown
			}
			s.Deferred += oneIf(isRefused(e, reason) && within(e.End()))
			s.Against += oneIf(!sent.IsZero() && within(sent))
		}
	}
}

// event notes that a pause or a cool-down has begun or ended.
func (b *agreementBuilder) event(e *trail.Entry) {
	host := clip(e.Host)
	s := &agreement{Host: host, Terms: clip(e.Reason), From: e.Time, Until: e.Until, By: clip(e.By), Client: clip(e.Client)}
	switch e.Event {
	case trail.EventPaused, trail.EventResumed:
		s.Kind = agreedPause
	case trail.EventCoolDown:
		s.Kind = agreedCoolDown
	default:
		return
	}
	for _, before := range b.open[host] {
		if before.Kind == s.Kind && before.Client == s.Client && (before.Until.IsZero() || e.Time.Before(before.Until)) {
			before.Until = e.Time
		}
	}
	if e.Event == trail.EventResumed {
		return
	}
	if len(b.stops) == maxStops {
		b.left++
		return
	}
	b.stops = append(b.stops, s)
	open := append(b.open[host], s)
	b.open[host] = open[max(0, len(open)-maxOpenStops):]
}

// agreements returns all agreements: first those of entries, then pauses and cool-downs by time.
func (b *agreementBuilder) agreements() list[agreement] {
	all := list[agreement]{Rows: []agreement{}, Most: 2*maxAgreements + maxStops, Others: b.left}
	for k, kept := range b.rows.rows {
		h := &b.entries[k.entry]
		row := agreement{Host: k.host, Entry: clip(strings.Join(h.Names(), " ")), Sent: kept.sent}
		if len(h.Hours) > 0 || h.RobotsHours {
			row.Kind, row.Terms, row.Against, row.Deferred = agreedHours, hoursText(h), kept.against, kept.overHours
			all.Rows = append(all.Rows, row)
		}
		if h.Budget.IsSet() {
			row.Kind, row.Terms, row.Against, row.Deferred = agreedBudget, explain.Budget(h.Budget), 0, kept.overBudget
			row.Most, row.MostUntil = kept.most(h.Budget)
			all.Rows = append(all.Rows, row)
		}
	}
	slices.SortFunc(all.Rows, func(a, b agreement) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Entry, b.Entry), strings.Compare(a.Kind, b.Kind))
	})
	for _, s := range b.stops {
		all.Rows = append(all.Rows, *s)
	}
	return all
}

// hoursText returns the hours of an entry.
func hoursText(h *policy.Host) string {
	var all []string
	for _, s := range h.Hours {
		all = append(all, s.String())
	}
	if h.RobotsHours {
		// No record has these lines.
		all = append(all, "Visit-time of robots.txt, which the report does not check")
	}
	return strings.Join(all, "; and ")
}

func (b *tableBuilder) agreements() displayTable {
	s := b.table("agreements", "host", "agreement", "terms", "what was kept")
	for _, a := range firstRows(&s, &b.report.Agreements, b.maxRows, "further rows or requests") {
		host := shown(a.Host)
		if a.Host == "" {
			host = "all hosts"
		}
		s.Rows = append(s.Rows, []string{host, a.Kind, a.terms(), a.kept()})
	}
	return s
}

// terms describes what was agreed.
func (a *agreement) terms() string {
	text := shown(a.Terms)
	if a.Entry != "" {
		text += " (" + shown(a.Entry) + ")"
	}
	if !a.From.IsZero() {
		text += ", from " + stamp(a.From)
		if !a.Until.IsZero() {
			text += " to " + stamp(a.Until)
		}
	}
	if a.Client != "" {
		text += ", for the client " + shown(a.Client)
	}
	if a.By != "" {
		text += ", by " + shown(a.By)
	}
	return text
}

// kept describes what the records say.
func (a *agreement) kept() string {
	deferred := "; " + humanize.Number(a.Deferred) + " deferred"
	switch a.Kind {
	case agreedHours:
		outside := humanize.Number(a.Against) + " of them outside the hours"
		return humanize.Count(a.Sent, "request") + " sent, " + outside + deferred
	case agreedBudget:
		if a.MostUntil.IsZero() {
			return "nothing used" + deferred
		}
		return fmt.Sprintf("at most %s and %s, up to %s", humanize.Count(a.Most.Requests, "request"), humanize.Bytes(a.Most.Bytes),
			stamp(a.MostUntil)) + deferred
	}
	return humanize.Count(a.Against, "request") + " sent meanwhile" + deferred
}
