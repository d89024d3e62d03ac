package admin

import (
	"cmp"
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
	// maxOriginWaits bounds the requests that wait for an origin at the same time.
	maxOriginWaits = 16
	// originWaitTimeout bounds the wait of one request.
	originWaitTimeout = 30 * time.Second
)

// An explainRequest describes a request that has not been sent.
type explainRequest struct {
	URL       string `json:"url"`
	UserAgent string `json:"user_agent"`
	Method    string `json:"method"`
	Client    string `json:"client"`
	From      string `json:"from"`
	Dest      string `json:"dest"`
}

// policyRequest parses an explainRequest as the proxy would parse the request itself. The
// client is the name of a configured client, or an address.
func (s *Server) policyRequest(q *explainRequest) (policy.Request, error) {
	if _, err := netip.ParseAddr(q.Client); err != nil && q.Client != "" && !slices.Contains(s.opts.Clients(), q.Client) {
		return policy.Request{}, errors.New("client: must be the name of a configured client or an IP address")
	}
	method := cmp.Or(q.Method, http.MethodGet)
	target, err := explain.ParseURL(method, q.URL)
	if err != nil {
		return policy.Request{}, fmt.Errorf("url: %w", err)
	}
	r := policy.Request{Client: q.Client, Method: method, Target: target, UserAgent: q.UserAgent, From: q.From, Dest: q.Dest}
	switch {
	// A method is a token, as a field name is.
	case !httpguts.ValidHeaderFieldName(r.Method):
		return r, errors.New("method: invalid method")
	case r.Method == http.MethodConnect:
		return r, errors.New("method: CONNECT cannot be explained; explain the requests inside the tunnel")
	}
	for name, value := range map[string]string{"user_agent": r.UserAgent, "from": r.From, "dest": r.Dest} {
		if !httpguts.ValidHeaderFieldValue(value) {
			return r, fmt.Errorf("%s: invalid as the value of a header", name)
		}
	}
	return r, nil
}

// An explainResponse is the decision on a request, and when the request could be sent.
type explainResponse struct {
	URL      string `json:"url"`
	Decision string `json:"decision"`
	explain.Explanation
	Signal string `json:"robots_content_signal,omitempty"`
	Usage  string `json:"robots_content_usage,omitempty"`

	// Gap is the time between two such requests to the host.
	Gap float64 `json:"gap_s,omitempty"`

	// Wait is that of a request that comes now; nil: the request is not allowed.
	Wait    *float64 `json:"wait_s,omitempty"`
	Excerpt *excerpt `json:"excerpt,omitempty"`
}

// An excerpt is a bounded [explain.Excerpt].
type excerpt struct {
	Lines  []explain.Line `json:"lines"`
	Agents []explain.Line `json:"agents"`

	// MoreAgents is the number of agents that are left out.
	MoreAgents int `json:"agents_more,omitempty"`
}

// explain answers how the proxy would decide a request.
func (s *Server) explain(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	var q explainRequest
	if err := decodeBody(w, r, &q); err != nil {
		return nil, err
	}
	request, err := s.policyRequest(&q)
	if err != nil {
		return nil, err
	}
	return s.afterWait(w, r, func(ctx context.Context) (any, error) {
		d, wait := s.opts.Explain(ctx, request)
		return s.newExplainResponse(&request, &d, wait), nil
	})
}

// afterWait returns the result of f, which may wait for an origin. A fetch that f has started goes on after a timeout.
func (s *Server) afterWait(w http.ResponseWriter, r *http.Request, f func(context.Context) (any, error)) (result any, err error) {
	if failure := s.waitForOrigin(w, r, func(ctx context.Context) { result, err = f(ctx) }); failure != nil {
		return nil, failure
	}
	if err != nil {
		return nil, newProblem(http.StatusServiceUnavailable, "The proxy could not get the robots.txt.", err.Error())
	}
	return result, nil
}

var (
	tooManyWaits = newProblem(http.StatusServiceUnavailable,
		fmt.Sprintf("%d requests already wait for origins. Try again in a moment.", maxOriginWaits))
	waitTimedOut = newProblem(http.StatusGatewayTimeout,
		fmt.Sprintf("The site did not send its robots.txt within %s. The fetch continues.", originWaitTimeout))
)

// waitForOrigin calls f, which may wait for an origin, with a time limit. It returns nil if f
// has a result. If too many requests wait already, it sets Retry-After and does not call f.
func (s *Server) waitForOrigin(w http.ResponseWriter, r *http.Request, f func(context.Context)) *problemDetails {
	if !s.waitSlots.tryAcquire() {
		w.Header().Set("Retry-After", "5")
		return tooManyWaits
	}
	defer s.waitSlots.release()
	extendDeadlines(w, originWaitTimeout+requestTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), originWaitTimeout)
	defer cancel()
	if f(ctx); ctx.Err() != nil {
		return waitTimedOut
	}
	return nil
}

func (s *Server) newExplainResponse(r *policy.Request, d *policy.Decision, wait time.Duration) *explainResponse {
	x := explain.Of(d)
	f := &explainResponse{
		URL: r.Target.String(), Decision: d.Verdict.String(), Explanation: x, Signal: x.ContentSignal, Usage: x.ContentUsage,
	}
	if a := d.Ruling.Result; a != nil {
		f.Excerpt = newExcerpt(x.Excerpt(string(a.Body)))
	}
	state, _ := s.opts.Pacer.Host(d.Pace.Key, d.Pace.BackOffKey)
	f.Gap = requestGap(&d.Pace, &state).Seconds()
	if d.Verdict == policy.Allow {
		f.Wait = new(wait.Round(time.Millisecond).Seconds())
	}
	return f
}

// requestGap returns the time between two requests under limits to a host in the given state.
// Zero means that the limits set none.
func requestGap(l *pace.Limits, state *pace.HostState) time.Duration {
	if l.PerSecond <= 0 {
		return 0
	}
	return max(l.Interval(), state.Slowed)
}

func newExcerpt(e *explain.Excerpt) *excerpt {
	if e == nil {
		return nil
	}
	agents, more := e.Named()
	return &excerpt{clipLines(e.Lines), clipLines(agents), more}
}

// clipLines returns the lines with long texts shortened.
func clipLines(lines []explain.Line) []explain.Line {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i].Text = humanize.Clip(lines[i].Text, humanize.MaxBrief)
	}
	return lines
}
