package trail

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"
)

// KindEvent is the kind of lines about the trail itself. Earlier versions wrote these
// lines without a kind: see [Entry.IsRequest].
const KindEvent = "event"

// These are the kinds of lines about fetches of robots.txt and of tdmrep.json by the proxy itself.
const (
	KindRobots = "robots"
	KindTDMRep = "tdmrep"
)

// KindBegun is the kind of lines about requests and tunnels that are under way. The record with the same ID ends them.
const KindBegun = "begun"

// KindContact is the kind of lines about tunnels to hosts that the proxy has dialled, in which no request came.
const KindContact = "contact"

// These events are about the process that writes the trail, and what its operators do.
const (
	EventStart        = "start"
	EventStop         = "stop"           // the process ends in order: the trail has the records of all requests
	EventReload       = "reload"         // the configuration has changed
	EventRotated      = "rotated"        // the CA, or a key that signs requests, is another one
	EventUnfinished   = "unfinished"     // requests of the previous process began, and have no records
	EventBackOffEnded = "back-off-ended" // an operator has ended the back-off of a host
	EventPaused       = "paused"         // an operator has paused a host, or all hosts
	EventResumed      = "resumed"        // an operator has ended a pause
	EventCoolDown     = "cool-down"      // one client, or all, are stopped at a host that refuses requests
)

// These events matter to verification and to counts.
const (
	// EventCounted says that refusals were counted instead of recorded.
	EventCounted = "counted"
	// EventPruned says that the writer removed old segments.
	EventPruned = "pruned"
	// EventErased says that values were replaced by their commitments (Hide).
	EventErased = "erased"
	// EventTree says that a new tree was begun, since lines that it needs are not there (package tree).
	EventTree = "tree"
	// EventCut says that lines that the disk had were missing at the end when the writer started. The next line has the
	// seq after theirs.
	EventCut = "cut"
	// EventChanged says that a line that was on the disk differed, or did not match its hash, when the writer started.
	EventChanged = "changed"
)

// An Entry is the content of a line, about a request or about what its Kind says. Its strings
// may have any characters that clients and origins sent.
//
// A line has the members in the order of the fields, except that an event has its client last. Package audit leaves out
// those that a line of its kind cannot have, and those without a value; a field without a member is zero.
type Entry struct {
	Time time.Time `json:"time"`

	// Kind is KindEvent, KindBegun, KindContact, KindRobots or KindTDMRep; "": the line is the record of a request.
	Kind string `json:"kind"`
	ID   string `json:"id"`

	// Replica names the replica that wrote the line; "": there was only one.
	Replica string `json:"replica"`

	// Client names the client. An event has it if one client alone caused all refusals that were counted.
	Client string `json:"client"`

	// Via is "transparent" if the client's connection was redirected to the proxy.
	Via    string `json:"via"`
	Method string `json:"method"`

	// URL has the bytes that are not UTF-8 percent-encoded; URLBytes then has the URL byte for byte. See RequestURL.
	URL      string   `json:"url"`
	URLBytes urlBytes `json:"url_base64"`
	Host     string   `json:"host"`

	// Hops are the URLs to which a fetch was redirected.
	Hops      []string `json:"hops"`
	UserAgent string   `json:"user_agent"`
	Agent     string   `json:"agent"`

	// Decision is "allow" or "block".
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Enforced bool   `json:"enforced"`

	// Labels are those of the request, a labels.Set; "": it has none.
	Labels      string `json:"labels"`
	Entry       string `json:"entry"`
	EntryReason string `json:"entry_reason"`
	Rule        string `json:"rule"`
	Line        int    `json:"line"`

	// JoinedLine is the User-agent line of a joined list; see robots.Group.JoinedAgent.
	JoinedLine int `json:"joined_line"`

	// Reading is the policy.Form of the path that decided; "": the path as it was sent.
	Reading string `json:"reading"`
	Group   string `json:"group"`

	RobotsURL     string    `json:"robots_url"`
	RobotsFetched time.Time `json:"robots_fetched"`

	// RobotsAgent is the User-Agent of the fetch.
	RobotsAgent  string `json:"robots_agent"`
	RobotsSHA256 string `json:"robots_sha256"`
	Dialect      string `json:"dialect"`
	RobotsStale  bool   `json:"robots_stale"`

	// RobotsDecoded says how the bytes of the robots.txt were encoded; see robots.Decode.
	RobotsDecoded string `json:"robots_decoded"`

	// The members of the tdmrep.json are as those of the robots.txt.
	TDMRepURL     string    `json:"tdmrep_url"`
	TDMRepFetched time.Time `json:"tdmrep_fetched"`
	TDMRepAgent   string    `json:"tdmrep_agent"`
	TDMRepSHA256  string    `json:"tdmrep_sha256"`
	TDMRepStale   bool      `json:"tdmrep_stale"`

	RobotsContentSignal string `json:"robots_content_signal"`
	RobotsContentUsage  string `json:"robots_content_usage"`

	// License has the License lines of the robots.txt and the license links of the response header, separated by spaces.
	License string `json:"license"`

	// Usage is what the site states about each purpose of the client; nil: the client has no purpose.
	Usage map[string]Usage `json:"usage"`

	// UsageSource is the source of the statement that disallows a purpose.
	UsageSource string `json:"usage_source"`

	// These delays, and BackOff and Slowed, are in seconds.
	CrawlDelay float64 `json:"crawl_delay_s"`
	CrawlAsked float64 `json:"crawl_delay_asked_s"`
	CrawlLine  int     `json:"crawl_delay_line"`
	WaitMS     float64 `json:"wait_ms"`

	// Sent is when the first byte of the request went out, and PaceMS the interval between requests that was in force then.
	Sent   time.Time `json:"sent"`
	PaceMS float64   `json:"pace_ms"`

	// Burst is the number of requests that were permitted at once after a quiet time; 0: one.
	Burst   int     `json:"burst"`
	BackOff float64 `json:"back_off_s"`

	// BackOffBy is the ID of the request whose response began the back-off, or the URL of a robots.txt.
	BackOffBy string  `json:"back_off_by"`
	Slowed    float64 `json:"slowed_s"`

	// NotBefore is when a request that was held back could have been sent.
	NotBefore time.Time `json:"not_before"`

	// Signed is the ID of the key with which the proxy signed the request, or the last GET of a fetch.
	Signed string `json:"signed"`

	// Unsigned says why the proxy sent the request without a signature of its own.
	Unsigned string `json:"unsigned"`

	// TLS is "legacy" if the origin speaks only TLS before 1.2, or weak cipher suites.
	TLS string `json:"tls"`

	// Dropped is the number of fields of the response that were left out.
	Dropped int `json:"dropped_fields"`

	// Cached reports that a request for robots.txt was answered from the cache.
	Cached bool `json:"cached"`

	// StoreAway reports that the request was paced without the shared store.
	StoreAway bool `json:"store_away"`

	// Withheld reports that the origin was requested, and its response not passed on.
	Withheld bool `json:"withheld"`

	XRobotsTag     string `json:"x_robots_tag"`
	ContentSignal  string `json:"content_signal"`
	ContentUsage   string `json:"content_usage"`
	TDMReservation string `json:"tdm_reservation"`
	TDMPolicy      string `json:"tdm_policy"`
	CrawlerPrice   string `json:"crawler_price"`

	// WARC says where the archive has the response.
	WARC Archived `json:"warc"`

	// BodySHA256 is the hash of what was received of the body of the response, in hex, and BodyBytes its length; "": it was not
	// recorded.
	BodySHA256 string `json:"body_sha256"`
	BodyBytes  int64  `json:"body_bytes"`

	// Event is "torn", "unchained", "replaced", "lost" or one of the constants; "": the line is no event.
	Event string `json:"event"`

	// Detail is the event in a sentence.
	Detail string `json:"detail"`

	// Until is the end of a pause or a cool-down; zero: a pause lasts until an operator ends it. By is the operator who has begun or
	// ended the pause. Reason is why it was begun, or the statuses that caused the cool-down.
	Until time.Time `json:"until"`
	By    string    `json:"by"`

	// File is the file to which an event moved bytes or another file, and FileBytes is its size.
	File      string `json:"file"`
	FileBytes int64  `json:"octets"`

	// FetchOutcome is the cache.FetchOutcome of a fetch.
	FetchOutcome string `json:"outcome"`

	// SHA256 is the hash of what was fetched, or of File.
	SHA256 string `json:"sha256"`

	// Fetched is when the fetch ended; zero: an earlier version wrote the line.
	Fetched time.Time `json:"fetched"`

	// Count is the number of lost records, counted refusals or unfinished requests, and Reasons that of counted refusals
	// for each reason.
	Count   int64            `json:"count"`
	Reasons map[string]int64 `json:"reasons"`

	// Clients is the number of clients that were refused; if it is 1, Client names it.
	Clients int `json:"clients"`

	// IDs are requests without records; a further event names those that did not fit.
	IDs []string `json:"ids"`

	// Keys of the configuration have changed.
	Keys []string `json:"keys"`

	// Config is the SHA-256 of the configuration file; "": there is none.
	Config string `json:"config_sha256"`

	// CA is the fingerprint of the CA's certificate.
	CA string `json:"ca_sha256"`

	// Include is audit.include of the configuration, if it is not all.
	Include string `json:"include"`

	// Program is the version of the program.
	Program string `json:"version"`

	// Origin is that of the program's checkpoints of this trail, see package checkpoint.
	Origin string `json:"origin"`

	// FirstSeq and LastSeq are the first and the last line that were removed, cut off or changed.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`

	Status     int     `json:"status"`
	Bytes      int64   `json:"bytes"`
	DurationMS float64 `json:"duration_ms"`
	Error      string  `json:"error"`

	// Version is that of the format, see VersionMember; 0: an earlier version.
	Version int    `json:"v"`
	Seq     uint64 `json:"seq"`

	// Salts are those of the values that can be hidden, see Hide; a value of version 3 without a salt was hidden.
	Salts map[string]string `json:"salts"`
}

// Archived says where an archive has the WARC record of a response; zero: it does not.
type Archived struct {
	// File is the name of the WARC file once it is complete.
	File string `json:"file"`

	// Offset of the record in the file, in bytes.
	Offset int64 `json:"offset"`

	// ID is the record's WARC-Record-ID.
	ID string `json:"id"`
}

// A Usage is what a site states about the use of its content for one purpose.
type Usage struct {
	// Outcome is a usage.Preference.
	Outcome   string `json:"outcome"`
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

// PathQuery returns the part of a URL in a line that can be hidden: its path and its query.
func PathQuery(url string) string { return url[hiddenPart([]byte(url)):] }

// urlBytes is a URL in base64; nil: there is none, or it was hidden.
type urlBytes []byte

// UnmarshalText decodes it.
func (u *urlBytes) UnmarshalText(text []byte) (err error) {
	if !bytes.HasPrefix(text, []byte(commitmentName)) {
		*u, err = base64.StdEncoding.AppendDecode(nil, text)
	}
	return err
}

// Hidden reports whether a committed value was hidden.
func (e *Entry) Hidden() bool {
	return e.HiddenClient() || e.HiddenURL() || e.Version >= 3 && e.UserAgent != "" && e.Salts["user_agent"] == ""
}

// HiddenURL reports whether the path and the query of the URL were hidden.
func (e *Entry) HiddenURL() bool {
	return e.Version >= 3 && e.Salts["url"] == "" && hiddenPart([]byte(e.URL)) < len(e.URL)
}

// HiddenClient reports whether the name of the client was hidden.
func (e *Entry) HiddenClient() bool {
	return e.Version >= 3 && e.Client != "" && e.Salts["client"] == ""
}

// IsRequest reports whether the line is the record of a request.
func (e *Entry) IsRequest() bool { return e.Kind == "" && e.Event == "" }

// IsFetch reports whether the line is the record of a fetch by the proxy itself.
func (e *Entry) IsFetch() bool { return e.Kind == KindRobots || e.Kind == KindTDMRep }

// LastURL returns the URL with which a fetch ended, after its redirects. Records name a robots.txt by it.
func (e *Entry) LastURL() string {
	if n := len(e.Hops); n > 0 {
		return e.Hops[n-1]
	}
	return e.URL
}

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
