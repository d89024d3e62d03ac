package report

import (
	"cmp"
	"slices"
)

// A paceReport says how fast requests went out. It knows the requests whose records say when they were sent.
type paceReport struct {
	// Total has the requests to the hosts that have rows. Its intervals are those between requests to one host, and In10s and
	// InMinute are the most to one host.
	Total pacing `json:"total"`

	// Hosts has a row for each host, and with several audits one for each replica of it.
	Hosts list[pacing] `json:"hosts"`

	// Unsent is the number of requests that were allowed, and of whose sending the records say nothing: the proxy answered them.
	Unsent int64 `json:"unsent"`

	Delays   list[effectiveDelay] `json:"delays"`
	BackOffs list[backOff]        `json:"back_offs"`
}

// report returns what is known so far.
func (b *paceBuilder) report() paceReport {
	b.end()
	r := paceReport{
		Hosts:    list[pacing]{Most: maxPaced, Rows: []pacing{}, Others: b.others},
		Delays:   list[effectiveDelay]{Most: maxDelays, Rows: []effectiveDelay{}, Others: b.delays.rest.Requests},
		BackOffs: list[backOff]{Most: maxBackOffs, Rows: []backOff{}, Others: b.notListed},
		Unsent:   b.unsent,
	}
	for _, p := range b.rows.rows {
		r.Hosts.Rows = append(r.Hosts.Rows, p.finished())
		if p.Replica == "" {
			r.Total.merge(p)
		}
	}
	r.Total = r.Total.finished()
	sent := func(host string) int64 { return b.rows.rows[pacingKey{host: host}].Sent }
	slices.SortFunc(r.Hosts.Rows, func(a, b pacing) int {
		return cmp.Or(cmp.Compare(sent(b.Host), sent(a.Host)), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Replica, b.Replica))
	})
	for _, d := range b.delays.rows {
		r.Delays.Rows = append(r.Delays.Rows, *d)
	}
	slices.SortFunc(r.Delays.Rows, func(a, b effectiveDelay) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), a.First.Compare(b.First), cmp.Compare(a.Delay, b.Delay), cmp.Compare(a.Entry, b.Entry))
	})
	for _, o := range b.backOffs.rows {
		r.BackOffs.Rows = append(r.BackOffs.Rows, *o)
	}
	slices.SortFunc(r.BackOffs.Rows, func(a, b backOff) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), a.Began.Compare(b.Began), cmp.Compare(a.By, b.By))
	})
	return r
}
