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

// groups collect what is counted for each key.
type groups[K comparable, R any] struct {
	most int
	rows map[K]*R

	// rest has what is counted for the keys that came when it was full.
	rest R
}

func newGroups[K comparable, R any](most int) groups[K, R] {
	return groups[K, R]{most: most, rows: map[K]*R{}}
}

// at returns what is counted for a key. own reports that it is for this key alone.
func (g *groups[K, R]) at(k K) (r *R, own bool) {
	if r = g.rows[k]; r != nil {
		return r, true
	}
	if len(g.rows) >= g.most {
		return &g.rest, false
	}
	r = new(R)
	g.rows[k] = r
	return r, true
}

// counted is a row that embeds counts.
type counted[R any] interface {
	*R
	all() *counts
}

// tableOf makes a table of groups, ordered by requests, the most first, and then by key.
func tableOf[K comparable, S, R any, PS counted[S], PR counted[R]](s *groups[K, S], row func(K, *S) R) table[R] {
	t := table[R]{Rows: make([]R, 0, len(s.rows)), Most: s.most, Others: *PS(&s.rest).all()}
	t.Others.setMedian()
	names := make(map[K]string, len(s.rows))
	for k := range s.rows {
		names[k] = fmt.Sprint(k)
	}
	keys := slices.SortedFunc(maps.Keys(s.rows), func(a, b K) int {
		ca, cb := PS(s.rows[a]).all(), PS(s.rows[b]).all()
		return cmp.Or(cmp.Compare(cb.Requests, ca.Requests), strings.Compare(names[a], names[b]))
	})
	for _, k := range keys {
		t.Rows = append(t.Rows, row(k, s.rows[k]))
		PR(&t.Rows[len(t.Rows)-1]).all().setMedian()
	}
	return t
}

// topRows returns the first rows of a table, at most so many (0: all), and the sum of the others.
func topRows[R any, P counted[R]](t *table[R], most int) (first []R, rest counts) {
	first, rest = t.Rows, t.Others
	if most > 0 && len(first) > most {
		for i := range first[most:] {
			rest.merge(P(&first[most+i]).all())
		}
		first = first[:most]
	}
	return first, rest
}

// These bound the rows of the tables.
const (
	// The set of reasons is closed, but the trail may come from anybody.
	maxReasons      = 100
	maxClients      = 10_000
	maxHosts        = 10_000
	maxReplicas     = 10_000
	maxRules        = 10_000
	maxOverrides    = 1_000
	maxOutages      = 1_000
	maxSignals      = 1_000
	maxSigned       = 1_000
	maxReservations = 1_000
	maxLicenses     = 1_000
	// maxStatements bounds the rows for one host: of reservations with one purpose, outcome and source, and of licenses.
	maxStatements = 20
	// maxHostRules bounds the rows for one host, which may state other rules in each robots.txt.
	maxHostRules = 1_000
	// maxHostOutages bounds the rows for one host, of outages that ended.
	maxHostOutages = 100
	maxEvents      = 1_000
	maxFiles       = 1_000
	// maxCombined bounds the rows of the CSV.
	maxCombined = 50_000
	// maxBuckets bounds the buckets of the timeline, without the empty ones.
	maxBuckets = 480
	// maxText bounds each string, in bytes.
	maxText = 256
)

// A table has a row for each key, and the counts of the keys without a row.
type table[R any] struct {
	Rows []R `json:"rows"`

	// Most is the maximum number of rows.
	Most int `json:"most"`

	// Others is the sum of the keys that arrived when the table was full.
	Others counts `json:"others"`
}

// A list contains items in their order.
type list[R any] struct {
	Rows []R `json:"rows"`

	// Most is the maximum number of rows, and Others is the number of items beyond it.
	Most   int   `json:"most"`
	Others int64 `json:"others"`
}

// add appends a row unless the list is full.
func (l *list[R]) add(r R) {
	if len(l.Rows) >= l.Most {
		l.Others++
		return
	}
	l.Rows = append(l.Rows, r)
}

// The rows of the tables: a key and its counts.
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
	signed struct {
		signedKey
		counts
	}
	combination struct {
		combinedKey
		counts
	}
)

// The keys that have several members.
type (
	ruleKey struct {
		Host  string `json:"host"`
		Group string `json:"group"`
		Rule  string `json:"rule"`
		Line  int    `json:"line"`

		// Joined is trail.Entry.JoinedLine.
		Joined int    `json:"joined_line,omitempty"`
		SHA256 string `json:"robots_sha256"`
	}
	overrideKey struct {
		// Reason is "override" or "denied-host".
		Reason      string `json:"reason"`
		Entry       string `json:"entry"`
		EntryReason string `json:"entry_reason"`
	}

	signedKey struct {
		// Key is the ID of the key of the proxy's signature; "": there is none, and Unsigned says why.
		Key      string `json:"key"`
		Unsigned string `json:"unsigned"`
	}

	// A combinedKey is all by which the CSV tells requests apart.
	combinedKey struct {
		Replica, Client, Decision, Reason, Entry string
		Enforced                                 bool
		ruleKey
	}
)

// outcome returns what became of these requests or, if not enforced, what would have become of them.
func (k *combinedKey) outcome() policy.Outcome {
	return explain.Outcome(&trail.Entry{Decision: k.Decision, Reason: k.Reason})
}

// An outage is a time during which a host was reached and gave no usable robots.txt.
type outage struct {
	Host  string    `json:"host"`
	First time.Time `json:"first"`

	// Last is the time of the last request during the outage.
	Last     time.Time `json:"last"`
	Requests int64     `json:"requests"`

	// Ended reports that another outcome came later.
	Ended bool `json:"ended"`
}

// A reservation counts the requests for which a statement of a host decided about one purpose.
type reservation struct {
	reservationKey
	counts
}

type reservationKey struct {
	Host    string `json:"host"`
	Purpose string `json:"purpose"`

	// Outcome is "allowed" or "disallowed".
	Outcome   string `json:"outcome"`
	Source    string `json:"source"`
	Statement string `json:"statement"`

	// Entry is the reason of the entry of hosts that applied to requests that were allowed.
	Entry string `json:"entry_reason,omitempty"`
}

// A license counts the requests for content for which a host named a license.
type license struct {
	licenseKey
	counts
}

type licenseKey struct {
	Host string `json:"host"`

	// License has URLs, separated by spaces.
	License string `json:"license"`
}

// A signal is a usage preference that a host stated, in robots.txt or in a response header.
type signal struct {
	Host string `json:"host"`

	// Name is that of the member of the record.
	Name string `json:"name"`

	// Last is the last value.
	Last     string `json:"last"`
	Requests int64  `json:"requests"`

	// NoIndex is the number of requests whose X-Robots-Tag says noindex or none.
	NoIndex int64 `json:"noindex"`
}

// signalNames are the members of a record with the usage preferences of an origin, and where the origin states them.
var signalNames = []struct {
	name, where string
	value       func(*trail.Entry) string
}{
	{"x_robots_tag", "X-Robots-Tag, response header", func(e *trail.Entry) string { return e.XRobotsTag }},
	{"robots_content_signal", "Content-Signal, in robots.txt", func(e *trail.Entry) string { return e.RobotsContentSignal }},
	{"robots_content_usage", "Content-Usage, in robots.txt", func(e *trail.Entry) string { return e.RobotsContentUsage }},
	{"content_signal", "Content-Signal, response header", func(e *trail.Entry) string { return e.ContentSignal }},
	{"content_usage", "Content-Usage, response header", func(e *trail.Entry) string { return e.ContentUsage }},
	{"tdm_reservation", "TDM-Reservation, response header", func(e *trail.Entry) string { return e.TDMReservation }},
	{"tdm_policy", "tdm-policy, response header or tdmrep.json", func(e *trail.Entry) string { return e.TDMPolicy }},
	{"crawler_price", "crawler-price, response header", func(e *trail.Entry) string { return e.CrawlerPrice }},
}

// where says where the host stated the preference.
func (s *signal) where() string {
	for i := range signalNames {
		if signalNames[i].name == s.Name {
			return signalNames[i].where
		}
	}
	return ""
}

// An event is a line about the trail itself.
type event struct {
	// From is the name of the trail, if there are several.
	From      string    `json:"trail,omitempty"`
	Replica   string    `json:"replica,omitempty"`
	Time      time.Time `json:"time"`
	Seq       uint64    `json:"seq"`
	Event     string    `json:"event"`
	Detail    string    `json:"detail,omitempty"`
	File      string    `json:"file,omitempty"`
	FileBytes int64     `json:"octets,omitempty"`
	SHA256    string    `json:"sha256,omitempty"`
	Count     int64     `json:"count,omitempty"`
}

// clip cuts a string to maxText bytes.
func clip(s string) string { return humanize.Clip(s, maxText) }
