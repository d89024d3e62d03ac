package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sums counts by a key.
type sums[K comparable, R any] struct {
	most   int
	rows   map[K]*R
	beyond R // of what came when it was full
}

func newSums[K comparable, R any](most int) sums[K, R] {
	return sums[K, R]{most: most, rows: map[K]*R{}}
}

// at gives what is counted of a key; own says whether it is of this key alone.
func (s *sums[K, R]) at(k K) (r *R, own bool) {
	if r = s.rows[k]; r != nil {
		return r, true
	}
	if len(s.rows) >= s.most {
		return &s.beyond, false
	}
	r = new(R)
	s.rows[k] = r
	return r, true
}

// counted is what embeds counts.
type counted[R any] interface {
	*R
	all() *counts
}

// rows makes a table of what was summed: busiest first, and alike by how less has it.
func rows[K comparable, S, R any, PS counted[S], PR counted[R]](s *sums[K, S], row func(K, *S) R, name func(*R) string) table[R] {
	t := table[R]{Rows: make([]R, 0, len(s.rows)), Most: s.most, Others: *PS(&s.beyond).all()}
	for k, sum := range s.rows {
		t.Rows = append(t.Rows, row(k, sum))
	}
	slices.SortFunc(t.Rows, func(a, b R) int {
		ca, cb := PR(&a).all(), PR(&b).all()
		if by := cmp.Compare(cb.Requests, ca.Requests); by != 0 {
			return by
		}
		return strings.Compare(name(&a), name(&b))
	})
	return t
}

// top gives the first rows of a table, at most so many (0: all), and the sum of the
// others.
func top[R any, P counted[R]](t *table[R], most int) (first []R, others counts) {
	first, others = t.Rows, t.Others
	if most > 0 && len(first) > most {
		for i := range first[most:] {
			others.merge(P(&first[most+i]).all())
		}
		first = first[:most]
	}
	return first, others
}

// Report is what has been summed so far, made at a time by a version of the program.
func (s *Sum) Report(made time.Time, version string) *Report {
	r := &Report{
		Format: formatVersion, Made: made.UTC(), Version: version,
		Filters:     filters{s.o.Since, s.o.Until, s.o.Client, s.o.Host},
		Source:      together(s.sources),
		Totals:      s.totals,
		Monitored:   s.monitored,
		Timeline:    s.clock.timeline(),
		Unreachable: list[outage]{Rows: slices.Clone(s.outages.Rows), Most: maxOutages, Others: s.outages.Others},
		Signals:     list[signal]{Rows: []signal{}, Most: maxSignals, Others: s.signals.beyond.Requests},
		Events:      list[event]{Rows: slices.Clone(s.events.Rows), Most: maxEvents, Others: s.events.Others},
	}
	r.Reasons = rows(&s.reasons, func(k string, c *counts) reason { return reason{k, *c} }, func(r *reason) string { return r.Reason })
	r.Clients = rows(&s.clients, func(k string, c *counts) client { return client{k, *c} }, func(c *client) string { return c.Client })
	r.Replicas = rows(&s.replicas, func(k string, c *counts) replica { return replica{k, *c} }, func(r *replica) string { return r.Replica })
	r.Hosts = rows(&s.hosts, withName, func(h *host) string { return h.Host })
	r.Rules = rows(&s.rules, func(k ruleKey, c *counts) rule { return rule{k, *c} }, func(r *rule) string { return fmt.Sprint(r.ruleKey) })
	slices.SortStableFunc(r.Rules.Rows, func(a, b rule) int { // those that forbade come first
		return cmp.Compare(b.Blocked+b.NotEnforced, a.Blocked+a.NotEnforced)
	})
	r.Overrides = rows(&s.overrides, func(k overrideKey, c *counts) override { return override{k, *c} }, func(o *override) string { return fmt.Sprint(o.overrideKey) })
	r.combined = rows(&s.combined, func(k combinedKey, c *counts) combination { return combination{k, *c} }, func(c *combination) string { return fmt.Sprint(c.combinedKey) })
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
