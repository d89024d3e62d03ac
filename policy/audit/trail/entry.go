package trail

import (
	"encoding/json"
	"time"
)

// KindEvent is the kind of the lines about the trail itself. Earlier versions wrote these
// lines without a kind: see [Entry.IsRequest].
const KindEvent = "event"

// KindRobots is the kind of the lines about fetches of robots.txt.
const KindRobots = "robots"

// These events change how a trail is verified or counted.
const (
	EventCounted = "counted" // refusals were counted and not recorded
	EventPruned  = "pruned"  // files were removed, as there were too many
)

// An Entry is what a line says: about a request, or about what its Kind names. Strings are
// as they came, with whatever strangers put into them.
type Entry struct {
	Time          time.Time `json:"time"`
	Kind          string    `json:"kind"` // KindEvent or KindRobots; "": a request
	ID            string    `json:"id"`
	Replica       string    `json:"replica"` // that wrote the record, of several; "": it was on its own
	Client        string    `json:"client"`
	Method        string    `json:"method"`
	URL           string    `json:"url"` // with what is not printable percent-encoded; earlier versions wrote U+FFFD for bytes that are not UTF-8
	Host          string    `json:"host"`
	UserAgent     string    `json:"user_agent"`
	Agent         string    `json:"agent"`
	Decision      string    `json:"decision"` // allow or block
	Reason        string    `json:"reason"`
	Enforced      bool      `json:"enforced"`
	Entry         string    `json:"entry"`
	EntryReason   string    `json:"entry_reason"`
	Rule          string    `json:"rule"`
	Line          int       `json:"line"`
	Reading       string    `json:"reading"` // the form of the path that decided, as policy.Form names it; "": as it was sent
	Group         string    `json:"group"`
	RobotsURL     string    `json:"robots_url"`
	RobotsFetched time.Time `json:"robots_fetched"`
	RobotsAgent   string    `json:"robots_agent"` // the User-Agent of its fetch
	RobotsSHA256  string    `json:"robots_sha256"`
	Dialect       string    `json:"dialect"`
	RobotsStale   bool      `json:"robots_stale"`
	CrawlDelay    float64   `json:"crawl_delay_s"`
	CrawlAsked    float64   `json:"crawl_delay_asked_s"`
	WaitMS        float64   `json:"wait_ms"`
	BackOff       float64   `json:"back_off_s"`
	Slowed        float64   `json:"slowed_s"`
	Cached        bool      `json:"cached"`     // a request for robots.txt that was answered with the cached copy
	StoreAway     bool      `json:"store_away"` // it was paced without what the replicas share

	RobotsContentSignal string `json:"robots_content_signal"`
	RobotsContentUsage  string `json:"robots_content_usage"`
	XRobotsTag          string `json:"x_robots_tag"`
	ContentSignal       string `json:"content_signal"`
	ContentUsage        string `json:"content_usage"`
	TDMReservation      string `json:"tdm_reservation"`
	TDMPolicy           string `json:"tdm_policy"`

	Status     int     `json:"status"`
	Bytes      int64   `json:"bytes"`
	DurationMS float64 `json:"duration_ms"`
	Error      string  `json:"error"`
	Version    int     `json:"v"` // see Version; 0: an earlier one
	Seq        uint64  `json:"seq"`

	Hops    []string `json:"hops"`    // addresses that the fetch of a robots.txt was redirected to
	Outcome string   `json:"outcome"` // of the fetch: a cache.FetchOutcome

	Event     string           `json:"event"`   // torn, unchained, replaced, lost or one of the constants; "": none
	Detail    string           `json:"detail"`  // what happened, in a sentence
	File      string           `json:"file"`    // where what was set aside is
	FileBytes int64            `json:"octets"`  // of it
	SHA256    string           `json:"sha256"`  // of it
	Count     int64            `json:"count"`   // of the records that are lost, or of refusals that were counted
	Reasons   map[string]int64 `json:"reasons"` // how many of the refusals each reason has
	Clients   int              `json:"clients"` // how many clients the refusals are of; Client names a lone one

	FirstSeq uint64 `json:"first_seq"` // of the first line in the files that were removed
	LastSeq  uint64 `json:"last_seq"`  // of the last one
}

// Read gives what a line says. It does not look at the chain.
func Read(line []byte) (e Entry, err error) {
	err = json.Unmarshal(line, &e)
	return e, err
}

// IsRequest reports whether the line is the record of a request.
func (e *Entry) IsRequest() bool { return e.Kind == "" && e.Event == "" }

// End is when a request ended, which is about when its line was written; of an event,
// when it was.
func (e *Entry) End() time.Time {
	if !(e.DurationMS > 0) {
		return e.Time
	}
	return e.Time.Add(time.Duration(min(e.DurationMS, longestMS) * float64(time.Millisecond)))
}

// longestMS is the longest that is believed of a request, a year.
const longestMS = 365 * 24 * 60 * 60 * 1000

// Blocked says whether a request was decided against.
func (e *Entry) Blocked() bool { return e.Decision != "allow" }
