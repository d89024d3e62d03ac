package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/policy"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/pace"
)

const (
	maxAsking = 16               // requests at once that may wait for an origin
	maxAsked  = 30 * time.Second // for which one waits
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
	origin, pathQuery, err := explain.ParseURL(q.URL)
	if err != nil {
		return policy.Request{}, fmt.Errorf("url: %w", err)
	}
	r := policy.Request{
		Client: q.Client, Method: q.Method, Origin: origin, PathQuery: pathQuery,
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

// A forecast is what would be decided about a request, and when the request could go.
type forecast struct {
	URL      string `json:"url"`
	Decision string `json:"decision"`
	explain.Explanation
	Signal  string   `json:"robots_content_signal,omitempty"`
	Usage   string   `json:"robots_content_usage,omitempty"`
	Gap     float64  `json:"gap_s,omitempty"`  // between two such requests to the host
	Wait    *float64 `json:"wait_s,omitempty"` // of a request that comes now; only if it is allowed
	Excerpt *excerpt `json:"excerpt,omitempty"`
}

// An excerpt is an explain.Excerpt within bounds.
type excerpt struct {
	Lines      []explain.Line `json:"lines"`
	Agents     []explain.Line `json:"agents"`
	MoreAgents int            `json:"agents_more,omitempty"` // beyond the bound
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
		return s.forecast(&request, &d), nil
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

func (s *server) forecast(r *policy.Request, d *policy.Decision) *forecast {
	x := explain.Of(d)
	f := &forecast{
		URL: r.Origin.String() + r.PathQuery, Decision: d.Verdict.String(), Explanation: x, Signal: x.ContentSignal, Usage: x.ContentUsage,
	}
	if a := d.Ruling.Result; a != nil {
		f.Excerpt = excerptOf(x.Excerpt(string(a.Body)))
	}
	state, _ := s.o.Pacer.Host(d.Pace.Key, d.Pace.BackOffKey)
	f.Gap = gapOf(&d.Pace, &state).Seconds()
	if d.Verdict == policy.Allow {
		f.Wait = new(max(0, time.Until(state.NextSlot).Round(time.Millisecond)).Seconds())
	}
	return f
}

// gapOf is the time between two requests under limits, to a host in a state; zero: they set none.
func gapOf(l *pace.Limits, state *pace.HostState) time.Duration {
	if l.PerSecond <= 0 {
		return 0
	}
	return max(time.Duration(float64(time.Second)/l.PerSecond), l.CrawlDelay, state.Slowed)
}

func excerptOf(e *explain.Excerpt) *excerpt {
	if e == nil {
		return nil
	}
	agents, more := e.Named()
	return &excerpt{clipLines(e.Lines), clipLines(agents), more}
}

// clipLines shortens lines that are longer than people read.
func clipLines(lines []explain.Line) []explain.Line {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i].Text = humanize.Clip(lines[i].Text, humanize.MaxBrief)
	}
	return lines
}
