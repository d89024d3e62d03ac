package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/proxy/inbound"
)

// dial returns err as the error of a failed dial.
func dial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// answersToErrors maps each kind of failure to the response that clients get.
var answersToErrors = []struct {
	name   string
	err    error
	status int
	token  string
	reason policy.Reason
}{
	{"a refusing decision", refusedError{policy.ReasonRule}, 403, "http_request_denied", policy.ReasonRule},
	{"a decision without a reason", refusedError{}, 403, "", ""},
	{"bad credentials (RFC 9110 15.5.8)", policy.ErrLogin, 407, "", policy.ReasonAuth},
	{"an unknown client", policy.ErrStranger, 403, "http_request_denied", policy.ReasonAuth},
	{"too many passwords to check", policy.ErrTooManyLogins, 429, "connection_limit_reached", policy.ReasonAuth},
	{"forbidden address, found at the dial", dial(egress.ErrForbiddenAddr), 403, "destination_ip_prohibited", policy.ReasonAddress},
	{"a listener of the proxy's own", dial(egress.ErrOwnListener), 403, "destination_ip_prohibited", policy.ReasonAddress},
	{"forbidden port", egress.ErrForbiddenPort, 403, "destination_ip_prohibited", policy.ReasonPort},
	{"too long a wait", &pace.BusyError{}, 429, "connection_limit_reached", policy.ReasonPace},
	{"a host in back-off", &pace.BusyError{Reason: pace.BackedOff}, 429, "connection_limit_reached", policy.ReasonPace},
	{"a full queue", &pace.BusyError{Reason: pace.QueueFull}, 429, "connection_limit_reached", policy.ReasonPace},
	{"concurrency limit", &pace.BusyError{Reason: pace.ConcurrencyFull}, 429, "connection_limit_reached", policy.ReasonPace},
	{"too many streams", &pace.BusyError{Reason: pace.StreamsFull}, 429, "connection_limit_reached", policy.ReasonPace},
	{"a quota used up", &policy.QuotaError{Quota: policy.Quota{Requests: 1}}, 429, "connection_limit_reached", policy.ReasonQuota},
	{"a budget used up", &policy.HoldError{Reason: policy.ReasonBudget}, 429, "connection_limit_reached", policy.ReasonBudget},
	{"DNS", dial(&net.DNSError{Err: "no such host", IsNotFound: true}), 502, "dns_error", policy.ReasonOrigin},
	{"DNS timeout", dial(&net.DNSError{Err: "timeout", IsTimeout: true}), 502, "dns_error", policy.ReasonOrigin},
	{"upstream proxy: DNS", fmt.Errorf("%w: %w", egress.ErrParent, dial(&net.DNSError{Err: "no such host"})), 502, "destination_unavailable", policy.ReasonParent},
	{"upstream proxy: certificate", fmt.Errorf("%w: %w", egress.ErrParent, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), 502, "destination_unavailable", policy.ReasonParent},
	{"upstream proxy: timeout", fmt.Errorf("%w: %w", egress.ErrParent, os.ErrDeadlineExceeded), 502, "destination_unavailable", policy.ReasonParent},
	{"client disconnected while the upstream proxy was dialled", fmt.Errorf("%w: %w", context.Canceled, egress.ErrParent), 499, "http_request_error", policy.ReasonClient},
	{"refused", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), 502, "destination_unavailable", policy.ReasonOrigin},
	{"no answer to the dial", dial(os.ErrDeadlineExceeded), 502, "destination_unavailable", policy.ReasonOrigin},
	{"reset", &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, 502, "destination_unavailable", policy.ReasonOrigin},
	{"bad certificate", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, 502, "tls_certificate_error", policy.ReasonOrigin},
	{"wrong name", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}, 502, "tls_certificate_error", policy.ReasonOrigin},
	{"expired", x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}, 502, "tls_certificate_error", policy.ReasonOrigin},
	{"other certificate error", x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.NotAuthorizedToSign}, 502, "tls_certificate_error", policy.ReasonOrigin},
	{"an alert", &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, 502, "tls_alert_received", policy.ReasonOrigin},
	{"file descriptors exhausted", fmt.Errorf("%w: %w", egress.ErrExhausted, dial(syscall.EMFILE)), 503, "proxy_internal_error", policy.ReasonInternal},
	{"shutdown", pace.ErrClosed, 503, "proxy_internal_error", policy.ReasonShutdown},
	{"too many connections", errTooManyConns, 429, "connection_limit_reached", policy.ReasonLimit},
	{"no TLS", tls.RecordHeaderError{Msg: "x"}, 502, "tls_protocol_error", policy.ReasonOrigin},
	{"too slow", os.ErrDeadlineExceeded, 504, "http_response_timeout", policy.ReasonOrigin},
	{"context's deadline", context.DeadlineExceeded, 504, "http_response_timeout", policy.ReasonOrigin},
	{"malformed", inbound.ErrMalformed, 400, "http_request_error", policy.ReasonMalformed},
	{"invalid FTP path", fmt.Errorf("%w: %w", inbound.ErrMalformed, ftp.ErrPath), 400, "http_request_error", policy.ReasonMalformed},
	{"unsupported FTP method", ftp.ErrMethod, 405, "http_request_error", policy.ReasonMalformed},
	{"misdirected", inbound.ErrMisdirected, 421, "http_request_error", policy.ReasonMalformed},
	{"loop", inbound.ErrLoop, 502, "proxy_loop_detected", policy.ReasonLoop},
	{"no space for evidence", audit.ErrNoSpace, 503, "proxy_internal_error", policy.ReasonAudit},
	{"audit", audit.ErrUnwritable, 503, "proxy_internal_error", policy.ReasonAudit},
	{"panic", errInternal, 500, "proxy_internal_error", policy.ReasonInternal},
	{"client disconnected", context.Canceled, 499, "http_request_error", policy.ReasonClient},
	{"anything else", errors.New("x"), 502, "destination_unavailable", policy.ReasonOrigin},
}

func TestAnswers(t *testing.T) {
	for _, c := range answersToErrors {
		t.Run(c.name, func(t *testing.T) {
			a := answerTo(fmt.Errorf("send: %w", c.err))
			if a.status != c.status || a.token != c.token || a.reason != c.reason {
				t.Errorf("%d %s %q, want %d %s %q", a.status, a.token, a.reason, c.status, c.token, c.reason)
			}
		})
	}
}

// TestAnswersFitTheirReasons checks that an error refines its reason, repeats nothing of it, and has a status that the table of
// reasons in docs/failures.md permits.
func TestAnswersFitTheirReasons(t *testing.T) {
	docs, err := os.ReadFile("../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range answers {
		a, reason := row.complete(), row.reason.Info()
		if row.status == reason.Status || row.token != "" && row.token == reason.Error {
			t.Errorf("%s: %+v repeats the reason", row.reason, row.answer)
		}
		if unknown := a.status == 429 || a.status == 503; unknown != (a.retry > 0) {
			t.Errorf("%s: %d with Retry-After %v", row.reason, a.status, a.retry)
		}
		permitted := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| (none|[^|]*%d)", row.reason, a.status))
		if !permitted.Match(docs) {
			t.Errorf("docs/failures.md: the row of %s lacks status %d", row.reason, a.status)
		}
	}
}

// TestRefusalsByPaceHaveNumbers checks that a refusal names the limit that the request met.
func TestRefusalsByPaceHaveNumbers(t *testing.T) {
	limits := pace.Limits{PerSecond: 1, MaxConcurrent: 2, MaxWait: time.Minute, MaxQueue: 500}
	for _, c := range []struct {
		busy   pace.BusyError
		limits pace.Limits
		want   string
	}{
		{pace.BusyError{Reason: pace.WaitTooLong, RetryAfter: 75 * time.Second}, limits, "would wait about 1 min 15 s, and a request may wait at most 1 min (pace.max_wait)"},
		{pace.BusyError{Reason: pace.WaitTooLong, RetryAfter: time.Second}, limits, "waited for 1 min (pace.max_wait)"},
		{pace.BusyError{Reason: pace.QueueFull, RetryAfter: time.Hour}, limits, "500 requests wait for this host, which is the maximum (pace.max_queue)"},
		{pace.BusyError{Reason: pace.ConcurrencyFull}, limits, "2 requests to this host are in flight, which is the maximum (pace.max_concurrent), and none of them ended within 1 min (pace.max_wait)"},
		{pace.BusyError{Reason: pace.BackedOff, BackOff: 2 * time.Hour}, limits, "for another 2 h"},
		{pace.BusyError{Reason: pace.StreamsFull}, limits, "Too many streams"},
		{pace.BusyError{Reason: pace.QueueFull}, pace.Limits{}, "The queue for this host is full."},
	} {
		rec := audit.Record{Decision: policy.Decision{Pace: c.limits}}
		p := (&requestState{record: rec, rules: new(generation)}).describe(answerTo(&c.busy), &c.busy)
		if !strings.Contains(p.Detail, c.want) {
			t.Errorf("%+v: %q, want %q", c.busy, p.Detail, c.want)
		}
	}
}

// TestFailureKindsAreDescribed checks that responses describe a failure in the proxy's own words.
func TestFailureKindsAreDescribed(t *testing.T) {
	for err, want := range map[error]string{
		&net.DNSError{IsNotFound: true}: "does not exist",
		&net.DNSError{IsTimeout: true}:  "the name server failed",
		x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}: "expired",
		x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}:               "for another name",
		x509.UnknownAuthorityError{}:                                                  "does not trust",
		&net.OpError{Op: "remote error", Err: errors.New("x")}:                        "refused the TLS handshake",
		egress.ErrOldTLS: "only TLS 1.0 or 1.1",
		errors.New("tls: failed to parse certificate from server: x509: negative serial number"): "could not be verified",
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}:                                      "refuses connections",
		&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}:                                    "does not respond",
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}:                                        "closed the connection early",
	} {
		if a := answerTo(fmt.Errorf("send: %w", err)); !strings.Contains(a.detail, want) || a.advice == "" {
			t.Errorf("%v: %q, %q; want %q", err, a.detail, a.advice, want)
		}
	}
}

// TestAnswerForAFailingUpstreamProxy checks that the response does not blame the origin.
func TestAnswerForAFailingUpstreamProxy(t *testing.T) {
	p := newProblem(answerTo(fmt.Errorf("dial: %w", egress.ErrParent)), explain.Explanation{}, false, "")
	of := newProblem(answerTo(errors.New("reset")), explain.Explanation{}, false, "")
	if p.Detail == of.Detail || !strings.Contains(p.Advice, "egress.parent") {
		t.Errorf("%q, %q", p.Detail, p.Advice)
	}
}

func TestReasonOfTheRecord(t *testing.T) {
	for _, c := range []struct {
		name string
		d    policy.Decision
		err  error
		want bool
	}{
		{"refused by the decision", policy.Decision{Reason: policy.ReasonRule}, refusedError{policy.ReasonRule}, false},
		{"allowed, and the origin failed", policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonRule}, errors.New("reset"), false},
		{"no connection for robots.txt", policy.Decision{Reason: policy.ReasonOrigin}, errors.New("refused"), false},
		{"CONNECT to a dead origin", policy.Decision{}, errors.New("refused"), true},
		{"allowed, no slot", policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonNoRule}, pace.ErrTooBusy, true},
		{"allowed, daily quota used up", policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonOverride}, policy.ErrQuota, true},
		{"allowed, forbidden address", policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonNoRule}, egress.ErrForbiddenAddr, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := answerTo(c.err).overrides(c.d); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestAcceptsJSON(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                               false,
		"*/*":                            false,
		"text/html,*/*;q=0.8":            false,
		"application/json":               true,
		"application/problem+json":       true,
		"text/html, application/json":    true,
		"application/json;q=0.5, */*":    true,
		"application/json;q=0":           false,
		"Application/JSON; charset=utf8": true,
		",;;,":                           false,
	} {
		if got := acceptsJSON([]string{accept}); got != want {
			t.Errorf("Accept: %s: %t", accept, got)
		}
	}
}

func TestProxyStatusEscapesForeignBytes(t *testing.T) {
	got := proxyStatus(answer{token: "http_request_denied"}, problem{Explanation: explain.Explanation{Reason: "rule", Rule: "/a\"\\\r\n\x1bé", Line: 3, Group: "*"}})
	if strings.ContainsAny(got, "\r\n\x1b") || !strings.HasPrefix(got, `robotsproxy; error=http_request_denied; details="rule: `) {
		t.Errorf("got %q", got)
	}
}

func TestProxyStatusWithoutAnError(t *testing.T) {
	if got, want := proxyStatus(answer{}, problem{Explanation: explain.Explanation{Reason: "auth"}}), `robotsproxy; details="auth"`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// RFC 6585 4: the 429 for too many password checks has a Retry-After.
func TestTooManyLoginsHaveRetryAfter(t *testing.T) {
	s := &requestState{rules: &generation{}}
	if p := s.describe(answerTo(policy.ErrTooManyLogins), policy.ErrTooManyLogins); p.RetryAfter != 1 {
		t.Errorf("Retry-After: %d", p.RetryAfter)
	}
}

func TestSecondsIsNeverZero(t *testing.T) {
	for d, want := range map[time.Duration]int{-time.Second: 1, 0: 1, time.Millisecond: 1, time.Second: 1, 1001 * time.Millisecond: 2} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %d", d, got)
		}
	}
}

func TestTextQuotesUnprintableBytes(t *testing.T) {
	p := problem{Title: "Forbidden", Status: http.StatusForbidden, URL: "http://x/\u202e", ID: "1"}
	p.Rule, p.Line = "/\x1b[2J", 1
	if got := string(p.text()); strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("got %q", got)
	}
}

// TestForbiddenAddressesAreNamed checks that a refusal names an address that the client itself gave, and says nothing about
// the addresses of a name.
func TestForbiddenAddressesAreNamed(t *testing.T) {
	forbidden := fmt.Errorf("%w 10.0.0.7:80", egress.ErrForbiddenAddr)
	general := newProblem(answerTo(forbidden), explain.Explanation{Reason: policy.ReasonAddress}, false, "").Detail
	for _, c := range []struct {
		host string
		err  error
		want string
	}{
		{"10.0.0.7", forbidden, "The proxy does not connect to 10.0.0.7, which is a private address (egress.allow_private)."},
		{"::1", forbidden, "The proxy does not connect to ::1, which is a loopback address (egress.allow_private)."},
		{"a.test", forbidden, general},
		{"a.test", egress.ErrForbiddenName, noAddress},
		{"127.0.0.1", egress.ErrOwnListener, "The proxy does not connect to its own listeners."},
		{"10.0.0.7", egress.ErrForbiddenPort, "The proxy does not connect to this port (egress.ports)."},
	} {
		s := &requestState{rules: new(generation)}
		s.record.Request.Origin.Host = c.host
		a := answerTo(c.err)
		s.record.Decision.Reason = a.reason
		if got := s.describe(a, c.err); got.Detail != c.want || c.host == "a.test" && strings.Contains(got.Detail, "10.0.0.7") {
			t.Errorf("%s, %v: %q, want %q", c.host, c.err, got.Detail, c.want)
		}
	}
}
