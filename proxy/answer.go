package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
)

var (
	errRefused  = errors.New("refused by the decision")
	errInternal = errors.New("a fault of the proxy's own")
)

// An answer of the proxy's own: its status, its Proxy-Status error type (RFC
// 9209 2.3), the reason for the record, and a sentence for people. What went
// wrong inside is for the record alone.
type answer struct {
	status int
	token  string
	reason policy.Reason
	say    string
	mend   string
}

// answers turns errors into answers: the first that matches. What matches none
// is an origin that could not be reached.
var answers = []struct {
	match func(error) bool
	answer
}{
	{is(errRefused), answer{http.StatusForbidden, "http_request_denied", "", "", ""}},
	{is(errMisdirected), answer{http.StatusMisdirectedRequest, "http_request_error", policy.ReasonMalformed,
		"The request names another host than the tunnel it came through.",
		"Make a tunnel for each host, or send the request to the proxy without one."}},
	{is(errMalformed), answer{http.StatusBadRequest, "http_request_error", policy.ReasonMalformed,
		"The request is not one that a proxy can send on.",
		"Send an absolute http:// or https:// address, or CONNECT host:port, without credentials in it."}},
	{is(errLoop), answer{http.StatusBadGateway, "proxy_loop_detected", policy.ReasonLoop,
		"The request has been through this proxy before.",
		"Look for a proxy setting that points back here."}},
	{is(audit.ErrUnwritable), answer{http.StatusServiceUnavailable, "proxy_internal_error", policy.ReasonAudit,
		"The record of this request cannot be written, and nothing goes out unrecorded.",
		"Whoever runs the proxy finds the cause in its log and its health."}},
	{is(errInternal), answer{http.StatusInternalServerError, "proxy_internal_error", policy.ReasonInternal,
		"The proxy has lost this request to a fault of its own.",
		"Whoever runs the proxy finds it in the log, under this id."}},
	{is(egress.ErrForbiddenPort), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonPort,
		"The proxy does not go to this port.",
		"Whoever runs the proxy can allow it with egress.ports."}},
	{is(egress.ErrForbiddenAddr), answer{http.StatusForbidden, "destination_ip_prohibited", policy.ReasonAddress,
		"The proxy does not go to this address: it is private, local or reserved.",
		"Whoever runs the proxy can allow it with egress.allow_private."}},
	{is(pace.ErrTooBusy), answer{http.StatusTooManyRequests, "connection_limit_reached", policy.ReasonPace,
		"The wait for this host would be longer than the proxy lets requests wait.",
		"Send fewer requests at once, or try again later."}},
	{is(context.Canceled), answer{statusClientLeft, "http_request_error", policy.ReasonClient,
		"The client left.", ""}},
	{as[*net.DNSError], answer{http.StatusBadGateway, "dns_error", policy.ReasonOrigin,
		"The host's name could not be resolved.",
		"Look for a mistake in the name; the proxy tries again after a while."}},
	{isCertificate, answer{http.StatusBadGateway, "tls_certificate_error", policy.ReasonOrigin,
		"The origin's certificate could not be verified.",
		"If the certificate comes from a private authority, whoever runs the proxy can name that in egress.extra_ca."}},
	{isTLS, answer{http.StatusBadGateway, "tls_protocol_error", policy.ReasonOrigin,
		"The origin and the proxy could not agree on TLS.",
		"Look whether the origin speaks TLS on this port."}},
	{isDial, unavailable},
	{isTimeout, answer{http.StatusGatewayTimeout, "http_response_timeout", policy.ReasonOrigin,
		"The origin took too long to answer.", "Try again later."}},
	{func(error) bool { return true }, unavailable},
}

var unavailable = answer{http.StatusBadGateway, "destination_unavailable", policy.ReasonOrigin,
	"The origin could not be reached, or broke off.", "Try again later."}

// statusClientLeft is for the record of a request whose client did not wait;
// nobody reads the answer. It is nginx's number for the same.
const statusClientLeft = 499

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func isCertificate(err error) bool {
	return as[*tls.CertificateVerificationError](err) || as[x509.UnknownAuthorityError](err) ||
		as[x509.HostnameError](err) || as[x509.CertificateInvalidError](err)
}

func isTLS(err error) bool {
	return as[tls.RecordHeaderError](err) || as[tls.AlertError](err)
}

// isDial says whether no connection came about, however long it took.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSilent)
}

func answerTo(err error) answer {
	for _, a := range answers {
		if a.match(err) {
			return a.answer
		}
	}
	return unavailable
}

// overrides says whether the answer's reason takes the place of the decision's:
// not where a request that was allowed met a failing origin, nor where the
// decision itself refused.
func (a answer) overrides(d policy.Decision) bool {
	switch a.reason {
	case "":
		return false
	case policy.ReasonOrigin:
		return d.Verdict != policy.Allow && d.Reason == ""
	}
	return true
}
