// Package report sums up a trail: what was allowed, blocked and made to wait, for
// whom, where and by which rule; what was set aside and by whose leave; and whether
// the chain of the trail held. A [Sum] reads the trail in one pass and in bounded
// memory, or the trails of several replicas side by side, and gives a [Report], which writes itself as text, CSV or a page of HTML,
// and is by encoding/json the document of JSON.
//
// Of the chain it says what package trail finds: the first fault. The lines behind it
// are counted all the same; what cannot be read is counted too, and said.
//
// Every table has a ceiling. What comes first has a row of its own; what comes when
// the table is full is summed as "others", so that totals are of everything all the
// same. A stranger's words are cut at maxText octets, and what is not printable in
// them is escaped in text, CSV and HTML.
//
// A Sum is one goroutine's; a Report does not change.
package report

import "time"

// The ceilings: how many rows each table has.
const (
	maxReasons   = 100 // the set is closed, but a trail may be anybody's
	maxClients   = 10_000
	maxHosts     = 10_000
	maxReplicas  = 10_000
	maxRules     = 10_000
	maxOverrides = 1_000
	maxOutages   = 1_000
	maxSignals   = 1_000
	maxEvents    = 1_000
	maxFiles     = 1_000
	maxCombined  = 50_000 // rows of the CSV
	maxBuckets   = 480    // of the timeline, of which the empty ones are left out
	maxText      = 256    // octets of each string
)

// A Report is what a trail comes to. Its members' names in JSON are for scripts to
// rely on: others may be added, and format says when one changes its meaning.
type Report struct {
	Format      int                `json:"format"` // 1
	Made        time.Time          `json:"made"`
	Version     string             `json:"version"` // of the program
	Filters     filters            `json:"filters"`
	Source      source             `json:"source"`    // the whole trail, whatever the filters
	Totals      counts             `json:"totals"`    // what the filters let through, as all that follows but the events
	Monitored   int64              `json:"monitored"` // of the requests, those under mode: monitor
	Timeline    timeline           `json:"timeline"`
	Reasons     table[reason]      `json:"reasons"`
	Clients     table[client]      `json:"clients"`
	Replicas    table[replica]     `json:"replicas"` // without rows where one was on its own
	Hosts       table[host]        `json:"hosts"`
	Rules       table[rule]        `json:"rules"`
	Overrides   table[override]    `json:"overrides"`
	Unreachable list[outage]       `json:"unreachable"`
	Signals     list[signal]       `json:"signals"`
	Events      list[event]        `json:"events"`
	combined    table[combination] // for the CSV
}

// formatVersion is of the JSON document.
const formatVersion = 1

// filters are what was asked for; a zero member filters nothing.
type filters struct {
	Since  time.Time `json:"since,omitzero"` // requests that arrived then or later
	Until  time.Time `json:"until,omitzero"` // and before then
	Client string    `json:"client,omitempty"`
	Host   string    `json:"host,omitempty"` // a pattern
}

// A table has a row for each key, and the sum of what has none.
type table[R any] struct {
	Rows   []R    `json:"rows"`
	Most   int    `json:"most"`   // its ceiling
	Others counts `json:"others"` // of what came when it was full
}

// A list has what happened, in order.
type list[R any] struct {
	Rows   []R   `json:"rows"`
	Most   int   `json:"most"`   // its ceiling
	Others int64 `json:"others"` // how many there were beyond it
}

// add appends a row unless the list is full.
func (l *list[R]) add(r R) {
	if len(l.Rows) >= l.Most {
		l.Others++
		return
	}
	l.Rows = append(l.Rows, r)
}

// The rows of the tables: a key and what is counted of it.
type (
	reason struct {
		Reason string `json:"reason"`
		counts
	}
	client struct {
		Client string `json:"client"`
		counts
	}
	replica struct {
		Replica string `json:"replica"`
		counts
	}
	rule struct {
		ruleKey
		counts
	}
	override struct {
		overrideKey
		counts
	}
	combination struct {
		combinedKey
		counts
	}
)

// The keys that are more than a name.
type (
	ruleKey struct {
		Host   string `json:"host"`
		Group  string `json:"group"`
		Rule   string `json:"rule"`
		Line   int    `json:"line"`
		SHA256 string `json:"robots_sha256"`
	}
	overrideKey struct {
		Reason      string `json:"reason"` // override or denied-host
		Entry       string `json:"entry"`
		EntryReason string `json:"entry_reason"`
	}

	// A combinedKey is all by which the CSV tells requests apart.
	combinedKey struct {
		Replica, Client, Decision, Reason, Entry string
		Enforced                                 bool
		ruleKey
	}
)

// An outage is a time in which a host was reached and gave no usable robots.txt.
type outage struct {
	Host     string    `json:"host"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"` // such record
	Requests int64     `json:"requests"`
	Ended    bool      `json:"ended"` // another outcome came later
}

// A signal is what a host said of the use of its content, in robots.txt or beside
// an answer. It is recorded, not enforced.
type signal struct {
	Host     string `json:"host"`
	Name     string `json:"name"` // the record's member
	Last     string `json:"last"` // its last value
	Requests int64  `json:"requests"`
	NoIndex  int64  `json:"noindex"` // of which X-Robots-Tag said noindex or none
}

// An event is a line that speaks of the trail itself.
type event struct {
	Trail   string    `json:"trail,omitempty"` // of several: which
	Replica string    `json:"replica,omitempty"`
	Time    time.Time `json:"time"`
	Seq     uint64    `json:"seq"`
	Event   string    `json:"event"`
	Detail  string    `json:"detail,omitempty"`
	File    string    `json:"file,omitempty"`
	Octets  int64     `json:"octets,omitempty"`
	SHA256  string    `json:"sha256,omitempty"`
	Count   int64     `json:"count,omitempty"`
}
