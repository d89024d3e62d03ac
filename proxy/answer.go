package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/signature"
	"robotsproxy/proxy/socket"
)

var (
	errLongURL = errors.New("the URL is too long")
	errLabels  = errors.New("Robotsproxy-Label")
	errTrace   = errors.New("the response to TRACE would show the client the signature of the proxy")
)

var (
	errInternal     = errors.New("internal error of the proxy")
	errTooManyConns = errors.New("the client has too many connections open")
	errAborted      = errors.New("the proxy shut down before the request was complete")

	errFTPTunnel = errors.New("tunnel to the FTP port")
)

// An answer is a response that the proxy makes itself. It does not contain the error, which only
// the record has. The reason says everything that an answer does not say itself: see answer.complete.
type answer struct {
	// reason is for the record.
	reason policy.Reason

	// status is the HTTP status; 0: that of the reason.
	status int

	// token is the error type in Proxy-Status (RFC 9209 2.3); "": that of the reason, which may have none.
	token string

	// retry is the Retry-After of an answer with a status of its own, if no time is known; zero: it has none.
	retry time.Duration

	// detail is a sentence for the client; "": that of the reason.
	detail string

	// advice says what the client can do; "": the advice of the reason.
	advice string
}

// complete returns a with the status, the token and the Retry-After of its reason where it has none of its own. A
// reason for which nothing is refused still refuses.
func (a answer) complete() answer {
	row := a.reason.Info()
	if a.status == 0 {
		a.status, a.retry = cmp.Or(row.Status, http.StatusForbidden), row.RetryAfter
	}
	a.token = cmp.Or(a.token, row.Error)
	return a
}

// A refusedError is the error of a request that a decision refuses, for the decision's reason.
type refusedError struct{ reason policy.Reason }

func (refusedError) Error() string { return "refused by the decision" }

// answers says for which reason a request is refused that failed with an error, and what the reason does not say of
// that error. The first match applies. An error without a match means originBrokeOff.
var answers = []struct {
	match func(error) bool
	answer
}{
	{is(policy.ErrLogin), answer{reason: policy.ReasonAuth,
		detail: "The proxy requires a name and a password, which are missing or wrong.",
		advice: "Put them into the URL of the proxy, as in http://NAME:PASSWORD@proxy.example:8080, or into the settings of your client."}},
	{is(policy.ErrStranger), answer{reason: policy.ReasonAuth, status: http.StatusForbidden, token: "http_request_denied",
		detail: "The proxy serves only configured clients, and none of them has your address.",
		advice: "The operator can add an entry to clients."}},
	{is(policy.ErrTooManyLogins), answer{reason: policy.ReasonAuth,
		status: http.StatusTooManyRequests, retry: time.Second, token: "connection_limit_reached",
		detail: "Too many names and passwords from your address wait to be checked.",
		advice: "Try again in a moment."}},
	{is(inbound.ErrMisdirected), answer{reason: policy.ReasonMalformed, status: http.StatusMisdirectedRequest,
		detail: "The request names another host than its tunnel.",
		advice: "Open a tunnel for each host, or send the request to the proxy without a tunnel."}},
	{is(ftp.ErrPath), answer{reason: policy.ReasonMalformed,
		detail: "The proxy does not request this path from an FTP server.",
		advice: "Use a path below the login directory, without empty names, dot segments, escaped slashes or control characters."}},
	{is(ftp.ErrMethod), answer{reason: policy.ReasonMalformed, status: http.StatusMethodNotAllowed,
		detail: "The proxy can only read from FTP servers.",
		advice: "Send GET or HEAD."}},
	{is(errLongURL), answer{reason: policy.ReasonMalformed, status: http.StatusRequestURITooLong,
		detail: "The URL is longer than the proxy accepts (limits.url).",
		advice: "Send a shorter URL, or move the long part into a request body. The operator can raise limits.url up to 64KiB."}},
	{is(errLabels), answer{reason: policy.ReasonMalformed,
		detail: "The header field Robotsproxy-Label has no labels that the proxy can record.",
		advice: "Send at most 8 labels KEY=VALUE, separated by commas. They have at most 64 letters, digits and ._-"}},
	{is(errTrace), answer{reason: policy.ReasonIdentity,
		detail: "The proxy signs its requests (identity.sign), and passes no TRACE on, whose response would show its signature.",
		advice: "Send another method."}},
	{is(errTooSlow), answer{reason: policy.ReasonPace, status: http.StatusRequestTimeout, token: "http_request_error",
		detail: "The request body arrived too slowly while other requests waited for this host.",
		advice: "Send the body faster, or try again later."}},
	{is(inbound.ErrMalformed), answer{reason: policy.ReasonMalformed}},
	{is(inbound.ErrConfined), answer{reason: policy.ReasonConfined}},
	{is(inbound.ErrLoop), answer{reason: policy.ReasonLoop}},
	{is(audit.ErrNoSpace), answer{reason: policy.ReasonAudit,
		detail: "The proxy has no space to store the robots.txt of this site as evidence, and allows no request without it.",
		advice: "Try again later, or continue with sites whose robots.txt the proxy has stored. " +
			"The operator can raise audit.snapshot_max_size."}},
	{is(archive.ErrUnwritable), answer{reason: policy.ReasonAudit,
		detail: "The proxy cannot write its archive, and fetches nothing that it cannot archive (archive.on_error)."}},
	{is(audit.ErrUnwritable), answer{reason: policy.ReasonAudit}},
	{is(signature.ErrSign), answer{reason: policy.ReasonInternal,
		detail: "The proxy has to sign the request (identity.sign) and cannot.",
		advice: "Tell the operator, who can correct the configuration."}},
	{is(errInternal), answer{reason: policy.ReasonInternal}},
	{is(egress.ErrForbiddenPort), answer{reason: policy.ReasonPort}},
	{is(egress.ErrOwnListener), answer{reason: policy.ReasonAddress,
		detail: "The proxy does not connect to its own listeners.",
		advice: "Look for a proxy setting that points back to this proxy."}},
	{is(egress.ErrForbiddenName), answer{reason: policy.ReasonAddress, status: http.StatusBadGateway, token: dnsError,
		detail: noAddress,
		advice: adviseName}},
	{is(egress.ErrForbiddenAddr), answer{reason: policy.ReasonAddress}},
	{isBusy(pace.BackedOff), answer{reason: policy.ReasonPace,
		detail: "This host answered 429 or 503. Its back-off is longer than a request may wait.",
		advice: "Try again after the back-off, and send the host fewer requests."}},
	{isBusy(pace.QueueFull), answer{reason: policy.ReasonPace,
		detail: "The queue for this host is full.",
		advice: "Send fewer requests at once, or try again later. The operator can raise pace.max_queue."}},
	{isBusy(pace.ConcurrencyFull), answer{reason: policy.ReasonPace,
		detail: "The maximum number of requests to this host is in flight, and none of them ended while this request waited.",
		advice: "Try again later. The operator can raise pace.max_concurrent or pace.max_wait."}},
	{isBusy(pace.StreamsFull), answer{reason: policy.ReasonPace,
		detail: "Too many streams to this host are open: event streams, WebSockets and passed-through tunnels. " +
			"A client gets another stream only while it has fewer than are free.",
		advice: "Close streams that you do not need, or try again later."}},
	{is(pace.ErrTooBusy), answer{reason: policy.ReasonPace,
		detail: "The wait for this host would be longer than a request may wait.",
		advice: "Send fewer requests at once, or try again later. The operator can raise pace.max_wait."}},
	{is(policy.ErrHeld), answer{reason: policy.ReasonOrigin, status: http.StatusServiceUnavailable, retry: time.Minute,
		detail: "The site's robots.txt redirects to a host to which nothing is sent now.",
		advice: "Try again later."}},
	{is(policy.ErrQuota), answer{reason: policy.ReasonQuota}},
	{is(errFTPTunnel), answer{reason: policy.ReasonPort,
		detail: "The proxy opens no tunnels to the FTP port, because it could not judge the requests in them.",
		advice: "Send the ftp:// URL itself to the proxy, as in GET ftp://example.com/."}},
	{is(errAborted), answer{reason: policy.ReasonShutdown}},
	{is(pace.ErrClosed), answer{reason: policy.ReasonShutdown,
		detail: "The proxy is shutting down, and the request was still waiting."}},
	{is(errTooManyConns), answer{reason: policy.ReasonLimit,
		detail: "The client has too many open connections to the proxy.",
		advice: "Use fewer connections, or close those that you do not need."}},
	{is(errRefusedOften), answer{reason: policy.ReasonLimit,
		detail: "The proxy answers at most 100 requests of one client per second by itself, with a refusal or a cached robots.txt, " +
			"and fewer if many clients cause such answers. Of this client there are more.",
		advice: "Do not request URLs that robots.txt disallows, request each robots.txt once, and send fewer requests at once."}},
	{is(memory.ErrShort), answer{reason: policy.ReasonLimit,
		status: http.StatusServiceUnavailable, retry: time.Second, token: "proxy_internal_error",
		detail: "The proxy is short of memory, and this client's requests already use their share.",
		advice: "Send fewer requests at once, and try again later. The operator can raise limits.memory."}},
	{is(context.Canceled), answer{reason: policy.ReasonClient}},
	{is(egress.ErrExhausted), answer{reason: policy.ReasonInternal, status: http.StatusServiceUnavailable, retry: time.Second,
		detail: "The proxy cannot open another connection.",
		advice: "Try again later. The operator can permit more open files (ulimit -n), or lower limits.connections."}},
	// The row of the upstream proxy must precede those of the causes of its failure.
	{is(egress.ErrParent), answer{reason: policy.ReasonParent}},
	{isBeyondParent, answer{reason: policy.ReasonOrigin,
		detail: "The upstream proxy cannot reach the origin.",
		advice: "Check the spelling of the host name, or try again later."}},
	{isNoSuchHost, answer{reason: policy.ReasonOrigin, token: dnsError,
		detail: noAddress,
		advice: adviseName}},
	{as[*net.DNSError], answer{reason: policy.ReasonOrigin, token: dnsError,
		detail: "The host name could not be resolved, because the name server failed.",
		advice: "Try again later."}},
	{isExpired, answer{reason: policy.ReasonOrigin, token: "tls_certificate_error",
		detail: "The origin's certificate has expired or is not valid yet.",
		advice: "Tell the owner of the site, or check the clock of the proxy's machine."}},
	{as[x509.HostnameError], answer{reason: policy.ReasonOrigin, token: "tls_certificate_error",
		detail: "The origin's certificate is for another name.",
		advice: "Check the spelling of the host name. The site may have another name."}},
	{as[x509.UnknownAuthorityError], answer{reason: policy.ReasonOrigin, token: "tls_certificate_error",
		detail: "The origin's certificate (not the proxy's CA) is self-signed, or signed by an authority that the proxy does not trust.",
		advice: "The operator can add the authority of a private site, or its self-signed certificate, with egress.extra_ca. " +
			"For a public site, tell its owner: the site may not send all certificates of the chain."}},
	{isCertificate, answer{reason: policy.ReasonOrigin, token: "tls_certificate_error",
		detail: "The origin's certificate could not be verified.",
		advice: "Tell the owner of the site."}},
	{is(egress.ErrOldTLS), answer{reason: policy.ReasonOrigin, token: "tls_protocol_error",
		detail: "The origin speaks only TLS 1.0 or 1.1, which the proxy does not.",
		advice: "The operator can permit them with egress.tls_min."}},
	{isAlert, answer{reason: policy.ReasonOrigin, token: "tls_alert_received",
		detail: "The origin refused the TLS handshake.",
		advice: "It may require a client certificate, or have no site with this name."}},
	{as[tls.RecordHeaderError], answer{reason: policy.ReasonOrigin, token: "tls_protocol_error",
		detail: "The origin and the proxy could not agree on TLS.",
		advice: "Check that the origin speaks TLS on this port."}},
	{isRefused, answer{reason: policy.ReasonOrigin,
		detail: "The origin refuses connections.",
		advice: "Check the port, or try again later."}},
	{isDial, answer{reason: policy.ReasonOrigin,
		detail: "The origin could not be reached: there is no route to it, or it does not respond.",
		advice: "Try again later."}},
	{isTimeout, answer{reason: policy.ReasonOrigin, status: http.StatusGatewayTimeout, token: "http_response_timeout",
		detail: "The origin took too long to respond.",
		advice: "Try again later."}},
}

// These are the same for a name that does not exist and for one whose addresses are forbidden: otherwise a client
// could list internal names.
const (
	dnsError   = "dns_error"
	noAddress  = "The host name does not exist, or has no address that the proxy may connect to."
	adviseName = "Check the spelling of the host name. The proxy asks the name server again after a while. " +
		"For a host in a private network, the operator can set egress.allow_private."
)

var originBrokeOff = answer{reason: policy.ReasonOrigin,
	detail: "The origin closed the connection early, or its response is not valid HTTP.",
	advice: "Try again later."}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func isBusy(r pace.Reason) func(error) bool {
	return func(err error) bool {
		b, ok := errors.AsType[*pace.BusyError](err)
		return ok && b.Reason == r
	}
}

// isBeyondParent reports whether the upstream proxy did not reach the origin, but for a timeout.
func isBeyondParent(err error) bool { return errors.Is(err, egress.ErrBeyondParent) && !isTimeout(err) }

func isNoSuchHost(err error) bool {
	d, ok := errors.AsType[*net.DNSError](err)
	return ok && d.IsNotFound
}

func isExpired(err error) bool {
	c, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok && c.Reason == x509.Expired
}

func isCertificate(err error) bool {
	return as[*tls.CertificateVerificationError](err) || as[x509.CertificateInvalidError](err) ||
		// crypto/tls has no type for this error.
		err != nil && strings.Contains(err.Error(), "tls: failed to parse certificate from server")
}

// isAlert reports whether the other side ended a TLS handshake. crypto/tls marks the alerts that
// it receives as "remote error".
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" || as[tls.AlertError](err)
}

func isRefused(err error) bool { return isDial(err) && errors.Is(err, socket.ECONNREFUSED) }

// isDial reports whether a connection could not be made, including timeouts.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSilent)
}

// answerTo returns the answer to an error.
func answerTo(err error) answer {
	if refused, ok := errors.AsType[refusedError](err); ok {
		return answer{reason: refused.reason}.complete()
	}
	if held, ok := errors.AsType[*policy.HoldError](err); ok {
		return answer{reason: held.Reason, detail: held.Detail + "."}.complete()
	}
	a := originBrokeOff
	for _, row := range answers {
		if row.match(err) {
			a = row.answer
			break
		}
	}
	if malformed, ok := errors.AsType[*inbound.MalformedError](err); ok {
		a.status, a.detail, a.advice = malformed.Status, malformed.Sentence(), malformed.Advice
	}
	return a.complete()
}

// busyDetail returns a sentence with the limit that package pace has applied, or "" if the limit is not
// known.
func busyDetail(busy *pace.BusyError, l *pace.Limits) string {
	most := humanize.Duration(l.MaxWait)
	switch {
	case l.PerSecond <= 0:
		return ""
	case busy.Reason == pace.BackedOff:
		return fmt.Sprintf("This host answered 429 or 503 and is in a back-off for another %s, which is longer than a request may wait.",
			humanize.Duration(busy.BackOff))
	case busy.Reason == pace.QueueFull:
		return fmt.Sprintf("%d requests wait for this host, which is the maximum (pace.max_queue).", l.MaxQueue)
	case busy.Reason == pace.ConcurrencyFull:
		return fmt.Sprintf("%d requests to this host are in flight, which is the maximum (pace.max_concurrent), "+
			"and none of them ended within %s (pace.max_wait).", l.MaxConcurrent, most)
	case busy.Reason == pace.WaitTooLong && busy.RetryAfter > l.MaxWait:
		return fmt.Sprintf("The request would wait about %s, and a request may wait at most %s (pace.max_wait).",
			humanize.Duration(busy.RetryAfter), most)
	case busy.Reason == pace.WaitTooLong:
		return fmt.Sprintf("The request waited for %s (pace.max_wait), and its turn had not come.", most)
	}
	return ""
}

// addressDetail returns a sentence with what a forbidden address is, or "" if host is a name: the client must not learn its
// addresses.
func addressDetail(host string) string {
	addr, err := netip.ParseAddr(host)
	if err != nil || egress.AddressKind(addr) == "" {
		return ""
	}
	return fmt.Sprintf("The proxy does not connect to %s, which is %s (egress.allow_private).", addr, egress.AddressKind(addr))
}

// override puts the answer's reason into d if it overrides the decision.
func (a answer) override(d *policy.Decision) {
	if a.overrides(*d) {
		d.Verdict, d.Reason = policy.Refuse, a.reason
	}
}

// shown returns the reason that the client learns.
func (a answer) shown() policy.Reason {
	if a.token == dnsError {
		return policy.ReasonOrigin
	}
	return a.reason
}

// overrides reports whether the answer's reason replaces that of d. It does not if d
// itself refused, or if d allowed the request and the origin failed.
func (a answer) overrides(d policy.Decision) bool {
	switch a.reason {
	case d.Reason:
		return false
	case policy.ReasonOrigin:
		return d.Verdict != policy.Allow && d.Reason == ""
	case policy.ReasonParent:
		return d.Verdict != policy.Allow
	}
	return true
}
