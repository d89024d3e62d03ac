package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A derivation is the judgement of a record, made again from the file that it
// rested on by the code that judges requests. Nothing of the present configuration
// is in it: what was configured is as the record shows it.
type derivation struct {
	Same    bool         `json:"same"`
	Differs []difference `json:"differs,omitempty"`
	Notes   []string     `json:"notes,omitempty"`
}

// A difference is a member of a record that comes out otherwise.
type difference struct {
	Member  string `json:"member"`
	Record  string `json:"record"`
	Derived string `json:"derived"`
}

// byFile says whether robots.txt alone decided: nothing else took the place of its
// answer.
func byFile(r policy.Reason) bool {
	switch r {
	case policy.ReasonRule, policy.ReasonNoRule, policy.ReasonNoFile, policy.ReasonCrawlDelay, policy.ReasonTooComplex, policy.ReasonTunnel:
		return true
	}
	return false
}

// rederive judges a record's request by a file that was answered with a status.
func rederive(ctx context.Context, e *trail.Entry, octets []byte, status int) derivation {
	file := &checkcmd.OneFile{Name: e.RobotsURL, Text: octets, Status: status}
	request, judge, err := requestOf(e)
	if err != nil {
		return derivation{Notes: []string{"its request cannot be read: " + err.Error()}}
	}
	var best *derivation
	for _, token := range tokensOf(e) {
		engine, err := engineOf(e, file, token)
		if err != nil {
			return derivation{Notes: []string{"it cannot be judged: " + err.Error()}}
		}
		decision := judge(engine, ctx, request)
		d := derivation{Differs: compare(e, &decision)}
		d.Same = len(d.Differs) == 0
		if best == nil || d.Same {
			best = &d
			best.Notes = notes(e, &decision, token)
		}
		if d.Same {
			break
		}
	}
	if !best.Same {
		best.Notes = append(best.Notes, lacks(e)...)
	}
	return *best
}

// tokensOf gives the product tokens that may have been configured; "": none, the
// token was that of the User-Agent header. A token may be both.
func tokensOf(e *trail.Entry) []string {
	switch {
	case e.Agent == "":
		return []string{""}
	case slices.ContainsFunc(robots.ProductTokens(userAgentOf(e)), func(token string) bool { return isRecorded(e.Agent, token) }):
		return []string{"", e.Agent}
	}
	return []string{e.Agent}
}

// requestOf is the request that was judged, and by which of the judgements.
func requestOf(e *trail.Entry) (r policy.Request, judge func(*policy.Engine, context.Context, policy.Request) policy.Decision, err error) {
	r = policy.Request{Client: e.Client, Method: e.Method, UserAgent: userAgentOf(e)}
	if e.Method == http.MethodConnect {
		r.PathQuery = "/"
		r.Origin, err = robots.ParseOrigin("https", e.URL)
		return r, (*policy.Engine).DecideTunnel, err
	}
	address, _ := urlOf(e)
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		return r, nil, errors.New("no address")
	}
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		return r, nil, errors.New("no path")
	}
	r.PathQuery = rest[end:]
	r.Origin, err = robots.ParseOrigin(scheme, rest[:end])
	return r, (*policy.Engine).Decide, err
}

// engineOf is an Engine with the options that a record shows.
func engineOf(e *trail.Entry, file *checkcmd.OneFile, token string) (*policy.Engine, error) {
	dialect, err := robots.DialectByName(e.Dialect)
	if err != nil {
		return nil, err
	}
	book, err := cache.New(cache.Options{Fetcher: file})
	if err != nil {
		return nil, err
	}
	o := policy.Options{Book: book, Dialect: dialect, ProductToken: token, OverMax: policy.Honor, Readings: policy.LiteralReadings}
	if e.Reading != "" && e.Reading != policy.DotsRemoved.String() {
		o.Readings = policy.AllReadings
	}
	switch {
	case policy.Reason(e.Reason) == policy.ReasonCrawlDelay: // any delay less than what was asked would have been kept
		o.OverMax, o.MaxCrawlDelay = policy.RefuseExcess, max(1, asDuration(e.CrawlAsked)-1)
	case e.CrawlDelay < e.CrawlAsked:
		o.OverMax, o.MaxCrawlDelay = policy.Clamp, max(1, asDuration(e.CrawlDelay))
	}
	return policy.New(o)
}

// asDuration reads the seconds of a record, which are a Duration's.
func asDuration(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(math.Round(seconds*float64(time.Second)), math.MaxInt64/2))
}

// compare gives what of a record comes out otherwise. Where something else took the
// place of robots.txt, verdict and reason are that one's.
func compare(e *trail.Entry, d *policy.Decision) (differs []difference) {
	add := func(member, record, derived string) {
		if !isRecorded(record, derived) {
			differs = append(differs, difference{member, record, derived})
		}
	}
	if byFile(policy.Reason(e.Reason)) {
		add("decision", e.Decision, d.Verdict.String())
		add("reason", e.Reason, string(d.Reason))
	}
	add("rule", e.Rule, d.Rule)
	add("line", fmt.Sprint(e.Line), fmt.Sprint(d.Line))
	decided := e.Rule != "" || e.Reason == string(policy.ReasonTooComplex)
	if e.Reading != "" && decided { // records of earlier versions do not say, or also where no form decided
		add("reading", e.Reading, d.Form.String())
	}
	add("group", e.Group, d.Group)
	add("agent", e.Agent, d.Token)
	add("crawl_delay_asked_s", fmt.Sprint(e.CrawlAsked), fmt.Sprint(d.Asked.Seconds()))
	if e.CrawlAsked > 0 {
		add("crawl_delay_s", fmt.Sprint(e.CrawlDelay), fmt.Sprint(d.Pace.CrawlDelay.Seconds()))
	}
	return differs
}

// isRecorded reports whether record is what a record has of the string s: s whole or cut,
// with U+FFFD for each byte that is not UTF-8.
func isRecorded(record, s string) bool {
	text := string([]rune(s))
	if record == text {
		return true
	}
	head, whole, cut := trail.CutText(record)
	return cut && whole == len(s) && strings.HasPrefix(text, head)
}

// urlOf gives what a record has of the URL, and the URL's whole length if the record cut it, else 0.
func urlOf(e *trail.Entry) (head string, whole int) {
	if head, whole, cut := trail.CutText(e.URL); cut && whole > trail.MaxURL {
		return head, whole
	}
	return e.URL, 0
}

// userAgentOf gives what a record has of the User-Agent header.
func userAgentOf(e *trail.Entry) string {
	head, _, _ := trail.CutText(e.UserAgent)
	return head
}

// notes says what else there is to know of a judgement that was made again.
func notes(e *trail.Entry, d *policy.Decision, token string) (all []string) {
	if token != "" {
		all = append(all, fmt.Sprintf("the client was taken for %s by the configuration (product_token): its User-Agent header says otherwise", cli.Printable(token)))
	}
	if !byFile(policy.Reason(e.Reason)) {
		said := "allowed"
		if d.Verdict != policy.Allow {
			said = "disallowed"
		}
		all = append(all, "by robots.txt the request was "+said)
	}
	return all
}

// lacks says what a record lacks that a judgement may have needed.
func lacks(e *trail.Entry) (all []string) {
	if e.Method == http.MethodConnect {
		return nil
	}
	const cut = "the record has only the beginning of the %s of %d bytes: it cannot be re-derived exactly"
	if _, whole := urlOf(e); whole > 0 {
		all = append(all, fmt.Sprintf(cut, "URL", whole))
	}
	if _, whole, ok := trail.CutText(e.UserAgent); ok {
		all = append(all, fmt.Sprintf(cut, "User-Agent", whole))
	}
	if d, err := robots.DialectByName(e.Dialect); err == nil && d.AsWritten && strings.Contains(e.URL, "%") {
		all = append(all, "the record percent-encodes bytes of the URL that are not printable, and the dialect "+d.Name+" tells the two forms apart: it cannot be re-derived exactly")
	}
	if strings.ContainsRune(e.URL, utf8.RuneError) { // in records of earlier versions
		all = append(all, "octets of the URL were not UTF-8, and the record does not have them: it cannot be re-derived exactly")
	}
	if !strings.Contains(e.URL, "?") {
		all = append(all, "the URL has no query: if one was left out of the record (audit.query_strings: drop), it cannot be re-derived exactly")
	}
	return all
}
