// Package report summarises an audit trail: which requests were allowed, disallowed, deferred and
// failed, and which waited, for which client, at which host and by which rule; where robots.txt was overridden, and by which
// entry; and whether the hash chain holds. A [Builder] reads a trail once and in bounded memory,
// or the trails of several replicas side by side, and makes a [Report]. A Report writes itself
// as text, CSV or an HTML page; encoding/json makes the JSON document of it.
//
// A Report has the first fault that package trail finds in the chain. The lines after it are
// counted all the same. What cannot be read is counted too, and reported.
//
// Every table has a maximum of rows. The keys that come first have rows of their own; what comes
// when the table is full is summed as "others", so that totals include everything. The strings
// of clients and origins are cut at maxText bytes, and what is not printable in them is escaped
// in text, CSV and HTML.
//
// A Builder is for one goroutine; a Report does not change.
package report

import "time"

// A Report is the summary of a trail. Scripts may rely on the names of its JSON members: others
// may be added, and Format increases when a member changes its meaning.
type Report struct {
	// Format is formatVersion.
	Format int       `json:"format"`
	Made   time.Time `json:"made"`

	// Version is that of the program.
	Version string  `json:"version"`
	Filters filters `json:"filters"`

	// Partial is that of the Options.
	Partial bool `json:"-"`

	// Source is about the whole trail, whatever the filters.
	Source source `json:"source"`

	// Totals, and all that follows except Events, are of the requests that match the filters.
	Totals counts `json:"totals"`

	// Monitored is the number of requests under mode: monitor.
	Monitored int64    `json:"monitored"`
	Timeline  timeline `json:"timeline"`

	// Pace says how fast the requests were sent.
	Pace paceReport `json:"pace"`

	// Versions are those of robots.txt, and Outdated their sums.
	Versions list[robotsVersion] `json:"robots_versions"`
	Outdated outdated            `json:"outdated_robots"`
	Reasons  table[reason]       `json:"reasons"`
	Clients  table[client]       `json:"clients"`

	// Quotas are what clients with quotas have used.
	Quotas list[quotaUse] `json:"quotas"`

	// Agreements are what was agreed about hosts, and what was kept of it.
	Agreements list[agreement] `json:"agreements"`

	// Replicas has no rows if there is only one replica.
	Replicas     table[replica]     `json:"replicas"`
	Hosts        table[host]        `json:"hosts"`
	Rules        table[rule]        `json:"rules"`
	Overrides    table[override]    `json:"overrides"`
	Unreachable  list[outage]       `json:"unreachable"`
	Reservations table[reservation] `json:"reservations"`
	Licenses     table[license]     `json:"licenses"`
	Signals      list[signal]       `json:"signals"`

	// Signed is of the requests that were sent while signing was configured.
	Signed table[signed] `json:"signed"`
	Events list[event]   `json:"events"`

	// combined is for the CSV.
	combined table[combination]

	// monitored has the counts of the requests under mode: monitor.
	monitored counts

	// Erased is the number of requests of which values were erased later.
	Erased int64 `json:"erased,omitempty"`

	// withheld is the number of disallowed requests that were sent; the response was not passed on.
	withheld int64
}

// formatVersion is the value of Report.Format.
const formatVersion = 1

// filters are the filters of the Options; a zero member filters nothing.
type filters struct {
	// Since and Until select the requests that arrived at Since or later, and before Until.
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Client string    `json:"client,omitempty"`

	// Host is a pattern.
	Host string `json:"host,omitempty"`

	// Labels are as labels.Set.
	Labels string `json:"labels,omitempty"`
}

// kinds returns the outcomeKinds that the report shows.
func (r *Report) kinds() (shown []outcomeKind) {
	for _, k := range outcomeKinds {
		if k.enforced || *k.of(&r.Totals.outcomes) > 0 {
			shown = append(shown, k)
		}
	}
	return shown
}
