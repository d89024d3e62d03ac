package report

import (
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// Options say which requests are summed up. The zero value takes them all.
type Options struct {
	Since  time.Time              // they came then or later; zero: however early
	Until  time.Time              // they came before; zero: however late
	Client string                 // they are this client's; "": anybody's
	Host   string                 // how the report names what Has lets through
	Has    func(host string) bool // they went to such a host; nil: to any
}

// letsThrough says whether a record is of what is asked for.
func (o *Options) letsThrough(e *trail.Entry) bool {
	return (o.Since.IsZero() || !e.Time.Before(o.Since)) &&
		(o.Until.IsZero() || !e.Time.IsZero() && e.Time.Before(o.Until)) &&
		(o.Client == "" || e.Client == o.Client) &&
		(o.Has == nil || o.Has(e.Host))
}

// A Sum adds up a trail.
type Sum struct {
	o         Options
	sources   []*source // one for each trail
	totals    counts
	monitored int64
	clock     clock
	reasons   sums[string, counts]
	clients   sums[string, counts]
	replicas  sums[string, counts]
	hosts     sums[string, host]
	rules     sums[ruleKey, counts]
	overrides sums[overrideKey, counts]
	signals   sums[said, signal]
	outages   list[outage]
	events    list[event]
	combined  sums[combinedKey, counts]
}

// New begins a sum.
func New(o Options) *Sum {
	return &Sum{
		o: o, clock: newClock(),
		sources:   []*source{newSource("")},
		reasons:   newSums[string, counts](maxReasons),
		clients:   newSums[string, counts](maxClients),
		replicas:  newSums[string, counts](maxReplicas),
		hosts:     newSums[string, host](maxHosts),
		rules:     newSums[ruleKey, counts](maxRules),
		overrides: newSums[overrideKey, counts](maxOverrides),
		signals:   newSums[said, signal](maxSignals),
		outages:   list[outage]{Most: maxOutages, Rows: []outage{}},
		events:    list[event]{Most: maxEvents, Rows: []event{}},
		combined:  newSums[combinedKey, counts](maxCombined),
	}
}

// Read adds all lines of a trail, and looks whether its chain holds. What ends the
// reading before the end of the trail is in the report as a fault of the chain too.
func (s *Sum) Read(r *trail.Reader) error {
	var v verdict
	v.result, v.fault, v.err = trail.VerifyEach(r, s.add)
	s.finish(s.sources[0], &v)
	return v.err
}

// add adds a line, or what kept it from being read.
func (s *Sum) add(l trail.Line, err error) {
	var e trail.Entry
	if err == nil {
		e, err = trail.Read(l.Text)
	}
	s.take(s.sources[0], l.File, &e, err)
}

// take adds a record of a trail's file; with an error it is none.
func (s *Sum) take(from *source, file string, e *trail.Entry, err error) {
	from.line(file, e.Seq)
	switch {
	case err != nil:
		from.Unreadable++
	case e.Event != "":
		s.event(from, e)
	case e.Kind == trail.KindRobots:
		from.Fetches++
	case !e.IsRequest(): // a line of another kind, which counts among the lines alone
	default:
		from.Requests++
		trim(e)
		if s.o.letsThrough(e) {
			s.request(e)
		}
	}
}

// trim cuts the strings by which requests are told apart.
func trim(e *trail.Entry) {
	for _, text := range []*string{&e.Replica, &e.Client, &e.Host, &e.Decision, &e.Reason, &e.Entry, &e.EntryReason, &e.Rule, &e.Group, &e.RobotsSHA256} {
		*text = humanize.Clip(*text, maxText)
	}
}

func (s *Sum) event(from *source, e *trail.Entry) {
	from.Events++
	switch e.Event {
	case "lost":
		from.Lost = plus(from.Lost, e.Count)
	case trail.EventCounted: // there may be one a second: they would leave no room for others
		from.Counted = plus(from.Counted, e.Count)
		return
	}
	s.events.add(event{
		Trail: humanize.Clip(from.Name, maxText), Replica: humanize.Clip(e.Replica, maxText),
		Time: e.Time, Seq: e.Seq, Event: humanize.Clip(e.Event, maxText), Detail: humanize.Clip(e.Detail, maxText), File: humanize.Clip(e.File, maxText),
		Octets: e.FileBytes, SHA256: humanize.Clip(e.SHA256, maxText), Count: e.Count,
	})
}

func (s *Sum) request(e *trail.Entry) {
	s.totals.add(e)
	s.monitored += one(!e.Enforced)
	s.clock.add(e)
	count(&s.reasons, e.Reason, e)
	count(&s.clients, e.Client, e)
	if e.Replica != "" || len(s.sources) > 1 {
		count(&s.replicas, e.Replica, e)
	}
	h, own := s.hosts.at(e.Host)
	if ended := h.add(e); own && ended.Requests > 0 {
		ended.Host = e.Host
		s.outages.add(ended)
	}
	r := ruleKey{e.Host, e.Group, e.Rule, e.Line, e.RobotsSHA256}
	if e.Rule != "" {
		count(&s.rules, r, e)
	}
	if e.Reason == "override" || e.Reason == "denied-host" {
		count(&s.overrides, overrideKey{e.Reason, e.Entry, e.EntryReason}, e)
	}
	s.signal(e)
	count(&s.combined, combinedKey{e.Replica, e.Client, e.Decision, e.Reason, e.Entry, e.Enforced, r}, e)
}

// count counts a record under a key.
func count[K comparable](s *sums[K, counts], k K, e *trail.Entry) {
	c, _ := s.at(k)
	c.add(e)
}
