package trail

import (
	"encoding/json"
	"time"
)

// KindEvent is the kind of lines about the trail itself. Earlier versions wrote these
// lines without a kind: see [Entry.IsRequest].
const KindEvent = "event"

// The kinds of lines about fetches by the proxy itself.
const (
	KindRobots = "robots" // of robots.txt
	KindTDMRep = "tdmrep" // of tdmrep.json
)

// KindBegun is the kind of lines about requests and tunnels that are under way. The record with the same ID ends them.
const KindBegun = "begun"

// KindContact is the kind of lines about tunnels to hosts that the proxy has dialled, in which no request came.
const KindContact = "contact"

// These events are about the process that writes the trail, and what its operators do.
const (
	EventStart      = "start"
	EventStop       = "stop"       // the process ends in order: the trail has the records of all requests
	EventReload     = "reload"     // the configuration has changed
	EventRotated    = "rotated"    // the CA, or a key that signs requests, is another one
	EventUnfinished = "unfinished" // requests of the previous process began, and have no records

	EventBackOffEnded = "back-off-ended" // an operator has ended the back-off of a host
)

// These events matter to verification and to counts.
const (
	EventCounted = "counted" // refusals were counted instead of recorded
	EventPruned  = "pruned"  // the writer removed old segments
	EventCut     = "cut"     // lines that the disk had were missing at the end when the writer started; the next line has the seq after theirs
	EventChanged = "changed" // a line that was on the disk differed, or did not match its hash, when the writer started
)

// An Entry is the content of a line, about a request or about what its Kind says. Its strings
// may have any characters that clients and origins sent.
type Entry struct {
	Time          time.Time `json:"time"`
	Kind          string    `json:"kind"` // KindEvent, KindBegun, KindContact, KindRobots or KindTDMRep; "": a request
	ID            string    `json:"id"`
	Replica       string    `json:"replica"` // the replica that wrote the record; "": there was only one
	Client        string    `json:"client"`
	Via           string    `json:"via"` // transparent: the client's connection was redirected to the proxy
	Method        string    `json:"method"`
	URL           string    `json:"url"`        // bytes that are not UTF-8 are percent-encoded: see RequestURL
	URLBytes      []byte    `json:"url_base64"` // the URL byte for byte, if it is not UTF-8
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
	JoinedLine    int       `json:"joined_line"` // the User-agent line of a joined list; see robots.Group.JoinedAgent
	Reading       string    `json:"reading"`     // the policy.Form of the path that decided; "": the path as sent
	Group         string    `json:"group"`
	RobotsURL     string    `json:"robots_url"`
	RobotsFetched time.Time `json:"robots_fetched"`
	RobotsAgent   string    `json:"robots_agent"` // User-Agent of the fetch of robots.txt
	RobotsSHA256  string    `json:"robots_sha256"`
	Dialect       string    `json:"dialect"`
	RobotsStale   bool      `json:"robots_stale"`
	RobotsDecoded string    `json:"robots_decoded"` // how the bytes of robots.txt were encoded; see robots.Decode
	TDMRepURL     string    `json:"tdmrep_url"`     // these are as those of robots.txt
	TDMRepFetched time.Time `json:"tdmrep_fetched"`
	TDMRepAgent   string    `json:"tdmrep_agent"`
	TDMRepSHA256  string    `json:"tdmrep_sha256"`
	TDMRepStale   bool      `json:"tdmrep_stale"`
	CrawlDelay    float64   `json:"crawl_delay_s"`
	CrawlAsked    float64   `json:"crawl_delay_asked_s"`
	CrawlLine     int       `json:"crawl_delay_line"`
	WaitMS        float64   `json:"wait_ms"`
	BackOff       float64   `json:"back_off_s"`
	BackOffBy     string    `json:"back_off_by"` // ID of the request whose response began the back-off, or the URL of a robots.txt
	Slowed        float64   `json:"slowed_s"`
	Signed        string    `json:"signed"`         // ID of the key with which the proxy signed the request, or the last GET of a fetch
	Unsigned      string    `json:"unsigned"`       // why the proxy sent the request without a signature of its own
	TLS           string    `json:"tls"`            // legacy: the origin speaks only TLS before 1.2, or weak cipher suites
	Dropped       int       `json:"dropped_fields"` // fields of the response that were left out
	Cached        bool      `json:"cached"`         // a request for robots.txt was answered from the cache
	StoreAway     bool      `json:"store_away"`     // the request was paced without the shared store

	RobotsContentSignal string `json:"robots_content_signal"`
	RobotsContentUsage  string `json:"robots_content_usage"`
	XRobotsTag          string `json:"x_robots_tag"`
	ContentSignal       string `json:"content_signal"`
	ContentUsage        string `json:"content_usage"`
	TDMReservation      string `json:"tdm_reservation"`
	TDMPolicy           string `json:"tdm_policy"`
	CrawlerPrice        string `json:"crawler_price"`

	Usage       map[string]Usage `json:"usage"`        // what the site states about each purpose of the client; nil: it has none
	UsageSource string           `json:"usage_source"` // where the statement stands that disallows a purpose
	License     string           `json:"license"`      // License lines of robots.txt, and license links in the response header
	Withheld    bool             `json:"withheld"`     // the origin was requested, and its response not passed on

	WARC Archived `json:"warc"` // where the archive has the response

	Status     int     `json:"status"`
	Bytes      int64   `json:"bytes"`
	DurationMS float64 `json:"duration_ms"`
	Error      string  `json:"error"`
	Version    int     `json:"v"` // see VersionMember; 0: an earlier version
	Seq        uint64  `json:"seq"`

	Fetched time.Time `json:"fetched"` // when the fetch ended; zero: an earlier version wrote the line
	Hops    []string  `json:"hops"`    // URLs to which the fetch was redirected
	Outcome string    `json:"outcome"` // a cache.FetchOutcome

	Event     string           `json:"event"`   // torn, unchained, replaced, lost or one of the constants; "": not an event
	Detail    string           `json:"detail"`  // the event in a sentence
	File      string           `json:"file"`    // file to which bytes or a file were moved
	FileBytes int64            `json:"octets"`  // size of that file
	SHA256    string           `json:"sha256"`  // hash of that file
	Count     int64            `json:"count"`   // lost records, or counted refusals
	Reasons   map[string]int64 `json:"reasons"` // number of counted refusals for each reason
	Clients   int              `json:"clients"` // number of clients that were refused; if it is 1, Client names it

	IDs     []string `json:"ids"`           // requests without records; a further event names those that did not fit
	Keys    []string `json:"keys"`          // of the configuration, that have changed
	Config  string   `json:"config_sha256"` // of the configuration file; "": there is none
	CA      string   `json:"ca_sha256"`     // fingerprint of the CA's certificate
	Program string   `json:"version"`       // version of the program

	FirstSeq uint64 `json:"first_seq"` // first line that was removed, cut off or changed
	LastSeq  uint64 `json:"last_seq"`  // last line that was removed, cut off or changed
}

// Archived says where an archive has a response; zero: it does not.
type Archived struct {
	File   string `json:"file"`   // name of the WARC file
	Offset int64  `json:"offset"` // of the record in the file, in bytes
	ID     string `json:"id"`     // WARC-Record-ID
}

// A Usage is what a site states about the use of its content for one purpose.
type Usage struct {
	Outcome   string `json:"outcome"` // a usage.Preference
	Statement string `json:"statement,omitempty"`
	Source    string `json:"source,omitempty"`
	Line      int    `json:"line,omitempty"`
}

// Read parses a line. It does not check the hash chain.
func Read(line []byte) (e Entry, err error) {
	err = json.Unmarshal(line, &e)
	return e, err
}

// RequestURL returns the URL of a request byte for byte, as its client has sent it, up to its first
// MaxURL bytes. whole is the length of path and query if they were longer, otherwise 0.
func (e *Entry) RequestURL() (url string, whole int) {
	if e.URLBytes != nil {
		return string(e.URLBytes), 0
	}
	if head, whole, cut := CutText(e.URL); cut && whole > MaxURL {
		return head, whole
	}
	return e.URL, 0
}

// IsRequest reports whether the line is the record of a request.
func (e *Entry) IsRequest() bool { return e.Kind == "" && e.Event == "" }

// IsFetch reports whether the line is the record of a fetch by the proxy itself.
func (e *Entry) IsFetch() bool { return e.Kind == KindRobots || e.Kind == KindTDMRep }

// End returns the time when the request ended, which is about when the line was written. For
// other lines it returns Time.
func (e *Entry) End() time.Time {
	if !(e.DurationMS > 0) {
		return e.Time
	}
	return e.Time.Add(time.Duration(min(e.DurationMS, longestMS) * float64(time.Millisecond)))
}

// longestMS is the longest plausible duration of a request, a year in milliseconds.
const longestMS = 365 * 24 * 60 * 60 * 1000

// Blocked reports whether the request was decided against.
func (e *Entry) Blocked() bool { return e.Decision != "allow" }
