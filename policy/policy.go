// Package policy judges requests: who asks, whether the configuration has an
// entry for the host, whose robots.txt speaks, and what it says, in this order.
// It is the one place where a request is allowed or refused because of these;
// the proxy, `robotsproxy check` and every explanation ask the same
// [Engine.Decide].
//
// It judges and nothing else: it never paces, never dials, never writes to a
// client. A [Decision] is a value; its zero value refuses. An origin without a
// usable robots.txt is refused until there is one (RFC 9309 2.3.1.4), and any
// error on the way is a refusal with Err filled in.
//
// Who may come in at all is asked before ([Engine.Admit]). Any error there keeps
// the client out; passwords are checked in the caller's goroutine. Whether it
// may send any more today is asked after ([Engine.Take]); what was sent is
// counted in memory.
//
// An Engine may be used by any number of goroutines at once.
package policy

import (
	"strings"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Verdict says whether a request may go. The zero Verdict refuses.
type Verdict uint8

// The two verdicts there are.
const (
	Refuse Verdict = iota
	Allow
)

// String gives the word that the audit uses: "allow" or "block".
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "block"
}

// A Reason says on what a Decision rests. The set is closed: each is a word in
// the audit's `reason` member.
type Reason string

// The reasons. Those from ReasonPace on are found by the proxy, after or instead
// of a judgement.
const (
	ReasonRule        Reason = "rule"        // a rule of robots.txt decided
	ReasonNoRule      Reason = "no-rule"     // there is a file, none of its rules matches
	ReasonNoFile      Reason = "no-file"     // the origin has no robots.txt
	ReasonRobotsTxt   Reason = "robots-txt"  // /robots.txt itself, always allowed (RFC 9309 2.2.2)
	ReasonUnreachable Reason = "unreachable" // the origin was reached and gave no usable robots.txt
	ReasonOrigin      Reason = "origin"      // no connection to the origin: refused, DNS, TLS
	ReasonParent      Reason = "parent"      // the parent proxy does not serve
	ReasonCrawlDelay  Reason = "crawl-delay" // the site asks for more than the maximum (over_max: refuse)
	ReasonTooComplex  Reason = "too-complex" // matching the path would take too many steps (robots.MaxEffort)
	ReasonTunnel      Reason = "tunnel"      // an unopened tunnel, judged by its host alone
	ReasonIdentity    Reason = "identity"    // the client does not say who it is
	ReasonDenied      Reason = "denied-host" // an entry of Options.Hosts denies the host
	ReasonOverride    Reason = "override"    // an entry of Options.Hosts says that robots.txt is not to be asked
	ReasonPace        Reason = "pace"        // the wait for a slot would be too long
	ReasonQuota       Reason = "quota"       // the client has sent what it may in a day
	ReasonShutdown    Reason = "shutdown"    // the proxy ends, and its turn would have come later
	ReasonLimit       Reason = "limit"       // the client has too many connections open, or causes too many refusals, or memory is short
	ReasonAddress     Reason = "address"     // a forbidden destination address
	ReasonPort        Reason = "port"        // a forbidden destination port
	ReasonAuth        Reason = "auth"        // who asks is nobody's client, or could not show whose
	ReasonMalformed   Reason = "malformed"   // not a request that a proxy can send on
	ReasonLoop        Reason = "loop"        // the request has been here before
	ReasonAudit       Reason = "audit"       // its record cannot be written
	ReasonClient      Reason = "client"      // the client left before its turn came
	ReasonInternal    Reason = "internal"    // a fault of the proxy's own
)

// A Request is what is judged: one normalised target and who asks for it.
type Request struct {
	Client    string        // who asks, for fairness and the record; see Engine.Admit
	Method    string        // all methods are judged alike
	Origin    robots.Origin // whose robots.txt speaks
	PathQuery string        // path and query as they will be sent
	UserAgent string        // the header as it will be sent; "" for none
	From      string        // likewise
	Dest      string        // what the answer is for, as the client says: Sec-Fetch-Dest; "" for none
}

// A Decision is the judgement on one Request. The zero Decision refuses.
type Decision struct {
	Verdict     Verdict
	Reason      Reason
	Entry       string         // the pattern of the entry of Options.Hosts that holds for the host; "" where none does
	EntryReason string         // the reason that it gives
	Rule        string         // the pattern that decided, as written; "" where none did
	Line        int            // its line in the file, from 1
	Form        Form           // the form of the path that decided; zero: as it was sent, or none did
	Read        string         // path and query in that form; "": as they were sent
	Group       string         // the group that applies: "foobot", "*"; "" for none
	Token       string         // the product token that the client was taken for; "" for none
	Dialect     string         // how robots.txt was read: the dialect's name; "" where it was not asked
	Asked       time.Duration  // the Crawl-delay that the group asks for
	Signals     robots.Signals // what the group says of uses of its pages; it decides nothing
	Usage       string         // likewise of this one: its Content-Usage, as written; "" for none
	Pace        pace.Limits    // how fast requests may go; CrawlDelay in it is the one in force
	Ruling      cache.Ruling   // the robots.txt that the judgement rests on
	Err         error          // what went wrong, if anything did
}

// Release lets go of the robots.txt that d rests on, but for what says which one that is. A Decision
// that is held for long is released, or files that the Book has dropped would stay in memory.
func (d *Decision) Release() {
	if d.Ruling.Release() {
		d.Rule, d.Group, d.Usage = strings.Clone(d.Rule), strings.Clone(d.Group), strings.Clone(d.Usage) // parts of the file
	}
}
