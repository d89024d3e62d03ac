package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/usage"
)

// decisions counts requests by decision and reason.
type decisions struct {
	all *prometheus.CounterVec

	// known has the counters of knownDecisions. A look-up in all costs as much as the rest of Write.
	known map[decision]prometheus.Counter
}

type decision struct {
	verdict policy.Verdict
	reason  policy.Reason
}

// knownDecisions returns the decisions that exist.
func knownDecisions() []decision {
	var all []decision
	for _, r := range policy.Reasons() {
		if r.Allows {
			all = append(all, decision{policy.Allow, r.Name})
		}
		if r.Status > 0 {
			all = append(all, decision{policy.Refuse, r.Name})
		}
	}
	return all
}

func newDecisions() decisions {
	d := decisions{
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_decisions_total",
			Help: "Requests by decision (allow, block) and reason, as in the audit. In monitor mode, the decision that would have " +
				"been enforced.",
		}, []string{"decision", "reason"}),
		known: map[decision]prometheus.Counter{},
	}
	for _, k := range knownDecisions() {
		d.known[k] = d.counter(k)
	}
	return d
}

func (d *decisions) counter(k decision) prometheus.Counter {
	return d.all.WithLabelValues(k.verdict.String(), string(k.reason))
}

func newNotEnforced() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "robotsproxy_not_enforced_total",
		Help: "Requests that the proxy would have refused but sent, because of mode: monitor.",
	})
}

// signatures counts requests by their signature.
type signatures struct {
	all      *prometheus.CounterVec
	byProxy  prometheus.Counter
	unsigned map[policy.Unsigned]prometheus.Counter
}

func newSignatures() signatures {
	s := signatures{
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_signatures_total",
			Help: "Requests that were sent: signed by the proxy, with fields of a signature of the client (also if identity.sign has " +
				"no key), or why they are unsigned although identity.sign has a key (plain-http, tunnel, ftp).",
		}, []string{"signature"}),
		unsigned: map[policy.Unsigned]prometheus.Counter{},
	}
	s.byProxy = s.all.WithLabelValues("proxy")
	for _, why := range []policy.Unsigned{policy.UnsignedClient, policy.UnsignedPlain, policy.UnsignedTunnel, policy.UnsignedFTP} {
		s.unsigned[why] = s.all.WithLabelValues(string(why))
	}
	return s
}

// count counts the request of a record.
func (s *signatures) count(r *audit.Record) {
	if r.Signed != "" {
		s.byProxy.Inc()
	} else if c := s.unsigned[r.Unsigned]; c != nil {
		c.Inc()
	}
}

// preferences counts requests by what sites state about the purposes of the client.
type preferences struct {
	all    *prometheus.CounterVec
	counts map[usage.Category]map[usage.Preference]prometheus.Counter
}

func newPreferences() preferences {
	p := preferences{
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_usage_preferences_total",
			Help: "Requests by what the site states about a purpose of the client (usage.purposes): allowed, disallowed or unknown. A " +
				"request counts once for each purpose.",
		}, []string{"purpose", "outcome"}),
		counts: map[usage.Category]map[usage.Preference]prometheus.Counter{},
	}
	for c := range usage.Everything.All {
		p.counts[c] = map[usage.Preference]prometheus.Counter{}
		for _, said := range []usage.Preference{usage.Unknown, usage.Allowed, usage.Disallowed} {
			p.counts[c][said] = p.all.WithLabelValues(c.String(), said.String())
		}
	}
	return p
}

// count counts the request of a record.
func (p *preferences) count(r *audit.Record) {
	for c := range r.Decision.Usage.Purposes.All {
		said, _ := usage.Decide(c, r.Decision.Statements)
		p.counts[c][said].Inc()
	}
}

func newWaits() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "robotsproxy_wait_seconds",
		Help:    "Time that requests waited for a slot of their host, for those that got one.",
		Buckets: []float64{0.01, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300},
	})
}
