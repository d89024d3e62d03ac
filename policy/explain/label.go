package explain

import (
	"robotsproxy/policy"
	"robotsproxy/policy/explain/humanize"
)

// labels has a few words for each reason, for tables and lists that have no room for a sentence.
var labels = map[policy.Reason]string{
	policy.ReasonRule:        "rule of robots.txt",
	policy.ReasonNoRule:      "no rule matches",
	policy.ReasonNoFile:      "no robots.txt",
	policy.ReasonRobotsTxt:   "robots.txt itself",
	policy.ReasonUnreachable: "no usable robots.txt",
	policy.ReasonOrigin:      "site not reached",
	policy.ReasonParent:      "upstream proxy failed",
	policy.ReasonCrawlDelay:  "Crawl-delay too long",
	policy.ReasonTooComplex:  "rules too complex",
	policy.ReasonTunnel:      "tunnel, judged by its host",
	policy.ReasonIdentity:    "client not identified",
	policy.ReasonDenied:      "host denied by the operator",
	policy.ReasonOverride:    "robots.txt ignored by the operator",
	policy.ReasonPace:        "wait too long",
	policy.ReasonQuota:       "daily quota used up",
	policy.ReasonShutdown:    "proxy shut down",
	policy.ReasonLimit:       "client over its limits",
	policy.ReasonAddress:     "address not permitted",
	policy.ReasonPort:        "port not permitted",
	policy.ReasonUsage:       "use not permitted",
	policy.ReasonConfined:    "not HTTP or TLS",
	policy.ReasonAuth:        "client not logged in",
	policy.ReasonMalformed:   "malformed request",
	policy.ReasonLoop:        "request loop",
	policy.ReasonAudit:       "record not kept",
	policy.ReasonClient:      "client disconnected",
	policy.ReasonInternal:    "internal error",
}

// Label returns a reason in a few words. It returns an unknown reason as records contain it. The result
// is printable.
func Label(reason string) string {
	if label := labels[policy.Reason(reason)]; label != "" {
		return label
	}
	return humanize.Brief(reason)
}
