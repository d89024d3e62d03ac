package proxy

import (
	"cmp"
	"fmt"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"robotsproxy/policy"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// A problem is what a refused client reads: RFC 9457 with members of the audit's record, or
// a few lines of text with the same content.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	URL    string `json:"url,omitempty"`
	explain.Explanation
	RetryAfter int    `json:"retry_after_s,omitempty"`
	Advice     string `json:"what_to_do,omitempty"`
	ID         string `json:"id"`

	// cause is why robots.txt could not be fetched; "": it could.
	cause string
}

// newProblem returns the problem of an answer and of the explanation of a decision. ownAgent reports
// whether the operator chooses the User-Agent header.
func newProblem(a answer, e explain.Explanation, ownAgent bool, id string) problem {
	e.Reason = cmp.Or(a.shown(), e.Reason)
	return problem{
		Title: http.StatusText(a.status), Status: a.status, Detail: cmp.Or(a.detail, e.Sentence()),
		Explanation: e.ForClient(), Advice: cmp.Or(a.advice, e.Advice(ownAgent)), ID: id, cause: e.Cause(),
	}
}

// ownHeader returns the header that all responses of the proxy itself have.
func ownHeader(a answer, p problem) http.Header {
	h := http.Header{
		"Proxy-Status":           {proxyStatus(a, p)},
		"Cache-Control":          {"no-store"},
		"X-Content-Type-Options": {"nosniff"},
	}
	if p.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(p.RetryAfter)}
	}
	return h
}

// seconds rounds d up to whole seconds, at least 1.
func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// proxyStatus returns the value of Proxy-Status (RFC 9209), by which programs recognise responses
// of the proxy.
func proxyStatus(a answer, p problem) string {
	// Details have at most so many bytes: some clients take no more than 16 KiB of header.
	const most = 256
	details := string(p.Reason)
	switch {
	// The details say what kind of failure it was.
	case a.shown() == policy.ReasonOrigin:
		details += ": " + a.detail
	case a.reason.Info().Held:
		details += ": " + p.Detail
	case p.cause != "":
		details += ": " + p.cause
	case p.EntryReason != "":
		details += ": " + p.EntryReason
	case p.Rule != "":
		details += fmt.Sprintf(": %q, line %d, group %s", p.Rule, p.Line, p.Group)
	}
	details = details[:min(len(details), most)]
	status := "robotsproxy"
	if a.token != "" {
		status += "; error=" + a.token
	}
	quoted, err := httpsfv.Marshal(httpsfv.NewItem(strings.Map(func(r rune) rune {
		// Strings are printable ASCII (RFC 9651 3.3.3).
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, details)))
	if err != nil {
		return status
	}
	return status + "; details=" + quoted
}

// acceptsJSON reports whether a client explicitly accepts JSON.
func acceptsJSON(accept []string) bool {
	for _, list := range accept {
		for item := range strings.SplitSeq(list, ",") {
			media, params, err := mime.ParseMediaType(item)
			if err != nil || media != "application/json" && media != "application/problem+json" {
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err != nil || q > 0 {
				return true
			}
		}
	}
	return false
}

// text returns the problem as a few lines of text.
func (p *problem) text() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "robotsproxy: %d %s\n%s\n\n", p.Status, p.Title, p.Detail)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-13s %s\n", name+":", value)
		}
	}
	line("url", humanize.Printable(p.URL))
	for _, f := range slices.Concat(p.Decided(), p.Basis()) {
		line(f.Name, f.Value)
	}
	if p.RetryAfter > 0 {
		line("try again in", fmt.Sprintf("%d s", p.RetryAfter))
	}
	line("what to do", p.Advice)
	line("id", p.ID)
	return []byte(b.String())
}
