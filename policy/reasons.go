package policy

import (
	"slices"
	"time"
)

// A Reason names what a Decision is based on. It is the `reason` member of the audit. The set is closed: [Reasons] has
// all that is known of each.
type Reason string

// The reasons. The proxy sets those from ReasonPace on, after or instead of a decision of an Engine.
const (
	ReasonRule        Reason = "rule"
	ReasonNoRule      Reason = "no-rule"
	ReasonNoFile      Reason = "no-file"
	ReasonUsage       Reason = "usage"
	ReasonRobotsTxt   Reason = "robots-txt"
	ReasonUnreachable Reason = "unreachable"
	ReasonOrigin      Reason = "origin"
	ReasonParent      Reason = "parent"
	ReasonCrawlDelay  Reason = "crawl-delay"
	ReasonTooComplex  Reason = "too-complex"
	ReasonTunnel      Reason = "tunnel"
	ReasonIdentity    Reason = "identity"
	ReasonDenied      Reason = "denied-host"
	ReasonPaused      Reason = "paused"
	ReasonOverride    Reason = "override"
	ReasonPace        Reason = "pace"
	ReasonQuota       Reason = "quota"
	ReasonHours       Reason = "hours"
	ReasonCoolDown    Reason = "cool-down"
	ReasonBudget      Reason = "budget"
	ReasonShutdown    Reason = "shutdown"
	ReasonLimit       Reason = "limit"
	ReasonAddress     Reason = "address"
	ReasonPort        Reason = "port"
	ReasonConfined    Reason = "confined"
	ReasonAuth        Reason = "auth"
	ReasonMalformed   Reason = "malformed"
	ReasonLoop        Reason = "loop"
	ReasonAudit       Reason = "audit"
	ReasonClient      Reason = "client"
	ReasonInternal    Reason = "internal"
)

// ReasonInfo is all that is known of a Reason. If the proxy refuses a request for an error, the error can have another
// status, text and advice than its Reason has in general: see package proxy.
type ReasonInfo struct {
	Name Reason

	// Label has a few words, for tables and lists that have no room for a sentence.
	Label string

	// Text is a sentence without its full stop. It holds for allowed and for refused requests.
	Text string

	// Advice says in whole sentences what a refused client can do; "": nothing, or package explain knows more.
	Advice string

	// Allows says that requests can be allowed for the Reason.
	Allows bool

	// Status is the HTTP status of a refusal; 0: no request is refused for the Reason.
	Status int

	// Error is the error type in the Proxy-Status of a refusal (RFC 9209 2.3); "": none fits.
	Error string

	// RetryAfter is the Retry-After of a refusal for which no time is known; zero: the refusal has none.
	RetryAfter time.Duration

	// Outcome is what became of a refused request.
	Outcome Outcome

	// ByRobots says that robots.txt decided, and that nothing took the place of its answer.
	ByRobots bool

	// ByProxy says that no client can cause a refusal: only the state of the proxy can.
	ByProxy bool

	// ByEntry says that an entry of hosts decided, which a refused client may know.
	ByEntry bool

	// Held says that a refusal is a HoldError, which has the details.
	Held bool

	// Cheap says that a refusal costs its sender nothing: the request, the configuration and the operators alone decide it.
	Cheap bool
}

// Error types of RFC 9209 2.3 that several reasons have.
const (
	denied        = "http_request_denied"
	invalid       = "http_request_error"
	overLimit     = "connection_limit_reached"
	prohibited    = "destination_ip_prohibited"
	unavailable   = "destination_unavailable"
	internalError = "proxy_internal_error"
)

// reasons is the table of reasons, in the order in which people choose from them.
var reasons = [...]ReasonInfo{
	{Name: ReasonRule, Label: "rule of robots.txt", Text: "A rule of the site's robots.txt decided",
		Advice: "Do not request this URL. If the proxy mistook your crawler for another one, set a distinct User-Agent.",
		Allows: true, Status: 403, Error: denied, Outcome: Disallowed, ByRobots: true},
	{Name: ReasonNoRule, Label: "no rule matches", Text: "No rule of the site's robots.txt matches this URL",
		Allows: true, ByRobots: true},
	{Name: ReasonNoFile, Label: "no robots.txt", Text: "The site has no robots.txt: everything is allowed",
		Allows: true, ByRobots: true},
	{Name: ReasonRobotsTxt, Label: "robots.txt itself", Text: "/robots.txt itself may always be fetched (RFC 9309 2.2.2)",
		Allows: true},
	{Name: ReasonUnreachable, Label: "no usable robots.txt",
		Text:   "The site was reached but gave no usable robots.txt, so no URL of the site may be fetched (RFC 9309 2.3.1.4)",
		Advice: "Try again later. The proxy fetches robots.txt again by itself.",
		Status: 403, Error: denied, Outcome: Failed},
	{Name: ReasonOrigin, Label: "site not reached", Text: "The site could not be reached",
		Advice: "Try again later.",
		Status: 502, Error: unavailable, Outcome: Failed},
	{Name: ReasonParent, Label: "upstream proxy failed", Text: "The upstream proxy does not work (egress.parent, or parent in hosts)",
		Advice: "The operator can see the cause in the log, and should check that the upstream proxy " +
			"(egress.parent, or parent in hosts) runs and accepts the credentials.",
		Status: 502, Error: unavailable, Outcome: Failed},
	{Name: ReasonCrawlDelay, Label: "Crawl-delay too long",
		Text:   "The site asks for a longer Crawl-delay than robots.max_crawl_delay (robots.over_max: refuse)",
		Advice: "The operator can raise robots.max_crawl_delay, or change robots.over_max.",
		Status: 403, Error: denied, Outcome: Disallowed, ByRobots: true},
	{Name: ReasonTooComplex, Label: "rules too complex",
		Text: `The site's robots.txt, its tdmrep.json, or the paths in hosts have too many patterns with "*" for a URL of this length: ` +
			"the proxy gives up matching and refuses the request",
		Advice: "Send a shorter URL, or do not request this one.",
		Status: 403, Error: denied, Outcome: Failed, ByRobots: true},
	{Name: ReasonTunnel, Label: "tunnel, judged by its host",
		Text:   "A tunnel that the proxy passes through is judged by its host alone (tls.intercept, tls.tunnel)",
		Advice: "Do not request this site.",
		Allows: true, Status: 403, Error: denied, Outcome: Disallowed, ByRobots: true},
	{Name: ReasonIdentity, Label: "client not identified", Text: "The client does not identify itself (identity.require)",
		Status: 403, Error: denied, Outcome: Disallowed, Cheap: true},
	{Name: ReasonDenied, Label: "host denied by the operator", Text: "The operator denies requests to this host (robots: deny in hosts)",
		Advice: "Do not request this site.",
		Status: 403, Error: denied, Outcome: Disallowed, ByEntry: true, Cheap: true},
	{Name: ReasonPaused, Label: "paused by the operator", Text: "An operator has paused requests to this host",
		Advice: "Try again later. The operator can end the pause at any time.",
		Status: 503, Error: unavailable, RetryAfter: 5 * time.Minute, Outcome: Deferred, Held: true, Cheap: true},
	{Name: ReasonOverride, Label: "robots.txt ignored by the operator",
		Text:   "The operator's configuration ignores robots.txt for this host (robots: ignore in hosts)",
		Allows: true},
	{Name: ReasonPace, Label: "wait too long",
		Text:   "The wait for this host would be longer than the proxy permits, or too many requests wait (pace)",
		Advice: "Send fewer requests at once, or try again later.",
		Status: 429, Error: overLimit, RetryAfter: time.Second, Outcome: Deferred},
	{Name: ReasonQuota, Label: "daily quota used up",
		Text:   "The client has sent all the requests that it may send in a day (quota in clients)",
		Advice: "Continue after midnight UTC, when the count starts again. The operator can change quota in clients.",
		Status: 429, Error: overLimit, RetryAfter: time.Second, Outcome: Deferred},
	{Name: ReasonHours, Label: "outside the host's hours",
		Text:   "The request is outside the hours at which requests may be sent to this host (hours in hosts)",
		Advice: "Continue when the hours begin. The operator can change hours in hosts.",
		Status: 429, Error: overLimit, RetryAfter: time.Minute, Outcome: Deferred, Held: true, ByEntry: true},
	{Name: ReasonCoolDown, Label: "host cools down",
		Text:   "The host has refused too many requests in a row, so the proxy sends it none for a time (cool_down in hosts)",
		Advice: "Find out why the host refuses your requests, and continue after the time. The operator can change cool_down in hosts.",
		Status: 429, Error: overLimit, RetryAfter: time.Minute, Outcome: Deferred, Held: true},
	{Name: ReasonBudget, Label: "budget of the host used up",
		Text:   "All that may be sent to this host in a period was sent (budget in hosts)",
		Advice: "Try again after the time in Retry-After. The operator can change budget in hosts.",
		Status: 429, Error: overLimit, RetryAfter: time.Second, Outcome: Deferred, Held: true, ByEntry: true},
	{Name: ReasonShutdown, Label: "proxy shut down", Text: "The proxy shut down before the request was complete",
		Advice: "Try again later.",
		Status: 503, Error: internalError, RetryAfter: time.Second, Outcome: Deferred, ByProxy: true},
	{Name: ReasonLimit, Label: "client over its limits",
		Text:   "The client has too many connections or refusals at once, or memory is short (limits)",
		Advice: "Send fewer requests at once, and try again later.",
		Status: 429, Error: overLimit, RetryAfter: time.Second, Outcome: Deferred, Cheap: true},
	{Name: ReasonAddress, Label: "address not permitted",
		Text:   "The proxy does not connect to this address: it is private, local or reserved (egress.allow_private)",
		Advice: "The operator can allow it with egress.allow_private.",
		Status: 403, Error: prohibited, Outcome: Disallowed, Cheap: true},
	{Name: ReasonPort, Label: "port not permitted", Text: "The proxy does not connect to this port (egress.ports)",
		Advice: "The operator can allow it with egress.ports.",
		Status: 403, Error: prohibited, Outcome: Disallowed, Cheap: true},
	{Name: ReasonUsage, Label: "use not permitted",
		Text: "The site does not permit the use for which the client fetches this content (usage.purposes)",
		Advice: "Do not use this content for that purpose. " +
			"The operator can change usage.purposes, or make an exception with usage: ignore in hosts.",
		Status: 403, Error: denied, Outcome: Disallowed},
	{Name: ReasonConfined, Label: "not HTTP or TLS",
		Text: "The connection was redirected to the proxy (listen_transparent, run --confine), " +
			"and carried neither HTTP nor TLS, or went to a port that is not permitted (egress.ports)",
		Advice: "The operator can allow a port with egress.ports.",
		Status: 403, Error: denied, Outcome: Disallowed, Cheap: true},
	{Name: ReasonAuth, Label: "client not logged in", Text: "The client is not in clients, or sent no valid name and password",
		Status: 407, Outcome: Disallowed, Cheap: true},
	{Name: ReasonMalformed, Label: "malformed request", Text: "The request is not one that a proxy can forward",
		Advice: "Send an absolute http://, https:// or ftp:// URL without credentials, blanks and control characters, " +
			"or CONNECT host:port.",
		Status: 400, Error: invalid, Outcome: Failed, Cheap: true},
	{Name: ReasonLoop, Label: "request loop", Text: "The request has already passed this proxy",
		Advice: "Look for a proxy setting that points back to this proxy.",
		Status: 502, Error: "proxy_loop_detected", Outcome: Failed, Cheap: true},
	{Name: ReasonAudit, Label: "record not kept",
		Text: "The record of the request, or the robots.txt that the decision is based on, could not be stored " +
			"(audit.on_error, audit.snapshot_max_size), or the archive cannot be written (archive.on_error)",
		Advice: "The operator can see the cause in the log and in the proxy's health.",
		Status: 503, Error: internalError, RetryAfter: time.Second, Outcome: Failed, ByProxy: true},
	// The record has the status, which nginx uses as well. No client gets it.
	{Name: ReasonClient, Label: "client disconnected", Text: "The client disconnected before the request was complete",
		Status: 499, Error: invalid, Outcome: Failed},
	{Name: ReasonInternal, Label: "internal error", Text: "An internal error of the proxy",
		Advice: "The operator can find the error in the log, under this id.",
		Status: 500, Error: internalError, Outcome: Failed, ByProxy: true},
}

// Reasons returns the table of reasons.
func Reasons() []ReasonInfo { return slices.Clone(reasons[:]) }

// Info returns the row of r in the table. For a Reason that is not known, as of a later version, the row has only the Name.
func (r Reason) Info() ReasonInfo {
	for i := range reasons {
		if reasons[i].Name == r {
			return reasons[i]
		}
	}
	return ReasonInfo{Name: r}
}

// An Outcome is what became of a request, in the four words by which people count requests. Records have the Reason,
// which is finer.
type Outcome uint8

// The outcomes. The zero Outcome is Failed.
const (
	Failed     Outcome = iota // the origin, the network, the client or the proxy failed, or the request cannot be forwarded
	Allowed                   // the request may be sent
	Disallowed                // robots.txt or the operator forbids the request
	Deferred                  // the request may be sent later: its turn, a pause, a quota, a budget or limits did not permit it now
)

// String returns the word that people read: "allowed", "disallowed", "deferred" or "failed".
func (o Outcome) String() string {
	return [...]string{Failed: "failed", Allowed: "allowed", Disallowed: "disallowed", Deferred: "deferred"}[o]
}
