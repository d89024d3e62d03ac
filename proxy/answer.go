package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

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
	errTrace   = errors.New("the response to TRACE would show the client the signature of the proxy")
)

var (
	errRefused      = errors.New("refused by the decision")
	errInternal     = errors.New("internal error of the proxy")
	errTooManyConns = errors.New("the client has too many connections open")
	errAborted      = errors.New("the proxy shut down before the request was complete")

	errFTPTunnel = errors.New("tunnel to the FTP port")
)

// An answer is a response that the proxy makes itself. It does not contain the error, which only
// the record has.
type answer struct {
	status int

	// error type in Proxy-Status (RFC 9209 2.3); "" if none fits.
	token string

	// For the record; "": that of the decision.
	reason policy.Reason

	// A sentence for the client; "": that of the reason.
	detail string

	// What the client can do; "": the advice of the reason.
	advice string
}

// answers maps errors to answers; the first match applies. An error without a match means
// originBrokeOff.
var answers = []struct {
	match func(error) bool
	answer
}{
	{is(errRefused), answer{http.StatusForbidden, "http_request_denied", "", "", ""}},
	{is(policy.ErrLogin), answer{http.StatusProxyAuthRequired, "", policy.ReasonAuth,
		"The proxy requires a name and a password, which are missing or wrong.",
		"Put them into the URL of the proxy, as in http://NAME:PASSWORD@proxy.example:8080, or into the settings of your client."}},
	{is(policy.ErrStranger), answer{http.StatusForbidden, "http_request_denied", policy.ReasonAuth,
		"The proxy serves only configured clients, and none of them has your address.",
		"The operator can add an entry to clients."}},
	{is(policy.ErrTooManyLogins), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonAuth,
		"Too many names and passwords from your address wait to be checked.",
		"Try again in a moment."}},
	{is(inbound.ErrMisdirected), answer{http.StatusMisdirectedRequest, "http_request_error", policy.ReasonMalformed,
		"The request names another host than its tunnel.",
		"Open a tunnel for each host, or send the request to the proxy without a tunnel."}},
	{is(ftp.ErrPath), answer{http.StatusBadRequest, "http_request_error", policy.ReasonMalformed,
		"The proxy does not request this path from an FTP server.",
		"Use a path below the login directory, without empty names, dot segments, escaped slashes or control characters."}},
	{is(ftp.ErrMethod), answer{http.StatusMethodNotAllowed, "http_request_error", policy.ReasonMalformed,
		"The proxy can only read from FTP servers.", "Send GET or HEAD."}},
	{is(errLongURL), answer{http.StatusRequestURITooLong, "http_request_error", policy.ReasonMalformed,
		"The URL is longer than the proxy accepts (limits.url).",
		"Send a shorter URL, or move the long part into a request body. The operator can raise limits.url up to 64KiB."}},
	{is(errTrace), answer{http.StatusForbidden, "http_request_denied", policy.ReasonIdentity,
		"The proxy signs its requests (identity.sign), and passes no TRACE on, whose response would show its signature.",
		"Send another method."}},
	{is(errTooSlow), answer{http.StatusRequestTimeout, "http_request_error", policy.ReasonPace,
		"The request body arrived too slowly while other requests waited for this host.",
		"Send the body faster, or try again later."}},
	{is(inbound.ErrMalformed), answer{http.StatusBadRequest, "http_request_error", policy.ReasonMalformed, "", ""}},
	{is(inbound.ErrConfined), answer{http.StatusForbidden, "http_request_denied", policy.ReasonConfined, "", ""}},
	{is(inbound.ErrLoop), answer{http.StatusBadGateway, "proxy_loop_detected", policy.ReasonLoop, "", ""}},
	{is(audit.ErrNoSpace), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonAudit,
		"The proxy has no space to store the robots.txt of this site as evidence, and allows no request without it.",
		"Try again later, or continue with sites whose robots.txt the proxy has stored. The operator can raise audit.snapshot_max_size."}},
	{is(archive.ErrUnwritable), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonAudit,
		"The proxy cannot write its archive, and fetches nothing that it cannot archive (archive.on_error).",
		"The operator can see the cause in the log and in the proxy's health."}},
	{is(audit.ErrUnwritable), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonAudit, "", ""}},
	{is(signature.ErrSign), answer{http.StatusInternalServerError, "proxy_internal_error", policy.ReasonInternal,
		"The proxy has to sign the request (identity.sign) and cannot.", "Tell the operator, who can correct the configuration."}},
	{is(errInternal), answer{http.StatusInternalServerError, "proxy_internal_error", policy.ReasonInternal, "", ""}},
	{is(egress.ErrForbiddenPort), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonPort, "", ""}},
	{is(egress.ErrOwnListener), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonAddress,
		"The proxy does not connect to its own listeners.",
		"Look for a proxy setting that points back to this proxy."}},
	{is(egress.ErrForbiddenName), answer{http.StatusBadGateway, dnsError, policy.ReasonAddress, noAddress, adviseName}},
	{is(egress.ErrForbiddenAddr), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonAddress, "", ""}},
	{isBusy(pace.BackedOff), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"This host answered 429 or 503. Its back-off is longer than a request may wait.",
		"Try again after the back-off, and send the host fewer requests."}},
	{isBusy(pace.QueueFull), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"The queue for this host is full.",
		"Send fewer requests at once, or try again later. The operator can raise pace.max_queue."}},
	{isBusy(pace.ConcurrencyFull), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"The maximum number of requests to this host is in flight, and none of them ended while this request waited.",
		"Try again later. The operator can raise pace.max_concurrent or pace.max_wait."}},
	{isBusy(pace.StreamsFull), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"Too many streams to this host are open: event streams, WebSockets and passed-through tunnels. A client gets another stream only while it has fewer than are free.",
		"Close streams that you do not need, or try again later."}},
	{is(pace.ErrTooBusy), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"The wait for this host would be longer than a request may wait.",
		"Send fewer requests at once, or try again later. The operator can raise pace.max_wait."}},
	{is(policy.ErrQuota), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonQuota, "", ""}},
	{is(errFTPTunnel), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonPort,
		"The proxy opens no tunnels to the FTP port, because it could not judge the requests in them.",
		"Send the ftp:// URL itself to the proxy, as in GET ftp://example.com/."}},
	{is(errAborted), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonShutdown,
		"The proxy shut down before the request was complete.", "Try again later."}},
	{is(pace.ErrClosed), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonShutdown,
		"The proxy is shutting down, and the request was still waiting.", "Try again later."}},
	{is(errTooManyConns), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonLimit,
		"The client has too many open connections to the proxy.",
		"Use fewer connections, or close those that you do not need."}},
	{is(errRefusedOften), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonLimit,
		"The proxy answers at most 100 requests of one client per second by itself, with a refusal or a cached robots.txt, and fewer if many clients cause such answers. Of this client there are more.",
		"Do not request URLs that robots.txt disallows, request each robots.txt once, and send fewer requests at once."}},
	{is(memory.ErrShort), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonLimit,
		"The proxy is short of memory, and this client's requests already use their share.",
		"Send fewer requests at once, and try again later. The operator can raise limits.memory."}},
	{is(context.Canceled), answer{statusClientLeft, "http_request_error", policy.ReasonClient, "", ""}},
	{is(egress.ErrExhausted), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonInternal,
		"The proxy cannot open another connection.",
		"Try again later. The operator can permit more open files (ulimit -n), or lower limits.connections."}},
	// Must precede the rows for its cause.
	{is(egress.ErrParent), answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonParent, "", ""}},
	{func(err error) bool { return errors.Is(err, egress.ErrBeyondParent) && !isTimeout(err) }, answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
		"The upstream proxy cannot reach the origin.", "Check the spelling of the host name, or try again later."}},
	{isNoSuchHost, answer{http.StatusBadGateway, dnsError, policy.ReasonOrigin, noAddress, adviseName}},
	{as[*net.DNSError], answer{http.StatusBadGateway, dnsError, policy.ReasonOrigin,
		"The host name could not be resolved, because the name server failed.",
		"Try again later."}},
	{isExpired, answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate has expired or is not valid yet.",
		"Tell the owner of the site, or check the clock of the proxy's machine."}},
	{as[x509.HostnameError], answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate is for another name.",
		"Check the spelling of the host name. The site may have another name."}},
	{as[x509.UnknownAuthorityError], answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate (not the proxy's CA) is self-signed, or signed by an authority that the proxy does not trust.",
		"The operator can add the authority of a private site, or its self-signed certificate, with egress.extra_ca. " +
			"For a public site, tell its owner: the site may not send all certificates of the chain."}},
	{isCertificate, answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate could not be verified.",
		"Tell the owner of the site."}},
	{is(egress.ErrOldTLS), answer{http.StatusBadGateway, "tls_protocol_error", policy.ReasonOrigin,
		"The origin speaks only TLS 1.0 or 1.1, which the proxy does not.",
		"The operator can permit them with egress.tls_min."}},
	{isAlert, answer{http.StatusBadGateway, "tls_alert_received", policy.ReasonOrigin,
		"The origin refused the TLS handshake.",
		"It may require a client certificate, or have no site with this name."}},
	{as[tls.RecordHeaderError], answer{http.StatusBadGateway, "tls_protocol_error", policy.ReasonOrigin,
		"The origin and the proxy could not agree on TLS.",
		"Check that the origin speaks TLS on this port."}},
	{isRefused, answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
		"The origin refuses connections.",
		"Check the port, or try again later."}},
	{isDial, answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
		"The origin could not be reached: there is no route to it, or it does not respond.",
		"Try again later."}},
	{isTimeout, answer{http.StatusGatewayTimeout, "http_response_timeout", policy.ReasonOrigin,
		"The origin took too long to respond.", "Try again later."}},
}

// These are the same for a name that does not exist and for one whose addresses are forbidden: otherwise a client
// could list internal names.
const (
	dnsError   = "dns_error"
	noAddress  = "The host name does not exist, or has no address that the proxy may connect to."
	adviseName = "Check the spelling of the host name. The proxy asks the name server again after a while. For a host in a private network, the operator can set egress.allow_private."
)

var originBrokeOff = answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
	"The origin closed the connection early, or its response is not valid HTTP.", "Try again later."}

// statusClientLeft is recorded if the client has disconnected before the response. It is
// never sent. nginx uses the same number.
const statusClientLeft = 499

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
		// crypto/tls has no type for it.
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
	for _, row := range answers {
		if row.match(err) {
			a := row.answer
			if malformed, ok := errors.AsType[*inbound.MalformedError](err); ok {
				a.status, a.detail, a.advice = malformed.Status, malformed.Sentence(), malformed.Advice
			}
			return a
		}
	}
	return originBrokeOff
}

// busyDetail returns a sentence with the limit that package pace has applied, or "" if the limit is not
// known.
func busyDetail(busy *pace.BusyError, l *pace.Limits) string {
	most := humanize.Duration(l.MaxWait)
	switch {
	case l.PerSecond <= 0:
		return ""
	case busy.Reason == pace.BackedOff:
		return fmt.Sprintf("This host answered 429 or 503 and is in a back-off for another %s, which is longer than a request may wait.", humanize.Duration(busy.BackOff))
	case busy.Reason == pace.QueueFull:
		return fmt.Sprintf("%d requests wait for this host, which is the maximum (pace.max_queue).", l.MaxQueue)
	case busy.Reason == pace.ConcurrencyFull:
		return fmt.Sprintf("%d requests to this host are in flight, which is the maximum (pace.max_concurrent), and none of them ended within %s (pace.max_wait).", l.MaxConcurrent, most)
	case busy.Reason == pace.WaitTooLong && busy.RetryAfter > l.MaxWait:
		return fmt.Sprintf("The request would wait about %s, and a request may wait at most %s (pace.max_wait).", humanize.Duration(busy.RetryAfter), most)
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
	case "":
		return false
	case policy.ReasonOrigin:
		return d.Verdict != policy.Allow && d.Reason == ""
	case policy.ReasonParent:
		return d.Verdict != policy.Allow
	}
	return true
}
