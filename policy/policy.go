// Package policy decides whether a request is allowed: by the identity of the
// client, the configured entry for the host, and the robots.txt of the origin, in
// this order. The proxy, `robotsproxy check` and every explanation use the same
// [Engine.Decide].
//
// The package only decides: it never paces, dials or writes to a client. A
// [Decision] is a value, and its zero value refuses. Requests to an origin without
// a usable robots.txt are refused until there is one (RFC 9309 2.3.1.4). An error
// is a refusal with Err set.
//
// [Engine.Admit] decides before that whether a client may use the proxy, and checks
// its password in the caller's goroutine; an error refuses the client. [Engine.Take]
// enforces the daily quota, which is counted in memory.
//
// Any number of goroutines may use an Engine.
package policy

import (
	"strings"
	"time"

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
	// The client's name or address, as Engine.Admit returns it.
	Client string

	// The decision does not depend on it.
	Method string
	robots.Target

	// The header as it will be sent; "" for none.
	UserAgent string

	// Likewise.
	From string

	// The header Sec-Fetch-Dest; "" for none.
	Dest string
}

// A Decision is the result for one Request. The zero Decision refuses.
type Decision struct {
	Verdict Verdict
	Reason  Reason

	// The pattern of the entry of Options.Hosts that applies to the host; "" for none.
	Entry string

	// The reason in that entry.
	EntryReason string

	// The pattern of the rule that decided, as written; "" for none.
	Rule string

	// The line of the rule in the file, from 1.
	Line int

	// The User-agent line by which the rule applies, see robots.Group.JoinedAgent; 0: its list is not joined.
	JoinedLine int

	// The form of the path that decided; zero: as it was sent, or none decided.
	Form Form

	// Path and query in that form; "": as they were sent.
	Read string

	// The group that applies: "foobot", "*"; "" for none.
	Group string

	// The product token by which the group was chosen; "" for none.
	Token string

	// The name of the dialect that robots.txt was read in; "" if it was not read.
	Dialect string

	// How robots.txt was encoded, see robots.Decode; "": it is plain text.
	Decoded string

	// The Crawl-delay in the group.
	Asked time.Duration

	// The line that sets Asked, from 1.
	DelayLine int

	// The Content-Signal lines of the group, combined.
	Signals robots.Signals

	// The Content-Usage lines for this path, as written; "" for none.
	ContentUsage string

	// URL of the terms that the rule in tdmrep.json names; "" for none.
	TDMPolicy string

	// The License lines of robots.txt, as written; "" for none.
	Licenses string

	// For what purposes the content is fetched.
	Usage usage.Policy

	// What the site states about them, at most one statement that decides for each category.
	Statements []usage.Statement

	// How fast requests may go; its CrawlDelay is the one that is enforced.
	Pace pace.Limits

	// The robots.txt that the decision is based on.
	Ruling cache.Ruling

	// The tdmrep.json that the decision is based on; zero: none was read.
	TDMRep cache.Ruling

	// What went wrong; nil for nothing.
	Err error
}

// Release drops the rules of the files that d is based on, and keeps what identifies the files. Call
// it on a Decision that is kept for long: else files that the cache has dropped stay in memory.
func (d *Decision) Release() {
	d.TDMRep.Shrink()
	if d.Ruling.Shrink() {
		// Of the file.
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
