package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

const (
	maxAsking  = 16               // requests at once that may wait for an origin
	maxAsked   = 30 * time.Second // for which one waits
	around     = 3                // lines of a file that are shown before and behind the one that decided
	maxAgents  = 20               // lines that name a group which are shown
	maxExcerpt = 500              // octets of each line
)

// An inquiry is about a request that nobody has sent.
type inquiry struct {
	URL       string `json:"url"`
	UserAgent string `json:"user_agent"`
	Method    string `json:"method"`
	Client    string `json:"client"`
	From      string `json:"from"`
	Dest      string `json:"dest"`
}

// request reads an inquiry as the proxy would read the request. Its client is one of the
// configuration, or an address, as whose others ask.
func (s *server) request(q *inquiry) (policy.Request, error) {
	if _, err := netip.ParseAddr(q.Client); err != nil && q.Client != "" && !slices.Contains(s.o.Clients(), q.Client) {
		return policy.Request{}, errors.New("client is none of the configuration's, and no address")
	}
	if !strings.Contains(q.URL, "://") { // url.Parse would take "site.test:8000" for a scheme
		return policy.Request{}, errors.New("url has no scheme: an address begins with http://, https:// or ftp://")
	}
	u, err := url.Parse(q.URL)
	if err != nil {
		return policy.Request{}, errors.New("url cannot be read")
	}
	if u.User != nil {
		return policy.Request{}, errors.New("url has credentials, which the proxy refuses")
	}
	origin, err := robots.ParseOrigin(u.Scheme, u.Host)
	if err != nil {
		return policy.Request{}, fmt.Errorf("url: %w", err)
	}
	r := policy.Request{
		Client: q.Client, Method: q.Method, Origin: origin, PathQuery: u.RequestURI(),
		UserAgent: q.UserAgent, From: q.From, Dest: q.Dest,
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	switch {
	case !httpguts.ValidHeaderFieldName(r.Method): // a token, as a method is
		return r, errors.New("method is none")
	case r.Method == http.MethodConnect:
		return r, errors.New("a CONNECT is judged by the requests that come in its tunnel: ask about these")
	}
	for name, value := range map[string]string{"user_agent": r.UserAgent, "from": r.From, "dest": r.Dest} {
		if !httpguts.ValidHeaderFieldValue(value) {
			return r, fmt.Errorf("%s cannot be sent in a header", name)
		}
	}
	return r, nil
}

// A foresight is a Decision in the words of the audit, with what else helps to see
// why, and when the request could go.
type foresight struct {
	URL         string   `json:"url"`
	Decision    string   `json:"decision"`
	Reason      string   `json:"reason"`
	Entry       string   `json:"entry,omitempty"`
	EntryReason string   `json:"entry_reason,omitempty"`
	Rule        string   `json:"rule,omitempty"`
	Line        int      `json:"line,omitempty"`
	Reading     string   `json:"reading,omitempty"`
	Read        string   `json:"read_as,omitempty"`
	Group       string   `json:"group,omitempty"`
	Agent       string   `json:"agent,omitempty"`
	Robots      string   `json:"robots_url,omitempty"`
	Fetched     string   `json:"robots_fetched,omitempty"`
	FetchedAs   string   `json:"robots_agent,omitempty"`
	SHA256      string   `json:"robots_sha256,omitempty"`
	Dialect     string   `json:"dialect,omitempty"`
	Stale       bool     `json:"robots_stale,omitempty"`
	Signal      string   `json:"robots_content_signal,omitempty"`
	Usage       string   `json:"robots_content_usage,omitempty"`
	CrawlDelay  *float64 `json:"crawl_delay_s,omitempty"`
	Asked       *float64 `json:"crawl_delay_asked_s,omitempty"`
	Gap         float64  `json:"gap_s,omitempty"`  // between two such requests to the host
	Wait        *float64 `json:"wait_s,omitempty"` // that one who asks now would have; with allow
	Excerpt     *excerpt `json:"excerpt,omitempty"`
	Error       string   `json:"error,omitempty"`
}

// An excerpt is what stands in a file around the rule that decided, and who its group is for.
type excerpt struct {
	Lines      []excerptLine `json:"lines"`
	Agents     []excerptLine `json:"agents"`
	MoreAgents int           `json:"agents_more,omitempty"` // beyond the bound
}

type excerptLine struct {
	Line    int    `json:"line"`
	Text    string `json:"text"`
	Decides bool   `json:"decides,omitempty"`
}

// explain answers what would be decided of a request, by asking who decides.
func (s *server) explain(w http.ResponseWriter, r *http.Request) {
	var q inquiry
	if !body(w, r, &q) {
		return
	}
	request, err := s.request(&q)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.ask(w, r, func(ctx context.Context) (any, error) {
		d := s.o.Explain(ctx, request)
		return s.foresee(&request, &d), nil
	})
}

// ask answers with what f gives, which may wait for an origin. What f has had fetched by
// then is not lost.
func (s *server) ask(w http.ResponseWriter, r *http.Request, f func(context.Context) (any, error)) {
	var got any
	var err error
	if unasked := s.patiently(w, r, func(ctx context.Context) { got, err = f(ctx) }); unasked != nil {
		problem(w, unasked.status, unasked.why)
		return
	}
	if err != nil {
		problem(w, http.StatusServiceUnavailable, "There is no robots.txt to be had.", err.Error())
		return
	}
	writeJSON(w, http.StatusOK, got)
}

// An impatience is why what waits for an origin has come to nothing.
type impatience struct {
	status int
	why    string
}

var (
	tooMany = &impatience{http.StatusServiceUnavailable, fmt.Sprintf("%d such requests wait for an answer, and there may be no more.", maxAsking)}
	tooLate = &impatience{http.StatusGatewayTimeout, fmt.Sprintf("The site has not answered for its robots.txt within %s; the fetch goes on.", maxAsked)}
)

// patiently does what may wait for an origin, for a while and not too much at once; nil:
// it is done. Else Retry-After is set where it helps.
func (s *server) patiently(w http.ResponseWriter, r *http.Request, do func(context.Context)) *impatience {
	if !enter(s.asking) {
		w.Header().Set("Retry-After", "5")
		return tooMany
	}
	defer leave(s.asking)
	at, end := http.NewResponseController(w), time.Now().Add(maxAsked+timeout)
	at.SetReadDeadline(end) // the server's own are of what takes no time
	at.SetWriteDeadline(end)
	ctx, cancel := context.WithTimeout(r.Context(), maxAsked)
	defer cancel()
	if do(ctx); ctx.Err() != nil {
		return tooLate
	}
	return nil
}

func (s *server) foresee(r *policy.Request, d *policy.Decision) *foresight {
	x := &foresight{
		URL: r.Origin.String() + r.PathQuery, Decision: d.Verdict.String(), Reason: string(d.Reason),
		Entry: d.Entry, EntryReason: d.EntryReason, Rule: d.Rule, Line: d.Line, Reading: d.Form.String(), Read: d.Read, Group: d.Group, Agent: d.Token,
		Signal: d.Signals.String(), Usage: d.Usage,
	}
	if a := d.Ruling.Result; a != nil {
		x.Robots, x.Fetched, x.FetchedAs, x.SHA256 = a.URL, stamp(d.Ruling.Fetched()), a.UserAgent, a.SHA256
		x.Dialect, x.Stale = d.Dialect, d.Ruling.Stale
		x.Excerpt = excerptOf(string(a.Body), d.Dialect, d.Line)
	}
	if d.Asked > 0 {
		x.CrawlDelay, x.Asked = new(d.Pace.CrawlDelay.Seconds()), new(d.Asked.Seconds())
	}
	if d.Err != nil {
		x.Error = d.Err.Error()
	}
	state, _ := s.o.Pacer.Host(d.Pace.Key, d.Pace.BackOffKey)
	x.Gap = gapOf(&d.Pace, &state).Seconds()
	if d.Verdict == policy.Allow {
		x.Wait = new(max(0, time.Until(state.NextSlot).Round(time.Millisecond)).Seconds())
	}
	return x
}

// gapOf is the time between two requests under limits, to a host in a state; zero: they set none.
func gapOf(l *pace.Limits, state *pace.HostState) time.Duration {
	if l.PerSecond <= 0 {
		return 0
	}
	return max(time.Duration(float64(time.Second)/l.PerSecond), l.CrawlDelay, state.Slowed)
}

// excerptOf shows the lines around one; nil where none decided.
func excerptOf(text, dialect string, line int) *excerpt {
	d, err := robots.DialectByName(dialect)
	if err != nil || line <= 0 {
		return nil
	}
	near, agents := robots.Excerpt(text, d, line, around)
	x := &excerpt{Lines: shownLines(near, line)}
	if more := len(agents) - maxAgents; more > 0 {
		agents, x.MoreAgents = agents[:maxAgents], more
	}
	x.Agents = shownLines(agents, 0)
	return x
}

func shownLines(lines []robots.Line, decides int) []excerptLine {
	all := []excerptLine{}
	for _, l := range lines {
		all = append(all, excerptLine{l.Number, cutLine(l.Text), l.Number == decides})
	}
	return all
}

// cutLine bounds a line, between two characters.
func cutLine(text string) string {
	if len(text) <= maxExcerpt {
		return text
	}
	end := maxExcerpt
	for end > maxExcerpt-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
