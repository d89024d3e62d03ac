package runner

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/inbound"
)

// maxCause bounds the text of a cause, in bytes.
const maxCause = 200

// causeOf says in a few words why a request that no rule disallowed was not allowed, or was allowed and not sent. The
// text may have bytes of the origin.
func causeOf(r *audit.Record) string {
	err, reason := cmp.Or(r.Decision.Err, r.Err), r.Decision.Reason
	what, network := networkCauses[reason]
	// A cached robots.txt allowed the request.
	if r.Outcome() == policy.Allowed {
		what, network = "not sent: ", true
	}
	if network && err != nil {
		return humanize.Clip(what+networkCause(err), maxCause)
	}
	if reason == policy.ReasonMalformed && errors.Is(err, inbound.ErrTLSInTheClear) {
		return inbound.ErrTLSInTheClear.Error()
	}
	if reason == policy.ReasonPace {
		return cmp.Or(paceCause(err, &r.Decision.Pace), reasonCause(reason))
	}
	return reasonCause(reason)
}

// networkCauses has the reasons whose errors are those of a connection, and what the cause says before the error.
var networkCauses = map[policy.Reason]string{
	policy.ReasonOrigin:      "",
	policy.ReasonUnreachable: "no usable robots.txt: ",
	policy.ReasonParent:      "the upstream proxy (egress.parent, or parent in hosts) failed: ",
}

// reasonCause is the cause where only the reason is known.
func reasonCause(r policy.Reason) string {
	text := cmp.Or(explain.Reason(string(r)), string(r))
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToLower(first)) + text[size:]
}

// networkCause names what failed, without the steps that led there and without addresses.
func networkCause(err error) string {
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		if d.IsNotFound {
			return "the name does not resolve"
		}
		return strings.TrimSpace("no reply from the name server "+d.Server) + ": " + lastStep(d)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		return humanize.Error(op.Err)
	}
	if c, ok := errors.AsType[*egress.CertificateError](err); ok {
		return c.Error()
	}
	text := humanize.Error(err)
	// The URL has no part in the cause.
	if step, ok := strings.CutPrefix(text, "fetch "); ok {
		_, text, _ = strings.Cut(step, ": ")
	}
	return text
}

// lastStep returns what a name server's failure comes down to, without the addresses of the steps.
func lastStep(d *net.DNSError) string {
	text := d.Err[strings.LastIndex(d.Err, ": ")+1:]
	return humanize.Error(errors.New(strings.TrimSpace(text)))
}

// paceCause names the setting that did not let a request wait, and how many requests at once it lets
// through; "" if err does not tell, or the limits are not known.
func paceCause(err error, l *pace.Limits) string {
	busy, ok := errors.AsType[*pace.BusyError](err)
	if !ok || l.PerSecond <= 0 {
		return ""
	}
	var bound string
	most := 0
	switch busy.Reason {
	case pace.WaitTooLong:
		bound = "the wait would be longer than pace.max_wait (" + humanize.Duration(l.MaxWait) + ")"
		if busy.Slowed > l.Interval() {
			return bound + ", because the host responds slowly"
		}
		most = max(1, int(l.MaxWait/l.Interval()))
	case pace.QueueFull:
		bound = fmt.Sprintf("pace.max_queue (%d) requests were waiting", l.MaxQueue)
		most = l.MaxQueue
	case pace.ConcurrencyFull:
		bound = fmt.Sprintf("pace.max_concurrent (%d) requests were in flight for all of pace.max_wait (%s)",
			l.MaxConcurrent, humanize.Duration(l.MaxWait))
		most = l.MaxConcurrent
	case pace.BackedOff:
		return "the host answered 429 or 503, and its back-off is longer than a request may wait"
	default:
		return ""
	}
	return fmt.Sprintf("%s; send at most %d at once to avoid this", bound, most)
}
