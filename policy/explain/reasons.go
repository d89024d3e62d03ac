package explain

import (
	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
)

// words are what is said of a reason: a sentence without its full stop, and what a refused
// client can do ("": nothing).
type words struct{ text, advice string }

const botExample = "User-Agent: FooBot/1.0 (+https://foo.example/bot)"

// reasons has the words of each reason. They hold for an allowed and a blocked request; Sentence
// knows more of some.
var reasons = map[policy.Reason]words{
	policy.ReasonRule: {"A rule of the site's robots.txt decided",
		"Do not request this URL. If the proxy mistook your crawler for another one, set a distinct User-Agent."},
	policy.ReasonUsage: {"The site does not permit the use for which the client fetches this content (usage.purposes)",
		"Do not use this content for that purpose. The operator can change usage.purposes, or make an exception with usage: ignore in hosts."},
	policy.ReasonNoRule:    {"No rule of the site's robots.txt matches this URL", ""},
	policy.ReasonNoFile:    {"The site has no robots.txt: everything is allowed", ""},
	policy.ReasonRobotsTxt: {"/robots.txt itself may always be fetched (RFC 9309 2.2.2)", ""},
	policy.ReasonUnreachable: {"The site was reached but gave no usable robots.txt, so no URL of the site may be fetched (RFC 9309 2.3.1.4)",
		"Try again later. The proxy fetches robots.txt again by itself."},
	policy.ReasonOrigin: {"The site could not be reached", "Try again later."},
	policy.ReasonParent: {"The upstream proxy does not work (egress.parent)",
		"The operator can see the cause in the log, and should check that egress.parent runs and accepts the credentials."},
	policy.ReasonCrawlDelay: {"The site asks for a longer Crawl-delay than robots.max_crawl_delay (robots.over_max: refuse)",
		"The operator can raise robots.max_crawl_delay, or change robots.over_max."},
	policy.ReasonTooComplex: {`The site's robots.txt, or its tdmrep.json, has too many rules with "*" for a URL of this length: the proxy gives up matching and refuses the request`,
		"Send a shorter URL, or do not request this one."},
	policy.ReasonTunnel: {"A tunnel that the proxy passes through is judged by its host alone (tls.intercept, tls.tunnel)",
		"Do not request this site."},
	policy.ReasonIdentity: {"The client does not identify itself (identity.require)", ""},
	policy.ReasonDenied:   {"The operator denies requests to this host (robots: deny in hosts)", "Do not request this site."},
	policy.ReasonOverride: {"The operator's configuration ignores robots.txt for this host (robots: ignore in hosts)", ""},
	policy.ReasonPace:     {"The wait for this host would be longer than the proxy permits, or too many requests wait (pace)", "Send fewer requests at once, or try again later."},
	policy.ReasonQuota: {"The client has sent all the requests that it may send in a day (quota in clients)",
		"Continue after midnight UTC, when the count starts again. The operator can change quota in clients."},
	policy.ReasonShutdown: {"The proxy shut down before the request was complete", "Try again later."},
	policy.ReasonLimit: {"The client has too many connections or refusals at once, or memory is short (limits)",
		"Send fewer requests at once, and try again later."},
	policy.ReasonAddress: {"The proxy does not connect to this address: it is private, local or reserved (egress.allow_private)",
		"The operator can allow it with egress.allow_private."},
	policy.ReasonPort: {"The proxy does not connect to this port (egress.ports)", "The operator can allow it with egress.ports."},
	policy.ReasonConfined: {"The connection was redirected to the proxy (listen_transparent, run --confine), and carried neither HTTP nor TLS, or went to a port that is not permitted (egress.ports)",
		"The operator can allow a port with egress.ports."},
	policy.ReasonAuth: {"The client is not in clients, or sent no valid name and password", ""},
	policy.ReasonMalformed: {"The request is not one that a proxy can forward",
		"Send an absolute http://, https:// or ftp:// URL without credentials, blanks and control characters, or CONNECT host:port."},
	policy.ReasonLoop: {"The request has already passed this proxy", "Look for a proxy setting that points back to this proxy."},
	policy.ReasonAudit: {"The record of the request, or the robots.txt that the decision is based on, could not be stored (audit.on_error, audit.snapshot_max_size), or the archive cannot be written (archive.on_error)",
		"The operator can see the cause in the log and in the proxy's health."},
	policy.ReasonClient:   {"The client disconnected before the request was complete", ""},
	policy.ReasonInternal: {"An internal error of the proxy", "The operator can find the error in the log, under this id."},
}

// Reason says what a reason means, for allowed and blocked requests alike, as a sentence without
// its full stop; "" for a reason that is not known.
func Reason(r string) string { return reasons[policy.Reason(r)].text }

// Outcome returns what became of the request of a record, in the words by which people count; of a
// record that was not enforced, what would have become of it.
func Outcome(e *trail.Entry) policy.Outcome { return policy.RecordedOutcome(e.Decision, e.Reason) }
