package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/labels"
)

// Options select the requests of a report. The zero value selects all.
type Options struct {
	// Since selects the requests that arrived then or later; zero: all.
	Since time.Time

	// Until selects the requests that arrived before then; zero: all.
	Until time.Time

	// Client selects the requests of this client; "": those of all.
	Client string

	// Labels selects the requests that have all these labels.
	Labels labels.Set

	// Host is the name of MatchHost in the report.
	Host string

	// Quotas are those of clients, by their names in the trail.
	Quotas map[string]policy.Quota

	// Hosts are entries of hosts, of which those with hours or a budget are agreements.
	Hosts []policy.Host

	// Partial says that the lines are only some of a trail. Their chain is not verified, and values may be hidden.
	Partial bool

	// MatchHost selects the requests to hosts that it accepts; nil: those to all.
	MatchHost func(host string) bool
}

// matches reports whether a record is selected.
func (o *Options) matches(e *trail.Entry) bool {
	return (o.Since.IsZero() || !e.Time.Before(o.Since)) &&
		(o.Until.IsZero() || !e.Time.IsZero() && e.Time.Before(o.Until)) &&
		(o.Client == "" || e.Client == o.Client) && labels.Set(e.Labels).Has(o.Labels) &&
		(o.MatchHost == nil || o.MatchHost(e.Host))
}

// A Builder reads trails and builds a Report. It is for one goroutine. Make one with New.
type Builder struct {
	o Options

	// sources has one for each trail.
	sources      []*source
	totals       counts
	monitored    counts
	withheld     int64
	erased       int64
	timeline     timelineBuilder
	reasons      groups[string, counts]
	clients      groups[string, counts]
	replicas     groups[string, counts]
	hosts        groups[string, host]
	rules        groups[ruleKey, counts]
	overrides    groups[overrideKey, counts]
	signals      groups[signalKey, signal]
	signed       groups[signedKey, counts]
	reservations groups[reservationKey, counts]
	licenses     groups[licenseKey, counts]

	// rulesOf and licensesOf are the numbers of rows of rules and licenses by host, and statements is that of reservations
	// that differ only in their Statement, which is "".
	rulesOf    map[string]int
	licensesOf map[string]int
	statements map[reservationKey]int

	pace       paceBuilder
	quotas     quotaBuilder
	agreements agreementBuilder
	versions   versionBuilder

	outages  list[outage]
	events   list[event]
	combined groups[combinedKey, counts]
}

// New returns a Builder.
func New(o Options) *Builder {
	return &Builder{
		o: o, timeline: newTimelineBuilder(),
		sources:      []*source{newSource("")},
		reasons:      newGroups[string, counts](maxReasons),
		clients:      newGroups[string, counts](maxClients),
		replicas:     newGroups[string, counts](maxReplicas),
		hosts:        newGroups[string, host](maxHosts),
		rules:        newGroups[ruleKey, counts](maxRules),
		overrides:    newGroups[overrideKey, counts](maxOverrides),
		signals:      newGroups[signalKey, signal](maxSignals),
		signed:       newGroups[signedKey, counts](maxSigned),
		reservations: newGroups[reservationKey, counts](maxReservations),
		licenses:     newGroups[licenseKey, counts](maxLicenses),
		rulesOf:      map[string]int{},
		statements:   map[reservationKey]int{},
		licensesOf:   map[string]int{},
		pace:         newPaceBuilder(),
		quotas:       newQuotaBuilder(o.Quotas),
		agreements:   newAgreementBuilder(o.Hosts),
		versions:     newVersionBuilder(),
		outages:      list[outage]{Most: maxOutages, Rows: []outage{}},
		events:       list[event]{Most: maxEvents, Rows: []event{}},
		combined:     newGroups[combinedKey, counts](maxCombined),
	}
}

// Read adds all lines of a trail, and verifies its chain. An error that ends the reading is also a
// fault of the chain in the Report.
func (b *Builder) Read(r *trail.Reader) error {
	var v verification
	v.result, v.fault, v.err = trail.VerifyEach(r, b.add)
	b.setVerification(b.sources[0], &v)
	return v.err
}

// add adds a line, or the error with which it was read.
func (b *Builder) add(l trail.Line, err error) {
	var e trail.Entry
	if err == nil {
		e, err = trail.Read(l.Text)
	}
	b.addEntry(b.sources[0], l.File, &e, err)
}

// addEntry adds a parsed line of a file; with an error, it counts as unreadable.
func (b *Builder) addEntry(from *source, file string, e *trail.Entry, err error) {
	from.line(file, e.Seq)
	switch {
	case err != nil:
		from.Unreadable++
	case e.Event != "":
		b.event(from, e)
	case e.Kind == trail.KindRobots:
		from.Fetches++
		if b.o.MatchHost == nil || b.o.MatchHost(e.Host) {
			b.versions.fetch(e)
			b.agreements.fetch(e)
		}
	case e.Kind == trail.KindTDMRep:
		from.TDMRep++
	case !e.IsRequest():
		// A line of another kind counts only among the lines.
	default:
		from.Requests++
		if e.HiddenClient() {
			e.Client = erasedClient
			if b.o.Partial {
				e.Client = hiddenClient
			}
		}
		clipEntry(e)
		if b.o.matches(e) {
			b.request(e)
			b.pace.add(e, from, len(b.sources) > 1)
			b.quotas.add(e)
			b.agreements.request(e)
			b.versions.request(e)
		}
	}
}

// The clients of the records whose clients were erased, or are hidden in an excerpt.
const (
	erasedClient = "(erased)"
	hiddenClient = "(hidden)"
)

// clipEntry cuts the strings by which requests are grouped.
func clipEntry(e *trail.Entry) {
	for _, text := range []*string{
		&e.Replica, &e.Client, &e.Host, &e.Decision, &e.Reason, &e.Entry, &e.EntryReason,
		&e.Rule, &e.Group, &e.RobotsSHA256, &e.Signed, &e.Unsigned,
	} {
		*text = clip(*text)
	}
}

func (b *Builder) event(from *source, e *trail.Entry) {
	from.Events++
	switch e.Event {
	case "lost":
		from.Lost = addCapped(from.Lost, e.Count)
	case trail.EventCounted:
		// There may be one such event a second, and they would fill the list.
		from.Counted = addCapped(from.Counted, e.Count)
		return
	case trail.EventBackOffEnded:
		b.pace.endedByOperator(e)
	}
	if e.Host == "" || b.o.MatchHost == nil || b.o.MatchHost(e.Host) {
		b.agreements.event(e)
	}
	b.events.add(event{
		From: clip(from.Name), Replica: clip(e.Replica), Time: e.Time, Seq: e.Seq, Event: clip(e.Event), Detail: clip(e.Detail),
		File: clip(e.File), FileBytes: e.FileBytes, SHA256: clip(e.SHA256), Count: e.Count,
	})
}

func (b *Builder) request(e *trail.Entry) {
	b.totals.add(e)
	b.totals.addWait(e)
	if !e.Enforced {
		b.monitored.add(e)
	}
	b.erased += oneIf(e.Hidden())
	b.withheld += oneIf(e.Withheld && e.Blocked() && e.Enforced)
	b.timeline.add(e)
	count(&b.reasons, e.Reason, e)
	count(&b.clients, e.Client, e).addWait(e)
	if e.Replica != "" || len(b.sources) > 1 {
		count(&b.replicas, e.Replica, e).addWait(e)
	}
	h, own := b.hosts.at(e.Host)
	h.addWait(e)
	if ended := h.add(e); own && ended.Requests > 0 {
		ended.Host = e.Host
		if h.outages++; h.outages <= maxHostOutages {
			b.outages.add(ended)
		} else {
			// There has to be space for the outages of other hosts.
			b.outages.Others++
		}
	}
	r := ruleKey{e.Host, e.Group, e.Rule, e.Line, e.JoinedLine, e.RobotsSHA256}
	if e.Rule != "" {
		r = bounded(&b.rules, b.rulesOf, r, e.Host, ruleKey{Host: e.Host, Rule: others}, maxHostRules)
		count(&b.rules, r, e)
	}
	if e.Reason == "override" || e.Reason == "denied-host" {
		count(&b.overrides, overrideKey{e.Reason, e.Entry, e.EntryReason}, e)
	}
	if e.Signed != "" || e.Unsigned != "" {
		count(&b.signed, signedKey{e.Signed, e.Unsigned}, e)
	}
	b.signal(e)
	reason := e.EntryReason
	if e.Blocked() {
		reason = ""
	}
	for purpose, u := range e.Usage {
		if u.Statement != "" {
			b.reservation(e, reservationKey{e.Host, clip(purpose), clip(u.Outcome), clip(u.Source), clip(u.Statement), reason})
		}
	}
	if e.License != "" {
		b.license(e)
	}
	count(&b.combined, combinedKey{e.Replica, e.Client, e.Decision, e.Reason, e.Entry, e.Enforced, r}, e)
}

// reservation counts a record for a statement of its host.
func (b *Builder) reservation(e *trail.Entry, k reservationKey) {
	same, rest := k, k
	same.Statement, rest.Statement = "", others
	count(&b.reservations, bounded(&b.reservations, b.statements, k, same, rest, maxStatements), e)
}

// license counts a record for the license of its host.
func (b *Builder) license(e *trail.Entry) {
	k := licenseKey{e.Host, clip(e.License)}
	count(&b.licenses, bounded(&b.licenses, b.licensesOf, k, e.Host, licenseKey{e.Host, others}, maxStatements), e)
}

// bounded returns the key to count k by. An owner has at most most rows, which rows counts, and rest for
// all further keys: a host that states something else in each response leaves space for those of other hosts.
func bounded[K, O comparable](s *groups[K, counts], rows map[O]int, k K, owner O, rest K, most int) K {
	if s.rows[k] == nil && len(s.rows) < s.most {
		if rows[owner] >= most {
			k = rest
		}
		rows[owner]++
	}
	return k
}

// count counts a record for a key, and returns the counts of the key.
func count[K comparable](s *groups[K, counts], k K, e *trail.Entry) *counts {
	c, _ := s.at(k)
	c.add(e)
	return c
}

// Report returns the report of all lines so far, made at a time by a version of the program.
func (b *Builder) Report(made time.Time, version string) *Report {
	r := &Report{
		Format: formatVersion, Made: made.UTC(), Version: version,
		Filters:     filters{b.o.Since, b.o.Until, b.o.Client, b.o.Host, string(b.o.Labels)},
		Partial:     b.o.Partial,
		Source:      mergeSources(b.sources),
		Totals:      b.totals,
		Monitored:   b.monitored.Requests,
		Timeline:    b.timeline.timeline(),
		Pace:        b.pace.report(),
		Quotas:      b.quotas.uses(),
		Agreements:  b.agreements.agreements(),
		Unreachable: list[outage]{Rows: slices.Clone(b.outages.Rows), Most: maxOutages, Others: b.outages.Others},
		Signals:     list[signal]{Rows: []signal{}, Most: maxSignals, Others: b.signals.rest.Requests},
		Events:      list[event]{Rows: slices.Clone(b.events.Rows), Most: maxEvents, Others: b.events.Others},
	}
	r.Versions, r.Outdated = b.versions.versions(), b.versions.outdated
	r.Totals.setMedian()
	r.monitored, r.withheld, r.Erased = b.monitored, b.withheld, b.erased
	r.Reasons = tableOf(&b.reasons, func(k string, c *counts) reason { return reason{k, *c} })
	r.Clients = tableOf(&b.clients, func(k string, c *counts) client { return client{k, *c} })
	r.Replicas = tableOf(&b.replicas, func(k string, c *counts) replica { return replica{k, *c} })
	r.Hosts = tableOf(&b.hosts, withName)
	r.Rules = tableOf(&b.rules, func(k ruleKey, c *counts) rule { return rule{k, *c} })
	// The rules that disallowed requests come first.
	slices.SortStableFunc(r.Rules.Rows, func(a, b rule) int {
		return cmp.Compare(b.Disallowed+b.WouldDisallowed, a.Disallowed+a.WouldDisallowed)
	})
	r.Overrides = tableOf(&b.overrides, func(k overrideKey, c *counts) override { return override{k, *c} })
	r.Reservations = tableOf(&b.reservations, func(k reservationKey, c *counts) reservation { return reservation{k, *c} })
	r.Licenses = tableOf(&b.licenses, func(k licenseKey, c *counts) license { return license{k, *c} })
	r.Signed = tableOf(&b.signed, func(k signedKey, c *counts) signed { return signed{k, *c} })
	r.combined = tableOf(&b.combined, func(k combinedKey, c *counts) combination { return combination{k, *c} })
	for i := range r.Hosts.Rows {
		if h := &r.Hosts.Rows[i]; h.outage.Requests > 0 {
			h.outage.Host = h.Host
			r.Unreachable.add(h.outage)
		}
	}
	slices.SortStableFunc(r.Unreachable.Rows, func(a, b outage) int {
		return cmp.Or(a.First.Compare(b.First), strings.Compare(a.Host, b.Host))
	})
	for k, row := range b.signals.rows {
		said := *row
		said.Host, said.Name = k.host, k.name
		r.Signals.Rows = append(r.Signals.Rows, said)
	}
	slices.SortFunc(r.Signals.Rows, func(a, b signal) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Name, b.Name))
	})
	return r
}

func withName(name string, h *host) host {
	row := *h
	row.Host = name
	return row
}

// A verification is the result of verifying a trail.
type verification struct {
	result trail.Result
	fault  *trail.Fault
	err    error
}

// setVerification stores the result of verifying a trail.
func (b *Builder) setVerification(of *source, v *verification) {
	if v.err != nil {
		v.err = fmt.Errorf("the trail could not be read to its end: %w", v.err)
	}
	if b.o.Partial {
		v.fault = nil
	}
	of.setChain(&v.result, v.fault, v.err)
}

// A signalKey identifies what a host stated in one member.
type signalKey struct{ host, name string }

// signal counts a record's usage preferences.
func (b *Builder) signal(e *trail.Entry) {
	for i := range signalNames {
		n := &signalNames[i]
		value := n.value(e)
		if value == "" {
			continue
		}
		row, _ := b.signals.at(signalKey{e.Host, n.name})
		row.Requests++
		row.Last = clip(value)
		row.NoIndex += oneIf(n.name == "x_robots_tag" && isNoIndex(value))
	}
}

// isNoIndex reports whether an X-Robots-Tag keeps a page out of indexes, for any crawler: noindex,
// or none, which is noindex and nofollow.
func isNoIndex(tag string) bool {
	for word := range strings.FieldsFuncSeq(tag, func(r rune) bool { return !unicode.IsLetter(r) && r != '-' && r != '_' }) {
		if strings.EqualFold(word, "noindex") || strings.EqualFold(word, "none") {
			return true
		}
	}
	return false
}
