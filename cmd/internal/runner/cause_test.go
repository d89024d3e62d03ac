package runner

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/inbound"
)

func certificateError(err error) error {
	return &egress.CertificateError{Server: "a.test:443", Err: &tls.CertificateVerificationError{Err: err}}
}

// TestCause: people read what failed, or which setting did not let the request wait.
func TestCause(t *testing.T) {
	slow := pace.Limits{PerSecond: 0.5, Burst: 1, MaxConcurrent: 2, MaxWait: time.Minute, MaxQueue: 500}
	delayed, ofClient, hasty := slow, slow, slow
	delayed.CrawlDelay = 10 * time.Second
	ofClient.Client = pace.Rate{PerSecond: 0.1, Burst: 1}
	hasty.MaxWait = time.Second
	fetched := func(err error) error { return fmt.Errorf("fetch http://a.test/robots.txt: dial a.test:80: %w", err) }
	busy := func(r pace.Reason) error { return &pace.BusyError{Reason: r, RetryAfter: time.Minute} }
	for _, c := range []struct {
		name   string
		reason policy.Reason
		err    error
		limits pace.Limits
		want   string
	}{
		{"no such name", policy.ReasonOrigin, fetched(&net.DNSError{Err: "no such host", Name: "a.test", Server: "192.0.2.53:53", IsNotFound: true}), slow, "the name does not resolve"},
		{"no name server", policy.ReasonOrigin, fetched(&net.DNSError{Err: "read udp 192.0.2.1:4711->192.0.2.53:53: i/o timeout", Name: "a.test", Server: "192.0.2.53:53", IsTimeout: true}), slow, "no reply from the name server 192.0.2.53:53: timed out"},
		{"an unknown name server", policy.ReasonOrigin, fetched(&net.DNSError{Err: "server misbehaving", Name: "a.test"}), slow, "no reply from the name server: server misbehaving"},
		{"refused", policy.ReasonOrigin, fetched(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), slow, "connection refused"},
		{"reset", policy.ReasonOrigin, &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, slow, "connection reset by peer"},
		{"no answer", policy.ReasonOrigin, &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: 4711}, Err: os.ErrDeadlineExceeded}, slow, "timed out"},
		{"an alert", policy.ReasonOrigin, &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, slow, "remote error: tls: handshake failure"},
		{"an unknown authority", policy.ReasonOrigin, fetched(certificateError(x509.UnknownAuthorityError{})), slow, "the certificate of a.test:443 is signed by no authority that the proxy trusts (egress.extra_ca): x509: certificate signed by unknown authority"},
		{"another name", policy.ReasonOrigin, fetched(certificateError(x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"b.test"}}, Host: "a.test"})), slow,
			"the certificate of a.test:443: x509: certificate is valid for b.test, not a.test"},
		{"old TLS", policy.ReasonOrigin, fmt.Errorf("fetch https://a.test/robots.txt: tls handshake with a.test:443: %w: remote error", egress.ErrOldTLS), slow,
			"tls handshake with a.test:443: the server speaks only TLS 1.0 or 1.1 (for origins: egress.tls_min): remote error"},
		{"a status", policy.ReasonUnreachable, errors.New("fetch http://a.test/robots.txt: status 500"), slow, "no usable robots.txt: status 500"},
		{"a time limit", policy.ReasonUnreachable, fmt.Errorf("fetch http://a.test/robots.txt: no answer: %w", context.DeadlineExceeded), slow, "no usable robots.txt: no answer: timed out"},
		{"TLS in the clear", policy.ReasonMalformed, inbound.ErrTLSInTheClear, slow, inbound.ErrTLSInTheClear.Error()},
		{"the upstream proxy", policy.ReasonParent, os.NewSyscallError("connect", syscall.ECONNREFUSED), slow, "the upstream proxy (egress.parent, or parent in hosts) failed: connection refused"},
		{"no error", policy.ReasonOrigin, nil, slow, "the site could not be reached"},
		{"a long error", policy.ReasonOrigin, errors.New(strings.Repeat("x", 999)), slow, strings.Repeat("x", maxCause-3) + "…"},

		{"the wait by the rate", policy.ReasonPace, busy(pace.WaitTooLong), slow, "the wait would be longer than pace.max_wait (1 min); send at most 30 at once to avoid this"},
		{"the wait by the Crawl-delay", policy.ReasonPace, busy(pace.WaitTooLong), delayed, "the wait would be longer than pace.max_wait (1 min); send at most 6 at once to avoid this"},
		{"the wait by the client's rate", policy.ReasonPace, busy(pace.WaitTooLong), ofClient, "the wait would be longer than pace.max_wait (1 min); send at most 6 at once to avoid this"},
		{"less than one interval", policy.ReasonPace, busy(pace.WaitTooLong), hasty, "the wait would be longer than pace.max_wait (1 s); send at most 1 at once to avoid this"},
		{"a slow host", policy.ReasonPace, &pace.BusyError{Slowed: 5 * time.Second}, slow, "the wait would be longer than pace.max_wait (1 min), because the host responds slowly"},
		{"the queue", policy.ReasonPace, busy(pace.QueueFull), slow, "pace.max_queue (500) requests were waiting; send at most 500 at once to avoid this"},
		{"long responses", policy.ReasonPace, busy(pace.ConcurrencyFull), slow, "pace.max_concurrent (2) requests were in flight for all of pace.max_wait (1 min); send at most 2 at once to avoid this"},
		{"a back-off", policy.ReasonPace, busy(pace.BackedOff), slow, "the host answered 429 or 503, and its back-off is longer than a request may wait"},
		{"streams", policy.ReasonPace, busy(pace.StreamsFull), slow, "the wait for this host would be longer than the proxy permits, or too many requests wait (pace)"},
		{"unknown limits", policy.ReasonPace, busy(pace.QueueFull), pace.Limits{}, "the wait for this host would be longer than the proxy permits, or too many requests wait (pace)"},
		{"an unknown reason", "new", nil, slow, "new"},
	} {
		r := &audit.Record{Decision: policy.Decision{Reason: c.reason, Pace: c.limits}, Err: c.err}
		if got := causeOf(r); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
