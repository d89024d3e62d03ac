package checkcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
)

// maxOthers is how many rules that did not win are shown.
const maxOthers = 3

// Where the product token of a finding is from.
const (
	fromConfig = "identity.product_token"
	fromHeader = "user_agent"
	fromNobody = "none"
)

// A Finding is what check says of one address; as JSON, in the audit's words.
type Finding struct {
	URL    string `json:"url"`
	Allow  bool   `json:"allow"`
	Reason string `json:"reason,omitempty"`
	entry
	Rule string `json:"rule,omitempty"`
	Line int    `json:"line,omitempty"`
	reading
	Asker
	Delay float64 `json:"crawl_delay_s,omitempty"`
	Asked float64 `json:"crawl_delay_asked_s,omitempty"`
	Source
	wishes
	Others []other `json:"others,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// An entry is one of hosts that decided.
type entry struct {
	Match   string `json:"entry,omitempty"`
	Because string `json:"entry_reason,omitempty"`
}

// A reading is the form of the path that decided, if that is not the path as it was given.
type reading struct {
	Reading string `json:"reading,omitempty"`
	Read    string `json:"read_as,omitempty"`
}

// An Asker is whom the judgement is for.
type Asker struct {
	Group     string   `json:"group,omitempty"`
	Agent     string   `json:"agent,omitempty"`
	AgentFrom string   `json:"agent_from,omitempty"`
	Agents    []string `json:"agents,omitempty"`
	Header    string   `json:"-"` // the User-Agent header
}

// A Source is what the judgement rests on.
type Source struct {
	Dialect string `json:"dialect,omitempty"`
	Robots  string `json:"robots_url,omitempty"`
	Fetched string `json:"robots_fetched,omitempty"`
	Agent   string `json:"robots_agent,omitempty"` // the User-Agent it was fetched with
	Status  int    `json:"robots_status,omitempty"`
	SHA256  string `json:"robots_sha256,omitempty"` // of what was read
	Cut     bool   `json:"robots_cut,omitempty"`    // there may be more than is read
	Barred  bool   `json:"-"`                       // a redirect leads to an address that is disallowed there
	Note    string `json:"-"`                       // in words: what else there is to know of the fetch
	Means   string `json:"-"`                       // likewise: what came of it
}

// wishes are what the file says beside its rules.
type wishes struct {
	Sitemaps []string `json:"sitemaps,omitempty"`
	Licenses []string `json:"licenses,omitempty"`
	Signals  signals  `json:"content_signals,omitzero"`
	Usage    string   `json:"content_usage,omitempty"`
}

// signals are the members of a Content-Signal line.
type signals struct {
	Search  string `json:"search,omitempty"`
	AIInput string `json:"ai-input,omitempty"`
	AITrain string `json:"ai-train,omitempty"`
}

// An other is a rule that did not decide.
type other struct {
	Rule    string `json:"rule"`
	Allow   bool   `json:"allow"`
	Line    int    `json:"line"`
	Matches bool   `json:"matches"`
}

// A checker explains judgements.
type checker struct {
	engine    *policy.Engine
	userAgent string                 // who asks
	from      string                 // likewise: the From header
	file      *OneFile               // asked instead of the origins; nil: they are
	sealed    func(host string) bool // its HTTPS is not opened
	maxURL    int                    // bytes, from limits.url
}

// newChecker makes one that asks the origins, or file where there is one; done
// ends it.
func newChecker(cfg config.Config, file *OneFile) (c *checker, done func(), err error) {
	c = &checker{userAgent: cfg.Identity.UserAgent, from: cfg.Identity.From, file: file, maxURL: int(cfg.Limits.URL)}
	b, done, err := checkBook(cfg, file, func() *policy.Engine { return c.engine })
	if err != nil {
		return nil, nil, err
	}
	if c.engine, err = daemon.NewEngine(cfg, b); err == nil {
		c.sealed, err = daemon.Passthrough(cfg)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return c, done, nil
}

// answer explains each address to people, and gives the exit status.
func (c *checker) answer(ctx context.Context, out io.Writer, urls []string) (status int, err error) {
	colours, gap := cli.Colourful(out), ""
	for _, u := range urls {
		found := c.explain(ctx, u)
		status = max(status, found.status())
		if _, err := io.WriteString(out, gap+found.text(colours)); err != nil {
			return 0, err
		}
		gap = "\n"
	}
	return status, nil
}

// answerJSON is answer for programs.
func (c *checker) answerJSON(ctx context.Context, out io.Writer, urls []string) (status int, err error) {
	lines := cli.NewJSONLines(out)
	for _, u := range urls {
		found := c.explain(ctx, u)
		status = max(status, found.status())
		if err := lines.Write(found); err != nil {
			return 0, err
		}
	}
	return status, nil
}

func (c *checker) explain(ctx context.Context, address string) Finding {
	f := Finding{URL: address}
	r, err := c.request(address)
	if err != nil {
		f.Error = err.Error()
		return f
	}
	judge := c.engine.Decide
	if r.Origin.Scheme == "https" && c.sealed(r.Origin.Host) {
		judge = c.engine.DecideTunnel // as the proxy does: all it would see is the host
		r.From = ""                   // and nothing that it sends is in there
	}
	d := judge(ctx, r)
	f.Allow, f.Reason = d.Verdict == policy.Allow, string(d.Reason)
	f.entry = entry{d.Entry, d.EntryReason}
	f.Rule, f.Line = d.Rule, d.Line
	f.reading = reading{d.Form.String(), d.Read}
	f.Delay, f.Asked = d.Pace.CrawlDelay.Seconds(), d.Asked.Seconds()
	switch {
	case errors.Is(d.Err, egress.ErrForbiddenAddr):
		f.Reason = string(policy.ReasonAddress)
	case errors.Is(d.Err, egress.ErrForbiddenPort):
		f.Reason = string(policy.ReasonPort)
	}
	if d.Err != nil {
		f.Error = d.Err.Error()
	}
	x := c.engine.Reading(r, d)
	f.Asker = askerOf(r, d, x)
	f.Source = c.sourceOf(d)
	f.Dialect = x.Dialect.Name
	f.wishes = wishesOf(d, x)
	f.Others = othersOf(x)
	return f
}

// request reads an address as the proxy would.
func (c *checker) request(address string) (policy.Request, error) {
	if !strings.Contains(address, "://") { // url.Parse would take "site.test:8000" for a scheme
		return policy.Request{}, errors.New("no scheme: an address begins with http://, https:// or ftp://")
	}
	u, err := url.Parse(address)
	if err != nil {
		return policy.Request{}, err
	}
	origin, err := robots.ParseOrigin(u.Scheme, u.Host)
	switch {
	case err != nil:
	case u.User != nil:
		err = errors.New("credentials in the address")
	case len(origin.String())+len(u.RequestURI()) > c.maxURL:
		err = fmt.Errorf("the URL has more than %d bytes (limits.url)", c.maxURL)
	case origin.Scheme == "ftp":
		err = ftp.CheckPath(u.RequestURI())
	}
	return policy.Request{Method: "GET", Origin: origin, PathQuery: u.RequestURI(), UserAgent: c.userAgent, From: c.from}, err
}

func askerOf(r policy.Request, d policy.Decision, x policy.Reading) Asker {
	a := Asker{Group: d.Group, Agent: d.Token, AgentFrom: fromHeader, Agents: x.Tokens, Header: r.UserAgent}
	switch {
	case x.Source == policy.FromOptions:
		a.AgentFrom = fromConfig
	case len(x.Tokens) == 0:
		a.AgentFrom = fromNobody
	}
	return a
}

func (c *checker) sourceOf(d policy.Decision) Source {
	answer := d.Ruling.Result
	if answer == nil {
		return Source{}
	}
	s := Source{Robots: answer.URL, Agent: answer.UserAgent, SHA256: answer.SHA256, Cut: len(answer.Body) >= robots.MaxBytes, Means: meaning(d.Ruling)}
	if c.file != nil {
		return s // nothing was fetched
	}
	s.Status, s.Barred = answer.Status, answer.RedirectDisallowed
	if answer.RedirectDisallowed && d.Ruling.Err == nil { // else that is the finding's error
		s.Note = answer.Err.Error()
	}
	if at := d.Ruling.Fetched(); !at.IsZero() {
		s.Fetched = at.UTC().Format(time.RFC3339)
	}
	return s
}

func wishesOf(d policy.Decision, x policy.Reading) wishes {
	s := x.Group.ContentSignals()
	w := wishes{
		Sitemaps: d.Ruling.File.Sitemaps(),
		Licenses: d.Ruling.File.Licenses(),
		Signals:  signals{s.Search.String(), s.AIInput.String(), s.AITrain.String()},
	}
	if x.PathQuery != "" {
		w.Usage = x.Group.ContentUsage(x.PathQuery)
	}
	return w
}

// othersOf are the rules that came nearest to deciding.
func othersOf(x policy.Reading) []other {
	if x.PathQuery == "" {
		return nil
	}
	var others []other
	for _, v := range x.Group.RelatedRules(x.PathQuery, maxOthers) {
		others = append(others, other{v.Rule, v.Allow, v.Line, v.Matches})
	}
	return slices.Clip(others)
}

// status is what this finding alone would make the exit status.
func (f *Finding) status() int {
	switch policy.Reason(f.Reason) {
	case "", policy.ReasonUnreachable, policy.ReasonOrigin, policy.ReasonClient, policy.ReasonTooComplex, policy.ReasonAddress, policy.ReasonPort:
		return exitUnknown
	}
	if f.Allow {
		return 0
	}
	return exitDisallowed
}
