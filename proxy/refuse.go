package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dunglas/httpsfv"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
)

// noRoomRetry is the Retry-After of a request whose robots.txt found no space in the
// snapshot folder. The folder is searched for files to remove about as often.
const noRoomRetry = 10 * time.Minute

// A problem is what a refused client reads: RFC 9457 with members of ours, or
// the same in a few lines of text.
type problem struct {
	Title      string  `json:"title"`
	Status     int     `json:"status"`
	Detail     string  `json:"detail"`
	URL        string  `json:"url,omitempty"`
	Reason     string  `json:"reason"`
	Entry      string  `json:"entry,omitempty"`
	Because    string  `json:"entry_reason,omitempty"`
	Rule       string  `json:"rule,omitempty"`
	Line       int     `json:"line,omitempty"`
	Reading    string  `json:"reading,omitempty"`
	Read       string  `json:"read_as,omitempty"`
	Group      string  `json:"group,omitempty"`
	Agent      string  `json:"agent,omitempty"`
	Dialect    string  `json:"dialect,omitempty"`
	Robots     string  `json:"robots_url,omitempty"`
	Fetched    string  `json:"robots_fetched,omitempty"`
	FetchedAs  string  `json:"robots_agent,omitempty"`
	Delay      float64 `json:"crawl_delay_s,omitempty"`
	Asked      float64 `json:"crawl_delay_asked_s,omitempty"`
	BackOff    float64 `json:"back_off_s,omitempty"`
	Slowed     float64 `json:"slowed_s,omitempty"`
	RetryAfter int     `json:"retry_after_s,omitempty"`
	Mend       string  `json:"what_to_do,omitempty"`
	ID         string  `json:"id"`
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
		body = append(escapeUnprintable(body), '\n')
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

// escapeUnprintable escapes in a JSON text what a terminal would not print as
// it stands, which encoding/json lets pass.
func escapeUnprintable(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		if unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	return out
}

// explain says what is refused and on what grounds.
func (h *Handler) explain(x *exchange, a answer, err error) problem {
	q, d := &x.record.Request, &x.record.Decision
	p := problem{
		Title: http.StatusText(a.status), Status: a.status, Detail: a.say, Mend: a.mend, ID: x.record.ID,
		Reason: string(a.reason), Agent: d.Token,
	}
	if a.reason == "" {
		p.Reason = string(d.Reason)
		if d.Reason == policy.ReasonDenied {
			p.Entry, p.Because = d.Entry, d.EntryReason
		}
		p.Rule, p.Line, p.Reading, p.Read = d.Rule, d.Line, d.Form.String(), d.Read
		p.Detail, p.Mend = refusalText(d)
		if d.Reason == policy.ReasonIdentity && x.rules.UserAgent != "" {
			p.Mend = "Whoever runs the proxy has to say it in identity.user_agent, which is sent in place of yours, or in identity.from."
		}
	}
	if meantUs(x, err) {
		p.Mend += " " + seeGuide
	}
	if q.Origin.Host != "" && q.Method != http.MethodConnect {
		p.URL = q.Origin.String() + q.PathQuery
	} else if q.Origin.Host != "" {
		p.URL = q.Origin.Addr()
	}
	p.Group = d.Group
	if f := d.Ruling.Result; f != nil {
		p.Robots, p.FetchedAs, p.Dialect = f.URL, f.UserAgent, d.Dialect
	}
	if at := d.Ruling.Fetched(); !at.IsZero() {
		p.Fetched = at.UTC().Format(time.RFC3339)
	}
	p.Delay, p.Asked = d.Pace.CrawlDelay.Seconds(), d.Asked.Seconds()
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		p.RetryAfter = seconds(busy.RetryAfter)
		p.BackOff, p.Slowed = busy.BackOff.Round(time.Millisecond).Seconds(), busy.Slowed.Round(time.Millisecond).Seconds()
	} else if again, ok := errors.AsType[*egress.RetryError](err); ok {
		p.RetryAfter = seconds(time.Until(again.At))
	} else if quota, ok := errors.AsType[*policy.QuotaError](err); ok {
		p.RetryAfter = seconds(time.Until(quota.Until))
	} else if errors.Is(err, audit.ErrNoRoom) {
		p.RetryAfter = seconds(noRoomRetry)
	} else if retry := d.Ruling.Retry; !retry.IsZero() && d.Verdict != policy.Allow {
		if host, _ := h.o.Pacer.Host(d.Pace.Key, ""); host.BackOffUntil.After(retry) {
			retry = host.BackOffUntil // before that the fetch gets no slot
		}
		p.RetryAfter = seconds(time.Until(retry))
	} else if a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests {
		p.RetryAfter = 1 // nothing foretells it
	}
	return p
}

// refusalText puts a refusing decision into words.
func refusalText(d *policy.Decision) (say, mend string) {
	switch d.Reason {
	case policy.ReasonRule:
		if d.Form != 0 {
			return "The site's robots.txt disallows this address for this client, in a form in which servers may read it.",
				"Do not request this address, or send the plain form that you mean. The operator can change robots.readings."
		}
		return "The site's robots.txt disallows this address for this client.",
			"Leave this address out. If the client was taken for another than it is, give it a User-Agent of its own."
	case policy.ReasonTooComplex:
		return "The proxy gave up matching this address against the site's robots.txt: the file has too many rules with \"*\" for an address of this length.",
			"Send a shorter address, or do not request this one."
	case policy.ReasonTunnel:
		return "The site's robots.txt disallows the whole site for this client.",
			"Leave this site out."
	case policy.ReasonUnreachable:
		return "The site was reached but gave no usable robots.txt, so nothing of it may be fetched (RFC 9309 2.3.1.4).",
			"Try again later; the proxy asks for robots.txt again by itself."
	case policy.ReasonDenied:
		return "Whoever runs the proxy keeps this host closed.",
			"Leave this site out."
	case policy.ReasonIdentity:
		return identityText(d.Err)
	case policy.ReasonCrawlDelay:
		return "The site asks for a longer Crawl-delay than the proxy is set to keep.",
			"Whoever runs the proxy can raise robots.max_crawl_delay, or change robots.over_max."
	}
	return "The request was refused.", ""
}

// identityText says what a client has left out of its headers, and how to mend it.
func identityText(lacking error) (say, mend string) {
	if errors.Is(lacking, policy.ErrNoToken) {
		return "The proxy lets no request out that does not say whose it is, and its User-Agent names no product but a browser's.",
			"Send a User-Agent of your own, as in: User-Agent: FooBot/1.0 (+https://foo.example/bot)"
	}
	return "The proxy lets no request out that does not say how somebody can be reached, and neither its User-Agent nor its From does.",
		"Put a web or e-mail address into your User-Agent, as in: User-Agent: FooBot/1.0 (+https://foo.example/bot), or send one as From."
}

// seconds rounds up, and never says zero.
func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// proxyStatus is the field of RFC 9209, which tells machines that the answer
// is not the origin's.
func proxyStatus(a answer, p problem) string {
	const most = 256 // octets of details: some clients take no more than 16 KiB of header
	details := p.Reason
	switch {
	case a.reason == policy.ReasonOrigin: // what kind of failure it was
		details = p.Reason + ": " + a.say
	case p.Entry != "":
		details = p.Reason + ": " + p.Because
	case p.Rule != "":
		details = fmt.Sprintf("%s: %q, line %d, group %s", p.Reason, p.Rule, p.Line, p.Group)
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

// text is the problem in a few lines. Strangers' strings are quoted where they
// are not plain.
func (p problem) text() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "robotsproxy: %d %s\n%s\n\n", p.Status, p.Title, p.Detail)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s %s\n", name+":", value)
		}
	}
	line("address", plain(p.URL))
	line("entry", plain(p.Entry))
	line("reason", p.Because)
	if p.Rule != "" {
		line("rule", fmt.Sprintf("Disallow: %s (line %d)", plain(p.Rule), p.Line))
	}
	if p.Reading != "" {
		line("read as", plain(p.Read)+" ("+p.Reading+")")
	}
	line("group", plain(p.Group))
	line("agent", plain(p.Agent))
	line("dialect", p.Dialect)
	line("robots.txt", plain(p.Robots))
	line("fetched", p.Fetched)
	line("fetched as", plain(p.FetchedAs))
	if p.Asked > 0 {
		line("crawl-delay", fmt.Sprintf("%g s (asked: %g s)", p.Delay, p.Asked))
	}
	if p.BackOff > 0 {
		line("left alone", fmt.Sprintf("for another %g s, after a 429 or 503", p.BackOff))
	}
	if p.Slowed > 0 {
		line("slowed", fmt.Sprintf("to one request in %g s, since its answers are slow", p.Slowed))
	}
	if p.RetryAfter > 0 {
		line("try again in", fmt.Sprintf("%d s", p.RetryAfter))
	}
	line("what to do", p.Mend)
	line("id", p.ID)
	return []byte(b.String())
}

// plain gives a stranger's string as it is where it is printable, else quoted.
func plain(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}
