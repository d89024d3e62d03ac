package config

import (
	"fmt"
	"net/netip"
	"time"
)

// Config is a whole configuration. Its zero value is no configuration: start from [Default].
type Config struct {
	Listen    string        `key:"listen" default:"127.0.0.1:8080" kind:"address" restart:"yes" doc:"elsewhere than loopback only with clients: or open: true"`
	Open      bool          `key:"open" default:"false" doc:"true: anyone who reaches the listener may use it, beside clients too"`
	ListenTLS ListenTLS     `key:"listen_tls" doc:"serve the proxy itself over TLS: clients then name it https://"`
	Limits    Limits        `key:"limits" doc:"what clients may take of the proxy"`
	Drain     time.Duration `key:"drain" default:"0s" check:"not-negative" doc:"told to end, go on for so long, or until all is quiet, while /readyz says no: for balancers (see README.md)"`
	StateDir  string        `key:"state_dir" default:"" restart:"yes" doc:"default: XDG state home/robotsproxy; CA, audit and what is known of sites live here; 0700"`
	Mode      string        `key:"mode" default:"enforce" oneof:"enforce monitor" doc:"or monitor: decide and record, block nothing"`
	Robots    Robots        `key:"robots" doc:"what robots.txt means, and how long a copy of it is good"`
	Identity  Identity      `key:"identity" doc:"who asks, to the sites"`
	Pace      Pace          `key:"pace" doc:"how fast one host is asked"`
	Hosts     []Host        `key:"hosts" doc:"what is different for some hosts; the first entry that fits and is in force counts"`
	Clients   []Client      `key:"clients" doc:"who may use it; []: whoever reaches the listener; the first entry that fits counts"`
	TLS       TLS           `key:"tls" doc:"how HTTPS is opened, so that its paths can be judged"`
	Egress    Egress        `key:"egress" doc:"where requests may go"`
	Audit     Audit         `key:"audit" doc:"one JSON line for each request"`
	Store     Store         `key:"store" doc:"what several replicas have in common: one pace, and one copy of each robots.txt (see README.md)"`
	Admin     Admin         `key:"admin" doc:"what operators see and ask of the proxy, on a listener of its own"`
	Log       Log           `key:"log" doc:"what the proxy says of itself, on standard error"`
}

// ListenTLS is what the proxy's own port shows to clients.
type ListenTLS struct {
	Cert string `key:"cert" default:"" restart:"on-off" doc:"PEM, the issuers behind it; \"\": no TLS"`
	Key  string `key:"key" default:"" restart:"on-off" doc:"its key, PEM; both or neither"`
}

// Limits is what clients may take of the proxy.
type Limits struct {
	Connections          int  `key:"connections" default:"20000" check:"count" doc:"of all clients together; over it the next ones wait"`
	ConnectionsPerClient int  `key:"connections_per_client" default:"10000" check:"count" doc:"over it 429"`
	URL                  Size `key:"url" default:"8KiB" check:"url" doc:"the longest URL, between 1KiB and 64KiB; over it 414, and a redirect of robots.txt is not followed"`

	Memory AutoSize `key:"memory" default:"auto" check:"memory" doc:"how much the process may have in use, at least 64MiB; near it 503 to the greediest clients; auto: GOMEMLIMIT, else half of the control group's limit, else a quarter of the machine's memory, but at most 2GiB"`
}

// Robots is how robots.txt is read, fetched and kept.
type Robots struct {
	Dialect          string        `key:"dialect" default:"standard" oneof:"standard rfc9309 google google-2022 google-2019 coccoc" doc:"whose reading: standard, rfc9309, google, google-2022, google-2019, coccoc (see README.md)"`
	FetchAs          string        `key:"fetch_as" default:"auto" oneof:"auto proxy client" doc:"the User-Agent that it is fetched with: proxy (robotsproxy/VERSION, or identity.user_agent), one copy for all; client (the client's product token), a copy for each token; auto: proxy under serve, client under run and check"`
	Readings         string        `key:"readings" default:"" oneof:"all literal" doc:"all: a path is also judged with its slashes merged and decoded, and its ;parameters stripped, as many servers read it; literal: only as it was sent and without dot segments; \"\": all, but literal under rfc9309 and google*"`
	MaxAge           time.Duration `key:"max_age" default:"24h" check:"positive" doc:"a copy is fetched anew after this, or sooner if the site says so"`
	MinAge           time.Duration `key:"min_age" default:"1m" check:"not-negative" doc:"a file is not fetched again sooner"`
	FetchTimeout     time.Duration `key:"fetch_timeout" default:"20s" check:"positive" doc:"for one robots.txt, its redirects included; waits for slots do not count"`
	MaxCrawlDelay    time.Duration `key:"max_crawl_delay" default:"10s" check:"positive" doc:"the longest Crawl-delay that is kept"`
	OverMax          string        `key:"over_max" default:"clamp" oneof:"clamp honor refuse" doc:"clamp, honor or refuse: a site that asks for more than the maximum"`
	UnreachableRetry time.Duration `key:"unreachable_retry" default:"30s" check:"retry" doc:"first retry of a robots.txt that failed; doubles up to 30m"`
}

// Identity is who the client is, to the sites.
type Identity struct {
	ProductToken string `key:"product_token" default:"" kind:"token" doc:"\"\": taken from the User-Agent header"`
	UserAgent    string `key:"user_agent" default:"" kind:"header" doc:"\"\": the client's is passed on"`
	From         string `key:"from" default:"" kind:"email" doc:"an e-mail address, sent as From in place of the client's, and with robots.txt fetches; \"\": the client's is passed on"`
	Require      string `key:"require" default:"none" oneof:"none token contact" doc:"none, token or contact: refuse clients whose headers do not say who they are, or how to reach somebody"`
}

// Pace is how fast requests go to one host.
type Pace struct {
	RequestsPerSecond float64 `key:"requests_per_second" default:"1" check:"rate" doc:"per host; Crawl-delay makes it slower, never faster"`
	Burst             int     `key:"burst" default:"1" check:"count" doc:"requests that may go at once after a pause; 1 where Crawl-delay rules"`
	MaxConcurrent     int     `key:"max_concurrent" default:"2" check:"count" doc:"per host"`
	Per               string  `key:"per" default:"host" oneof:"host domain address" doc:"what shares one pace: host, domain (the registrable one) or address (that is dialled)"`
	MaxWait           Wait    `key:"max_wait" default:"auto" doc:"longest wait for a slot; if the wait would be longer: 429 with Retry-After; auto: 60s under serve, as long as the client stays under run"`
	MaxQueue          int     `key:"max_queue" default:"500" check:"count" doc:"waiting requests per host"`
	BackOff           bool    `key:"back_off" default:"true" doc:"honour Retry-After, and slow down on 429 and 503"`
	Adaptive          bool    `key:"adaptive" default:"true" doc:"slow answers lower the rate"`
}

// Host is what is different for the hosts that fit a pattern.
type Host struct {
	Match    string    `key:"match" default:"" example:"\"*.example.org\"" kind:"pattern-or-none" doc:"exact, *.suffix, or *"`
	Robots   string    `key:"robots" default:"enforce" oneof:"enforce ignore deny" doc:"or ignore: robots.txt is not asked; or deny: nothing goes there"`
	Readings string    `key:"readings" default:"" oneof:"all literal" doc:"all or literal; \"\": as in robots.readings"`
	Reason   string    `key:"reason" default:"" kind:"line" doc:"required with ignore and deny: who permitted it, or why; goes into the audit and the answers"`
	Until    time.Time `key:"until" default:"" doc:"the last day, in UTC, or a time: then it is as if the entry were not there; \"\": for good"`
	Pace     HostPace  `key:"pace" doc:"for each of the hosts"`
}

// invalid returns what is wrong with the entry as a whole, and the keys that are part of it.
func (h Host) invalid() (keys []string, why string) {
	switch {
	case h.Match == "":
		return []string{"match"}, "missing"
	case h.Robots != "enforce" && h.Reason == "":
		return []string{"reason", "robots"}, "missing: robots: " + h.Robots + " needs one"
	}
	return nil, ""
}

// HostPace is what of Pace is different for a host.
type HostPace struct {
	RequestsPerSecond float64       `key:"requests_per_second" default:"0" check:"rate-or-0" doc:"0: as in pace"`
	Burst             int           `key:"burst" default:"0" check:"count-or-0" doc:"0: as in pace"`
	MaxConcurrent     int           `key:"max_concurrent" default:"0" check:"count-or-0" doc:"0: as in pace"`
	MaxWait           time.Duration `key:"max_wait" default:"0s" check:"not-negative" doc:"0s: as in pace"`
	MaxQueue          int           `key:"max_queue" default:"0" check:"count-or-0" doc:"0: as in pace"`
}

// Client is one that is known by where it asks from, by a password, or by both.
type Client struct {
	Name         string         `key:"name" default:"" example:"lab-a" kind:"name" doc:"who it is, in the audit and to log in"`
	PasswordHash string         `key:"password_hash" default:"" kind:"bcrypt" doc:"bcrypt, as htpasswd -nBC 10 gives it behind the colon; with networks both must hold"`
	Networks     []netip.Prefix `key:"networks" default:"[]" example:"[192.0.2.0/24]" doc:"where it asks from"`
	Robots       ClientRobots   `key:"robots" doc:"what is different for it"`
	Identity     ClientIdentity `key:"identity" doc:"who it is, to the sites"`
	Pace         ClientPace     `key:"pace" doc:"how fast it may ask each host"`
	Quota        Quota          `key:"quota" doc:"how much it may ask for"`
}

// invalid returns what is wrong with the entry as a whole, and the keys that are part of it.
func (c Client) invalid() (keys []string, why string) {
	switch {
	case c.Name == "":
		return []string{"name"}, "missing"
	case len(c.Networks) == 0 && c.PasswordHash == "":
		return []string{"networks", "password_hash"}, "missing, and so is password_hash: everybody could be this client"
	}
	return nil, ""
}

// ClientRobots is how robots.txt is read for one client.
type ClientRobots struct {
	Dialect string `key:"dialect" default:"" oneof:"standard rfc9309 google google-2022 google-2019 coccoc" doc:"\"\": that of robots.dialect"`
}

// ClientIdentity is who one client is.
type ClientIdentity struct {
	ProductToken string `key:"product_token" default:"" kind:"token" doc:"\"\": that of identity.product_token"`
}

// ClientPace is what of Pace is different for one client.
type ClientPace struct {
	RequestsPerSecond float64 `key:"requests_per_second" default:"0" check:"rate-or-0" doc:"0: as others; no faster than an entry of hosts says"`
	Burst             int     `key:"burst" default:"0" check:"count-or-0" doc:"0: as others"`
	AssetBurst        int     `key:"asset_burst" default:"0" check:"count-or-0" doc:"how many parts of a page a browser may load at once (see README.md); 0: they are paced as pages"`
}

// Quota is how much a client may ask for.
type Quota struct {
	RequestsPerDay int `key:"requests_per_day" default:"0" check:"quota" doc:"of UTC, over it 429; 0: no limit"`
}

// TLS is how the inside of HTTPS is reached.
type TLS struct {
	Intercept bool     `key:"intercept" default:"true" doc:"false: only hosts are known, a wholly disallowed site is refused"`
	Tunnel    []string `key:"tunnel" default:"[]" kind:"pattern" doc:"hosts never opened: exact, *.suffix, or *"`
	CACert    string   `key:"ca_cert" default:"" doc:"default: made on first run in state_dir"`
	CAKey     string   `key:"ca_key" default:"" doc:"the key of ca_cert; both or neither"`
}

// Egress is where requests may go.
type Egress struct {
	AllowPrivate []netip.Prefix `key:"allow_private" default:"[]" doc:"networks; loopback, private, link-local and metadata addresses are refused otherwise"`
	Ports        []PortRange    `key:"ports" default:"[80, 443, 1024-65535, 21]" check:"some" doc:"ports of origins that may be reached"`
	Resolver     string         `key:"resolver" default:"" kind:"server" doc:"host:port of a DNS server; default: the system's"`
	Parent       string         `key:"parent" default:"" kind:"parent" doc:"http://, https:// or socks5:// proxy to go out through, maybe with user:password@; default: none"`
	ExtraCA      string         `key:"extra_ca" default:"" doc:"PEM added to the roots that origins are verified against"`
}

// Audit is where and what is recorded.
type Audit struct {
	File         string `key:"file" default:"" restart:"yes" doc:"default: state_dir/audit.jsonl; \"-\" for standard output"`
	Include      string `key:"include" default:"all" oneof:"all blocked" doc:"all, or blocked alone"`
	QueryStrings string `key:"query_strings" default:"keep" oneof:"keep drop" doc:"or drop"`
	MaxSize      Size   `key:"max_size" default:"100MiB" check:"file-size" doc:"a larger file is set aside under its number, and compressed"`
	MaxFiles     int    `key:"max_files" default:"0" check:"count-or-0" doc:"at most so many of these are kept, the oldest are deleted first; 0: no limit"`
	OnError      string `key:"on_error" default:"refuse" oneof:"refuse continue" doc:"after a failed write everything is refused until one succeeds; or continue"`
	Sync         string `key:"sync" default:"interval" oneof:"none interval always" doc:"none, interval or always: when the disk is waited for (fsync): never, each second, before each refusal and before the end of each response"`
	Clients      string `key:"clients" default:"name" oneof:"name hash drop" doc:"name, hash or drop: what stands for who asked"`

	MaxAge       time.Duration `key:"max_age" default:"8760h" check:"not-negative" doc:"records are deleted when they are older; 0s: never"`
	MaxTotalSize AutoSize      `key:"max_total_size" default:"auto" doc:"at most so much of the disk is taken by records, the oldest are deleted first; auto: half of what is free, or taken already, when the proxy starts; 0: no limit"`

	Anchor Anchor `key:"anchor" doc:"proof of the audit's end, kept elsewhere (see README.md)"`

	SnapshotMaxAge  time.Duration `key:"snapshot_max_age" default:"8760h" check:"not-negative" doc:"a robots.txt is kept so long after a decision last rested on it; 0s: for good"`
	SnapshotMaxSize Size          `key:"snapshot_max_size" default:"4GiB" check:"folder-size" doc:"what all of these may take on the disk; those not used for longest are removed first, but none that was used within a day: if that is not enough, new hosts are refused"`
}

// Anchor is where anchors of the audit go by themselves.
type Anchor struct {
	Every time.Duration `key:"every" default:"24h" check:"anchor" doc:"how often one is written, of the last record that is on the disk"`
	File  string        `key:"file" default:"" doc:"file to which each anchor is appended, a line each; it belongs where who can change the audit cannot change it"`
	TSA   string        `key:"tsa" default:"" kind:"tsa" doc:"http:// or https:// URL of a time-stamp authority (RFC 3161) that signs each anchor; the tokens are in state_dir/timestamps"`
}

// Store is what a fleet of replicas shares.
type Store struct {
	Redis    string `key:"redis" default:"" kind:"redis" restart:"yes" doc:"redis://, rediss:// (TLS) or unix:// and the server, maybe with a password; \"\": none, this proxy is on its own"`
	Replicas int    `key:"replicas" default:"1" check:"replicas" restart:"yes" doc:"how many replicas there are at most: while the server is away, each keeps to its part of the pace"`
	Replica  string `key:"replica" default:"" kind:"replica" restart:"yes" doc:"what this one is called in its records; \"\": as the host is"`
}

// Admin is the listener for operators.
type Admin struct {
	Listen string `key:"listen" default:"127.0.0.1:8081" kind:"address-or-off" restart:"yes" doc:"dashboard, API, health and metrics; \"\": off"`
	Token  string `key:"token" default:"" kind:"secret" doc:"asked for by all but health; required off loopback"`
}

// Log is what the proxy says of itself.
type Log struct {
	Level  string `key:"level" default:"info" oneof:"debug info warn error" doc:"debug, info, warn or error"`
	Format string `key:"format" default:"text" oneof:"text json" restart:"yes" doc:"or json"`
}

// A Size is a number of bytes.
type Size int64

// An AutoSize is a number of bytes, or Auto.
type AutoSize int64

// Auto is as many bytes as the machine has for the purpose.
const Auto AutoSize = -1

// A Wait is a positive duration, or AutoWait.
type Wait time.Duration

// AutoWait is the duration that suits the command which runs the proxy.
const AutoWait Wait = -1

// PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last uint16 }

// String writes the range as the file does: "443", "1024-65535".
func (p PortRange) String() string {
	if p.First == p.Last {
		return fmt.Sprint(p.First)
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}
