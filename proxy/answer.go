package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/ftp"
)

var (
	errMalformed   = errors.New("malformed request")
	errMisdirected = errors.New("the request is for another host than its tunnel")
	errLoop        = errors.New("the request has been through this proxy before")
	errLongURL     = errors.New("the URL is too long")

	errNoSite = fmt.Errorf("%w: this is a proxy; it takes whole addresses, as in GET http://example.com/", errMalformed)
)

var (
	errRefused      = errors.New("refused by the decision")
	errInternal     = errors.New("a fault of the proxy's own")
	errTooManyConns = errors.New("the client has too many connections open")
	errAborted      = errors.New("the proxy ended before the request had")

	errFTPTunnel = errors.New("a tunnel to the port of FTP")
)

// An answer is an answer of the proxy. It does not contain the error, which only the record shows.
type answer struct {
	status int
	token  string        // the error type in Proxy-Status (RFC 9209 2.3); "" where none fits
	reason policy.Reason // for the record; "": the decision's
	detail string        // a sentence for the client; "": that of the reason
	advice string        // what the client can do; "": what the reason says
}

// answers maps errors to answers; the first match counts. An error without a match
// means originBrokeOff.
var answers = []struct {
	match func(error) bool
	answer
}{
	{is(errRefused), answer{http.StatusForbidden, "http_request_denied", "", "", ""}},
	{is(policy.ErrLogin), answer{http.StatusProxyAuthRequired, "", policy.ReasonAuth,
		"The proxy is for its known clients: it asks for a name and a password, and these were missing or wrong.",
		"Put them into the address of the proxy, as in http://NAME:PASSWORD@proxy.example:8080, or into your client's settings."}},
	{is(policy.ErrStranger), answer{http.StatusForbidden, "http_request_denied", policy.ReasonAuth,
		"The proxy is for its known clients, and none of them is known at your address.",
		"The operator can give you an entry in clients."}},
	{is(policy.ErrTooManyLogins), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonAuth,
		"More names and passwords wait to be checked than the proxy lets wait.",
		"Try again in a moment."}},
	{is(errMisdirected), answer{http.StatusMisdirectedRequest, "http_request_error", policy.ReasonMalformed,
		"The request names another host than the tunnel it came through.",
		"Make a tunnel for each host, or send the request to the proxy without one."}},
	{is(ftp.ErrPath), answer{http.StatusBadRequest, "http_request_error", policy.ReasonMalformed,
		"The path is not one that the proxy asks an FTP server for.",
		"Name each directory and the file from the login directory on: no empty name, no dots, no escaped slash or control character."}},
	{is(ftp.ErrMethod), answer{http.StatusMethodNotAllowed, "http_request_error", policy.ReasonMalformed,
		"What is on an FTP server can only be read.", "Send GET or HEAD."}},
	{is(errLongURL), answer{http.StatusRequestURITooLong, "http_request_error", policy.ReasonMalformed,
		"The URL is longer than the proxy takes.",
		"Send a shorter URL, or move its long part into a request body. The operator can raise limits.url, up to 64KiB."}},
	{is(errTooSlow), answer{http.StatusRequestTimeout, "http_request_error", policy.ReasonPace,
		"The request's body came too slowly while requests of other clients waited for this host.",
		"Send the body faster, or try again when fewer requests wait for the host."}},
	{is(errMalformed), answer{http.StatusBadRequest, "http_request_error", policy.ReasonMalformed, "", ""}},
	{is(errConfined), answer{http.StatusForbidden, "http_request_denied", policy.ReasonConfined, "", ""}},
	{is(errLoop), answer{http.StatusBadGateway, "proxy_loop_detected", policy.ReasonLoop, "", ""}},
	{is(audit.ErrNoSpace), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonAudit,
		"The proxy has no space to keep this site's robots.txt as evidence, and allows nothing without it.",
		"Try again later, or go on with sites whose robots.txt the proxy has kept. The operator can raise audit.snapshot_max_size."}},
	{is(audit.ErrUnwritable), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonAudit, "", ""}},
	{is(errInternal), answer{http.StatusInternalServerError, "proxy_internal_error", policy.ReasonInternal, "", ""}},
	{is(egress.ErrForbiddenPort), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonPort, "", ""}},
	{is(egress.ErrOwnListener), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonAddress,
		"The proxy does not go to its own listeners.",
		"Look for a proxy setting that points back here."}},
	{is(egress.ErrForbiddenAddr), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonAddress, "", ""}},
	{isBusy(pace.BackedOff), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"This host, or one that shares its pace, answered 429 or 503 and is left alone for a while, longer than the proxy lets requests wait.",
		"Try again when that time is over, and send the host fewer requests."}},
	{isBusy(pace.QueueFull), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"The queue for this host is full.",
		"Send fewer requests at once, or try again later. The operator can change it with pace.max_queue."}},
	{isBusy(pace.ConcurrencyFull), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"As many requests are under way to this host as the proxy lets go at once, and none of them has ended for as long as it lets others wait.",
		"Try again when they may be through. The operator can change it with pace.max_concurrent and pace.max_wait."}},
	{isBusy(pace.StreamsFull), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"Too many streams to this host are open: event streams, WebSockets and tunnels that the proxy does not open. One client gets another one only while it has fewer than are free.",
		"Close streams that you do not need, or try again when others have ended."}},
	{is(pace.ErrTooBusy), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"The wait for this host would be longer than the proxy lets requests wait.",
		"Send fewer requests at once, or try again later. The operator can change it with pace.max_wait."}},
	{is(policy.ErrQuota), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonQuota, "", ""}},
	{is(errFTPTunnel), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonPort,
		"The proxy makes no tunnels to the port of FTP: nothing in them could be judged.",
		"Send the ftp:// address itself to the proxy, as in GET ftp://example.com/."}},
	{is(errAborted), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonShutdown,
		"The proxy ended before the request had.", "Try again in a while."}},
	{is(pace.ErrClosed), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonShutdown,
		"The proxy is shutting down, and the request's turn had not come.", "Try again in a while."}},
	{is(errTooManyConns), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonLimit,
		"The client has too many connections open to the proxy.",
		"Use fewer connections, or close those that are not needed."}},
	{is(errRefusedOften), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonLimit,
		"The proxy refuses at most 100 requests of one client a second, or answers them with its copy of a robots.txt, and 1,000 of this client wait for that already.",
		"Do not request what the sites' robots.txt files disallow, ask once for these files, and send fewer requests at once."}},
	{is(memory.ErrShort), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonLimit,
		"The proxy is short of memory, and this client's requests already use their share.",
		"Send fewer requests at once, and try again later. The operator can raise limits.memory."}},
	{is(context.Canceled), answer{statusClientLeft, "http_request_error", policy.ReasonClient, "", ""}},
	{is(egress.ErrExhausted), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonInternal,
		"The proxy has no room for another connection.",
		"Try again later; whoever runs the proxy can let it open more files (ulimit -n), or lower limits.connections."}},
	{is(egress.ErrParent), answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonParent, "", ""}}, // before what it failed of
	{func(err error) bool { return errors.Is(err, egress.ErrBeyondParent) && !isTimeout(err) }, answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
		"The proxy's parent says that it cannot reach the origin.", "Look for a mistake in the name; or try again later."}},
	{isNoSuchHost, answer{http.StatusBadGateway, "dns_error", policy.ReasonOrigin,
		"There is no host of that name.",
		"Look for a mistake in the name; the proxy asks again after a while."}},
	{as[*net.DNSError], answer{http.StatusBadGateway, "dns_error", policy.ReasonOrigin,
		"The host's name could not be resolved: no name server answered.",
		"Try again later."}},
	{isExpired, answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate has expired, or is not valid yet.",
		"Tell whoever runs the site; look whether this machine's clock is right."}},
	{as[x509.HostnameError], answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate is for another name.",
		"Look for a mistake in the name; the site may have another one."}},
	{as[x509.UnknownAuthorityError], answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate is signed by an authority that the proxy does not trust, or by itself.",
		"If that is a private authority, whoever runs the proxy can name it in egress.extra_ca."}},
	{isCertificate, answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate could not be verified.",
		"Tell whoever runs the site."}},
	{isAlert, answer{http.StatusBadGateway, "tls_alert_received", policy.ReasonOrigin,
		"The origin refused the TLS handshake.",
		"It may want a client certificate, or know no site of that name."}},
	{as[tls.RecordHeaderError], answer{http.StatusBadGateway, "tls_protocol_error", policy.ReasonOrigin,
		"The origin and the proxy could not agree on TLS.",
		"Look whether the origin speaks TLS on this port."}},
	{isRefused, answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
		"The origin refuses connections.",
		"Look for a mistake in the port; or try again later."}},
	{isDial, answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
		"The origin could not be reached: there is no way to it, or it does not answer.",
		"Try again later."}},
	{isTimeout, answer{http.StatusGatewayTimeout, "http_response_timeout", policy.ReasonOrigin,
		"The origin took too long to answer.", "Try again later."}},
}

var originBrokeOff = answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
	"The origin broke off, or its answer is no HTTP.", "Try again later."}

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
	return as[*tls.CertificateVerificationError](err) || as[x509.CertificateInvalidError](err)
}

// isAlert reports whether the other side ended a TLS handshake. crypto/tls marks the alerts that
// it receives as "remote error".
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" || as[tls.AlertError](err)
}

func isRefused(err error) bool { return isDial(err) && errors.Is(err, syscall.ECONNREFUSED) }

// isDial reports whether a connection could not be made, timeouts included.
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
	for _, a := range answers {
		if a.match(err) {
			return a.answer
		}
	}
	return originBrokeOff
}

// busyDetail returns the sentence for a refusal by pace with the limit that the request met; "": it is not
// known.
func busyDetail(busy *pace.BusyError, l *pace.Limits) string {
	most := humanize.Duration(l.MaxWait)
	switch {
	case l.PerSecond <= 0:
		return ""
	case busy.Reason == pace.BackedOff:
		return fmt.Sprintf("This host, or one that shares its pace, answered 429 or 503 and is in a back-off for another %s, which is longer than a request may wait.", humanize.Duration(busy.BackOff))
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

// override puts the answer's reason into d if it overrides the decision.
func (a answer) override(d *policy.Decision) {
	if a.overrides(*d) {
		d.Verdict, d.Reason = policy.Refuse, a.reason
	}
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
