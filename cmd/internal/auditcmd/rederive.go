package auditcmd

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A derivation is the decision of a record, made again from the snapshot by the code that judges
// requests. What was configured is taken from the record, not from the present configuration.
type derivation struct {
	Same    bool         `json:"same"`
	Differs []difference `json:"differs,omitempty"`
	Notes   []string     `json:"notes,omitempty"`
}

// A difference is a member of a record that comes out different.
type difference struct {
	Member  string `json:"member"`
	Record  string `json:"record"`
	Derived string `json:"derived"`
}

// A judge has the Engine of the last record that it judged, for others of the same site. It is for one goroutine.
type judge struct {
	terms  judgeTerms
	engine *policy.Engine
}

// judgeTerms are what an Engine for a record depends on.
type judgeTerms struct {
	dialect, token, reading, usage string
	robotsURL, robots, tdmrepURL   string
	tdmrep                         string
	refusesDelay                   bool
	delay, askedDelay              float64
	status                         int
}

// engineOf is engineOf, unless the last record had the same terms.
func (j *judge) engineOf(e *trail.Entry, file *checkcmd.File, tdmrep []byte, token string) (*policy.Engine, error) {
	terms := judgeTerms{
		dialect: e.Dialect, token: token, reading: e.Reading, usage: fmt.Sprintf("%+v", usageOf(e)),
		robotsURL: e.RobotsURL, robots: e.RobotsSHA256, tdmrepURL: e.TDMRepURL, tdmrep: e.TDMRepSHA256,
		refusesDelay: policy.Reason(e.Reason) == policy.ReasonCrawlDelay, delay: e.CrawlDelay, askedDelay: e.CrawlAsked,
		status: file.Status,
	}
	if j.engine != nil && j.terms == terms {
		return j.engine, nil
	}
	engine, err := engineOf(e, file, tdmrep, token)
	if err == nil {
		j.terms, j.engine = terms, engine
	}
	return engine, err
}

// rederive judges a record's request by a robots.txt and a tdmrep.json; nil: there was none.
func (j *judge) rederive(ctx context.Context, e *trail.Entry, file *checkcmd.File, tdmrep []byte) derivation {
	if e.HiddenURL() {
		return derivation{Notes: []string{"the path and the query of the URL were erased (robotsproxy audit erase)"}}
	}
	request, judge, err := requestOf(e)
	if err != nil {
		return derivation{Notes: []string{"the request cannot be parsed: " + err.Error()}}
	}
	var best *derivation
	for _, token := range tokensOf(e) {
		engine, err := j.engineOf(e, file, tdmrep, token)
		if err != nil {
			return derivation{Notes: []string{"the request cannot be judged: " + err.Error()}}
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
		best.Notes = append(best.Notes, missing(e)...)
	}
	return *best
}

// tokensOf returns the product tokens that may have been configured. "" means that the token
// came from the User-Agent header. Both are possible if the header contains the configured
// token.
func tokensOf(e *trail.Entry) []string {
	switch {
	case e.Agent == "":
		return []string{""}
	case slices.ContainsFunc(robots.ProductTokens(userAgentOf(e)), func(token string) bool { return isRecorded(e.Agent, token) }):
		return []string{"", e.Agent}
	}
	return []string{e.Agent}
}

// requestOf returns the request that was judged, and the method that judged it.
func requestOf(e *trail.Entry) (r policy.Request, judge func(*policy.Engine, context.Context, policy.Request) policy.Decision, err error) {
	r = policy.Request{Client: e.Client, Method: e.Method, UserAgent: userAgentOf(e)}
	if e.Method == http.MethodConnect {
		r.PathQuery = "/"
		r.Origin, err = robots.ParseOrigin("https", e.URL)
		return r, (*policy.Engine).DecideTunnel, err
	}
	address, _ := e.RequestURL()
	scheme, authority, pathQuery, _ := robots.SplitURL(address)
	// RFC 9112 3.2.4: only OPTIONS has no path.
	r.PathQuery = cmp.Or(pathQuery, "*")
	r.Origin, err = robots.ParseOrigin(scheme, authority)
	return r, (*policy.Engine).Decide, err
}

// engineOf makes an Engine with the options that a record implies.
func engineOf(e *trail.Entry, file *checkcmd.File, tdmrep []byte, token string) (*policy.Engine, error) {
	// A record without a robots.txt has no dialect.
	dialect, err := robots.DialectByName(cmp.Or(e.Dialect, robots.Standard().Name))
	if err != nil {
		return nil, err
	}
	robotsCache, err := cache.New(cache.Options{Fetcher: file})
	if err != nil {
		return nil, err
	}
	o := policy.Options{
		Cache: robotsCache, Dialect: dialect, ProductToken: token,
		OverMax: policy.Honor, Readings: policy.LiteralReadings, Usage: usageOf(e),
	}
	if tdmrep != nil {
		stored := &checkcmd.File{Name: e.TDMRepURL, Text: tdmrep, Status: http.StatusOK}
		if o.TDMRep, err = cache.New(cache.Options{Fetcher: stored}); err != nil {
			return nil, err
		}
	}
	if e.Reading != "" && e.Reading != policy.DotsRemoved.String() {
		o.Readings = policy.AllReadings
	}
	switch {
	case policy.Reason(e.Reason) == policy.ReasonCrawlDelay:
		// The maximum was less than the delay of the site.
		o.OverMax, o.MaxCrawlDelay = policy.RefuseExcess, max(1, asDuration(e.CrawlAsked)-1)
	case e.CrawlDelay < e.CrawlAsked:
		o.OverMax, o.MaxCrawlDelay = policy.Clamp, max(1, asDuration(e.CrawlDelay))
	}
	return policy.New(o)
}

// compare returns the members of a record that differ from d. It compares decision and reason only
// if robots.txt decided.
func compare(e *trail.Entry, d *policy.Decision) (differs []difference) {
	add := func(member, record, derived string) {
		if !isRecorded(record, derived) {
			differs = append(differs, difference{member, record, derived})
		}
	}
	if explain.ByRobots(policy.Reason(e.Reason)) || refusesUse(e) {
		add("decision", e.Decision, d.Verdict.String())
		add("reason", e.Reason, string(d.Reason))
	}
	add("rule", e.Rule, d.Rule)
	add("line", fmt.Sprint(e.Line), fmt.Sprint(d.Line))
	decided := e.Rule != "" || e.Reason == string(policy.ReasonTooComplex)
	// Earlier versions wrote no reading, or one that did not decide.
	if e.Reading != "" && decided {
		add("reading", e.Reading, d.Form.String())
	}
	add("group", e.Group, d.Group)
	add("agent", e.Agent, d.Token)
	add("crawl_delay_asked_s", fmt.Sprint(e.CrawlAsked), fmt.Sprint(d.Asked.Seconds()))
	if e.CrawlAsked > 0 {
		add("crawl_delay_s", fmt.Sprint(e.CrawlDelay), fmt.Sprint(d.Pace.CrawlDelay.Seconds()))
	}
	derived := explain.Of(d).Usage
	for c := range usage.Everything.All {
		p := c.String()
		was, is := e.Usage[p], derived[p]
		superseded := is.Source == usage.TDMRep && e.TDMReservation != ""
		// In other cases a response header decided.
		if isBefore(was.Source) || is.Outcome == usage.Disallowed.String() && !superseded {
			add("usage "+p, fmt.Sprintf("%s, line %d", was.Outcome, was.Line), fmt.Sprintf("%s, line %d", is.Outcome, is.Line))
			add("statement about "+p, was.Statement, is.Statement)
		}
	}
	return differs
}

// usageOf gives the purposes that a record names, and whether preferences before the response refused the request.
func usageOf(e *trail.Entry) usage.Policy {
	// A tdmrep.json that is too complex refuses requests only with Refuse.
	tooComplex := e.Reason == string(policy.ReasonTooComplex) && e.TDMRepSHA256 != ""
	p := usage.Policy{Refuse: refusesUse(e) || tooComplex, RefuseUnknown: refusesUse(e) && e.UsageSource == ""}
	for name := range e.Usage {
		if c, known := usage.ParseCategory(name); known {
			p.Purposes |= usage.SetOf(c)
		}
	}
	return p
}

// refusesUse reports whether what the site says about uses of the content before the response, or does not say,
// refused the request.
func refusesUse(e *trail.Entry) bool {
	return e.Reason == string(policy.ReasonUsage) && !e.Withheld && (e.UsageSource == "" || isBefore(e.UsageSource))
}

// isBefore reports whether the source of a statement is known before the response.
func isBefore(source string) bool { return source == usage.RobotsTxt || source == usage.TDMRep }

// isRecorded reports whether record is what a record has for the string s: s whole or cut,
// with U+FFFD for each byte that is not UTF-8.
func isRecorded(record, s string) bool {
	text := string([]rune(s))
	if record == text {
		return true
	}
	head, whole, cut := trail.CutText(record)
	return cut && whole == len(s) && strings.HasPrefix(text, head)
}

// userAgentOf returns the User-Agent header of a record, which may be truncated.
func userAgentOf(e *trail.Entry) string {
	head, _, _ := trail.CutText(e.UserAgent)
	return head
}

// notes says what else to know about a decision that was made again.
func notes(e *trail.Entry, d *policy.Decision, token string) (all []string) {
	if token != "" {
		const text = "the configuration set the product token %s (product_token), which the User-Agent header does not have"
		all = append(all, fmt.Sprintf(text, humanize.Printable(token)))
	}
	if !explain.ByRobots(policy.Reason(e.Reason)) && !refusesUse(e) {
		said := "allows"
		if d.Verdict != policy.Allow {
			said = "disallows"
		}
		all = append(all, "robots.txt alone "+said+" the request")
	}
	return all
}

// missing says what the decision may have needed that is not in the record.
func missing(e *trail.Entry) (all []string) {
	if e.Method == http.MethodConnect {
		return nil
	}
	const cut = "the record has only the beginning of the %s of %d bytes, so the decision cannot be re-derived exactly"
	if _, whole := e.RequestURL(); whole > 0 {
		all = append(all, fmt.Sprintf(cut, "URL", whole))
	}
	if _, whole, ok := trail.CutText(e.UserAgent); ok {
		all = append(all, fmt.Sprintf(cut, "User-Agent", whole))
	}
	// Earlier versions had no other form for bytes that are not UTF-8.
	if e.Version < 2 && strings.ContainsRune(e.URL, utf8.RuneError) {
		all = append(all, "the record lacks bytes of the URL that were not UTF-8, so the decision cannot be re-derived exactly")
	}
	if !strings.Contains(e.URL, "?") {
		all = append(all, "the recorded URL has no query string: if audit.query_strings: drop removed it, "+
			"the decision cannot be re-derived exactly")
	}
	return all
}
