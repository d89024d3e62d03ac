// Package policy decides whether a request is allowed: by the identity of the
// client, the configured entry for the host, the pauses of operators, the robots.txt
// of the origin and what it says about uses, and then the hours, the cool-down and
// the budget of the host, in this order. The proxy, `robotsproxy check` and every
// explanation use the same [Engine.Decide].
//
// The package only decides: it never paces, dials or writes to a client. A
// [Decision] is a value, and its zero value refuses. Requests to an origin without
// a usable robots.txt are refused until there is one (RFC 9309 2.3.1.4). An error
// is a refusal with Err set.
//
// [Engine.Admit] decides before that whether a client may use the proxy, and checks
// its password in the caller's goroutine; an error refuses the client. [Engine.Take]
// enforces the daily quotas of clients and the budgets of hosts. They are counted in memory and, if there is one, in a
// [QuotaStore]: while it is unavailable, each process has its share of what was left.
//
// Any number of goroutines may use an Engine.
package policy

import (
	"strings"
	"time"

	"robotsproxy/policy/labels"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Verdict says whether a request is allowed. The zero Verdict refuses.
type Verdict uint8

// The verdicts.
const (
	Refuse Verdict = iota
	Allow
)

// String returns the word that the audit uses: "allow" or "block".
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "block"
}

// OutcomeOf returns what became of a request with this Verdict and Reason. A refusal for a Reason that is not known is Failed.
func OutcomeOf(v Verdict, r Reason) Outcome {
	if v == Allow {
		return Allowed
	}
	return r.Info().Outcome
}

// RecordedOutcome is OutcomeOf for the members `decision` and `reason` of a record.
func RecordedOutcome(decision, reason string) Outcome {
	if decision == Allow.String() {
		return Allowed
	}
	return OutcomeOf(Refuse, Reason(reason))
}

// Unsigned is why the proxy has not signed a request that it sent.
type Unsigned string

// The causes.
const (
	UnsignedClient Unsigned = "client"     // the client has signed it, or sends a field of a signature
	UnsignedPlain  Unsigned = "plain-http" // it went without TLS
	UnsignedTunnel Unsigned = "tunnel"     // a tunnel that is passed through
	UnsignedFTP    Unsigned = "ftp"        // FTP has no signatures
)

// A Request is what an Engine decides about: the target and the client's identity.
type Request struct {
	// Client is the client's name or address, as Engine.Admit returns it.
	Client string

	// Method has no influence on the decision.
	Method string
	robots.Target

	// UserAgent and From are the headers as they will be sent; "": none is.
	UserAgent string
	From      string

	// Dest is the header Sec-Fetch-Dest; "": there is none.
	Dest string

	// Labels have no influence on the decision.
	Labels labels.Set
}

// A Decision is the result for one Request. The zero Decision refuses.
type Decision struct {
	Verdict Verdict
	Reason  Reason

	// Entry is the pattern of the entry of Options.Hosts that applies to the host, and EntryReason the reason in that entry;
	// "": no entry applies.
	Entry       string
	EntryReason string

	// Parent is Host.Parent of that entry; "": it names none.
	Parent string

	// Rule is the pattern of the rule that decided, as written, and Line its line in the file, from 1; "" and 0: no rule
	// decided.
	Rule string
	Line int

	// JoinedLine is the User-agent line by which the rule applies, see robots.Group.JoinedAgent; 0: its list is not joined.
	JoinedLine int

	// Form is the form of the path that decided, and Read the path and query in that form; zero: as they were sent, or none
	// decided.
	Form Form
	Read string

	// Group is the name of the group that applies, such as "foobot" or "*"; "": none does.
	Group string

	// Token is the product token by which the group was chosen; "": none was.
	Token string

	// Dialect is the name of the dialect in which robots.txt was read; "": it was not read.
	Dialect string

	// Decoded is how robots.txt was encoded, see robots.Decode; "": it is plain text.
	Decoded string

	// Asked is the Crawl-delay in the group, and DelayLine the line that sets it, from 1; zero: the group has none.
	Asked     time.Duration
	DelayLine int

	// Signals are the Content-Signal lines of the group, combined.
	Signals robots.Signals

	// ContentUsage has the Content-Usage lines for this path, as written; "": there are none.
	ContentUsage string

	// TDMPolicy is the URL of the terms that the rule in tdmrep.json names; "": it names none.
	TDMPolicy string

	// Licenses has the License lines of robots.txt, as written; "": there are none.
	Licenses string

	// Usage says for what purposes the content is fetched.
	Usage usage.Policy

	// Statements are what the site states about uses: at most one statement that decides for each category.
	Statements []usage.Statement

	// Pace says how fast requests may go. Its CrawlDelay is the one that is enforced.
	Pace pace.Limits

	// Ruling is the robots.txt that the decision is based on; zero: none was read.
	Ruling cache.Ruling

	// TDMRep is the tdmrep.json that the decision is based on; zero: none was read.
	TDMRep cache.Ruling

	// Visits are the Visit-time lines of the group. They count if the entry of Options.Hosts has RobotsHours.
	Visits []robots.VisitTime

	// terms is the entry of Options.Hosts that applies, or the strictest of several; nil or &noEntry: none does.
	terms *Host

	// Retry is when a request that is deferred may be sent; zero: it is not deferred, or that is unknown.
	Retry time.Time

	// Err is what went wrong; nil: nothing did.
	Err error
}

// Release drops the rules of the files that d is based on, and keeps what identifies the files. Call
// it on a Decision that is kept for long: else files that the cache has dropped stay in memory.
func (d *Decision) Release() {
	d.TDMRep.Shrink()
	if d.Ruling.Shrink() {
		// These texts are parts of the file.
		for _, part := range []*string{&d.Rule, &d.Group, &d.ContentUsage, &d.Licenses} {
			*part = strings.Clone(*part)
		}
		for i := range d.Statements {
			d.Statements[i].Text = strings.Clone(d.Statements[i].Text)
		}
	}
}

// Forbidding returns the statement that disallows the first of the client's purposes that is disallowed; the
// zero Statement: none is.
func (d *Decision) Forbidding() usage.Statement {
	for c := range d.Usage.Purposes.All {
		if said, by := usage.Decide(c, d.Statements); said == usage.Disallowed {
			return *by
		}
	}
	return usage.Statement{}
}
