package proxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
)

// noRoomRetry is the Retry-After of a request whose robots.txt found no space in the
// snapshot folder. The folder is searched for files to remove about as often.
const noRoomRetry = 10 * time.Minute

// A problem is what a refused client reads: RFC 9457 with members of the audit's record, or
// the same in a few lines of text.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	URL    string `json:"url,omitempty"`
	explain.Explanation
	RetryAfter int    `json:"retry_after_s,omitempty"`
	Advice     string `json:"what_to_do,omitempty"`
	ID         string `json:"id"`
}

// newProblem makes a problem of an answer and of what is known of the decision. ownAgent says
// that the operator chooses the User-Agent header.
func newProblem(a answer, x explain.Explanation, ownAgent bool, id string) problem {
	x.Reason = cmp.Or(a.reason, x.Reason)
	return problem{
		Title: http.StatusText(a.status), Status: a.status, Detail: cmp.Or(a.detail, x.Sentence()),
		Explanation: x.ForClient(), Advice: cmp.Or(a.advice, x.Advice(ownAgent)), ID: id,
	}
}

// refuse answers the client. The record has been written.
func (h *Handler) refuse(x *exchange, a answer, err error) {
	p := h.explain(x, a, err)
	x.headSent = true
	if a.status == statusClientLeft || x.early.left {
		panic(http.ErrAbortHandler)
	}
	header := x.client.Header()
	clear(header)
	maps.Copy(header, ownHeader(a, p))
	if a.status == http.StatusProxyAuthRequired {
		header.Set("Proxy-Authenticate", challenge)
	}
	if a.status == http.StatusMethodNotAllowed { // RFC 9110 15.5.6
		header.Set("Allow", "GET, HEAD")
	}
	body := p.text()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	if acceptsJSON(x.request.Header["Accept"]) {
		header.Set("Content-Type", "application/problem+json")
		body, _ = json.Marshal(p) // strings and numbers: cannot fail
		body = append(audit.EscapeJSON(body), '\n')
	}
	if errors.Is(err, memory.ErrShort) && x.request.ProtoMajor == 2 {
		body = nil // the stream would take memory until its client lets the body through (RFC 9113 5.2)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	x.last()
	if a.reason == policy.ReasonLimit || a.reason == policy.ReasonAuth && tunnelOf(x.request) != nil { // a login goes with CONNECT
		header.Set("Connection", "close")
	}
	x.watch.silent.Store(false) // the answer has a time of its own
	x.write()
	x.watch.begin(x)
	defer x.watch.stop()
	x.client.WriteHeader(a.status)
	if x.request.Method != http.MethodHead && len(body) > 0 {
		x.client.Write(body) // the record stands, whether the client reads on or not
		http.NewResponseController(x.client).Flush()
	}
}

// ownHeader is what all answers of our own have.
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

// explain says what is refused and on what grounds.
func (h *Handler) explain(x *exchange, a answer, err error) problem {
	q, d := &x.record.Request, &x.record.Decision
	p := newProblem(a, explain.Of(d), x.rules.UserAgent != "", x.record.ID)
	p.CrawlDelay = d.Pace.CrawlDelay.Seconds() // of a request for robots.txt too, which asks for none itself
	if meantUs(x, err) {
		p.Advice += " " + seeGuide
	}
	if q.Origin.Host != "" && q.Method != http.MethodConnect {
		p.URL = q.Origin.String() + q.PathQuery
	} else if q.Origin.Host != "" {
		p.URL = q.Origin.Addr()
	}
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		p.BackOff, p.Slowed = busy.BackOff.Round(time.Millisecond).Seconds(), busy.Slowed.Round(time.Millisecond).Seconds()
	}
	p.RetryAfter = h.retryAfter(a, d, err)
	return p
}

// retryAfter gives how many seconds a refused client has to wait before it tries again; 0: that
// is not known, or would not help.
func (h *Handler) retryAfter(a answer, d *policy.Decision, err error) int {
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		return seconds(busy.RetryAfter)
	} else if again, ok := errors.AsType[*egress.RetryError](err); ok {
		return seconds(time.Until(again.At))
	} else if quota, ok := errors.AsType[*policy.QuotaError](err); ok {
		return seconds(time.Until(quota.Until))
	} else if errors.Is(err, audit.ErrNoSpace) {
		return seconds(noRoomRetry)
	} else if retry := d.Ruling.Retry; !retry.IsZero() && d.Verdict != policy.Allow {
		if host, _ := h.o.Pacer.Host(d.Pace.Key, ""); host.BackOffUntil.After(retry) {
			retry = host.BackOffUntil // before that the fetch gets no slot
		}
		return seconds(time.Until(retry))
	} else if a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests {
		return 1 // nothing foretells it
	}
	return 0
}

// seconds rounds up, and never says zero.
func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// proxyStatus is the field of RFC 9209, which tells machines that the answer
// is not the origin's.
func proxyStatus(a answer, p problem) string {
	const most = 256 // bytes of details: some clients take no more than 16 KiB of header
	details := string(p.Reason)
	switch {
	case a.reason == policy.ReasonOrigin: // what kind of failure it was
		details += ": " + a.detail
	case p.Entry != "":
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
		if r < ' ' || r > '~' { // RFC 9651 3.3.3: strings are printable ASCII
			return '?'
		}
		return r
	}, details)))
	if err != nil {
		return status
	}
	return status + "; details=" + quoted
}

// acceptsJSON says whether a client asked for JSON by name.
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

// text is the problem in a few lines.
func (p *problem) text() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "robotsproxy: %d %s\n%s\n\n", p.Status, p.Title, p.Detail)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-13s %s\n", name+":", value)
		}
	}
	line("url", humanize.Printable(p.URL))
	for _, f := range slices.Concat(p.Decided(), p.Rested()) {
		line(f.Name, f.Value)
	}
	if p.RetryAfter > 0 {
		line("try again in", fmt.Sprintf("%d s", p.RetryAfter))
	}
	line("what to do", p.Advice)
	line("id", p.ID)
	return []byte(b.String())
}
