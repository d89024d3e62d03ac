package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// Options select the requests of a report. The zero value selects all.
type Options struct {
	// Requests that arrived then or later; zero: any.
	Since time.Time

	// Requests that arrived before; zero: any.
	Until time.Time

	// Requests of this client; "": any.
	Client string

	// name of MatchHost in the report.
	Host string

	// Requests to hosts that it accepts; nil: any.
	MatchHost func(host string) bool
}

// matches reports whether a record is selected.
func (o *Options) matches(e *trail.Entry) bool {
	return (o.Since.IsZero() || !e.Time.Before(o.Since)) &&
		(o.Until.IsZero() || !e.Time.IsZero() && e.Time.Before(o.Until)) &&
		(o.Client == "" || e.Client == o.Client) &&
		(o.MatchHost == nil || o.MatchHost(e.Host))
}

// A Builder reads trails and builds a Report. It is for one goroutine. Make one with New.
type Builder struct {
	o Options

	// One for each trail.
	sources      []*source
	totals       counts
	monitored    counts
	withheld     int64
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

	// rows of rules by host.
	rulesOf map[string]int

	// rows of reservations that differ only in their Statement, which is "".
	statements map[reservationKey]int

	// rows of licenses by host.
	licensesOf map[string]int
	outages    list[outage]
	events     list[event]
	combined   groups[combinedKey, counts]
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
		outages:      list[outage]{Most: maxOutages, Rows: []outage{}},
		events:       list[event]{Most: maxEvents, Rows: []event{}},
		combined:     newGroups[combinedKey, counts](maxCombined),
	}
}

// Read adds all lines of a trail, and verifies its chain. An error that ends the reading is also a
// fault of the chain in the Report.
func (s *Builder) Read(r *trail.Reader) error {
	var v verification
	v.result, v.fault, v.err = trail.VerifyEach(r, s.add)
	s.setVerification(s.sources[0], &v)
	return v.err
}

// add adds a line, or the error with which it was read.
func (s *Builder) add(l trail.Line, err error) {
	var e trail.Entry
	if err == nil {
		e, err = trail.Read(l.Text)
	}
	s.addEntry(s.sources[0], l.File, &e, err)
}

// addEntry adds a parsed line of a file; with an error, it counts as unreadable.
func (s *Builder) addEntry(from *source, file string, e *trail.Entry, err error) {
	from.line(file, e.Seq)
	switch {
	case err != nil:
		from.Unreadable++
	case e.Event != "":
		s.event(from, e)
	case e.Kind == trail.KindRobots:
		from.Fetches++
	case e.Kind == trail.KindTDMRep:
		from.TDMRep++
	// A line of another kind, which counts among the lines alone.
	case !e.IsRequest():
	default:
		from.Requests++
		clipEntry(e)
		if s.o.matches(e) {
			s.request(e)
		}
	}
}

// clipEntry cuts the strings by which requests are grouped.
func clipEntry(e *trail.Entry) {
	for _, text := range []*string{&e.Replica, &e.Client, &e.Host, &e.Decision, &e.Reason, &e.Entry, &e.EntryReason, &e.Rule, &e.Group, &e.RobotsSHA256, &e.Signed, &e.Unsigned} {
		*text = humanize.Clip(*text, maxText)
	}
}

func (s *Builder) event(from *source, e *trail.Entry) {
	from.Events++
	switch e.Event {
	case "lost":
		from.Lost = addCapped(from.Lost, e.Count)
	// There may be one a second, and they would fill the list.
	case trail.EventCounted:
		from.Counted = addCapped(from.Counted, e.Count)
		return
	}
	s.events.add(event{
		Trail: humanize.Clip(from.Name, maxText), Replica: humanize.Clip(e.Replica, maxText),
		Time: e.Time, Seq: e.Seq, Event: humanize.Clip(e.Event, maxText), Detail: humanize.Clip(e.Detail, maxText), File: humanize.Clip(e.File, maxText),
		FileBytes: e.FileBytes, SHA256: humanize.Clip(e.SHA256, maxText), Count: e.Count,
	})
}

func (s *Builder) request(e *trail.Entry) {
	s.totals.add(e)
	s.totals.addWait(e)
	if !e.Enforced {
		s.monitored.add(e)
	}
	s.withheld += oneIf(e.Withheld && e.Blocked() && e.Enforced)
	s.timeline.add(e)
	count(&s.reasons, e.Reason, e)
	count(&s.clients, e.Client, e).addWait(e)
	if e.Replica != "" || len(s.sources) > 1 {
		count(&s.replicas, e.Replica, e).addWait(e)
	}
	h, own := s.hosts.at(e.Host)
	h.addWait(e)
	if ended := h.add(e); own && ended.Requests > 0 {
		ended.Host = e.Host
		if h.outages++; h.outages <= maxHostOutages {
			s.outages.add(ended)
		} else {
			// Leave space for those of other hosts.
			s.outages.Others++
		}
	}
	r := ruleKey{e.Host, e.Group, e.Rule, e.Line, e.JoinedLine, e.RobotsSHA256}
	if e.Rule != "" {
		r = bounded(&s.rules, s.rulesOf, r, e.Host, ruleKey{Host: e.Host, Rule: others}, maxHostRules)
		count(&s.rules, r, e)
	}
	if e.Reason == "override" || e.Reason == "denied-host" {
		count(&s.overrides, overrideKey{e.Reason, e.Entry, e.EntryReason}, e)
	}
	if e.Signed != "" || e.Unsigned != "" {
		count(&s.signed, signedKey{e.Signed, e.Unsigned}, e)
	}
	s.signal(e)
	reason := e.EntryReason
	if e.Blocked() {
		reason = ""
	}
	for purpose, u := range e.Usage {
		if u.Statement != "" {
			s.reservation(e, reservationKey{e.Host, humanize.Clip(purpose, maxText), humanize.Clip(u.Outcome, maxText), humanize.Clip(u.Source, maxText), humanize.Clip(u.Statement, maxText), reason})
		}
	}
	if e.License != "" {
		s.license(e)
	}
	count(&s.combined, combinedKey{e.Replica, e.Client, e.Decision, e.Reason, e.Entry, e.Enforced, r}, e)
}

// reservation counts a record for a statement of its host.
func (s *Builder) reservation(e *trail.Entry, k reservationKey) {
	same, rest := k, k
	same.Statement, rest.Statement = "", others
	count(&s.reservations, bounded(&s.reservations, s.statements, k, same, rest, maxStatements), e)
}

// license counts a record for the license of its host.
func (s *Builder) license(e *trail.Entry) {
	k := licenseKey{e.Host, humanize.Clip(e.License, maxText)}
	count(&s.licenses, bounded(&s.licenses, s.licensesOf, k, e.Host, licenseKey{e.Host, others}, maxStatements), e)
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
func (s *Builder) Report(made time.Time, version string) *Report {
	r := &Report{
		Format: formatVersion, Made: made.UTC(), Version: version,
		Filters:     filters{s.o.Since, s.o.Until, s.o.Client, s.o.Host},
		Source:      mergeSources(s.sources),
		Totals:      s.totals,
		Monitored:   s.monitored.Requests,
		Timeline:    s.timeline.timeline(),
		Unreachable: list[outage]{Rows: slices.Clone(s.outages.Rows), Most: maxOutages, Others: s.outages.Others},
		Signals:     list[signal]{Rows: []signal{}, Most: maxSignals, Others: s.signals.others.Requests},
		Events:      list[event]{Rows: slices.Clone(s.events.Rows), Most: maxEvents, Others: s.events.Others},
	}
	r.Totals.setMedian()
	r.monitored, r.withheld = s.monitored, s.withheld
	r.Reasons = tableOf(&s.reasons, func(k string, c *counts) reason { return reason{k, *c} }, func(r *reason) string { return r.Reason })
	r.Clients = tableOf(&s.clients, func(k string, c *counts) client { return client{k, *c} }, func(c *client) string { return c.Client })
	r.Replicas = tableOf(&s.replicas, func(k string, c *counts) replica { return replica{k, *c} }, func(r *replica) string { return r.Replica })
	r.Hosts = tableOf(&s.hosts, withName, func(h *host) string { return h.Host })
	r.Rules = tableOf(&s.rules, func(k ruleKey, c *counts) rule { return rule{k, *c} }, func(r *rule) string { return fmt.Sprint(r.ruleKey) })
	// Those that forbade come first.
	slices.SortStableFunc(r.Rules.Rows, func(a, b rule) int {
		return cmp.Compare(b.Disallowed+b.WouldDisallowed, a.Disallowed+a.WouldDisallowed)
	})
	r.Overrides = tableOf(&s.overrides, func(k overrideKey, c *counts) override { return override{k, *c} }, func(o *override) string { return fmt.Sprint(o.overrideKey) })
	r.Reservations = tableOf(&s.reservations, func(k reservationKey, c *counts) reservation { return reservation{k, *c} }, func(v *reservation) string { return fmt.Sprint(v.reservationKey) })
	r.Licenses = tableOf(&s.licenses, func(k licenseKey, c *counts) license { return license{k, *c} }, func(l *license) string { return fmt.Sprint(l.licenseKey) })
	r.Signed = tableOf(&s.signed, func(k signedKey, c *counts) signed { return signed{k, *c} }, func(s *signed) string { return fmt.Sprint(s.signedKey) })
	r.combined = tableOf(&s.combined, func(k combinedKey, c *counts) combination { return combination{k, *c} }, func(c *combination) string { return fmt.Sprint(c.combinedKey) })
	for i := range r.Hosts.Rows {
		if h := &r.Hosts.Rows[i]; h.outage.Requests > 0 {
			h.outage.Host = h.Host
			r.Unreachable.add(h.outage)
		}
	}
	slices.SortStableFunc(r.Unreachable.Rows, func(a, b outage) int {
		return cmp.Or(a.First.Compare(b.First), strings.Compare(a.Host, b.Host))
	})
	for k, row := range s.signals.rows {
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
func (s *Builder) setVerification(of *source, v *verification) {
	if v.err != nil {
		v.err = fmt.Errorf("the trail could not be read to its end: %w", v.err)
	}
	of.setChain(&v.result, v.fault, v.err)
}

// A signalKey identifies what a host stated in one member.
type signalKey struct{ host, name string }

// signal counts a record's usage preferences.
func (s *Builder) signal(e *trail.Entry) {
	for i := range signalNames {
		n := &signalNames[i]
		value := n.value(e)
		if value == "" {
			continue
		}
		row, _ := s.signals.at(signalKey{e.Host, n.name})
		row.Requests++
		row.Last = humanize.Clip(value, maxText)
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

// signalNames are the members of a record with the usage preferences of an origin.
var signalNames = []struct {
	name  string
	value func(*trail.Entry) string
}{
	{"x_robots_tag", func(e *trail.Entry) string { return e.XRobotsTag }},
	{"robots_content_signal", func(e *trail.Entry) string { return e.RobotsContentSignal }},
	{"robots_content_usage", func(e *trail.Entry) string { return e.RobotsContentUsage }},
	{"content_signal", func(e *trail.Entry) string { return e.ContentSignal }},
	{"content_usage", func(e *trail.Entry) string { return e.ContentUsage }},
	{"tdm_reservation", func(e *trail.Entry) string { return e.TDMReservation }},
	{"tdm_policy", func(e *trail.Entry) string { return e.TDMPolicy }},
	{"crawler_price", func(e *trail.Entry) string { return e.CrawlerPrice }},
}
