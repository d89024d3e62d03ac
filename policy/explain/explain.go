// Package explain says why a request was decided as it was.
//
// An [Explanation] is made in one place, from the [policy.Decision] about a request or from
// its record in the audit. Refusals, robotsproxy check, robotsproxy audit explain, the admin
// API, the dashboard and the report all show it: its JSON members are those of the record,
// its sentences and facts are for people.
//
// The package decides nothing, reads no file and cannot fail: what is not known is left out.
// An Explanation is a plain value that belongs to the goroutine that has it.
package explain

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// An Explanation is why a request was decided as it was. Its strings contain what clients
// and sites sent, unescaped; Sentence, Decided and Basis make them printable.
type Explanation struct {
	Reason      policy.Reason `json:"reason,omitempty"`
	Entry       string        `json:"entry,omitempty"`
	EntryReason string        `json:"entry_reason,omitempty"`
	Rule        string        `json:"rule,omitempty"`
	Line        int           `json:"line,omitempty"`

	// JoinedLine is the User-agent line by which the rule applies, if its list is joined.
	JoinedLine int `json:"joined_line,omitempty"`

	// Form is the name of a policy.Form, and Path the path and query in that form, which no record has.
	Form        string    `json:"reading,omitempty"`
	Path        string    `json:"read_as,omitempty"`
	Group       string    `json:"group,omitempty"`
	Agent       string    `json:"agent,omitempty"`
	Dialect     string    `json:"dialect,omitempty"`
	RobotsURL   string    `json:"robots_url,omitempty"`
	Fetched     time.Time `json:"robots_fetched,omitzero"`
	RobotsAgent string    `json:"robots_agent,omitempty"`
	SHA256      string    `json:"robots_sha256,omitempty"`

	// Stale says that an older robots.txt was used, because the fetch failed.
	Stale bool `json:"robots_stale,omitempty"`

	// Decoded is how the bytes of robots.txt were encoded.
	Decoded string `json:"robots_decoded,omitempty"`

	// The fields of tdmrep.json are as those of robots.txt.
	TDMRepURL     string                 `json:"tdmrep_url,omitempty"`
	TDMRepFetched time.Time              `json:"tdmrep_fetched,omitzero"`
	TDMRepSHA256  string                 `json:"tdmrep_sha256,omitempty"`
	TDMRepStale   bool                   `json:"tdmrep_stale,omitempty"`
	CrawlDelay    float64                `json:"crawl_delay_s,omitempty"`
	CrawlAsked    float64                `json:"crawl_delay_asked_s,omitempty"`
	CrawlLine     int                    `json:"crawl_delay_line,omitempty"`
	BackOff       float64                `json:"back_off_s,omitempty"`
	BackOffBy     string                 `json:"back_off_by,omitempty"`
	Slowed        float64                `json:"slowed_s,omitempty"`
	Usage         map[string]trail.Usage `json:"usage,omitempty"`
	UsageSource   string                 `json:"usage_source,omitempty"`
	License       string                 `json:"license,omitempty"`

	// NotBefore is when the request may be sent, if it is held back for a time that is known.
	NotBefore time.Time `json:"not_before,omitzero"`

	// Visits are the Visit-time lines of the group, as "0600-0845", in UTC, which no record has.
	Visits []string `json:"visit_times,omitempty"`

	// Error is what went wrong. It is for the operator alone.
	Error string `json:"error,omitempty"`

	Allow bool `json:"-"`

	// CrawlText is the line that sets CrawlAsked, as written; "": it is not known.
	CrawlText     string `json:"-"`
	ContentSignal string `json:"-"`
	ContentUsage  string `json:"-"`

	// Fetch is nil if robots.txt was not requested, or the result is not known.
	Fetch *Fetch `json:"-"`
}

// A Fetch is the result of a request for robots.txt.
type Fetch struct {
	Outcome cache.Meaning

	// Status is 0 if there was no complete response.
	Status           int
	Redirects        int
	TooManyRedirects bool

	// DeadRedirect says that a redirect cannot be followed; Error says why.
	DeadRedirect bool

	// RedirectDisallowed says that a redirect leads to a URL that the robots.txt there disallows.
	RedirectDisallowed bool

	// HTML says that the file is an HTML page without a rule.
	HTML  bool
	Error string
}

// Of explains a decision.
func Of(d *policy.Decision) Explanation {
	e := Explanation{
		Allow: d.Verdict == policy.Allow, Reason: d.Reason, Entry: d.Entry, EntryReason: d.EntryReason,
		Rule: d.Rule, Line: d.Line, JoinedLine: d.JoinedLine, Form: d.Form.String(), Path: d.Read, Group: d.Group, Agent: d.Token,
		ContentSignal: d.Signals.String(), ContentUsage: d.ContentUsage, License: d.Licenses,
	}
	if e.NotBefore = d.Retry.UTC(); d.Retry.IsZero() {
		e.NotBefore = d.Pace.NotBefore.UTC()
	}
	for _, v := range d.Visits {
		e.Visits = append(e.Visits, v.String())
	}
	e.Usage, e.UsageSource = usageOf(d), d.Forbidding().Source
	if d.Asked > 0 {
		e.CrawlDelay, e.CrawlAsked, e.CrawlLine = d.Pace.CrawlDelay.Seconds(), d.Asked.Seconds(), d.DelayLine
	}
	if d.Err != nil {
		e.Error = humanize.Error(d.Err)
	}
	if a := d.Ruling.Result; a != nil {
		e.Dialect, e.RobotsURL, e.RobotsAgent, e.SHA256 = d.Dialect, a.URL, a.UserAgent, a.SHA256
		e.Fetched, e.Stale, e.Decoded = d.Ruling.Fetched().UTC(), d.Ruling.Stale, d.Decoded
		e.Fetch = &Fetch{Outcome: d.Ruling.Meaning, Status: a.Status, Redirects: a.Redirects, HTML: IsHTML(&d.Ruling)}
		e.Fetch.TooManyRedirects = a.TooManyRedirects
		e.Fetch.DeadRedirect, e.Fetch.RedirectDisallowed = a.DeadRedirect, a.RedirectDisallowed
		if a.Err != nil {
			e.Fetch.Error = humanize.Error(a.Err)
		}
	}
	if a := d.TDMRep.Result; a != nil {
		e.TDMRepURL, e.TDMRepSHA256, e.TDMRepFetched, e.TDMRepStale = a.URL, a.SHA256, d.TDMRep.Fetched().UTC(), d.TDMRep.Stale
	}
	return e
}

// IsHTML reports whether what the site has as its robots.txt is an HTML page, in which there is no rule.
func IsHTML(r *cache.Ruling) bool {
	return r.Meaning == cache.Rules && r.Result != nil && robots.IsHTML(r.Result.Body) && r.File.Rules() == 0
}

// OfRuling explains what the robots.txt of an origin, read in a dialect, means for requests that no
// rule matches, of clients in the group "*".
func OfRuling(r *cache.Ruling, dialect string) Explanation {
	d := policy.Decision{Ruling: *r, Dialect: dialect, Reason: policy.ReasonUnreachable, Err: r.Err}
	switch r.Meaning {
	case cache.Rules:
		d.Verdict, d.Reason, d.Visits = policy.Allow, policy.ReasonNoRule, r.File.For().VisitTimes()
	case cache.NoFile:
		d.Verdict, d.Reason = policy.Allow, policy.ReasonNoFile
	case cache.NoConnection:
		d.Reason = policy.ReasonOrigin
	}
	return Of(&d)
}

// OfRecord explains the decision in a record of the audit. A record does not contain the
// result of the request for robots.txt. fetched has it, with any Outcome, or is nil.
func OfRecord(r *trail.Entry, fetched *Fetch) Explanation {
	e := Explanation{
		Allow: !r.Blocked(), Reason: policy.Reason(r.Reason), Entry: r.Entry, EntryReason: r.EntryReason,
		Rule: r.Rule, Line: r.Line, JoinedLine: r.JoinedLine, Form: r.Reading, Group: r.Group, Agent: r.Agent, Dialect: r.Dialect,
		RobotsURL: r.RobotsURL, Fetched: r.RobotsFetched, RobotsAgent: r.RobotsAgent, SHA256: r.RobotsSHA256,
		Stale: r.RobotsStale, Decoded: r.RobotsDecoded,
		TDMRepURL: r.TDMRepURL, TDMRepFetched: r.TDMRepFetched, TDMRepSHA256: r.TDMRepSHA256, TDMRepStale: r.TDMRepStale,
		CrawlDelay: r.CrawlDelay, CrawlAsked: r.CrawlAsked, CrawlLine: r.CrawlLine,
		BackOff: r.BackOff, BackOffBy: r.BackOffBy, Slowed: r.Slowed, NotBefore: r.NotBefore,
		ContentSignal: r.RobotsContentSignal, ContentUsage: r.RobotsContentUsage,
		Usage: r.Usage, UsageSource: r.UsageSource, License: r.License, Error: r.Error, Fetch: fetched,
	}
	if fetched == nil {
		return e
	}
	switch {
	case e.Reason == policy.ReasonOrigin:
		fetched.Outcome = cache.NoConnection
	case e.Reason == policy.ReasonUnreachable:
		fetched.Outcome = cache.Unreachable
	case r.RobotsSHA256 != "" && e.Reason != policy.ReasonNoFile:
		fetched.Outcome = cache.Rules
	default:
		fetched.Outcome = cache.NoFile
	}
	return e
}

// ForClient returns the part of e that a refused client may know. It names an entry of the
// configuration if the entry decided, a rule if robots.txt decided, and usage preferences
// if they decided. It omits internal errors.
func (e Explanation) ForClient() Explanation {
	if !ByRobots(e.Reason) {
		e.Rule, e.Line = "", 0
		if e.Reason != policy.ReasonUsage {
			e.JoinedLine, e.Form, e.Path = 0, "", ""
		}
	}
	if !e.Reason.Info().ByEntry {
		e.Entry, e.EntryReason = "", ""
	}
	if e.Reason != policy.ReasonUsage {
		e.Usage, e.UsageSource, e.TDMRepURL, e.TDMRepFetched = nil, "", "", time.Time{}
	}
	e.License = ""
	for _, at := range []*time.Time{&e.Fetched, &e.TDMRepFetched, &e.NotBefore} {
		*at = at.Truncate(time.Second)
	}
	e.SHA256, e.TDMRepSHA256, e.Stale, e.TDMRepStale = "", "", false, false
	e.ContentSignal, e.ContentUsage, e.Error, e.Fetch = "", "", "", nil
	return e
}

// Sentence says in one sentence why the request was decided so. It is printable.
func (e *Explanation) Sentence() string {
	said := e.Reason.Info().Text
	switch e.Reason {
	case policy.ReasonRule:
		switch {
		case e.Allow:
			said = "The site's robots.txt allows this URL for this client"
		case e.Form != "":
			said = "The site's robots.txt disallows another form of this URL for this client, which servers may treat as the same"
		default:
			said = "The site's robots.txt disallows this URL for this client"
		}
	case policy.ReasonTunnel:
		if !e.Allow {
			said = "The site's robots.txt disallows the whole site for this client"
		}
	case policy.ReasonNoRule:
		if e.Fetch != nil && e.Fetch.HTML {
			said = "The site's robots.txt is an HTML page without a rule: everything is allowed"
		} else if e.Group == "" {
			said = "No group of the site's robots.txt applies to this client"
		}
	case policy.ReasonNoFile:
		said = e.noFile()
	case policy.ReasonUnreachable:
		if cause := e.Cause(); cause != "" {
			said = "The site was reached but gave no usable robots.txt (" + cause + "), so no URL of the site may be fetched"
			// With robots.forbidden the operator decides so, not the RFC.
			if !strings.Contains(cause, "robots.forbidden") {
				said += " (RFC 9309 2.3.1.4)"
			}
		}
	case policy.ReasonPaused, policy.ReasonHours, policy.ReasonCoolDown, policy.ReasonBudget:
		if e.Error != "" {
			said = humanize.Prose(e.Error)
		}
	case policy.ReasonUsage:
		said = forbiddenUse(e.Usage)
	case policy.ReasonIdentity:
		switch e.Error {
		case policy.ErrNoToken.Error():
			said = "The proxy requires a product token in the User-Agent header (identity.require), " +
				"and the client sent only a browser's"
		case policy.ErrNoContact.Error():
			said = "The proxy requires a web or e-mail address in the User-Agent or From header (identity.require), " +
				"and the client sent none"
		}
	}
	if said == "" {
		return humanize.Brief(string(e.Reason))
	}
	return said + "."
}

// Cause says what was wrong with the site's response to the request for robots.txt, if that made the
// site unreachable; "" otherwise. It is printable.
func (e *Explanation) Cause() string {
	if e.Reason != policy.ReasonUnreachable {
		return ""
	}
	return humanize.Prose(withoutAddresses(withoutURL(e.Error)))
}

var (
	sockets   = regexp.MustCompile(`\b(dial|read|write) (tcp|udp)[46]? \S+: `)
	noAddress = regexp.MustCompile(`forbidden address: all that the name has: \S+|lookup \S+( on \S+)?: no such host`)
	servers   = regexp.MustCompile(` on \S+:\d+\b`)
)

// withoutAddresses removes from an error the addresses of sockets and name servers, which do not concern a client. It
// does not tell a name with forbidden addresses from one that does not exist.
func withoutAddresses(text string) string {
	text = noAddress.ReplaceAllString(text, "the host has no address that the proxy may connect to")
	return servers.ReplaceAllString(sockets.ReplaceAllString(text, ""), "")
}

// withoutURL returns the text of a fetch's error without the URL, which is known.
func withoutURL(text string) string {
	if after, ok := strings.CutPrefix(text, "fetch "); ok {
		_, text, _ = strings.Cut(after, ": ")
	}
	return text
}

// noFile says why there are no rules.
func (e *Explanation) noFile() string {
	f, dialect := e.Fetch, humanize.Brief(e.Dialect)
	switch {
	case e.Error != "":
		return "robots.txt has failed for so long that " + dialect + " assumes there is none: everything is allowed"
	case f == nil:
		return policy.ReasonNoFile.Info().Text
	case f.RedirectDisallowed:
		return "robots.txt redirects to a URL that the robots.txt there disallows. " +
			"Under " + dialect + " this means that there are no rules: everything is allowed"
	case f.DeadRedirect:
		return "robots.txt answers with " + humanize.Prose(withoutURL(f.Error)) + ". " +
			"Under " + dialect + " this means that there are no rules: everything is allowed"
	case f.Status == 429 || f.Status < 300 || f.Status >= 500:
		return fmt.Sprintf("Status %d means under %s that there are no rules: everything is allowed", f.Status, dialect)
	case f.Status < 400:
		return "robots.txt has too many redirects: everything is allowed (RFC 9309 2.3.1.2)"
	}
	return fmt.Sprintf("Status %d means that there is no robots.txt: everything is allowed (RFC 9309 2.3.1.3)", f.Status)
}

const botExample = "User-Agent: FooBot/1.0 (+https://foo.example/bot)"

// Advice says what a refused client can do; "": nothing. operatorNames says that the operator
// chooses the User-Agent header.
func (e *Explanation) Advice(operatorNames bool) string {
	switch {
	case e.Reason == policy.ReasonRule && e.Form != "":
		return "Do not request this URL, or send it in its plain form. The operator can change robots.readings."
	case e.Reason != policy.ReasonIdentity:
	case operatorNames:
		return "The operator must set identity.user_agent, which replaces your User-Agent, or identity.from."
	case e.Error == policy.ErrNoToken.Error():
		return "Send a User-Agent with a product token, as in: " + botExample
	default:
		return "Put a web or e-mail address into your User-Agent, as in: " + botExample + ", or send one as From."
	}
	return e.Reason.Info().Advice
}

// Why returns the Sentence, or "" if the rule among the facts says everything.
func (e *Explanation) Why() string {
	if e.Rule != "" && ByRobots(e.Reason) {
		return ""
	}
	return e.Sentence()
}

// Decided returns the facts that decided: the rule, the entry of hosts, and the product token
// of the client.
func (e *Explanation) Decided() []Fact {
	var f facts
	if e.Rule != "" {
		f = facts{{"rule", e.RuleText(), true}}
	}
	f.addIf(e.JoinedLine > 0, "joined", fmt.Sprintf("this group is in the list of agents since line %d: "+
		"lines such as Crawl-delay between User-agent lines do not end a list (RFC 9309 2.2.4)", e.JoinedLine))
	if e.Path != "" {
		f.add("read as", fmt.Sprintf("%s (%s)", humanize.Brief(e.Path), humanize.Brief(e.Form)))
	} else {
		f.add("read as", humanize.Brief(e.Form))
	}
	f.add("reason", humanize.Brief(string(e.Reason)))
	f.quote("entry", e.Entry)
	f.add("entry reason", humanize.Prose(e.EntryReason))
	f.addIf(!e.NotBefore.IsZero(), "not before", e.NotBefore.UTC().Format(time.RFC3339))
	f = append(f, uses(e.Usage)...)
	switch row := e.Reason.Info(); {
	case row.Held:
		// The Sentence has it.
	case row.Outcome == policy.Deferred:
		// Nothing failed.
		f.add("detail", humanize.Prose(e.Error))
	default:
		f.add("error", humanize.Prose(e.Error))
	}
	f.quote("group", e.Group)
	f.quote("agent", e.Agent)
	return f
}

// Basis returns the facts about the robots.txt that the decision is based on, and the pace
// and preferences in it, and about the tdmrep.json.
func (e *Explanation) Basis() []Fact {
	var f facts
	f.add("dialect", humanize.Brief(e.Dialect))
	f.quote("robots.txt", e.RobotsURL)
	f.addIf(!e.Fetched.IsZero(), "fetched", e.Fetched.UTC().Format(time.RFC3339))
	f.add("fetched as", humanize.Brief(e.RobotsAgent))
	f.add("outcome", e.outcome())
	f.add("sha256", humanize.Brief(e.SHA256))
	f.add("decoded", humanize.Brief(e.Decoded))
	f.addIf(e.Stale, "note", "an older copy, because robots.txt could not be fetched again")
	if e.CrawlAsked > 0 {
		line := ""
		if e.CrawlLine > 0 {
			line = fmt.Sprintf(", line %d", e.CrawlLine)
			if e.CrawlText != "" {
				line += ": " + humanize.Brief(e.CrawlText)
			}
		}
		if e.CrawlDelay < e.CrawlAsked {
			f.add("crawl-delay", shortened(e.CrawlAsked, e.CrawlDelay)+line)
		} else {
			f.add("crawl-delay", fmt.Sprintf("%g s (asked: %g s%s)", e.CrawlDelay, e.CrawlAsked, line))
		}
	}
	f.addIf(len(e.Visits) > 0, "visit-time", strings.Join(e.Visits, ", ")+" UTC")
	if e.BackOff > 0 {
		cause := ""
		if e.BackOffBy != "" {
			cause = " to " + humanize.Brief(e.BackOffBy)
		}
		f.add("back-off", fmt.Sprintf("%g s, after a 429 or 503%s", e.BackOff, cause))
	}
	f.addIf(e.Slowed > 0, "slowed", fmt.Sprintf("one request in %g s, because the host responds slowly", e.Slowed))
	f.add("content-signal", humanize.Brief(e.ContentSignal))
	f.add("content-usage", humanize.Brief(e.ContentUsage))
	f.quote("license", e.License)
	f.quote("tdmrep.json", e.TDMRepURL)
	f.addIf(!e.TDMRepFetched.IsZero(), "tdm fetched", e.TDMRepFetched.UTC().Format(time.RFC3339))
	f.add("tdm sha256", humanize.Brief(e.TDMRepSHA256))
	f.addIf(e.TDMRepStale, "tdm note", "an older copy, because tdmrep.json could not be fetched again")
	return f
}

// Shortened says that a site asks for more time between two requests than the proxy keeps, because of
// robots.over_max: clamp.
func Shortened(asked, kept time.Duration) string { return shortened(asked.Seconds(), kept.Seconds()) }

func shortened(asked, kept float64) string {
	milli := func(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }
	return fmt.Sprintf("asks for %g s between requests; sent every %g s (robots.max_crawl_delay)", milli(asked), milli(kept))
}

// RuleText returns the rule that applies, with its line, in the form of robots.txt. If
// something else decided, only the pattern is known.
func (e *Explanation) RuleText() string {
	if !ByRobots(e.Reason) {
		return fmt.Sprintf("%s (line %d)", humanize.Word(e.Rule), e.Line)
	}
	return RuleText(e.Allow, e.Rule, e.Line)
}

// RuleText returns a rule in the form of robots.txt, with its line.
func RuleText(allow bool, rule string, line int) string {
	field := "Disallow"
	if allow {
		field = "Allow"
	}
	return fmt.Sprintf("%s: %s (line %d)", field, humanize.Word(rule), line)
}

// outcome returns the result of the request for robots.txt, or "" if it is unknown.
func (e *Explanation) outcome() string {
	f := e.Fetch
	if f == nil {
		return ""
	}
	text := f.Outcome.String()
	if f.Status > 0 {
		text = fmt.Sprintf("status %d: %s", f.Status, text)
	}
	switch {
	case f.HTML:
		text += ": no rules, because the file is an HTML page"
	case f.TooManyRedirects:
		text += ": too many redirects"
	case f.RedirectDisallowed:
		text += ": a redirect is disallowed by robots.txt"
	case f.Outcome == cache.Unreachable && f.Status == 0:
		text += ": no complete response"
	}
	if f.Redirects == 1 {
		text += ", after 1 redirect"
	} else if f.Redirects > 1 {
		text += fmt.Sprintf(", after %d redirects", f.Redirects)
	}
	if f.Error != "" && f.Error != e.Error {
		text += ": " + humanize.Prose(withoutURL(f.Error))
	}
	return text
}

// A Fact is one line of an explanation. Its Value is printable and not longer than people read.
type Fact struct {
	Name, Value string

	// Quoted says that Value is from a request, a robots.txt or the configuration.
	Quoted bool
}

// facts collects those that have a value.
type facts []Fact

func (f *facts) add(name, value string) { f.addIf(value != "", name, value) }

// addIf adds a fact if it is known.
func (f *facts) addIf(known bool, name, value string) {
	if known {
		*f = append(*f, Fact{Name: name, Value: value})
	}
}

func (f *facts) quote(name, value string) {
	if value != "" {
		*f = append(*f, Fact{name, humanize.Brief(value), true})
	}
}

// ParseURL returns the target of a request for a URL as the proxy reads it, or says why the proxy
// would not take it. A fragment does not count: clients do not send it (RFC 9110 7.1).
func ParseURL(method, address string) (robots.Target, error) {
	address, _, _ = strings.Cut(address, "#")
	return robots.ParseTarget(method, address)
}
