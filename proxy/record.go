package proxy

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/inbound"
)

// newRecord creates the record of a request from the address remote.
func newRecord(rec *audit.Record, remote string) {
	rec.Time, rec.ID, rec.Remote = time.Now(), audit.NewID(), remote
}

// countContact counts an attempt to connect that failed with err, unless it cannot have reached the host. One that the
// client broke off takes the turn of a request each time.
func countContact(slot *pace.Slot, err error) {
	again, ok := errors.AsType[*egress.RetryError](err)
	switch {
	case errors.Is(err, context.Canceled):
		slot.Sent()
	case err == nil, ok && again.Repeated, as[*net.DNSError](err), egress.LocalError(err),
		errors.Is(err, egress.ErrForbiddenAddr), errors.Is(err, egress.ErrForbiddenPort):
	default:
		slot.Contacted()
	}
}

// writeRecord writes the record of a request that ended, with err if it failed.
func writeRecord(to audit.Sink, rec *audit.Record, err error) error {
	// The decision says everything about a refusal by it.
	if !as[refusedError](err) {
		rec.Err = err
	}
	return to.Write(rec)
}

// recordedTarget returns the request target of a request for the record, without userinfo.
func recordedTarget(in *inbound.Request) string {
	if in.HTTP.ProtoMajor == 2 && strings.HasPrefix(in.Sent, "/") {
		return withoutUserinfo(in.HTTP.Host) + in.Sent
	}
	return withoutUserinfo(in.Sent)
}

// withoutUserinfo removes a possible password from a target, so that the record of a
// refused request does not contain it.
func withoutUserinfo(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	// Without "//", everything before a query may be meant as an authority.
	from, ends := 0, "?"
	if i := strings.Index(target, "://"); i >= 0 {
		from = i + len("://")
		if rest := target[from:]; rest != "" && strings.IndexAny(rest, "/?#") != 0 {
			ends = "/?#"
		}
	}
	authority := target[from:]
	if i := strings.IndexAny(authority, ends); i >= 0 {
		authority = authority[:i]
	}
	return target[:from] + target[from+strings.LastIndexByte(authority, '@')+1:]
}

// keptOfLongURL is how many bytes of a target that is malformed, or of the path and query of a URL that
// is too long, are repeated in the refusal. Of the latter, the record has as many.
const keptOfLongURL = 1 << 10

// beginningOf returns the first bytes of a target, at most keptOfLongURL.
func beginningOf(target string) string { return target[:min(len(target), keptOfLongURL)] }
