package config

import (
	"net/netip"
	"time"
)

// Config is a whole configuration. Its zero value is no configuration: start from [Default].
type Config struct {
	// The host:port that clients connect to. An address other than loopback needs clients or open: true.
	Listen string `key:"listen" default:"127.0.0.1:8080" kind:"address" restart:"yes"`

	// Whether any client that reaches the listener may use the proxy, even if it matches no entry of clients.
	// false means that, if clients has entries, only clients that match one may use the proxy.
	Open bool `key:"open" default:"false"`

	// The host:port to which a firewall redirects HTTP and TLS connections of clients that do not know of the
	// proxy (Linux). An address other than loopback needs clients or open: true. These clients cannot log in:
	// only their network identifies them. An empty value means that the proxy takes no redirected
	// connections.
	ListenTransparent string `key:"listen_transparent" default:"" kind:"address-or-off" restart:"yes"`

	// TLS between clients and the proxy. Clients then name the proxy by an https:// URL.
	ListenTLS ListenTLS `key:"listen_tls"`

	// What clients may use of the proxy's resources.
	Limits Limits `key:"limits"`

	// How long the proxy continues to serve after SIGTERM while /readyz already answers 503, so that a load
	// balancer sends it no more clients. The proxy stops earlier if no request arrives for 5s. 0s means that
	// it shuts down at once.
	Drain time.Duration `key:"drain" default:"0s" check:"not-negative"`

	// The directory of the CA, the audit and the cached state of hosts. It is created with mode 0700. An
	// empty value means $XDG_STATE_HOME/robotsproxy, or ~/.local/state/robotsproxy if that variable is not
	// set, or %LOCALAPPDATA%\robotsproxy on Windows.
	StateDir string `key:"state_dir" default:"" kind:"path" restart:"yes"`

	// enforce refuses what robots.txt disallows and paces requests. monitor records each decision, but delays
	// no request, and sends also what robots.txt disallows. It still refuses unknown clients, paused hosts, malformed
	// requests, and forbidden addresses and ports.
	Mode string `key:"mode" default:"enforce" oneof:"enforce monitor"`

	// How robots.txt files are interpreted, fetched and cached.
	Robots Robots `key:"robots"`

	// What the content is fetched for, and what happens where a site does not permit that.
	Usage Usage `key:"usage"`

	// How the proxy and its clients identify themselves to sites.
	Identity Identity `key:"identity"`

	// How fast requests go to one host.
	Pace Pace `key:"pace"`

	// Exceptions for some hosts. The first entry that matches the host and has not expired applies; no other
	// does.
	Hosts []Host `key:"hosts"`

	// Who may use the proxy. The first entry that matches the client applies. An empty list means every
	// client that reaches the listener.
	Clients []Client `key:"clients"`

	// How the proxy intercepts HTTPS to judge the paths of requests.
	TLS TLS `key:"tls"`

	// Where requests may go, and through which proxy.
	Egress Egress `key:"egress"`

	// The audit trail: one JSON line for each request.
	Audit Audit `key:"audit"`

	// The archive of what was fetched, in WARC files.
	Archive Archive `key:"archive"`

	// The directories in state_dir/runs, in which each robotsproxy run has its audit and its log.
	Runs Runs `key:"runs"`

	// The Redis server by which several replicas share one pace per host and their robots.txt cache.
	Store Store `key:"store"`

	// The listener for operators: dashboard, API, health and metrics.
	Admin Admin `key:"admin"`

	// The proxy's own log, on standard error.
	Log Log `key:"log"`
}

// ListenTLS is what the proxy's own port shows to clients.
type ListenTLS struct {
	// The file of the certificate that the proxy shows to clients, in PEM, followed by its issuers. An empty
	// value means no TLS.
	Cert string `key:"cert" default:"" kind:"path" restart:"on-off"`

	// The file of the private key of cert, in PEM. Give both or neither. An empty value means no TLS.
	Key string `key:"key" default:"" kind:"path" restart:"on-off"`
}

// Limits is what clients may take of the proxy.
type Limits struct {
	// The maximum number of open connections of all clients together. For further ones, the proxy closes idle
	// connections of the clients with the most; without these, they wait.
	Connections int `key:"connections" default:"20000" check:"count" unit:"connections"`

	// The maximum number of open connections of one client. The proxy answers 429 on further ones.
	ConnectionsPerClient int `key:"connections_per_client" default:"10000" check:"count" unit:"connections"`

	// The maximum length of a URL. The proxy answers 414 to a longer one, and does not follow a robots.txt
	// redirect to one.
	URL Size `key:"url" default:"8KiB" check:"url"`

	// The maximum memory of the process. Near it the proxy answers 503 to the clients that use the most. auto
	// means GOMEMLIMIT if that variable is set, else half of the control group's limit, else a quarter of the
	// machine's memory up to 2GiB.
	Memory AutoSize `key:"memory" default:"auto" check:"memory"`
}

// Robots is how robots.txt is read, fetched and kept.
type Robots struct {
	// The interpretation of robots.txt, such as RFC 9309 and, where a file departs from it, what its author
	// evidently meant (standard), RFC 9309 strictly (rfc9309), what Google documents now or documented in those
	// years (google, google-2022, google-2019), or what Cốc Cốc documents (coccoc).
	Dialect string `key:"dialect" default:"standard" kind:"dialect"`

	// The User-Agent header of robots.txt and tdmrep.json fetches. proxy sends robotsproxy/VERSION, or
	// identity.user_agent, and caches one file for all clients. client sends the client's product token and
	// caches one file for each token. auto means proxy under serve, and client under run and check.
	FetchAs string `key:"fetch_as" default:"auto" oneof:"auto proxy client"`

	// What status 401 or 403 for robots.txt means. allow: there is no robots.txt (RFC 9309 2.3.1.3). refuse:
	// nothing may be fetched from the site.
	Forbidden string `key:"forbidden" default:"allow" oneof:"allow refuse"`

	// Which forms of a path are judged. all also judges the forms that many servers read: slashes merged and
	// decoded, ;parameters removed. literal judges the path as it was sent and without dot segments. An empty
	// value means all, but literal under dialects such as rfc9309 and google*.
	Readings string `key:"readings" default:"" oneof:"all literal"`

	// How long a cached robots.txt is used before the proxy fetches it again. A Cache-Control header of the
	// site can shorten it, down to min_age.
	MaxAge time.Duration `key:"max_age" default:"24h" check:"positive"`

	// The minimum time between two fetches of the same robots.txt. A changed robots.txt takes effect at the
	// earliest after this time, whatever max-age the site sends.
	MinAge time.Duration `key:"min_age" default:"1m" check:"positive"`

	// The timeout of one robots.txt fetch, with its redirects. Time in a host's queue does not count.
	FetchTimeout time.Duration `key:"fetch_timeout" default:"20s" check:"positive"`

	// The longest Crawl-delay that the proxy follows unchanged. over_max says what happens to a longer one.
	MaxCrawlDelay time.Duration `key:"max_crawl_delay" default:"10s" check:"positive"`

	// What happens if a Crawl-delay is longer than max_crawl_delay. clamp waits max_crawl_delay, honor waits
	// as long as the site asks, refuse refuses the request.
	OverMax string `key:"over_max" default:"clamp" oneof:"clamp honor refuse"`

	// How long the proxy waits before it retries a robots.txt fetch that failed. The time doubles with each
	// failure, up to 30m.
	UnreachableRetry time.Duration `key:"unreachable_retry" default:"30s" check:"retry"`
}

// Usage is what the content is fetched for.
type Usage struct {
	// What the content is fetched for: train-ai, ai-input, search, tdm. The proxy records what each site says
	// about these purposes. An empty list means that the proxy only records what sites say about the use of
	// their content.
	Purposes []string `key:"purposes" default:"[]" kind:"purpose" example:"[train-ai, tdm]"`

	// What happens if a site disallows one of the purposes. record passes the content on and records it,
	// refuse answers 403.
	OnDisallowed string `key:"on_disallowed" default:"record" oneof:"record refuse"`

	// What happens if a site says nothing about one of the purposes. refuse answers 403 and needs
	// on_disallowed: refuse.
	OnUnknown string `key:"on_unknown" default:"allow" oneof:"allow refuse"`

	// Whether the proxy fetches the file /.well-known/tdmrep.json of each site, in which the site can reserve
	// its rights on text and data mining. The keys of robots say how often, and with which headers, as for
	// robots.txt. false means that the proxy does not fetch it.
	TDMRep bool `key:"tdmrep" default:"false"`
}

// Identity is who the client is, to the sites.
type Identity struct {
	// The product token by which all clients are judged. An empty value means that the proxy takes the token
	// from each client's User-Agent header.
	ProductToken string `key:"product_token" default:"" kind:"token"`

	// The User-Agent header that the proxy sends in place of the client's. An empty value means that the
	// client's header is sent.
	UserAgent string `key:"user_agent" default:"" kind:"header"`

	// The e-mail address that the proxy sends as From in place of the client's, and with each robots.txt
	// fetch. An empty value means that the client's header is sent.
	From string `key:"from" default:"" kind:"email"`

	// What a client's headers must contain. token requires a product token other than a browser's. contact
	// also requires a web or e-mail address, in User-Agent or From. none requires nothing.
	Require string `key:"require" default:"none" oneof:"none token contact"`

	// How requests are signed (Web Bot Auth), so that sites can verify who sends them.
	Sign Sign `key:"sign"`
}

// Sign is how the requests are signed.
type Sign struct {
	// The file of the private key that signs requests: an Ed25519 key in PEM (PKCS #8) or as a JWK, with mode
	// 0600. robotsproxy identity key creates it. Give key and agent, or neither. An empty value means that
	// requests are not signed.
	Key string `key:"key" default:"" kind:"path"`

	// The file of the key that will sign after the next rotation. It is published in the key directory and
	// signs nothing yet. An empty value means none.
	KeyNext string `key:"key_next" default:"" kind:"path"`

	// The https:// URL at which you publish the key directory. It is sent as Signature-Agent, and tells sites
	// who you are. An empty value means that requests are not signed.
	Agent string `key:"agent" default:"" kind:"directory"`

	// How long a signature is valid.
	Valid time.Duration `key:"valid" default:"5m" check:"signature"`

	// Whether requests without TLS are signed too. Whoever reads such a request can use its signature for
	// other requests to the same site until it expires. false means that only requests over TLS are signed.
	PlainHTTP bool `key:"plain_http" default:"false"`
}

// Pace is how fast requests go to one host.
type Pace struct {
	// The maximum request rate of one host, in requests per second. A Crawl-delay can only make it slower.
	RequestsPerSecond float64 `key:"requests_per_second" default:"1" check:"rate" unit:"requests per second"`

	// How many requests may go to a host at once after a quiet time. It is 1 if a Crawl-delay applies.
	Burst int `key:"burst" default:"1" check:"count" unit:"requests"`

	// The maximum number of requests in flight to one host.
	MaxConcurrent int `key:"max_concurrent" default:"2" check:"count" unit:"requests"`

	// What shares one pace: each host by itself (host), all hosts of a registrable domain (domain), or all
	// hosts at one IP address (address).
	Per string `key:"per" default:"host" oneof:"host domain address"`

	// The maximum time that a request waits in the queue of its host. If the estimated wait is longer, the
	// proxy answers 429 with Retry-After at once. auto means 60s under serve, and as long as the client stays
	// under run.
	MaxWait Wait `key:"max_wait" default:"auto"`

	// The maximum number of requests that wait for one host. If another request arrives, the proxy answers
	// 429 to the last request of the client that has the most waiting.
	MaxQueue int `key:"max_queue" default:"500" check:"count" unit:"requests"`

	// Whether the proxy sends a host nothing for a while after the host answers 429 or 503: for its
	// Retry-After, or else for 60s and longer. false means that only the rate and the Crawl-delay count.
	BackOff bool `key:"back_off" default:"true"`

	// Whether slow responses of a host lower its rate. false means that the time of responses does not count.
	Adaptive bool `key:"adaptive" default:"true"`
}

// TLS is how the inside of HTTPS is reached.
type TLS struct {
	// Whether the proxy intercepts HTTPS, so that it can judge the path of each request. false means that the
	// proxy knows only the host, and refuses a host whose robots.txt disallows every path.
	Intercept bool `key:"intercept" default:"true"`

	// The hosts whose HTTPS the proxy never intercepts: host names, *.suffix, or *. An empty list means none.
	Tunnel []string `key:"tunnel" default:"[]" kind:"pattern"`

	// The file of your own CA certificate, in PEM, that signs the certificates of intercepted tunnels. An
	// empty value means the CA in state_dir, which the first start creates.
	CACert string `key:"ca_cert" default:"" kind:"path"`

	// The file of the private key of ca_cert, in PEM. Give both or neither. An empty value means the CA in
	// state_dir.
	CAKey string `key:"ca_key" default:"" kind:"path"`

	// The file of the certificate of the CA that will sign next, in PEM. The proxy publishes it together with
	// the CA that signs now, so that clients trust it before. An empty value means the one that robotsproxy ca
	// next has made, if the CA is in state_dir.
	CANext string `key:"ca_next" default:"" kind:"path"`
}

// Egress is where requests may go.
type Egress struct {
	// The networks that requests may go to although they are loopback, private, link-local or reserved. An
	// empty list means that the proxy refuses all such addresses.
	AllowPrivate []netip.Prefix `key:"allow_private" default:"[]"`

	// The ports of origins that requests may go to.
	Ports []PortRange `key:"ports" default:"[80, 443, 1024-65535, 21]" check:"some"`

	// The host:port of the DNS server that resolves the names of origins. An empty value means the system's
	// resolver.
	Resolver string `key:"resolver" default:"" kind:"server"`

	// The URL of the upstream proxy that all requests go through, unless an entry of hosts names another one:
	// http://, https:// or socks5://, with user:password@ if it needs a login. env takes it from http_proxy,
	// https_proxy, all_proxy and no_proxy in the environment; loopback is reached directly. An empty value
	// means none.
	Parent string `key:"parent" default:"" kind:"parent"`

	// The oldest version of TLS that the proxy speaks with origins. 1.0 also permits 1.1. Both are broken,
	// and browsers refuse them.
	TLSMin string `key:"tls_min" default:"\"1.2\"" oneof:"1.2 1.0"`

	// Whether requests to origins have a Via field (RFC 9110 7.6.3). Some servers do not compress their
	// responses to requests with Via, which costs them and you bandwidth. false means that origins do not see
	// the proxy, and that the proxy does not recognise a request that comes back to it through another one.
	Via bool `key:"via" default:"true"`

	// The file of further CA certificates, in PEM, that the proxy trusts when it verifies origins. An empty
	// value means that the system's CA certificates alone count.
	ExtraCA string `key:"extra_ca" default:"" kind:"path"`
}

// Audit is where and what is recorded.
type Audit struct {
	// The file that records are written to; - means standard output. An empty value means audit.jsonl in
	// state_dir.
	File string `key:"file" default:"" kind:"path-or-stdout" restart:"yes"`

	// Whether file is a FIFO (a named pipe), which another program reads. false means that the proxy does not
	// start if file is neither a regular file nor standard output.
	FIFO bool `key:"fifo" default:"false" restart:"yes"`

	// Which requests are recorded: all of them (all), or only those that the proxy did not let through
	// (blocked).
	Include string `key:"include" default:"all" oneof:"all blocked"`

	// Whether the URLs of records keep their query strings (keep) or lose them (drop).
	QueryStrings string `key:"query_strings" default:"keep" oneof:"keep drop"`

	// The size at which the proxy closes the audit file, compresses it and begins a new one.
	MaxSize Size `key:"max_size" default:"100MiB" check:"file-size"`

	// The maximum number of closed audit files. The proxy deletes the oldest ones first. 0 means no limit.
	MaxFiles int `key:"max_files" default:"0" check:"count-or-0" unit:"files"`

	// What happens if a record cannot be written. refuse refuses every request until a write succeeds.
	// continue lets requests through without a record.
	OnError string `key:"on_error" default:"refuse" oneof:"refuse continue"`

	// When records are forced to the disk (fsync): never (none), once a second (interval), or before each
	// refusal and the end of each response (always).
	Sync string `key:"sync" default:"interval" oneof:"none interval always"`

	// How records name clients: by name or address (name), by a keyed hash of it (hash), or not at all
	// (drop).
	Clients string `key:"clients" default:"name" oneof:"name hash drop"`

	// Whether records have the SHA-256 of what was received of each body. false means that only those of
	// archived responses have it.
	Digests bool `key:"digests" default:"false"`

	// How long records are kept. The proxy deletes older ones. 0s means forever.
	MaxAge time.Duration `key:"max_age" default:"8760h" check:"not-negative"`

	// The maximum disk space of all records. The proxy deletes the oldest files first. auto means half of the
	// space that is free, or already taken by records, when the proxy starts. A size must be at least
	// max_size. 0 means no limit.
	MaxTotalSize AutoSize `key:"max_total_size" default:"auto"`

	// Signed checkpoints, each of which stands for all records so far.
	Checkpoint Checkpoint `key:"checkpoint"`

	// Checkpoints that others keep, which prove later that the audit was neither cut off nor written anew.
	Anchor Anchor `key:"anchor"`

	// How long a robots.txt is kept after the last decision that was based on it. 0s means forever.
	SnapshotMaxAge time.Duration `key:"snapshot_max_age" default:"8760h" check:"not-negative"`

	// The maximum disk space of the kept robots.txt files. The proxy first deletes the files that were not
	// used for the longest time, but none that was used in the last day. If that is not enough, it refuses
	// requests to new hosts.
	SnapshotMaxSize Size `key:"snapshot_max_size" default:"4GiB" check:"folder-size"`
}

// Checkpoint is how checkpoints of the audit are made.
type Checkpoint struct {
	// The file with the Ed25519 keys that sign checkpoints, as robotsproxy audit key makes it. It is read
	// again for each checkpoint. An empty value means checkpoint.key in state_dir, which the proxy makes.
	Key string `key:"key" default:"" kind:"path"`

	// The name of this audit in its checkpoints. Set another name when a new audit begins. Two audits with the
	// same keys must not have the same name. An empty value means robotsproxy/ and the name of the replica or,
	// if it has none, the name of the key, and the name of audit.file if that is not audit.jsonl.
	Origin string `key:"origin" default:"" kind:"origin"`

	// The time between two checkpoints if there are new records. There is also one at the start, at the stop,
	// and when an audit file is full.
	Every time.Duration `key:"every" default:"1h" check:"checkpoint"`

	// The number of new records after which a checkpoint does not wait for every. 0 means that it waits.
	Lines int `key:"lines" default:"10000" check:"count-or-0" unit:"records"`

	// A file that each checkpoint is appended to, besides checkpoints in state_dir. Several proxies may share
	// it. An empty value means no other file.
	File string `key:"file" default:"" kind:"path"`
}

// Anchor is where checkpoints of the audit go so that others keep them.
type Anchor struct {
	// The time between two checkpoints that are written there.
	Every time.Duration `key:"every" default:"24h" check:"checkpoint"`

	// The file that checkpoints are appended to. Keep it where nobody who can change the audit can change it.
	// Several proxies may share it. An empty value means no file.
	File string `key:"file" default:"" kind:"path"`

	// The http:// or https:// URL of a time-stamp authority (RFC 3161) that signs checkpoints. The proxy keeps
	// the signatures in the directory timestamps of state_dir. An empty value means that none are signed.
	TSA string `key:"tsa" default:"" kind:"tsa"`
}

// Archive is whether and how what was fetched is kept.
type Archive struct {
	// The directory of the WARC files. It is created with mode 0700, the files with mode 0600. Only one proxy
	// may use it. An empty value means that nothing is archived.
	Dir string `key:"dir" default:"" kind:"path" restart:"yes"`

	// The size at which the proxy completes a file and begins a new one, but at most an eighth of
	// max_total_size.
	MaxFile Size `key:"max_file" default:"1GiB" check:"file-size"`

	// The maximum size of an archived body. The rest of a longer one is left out, and its record has
	// WARC-Truncated.
	MaxBody Size `key:"max_body" default:"1GiB" check:"file-size"`

	// What the names of the files begin with. The time and a number follow.
	Prefix string `key:"prefix" default:"robotsproxy" kind:"file-prefix"`

	// Which responses are archived: all, or only those with a status of 200 to 299 (2xx).
	Include string `key:"include" default:"all" oneof:"all 2xx"`

	// Whether each record is compressed with gzip.
	Compress string `key:"compress" default:"gzip" oneof:"gzip none"`

	// Whether a response with a payload that the archive has already is written as a revisit record, without
	// the payload. false means that each payload is written again.
	Dedup bool `key:"dedup" default:"true"`

	// What happens if a response cannot be archived. refuse breaks it off, and refuses every request until a
	// write succeeds. continue lets requests through without a record in the archive.
	OnError string `key:"on_error" default:"refuse" oneof:"refuse continue"`

	// Whether archived heads lose their Authorization, Proxy-Authorization, Cookie and Set-Cookie fields
	// (drop) or keep them (keep).
	Secrets string `key:"secrets" default:"drop" oneof:"drop keep"`

	// How long records are kept. The proxy deletes older ones. 0s means forever.
	MaxAge time.Duration `key:"max_age" default:"0s" check:"not-negative"`

	// The maximum disk space of all files. The proxy deletes the oldest ones first. auto means half of the
	// space that is free, or already taken by the files, when the proxy starts. A size must be at least
	// max_file. 0 means no limit.
	MaxTotalSize AutoSize `key:"max_total_size" default:"auto"`
}

// Runs is how long the directories of finished runs are kept.
type Runs struct {
	// How long the directory of a run is kept after its end. The next run deletes older ones, with their
	// audits. 0s means forever.
	MaxAge time.Duration `key:"max_age" default:"2160h" check:"not-negative"`

	// The maximum number of directories. The next run deletes those of the runs that ended first. 0 means no
	// limit.
	MaxNumber int `key:"max_number" default:"1000" check:"count-or-0" unit:"directories"`
}

// Store is what a fleet of replicas shares.
type Store struct {
	// The URL of the Redis server: redis://, rediss:// (TLS) or unix://, with a password if the server needs
	// one. An empty value means none: the proxy shares its pace only with the processes that have its state
	// directory.
	Redis string `key:"redis" default:"" kind:"redis" restart:"yes"`

	// The maximum number of replicas that share the server. While the server is unreachable, each replica
	// divides the pace by this number.
	Replicas int `key:"replicas" default:"1" check:"replicas" unit:"replicas" restart:"yes"`

	// The name of this replica in its records. An empty value means the name of the machine.
	Replica string `key:"replica" default:"" kind:"replica" restart:"yes"`
}

// Admin is the listener for operators.
type Admin struct {
	// The host:port of the dashboard, the API, health and metrics. An address other than loopback needs a
	// token. An empty value means none of these.
	Listen string `key:"listen" default:"127.0.0.1:8081" kind:"address-or-off" restart:"yes"`

	// The host:port of a further listener for /metrics, /healthz, /readyz and the newest checkpoint of the
	// audit alone, which needs no token. Name 0.0.0.0 or [::] if other machines may read them. An empty value
	// means that only listen has them.
	MetricsListen string `key:"metrics_listen" default:"" kind:"address-or-off" restart:"yes"`

	// The URL at which operators open this dashboard. Dashboards of other replicas link to it. An empty value
	// means http:// and listen, unless only this machine reaches that.
	URL string `key:"url" default:"" kind:"dashboard"`

	// The secret that all pages but the health checks require. An empty value means no secret: whoever
	// reaches the listener is an operator.
	Token string `key:"token" default:"" kind:"secret"`
}

// Log is what the proxy says of itself.
type Log struct {
	// The lowest level of messages that are logged: debug, info, warn or error.
	Level string `key:"level" default:"info" oneof:"debug info warn error"`

	// The format of the log: text (key=value pairs) or json (one object a line).
	Format string `key:"format" default:"text" oneof:"text json" restart:"yes"`
}
