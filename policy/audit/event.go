package audit

import (
	"strconv"
	"time"

	"robotsproxy/policy/audit/trail"
)

// An event is a line that speaks of the trail itself.
type event struct {
	name   string // torn, unchained, replaced or lost
	detail string
	file   string // what was set aside is in, beside the audit; "": nothing was
	octets int64  // of it
	sha256 string // of it
	count  int64  // of lost records
}

func (e event) append(b []byte, o *Options) []byte {
	now := time.Now()
	return bounded(b, func(b []byte, limit int) ([]byte, int) { return e.appendWithin(b, now, o, limit), 0 })
}

func (e *event) appendWithin(b []byte, at time.Time, o *Options, limit int) []byte {
	b = appendKind(b, at, trail.KindEvent, o, limit)
	b = appendString(append(b, `,"event":`...), e.name)
	b = appendOptional(b, `,"detail":"`, e.detail, limit)
	b = appendOptional(b, `,"file":"`, e.file, limit)
	if e.octets > 0 {
		b = strconv.AppendInt(append(b, `,"octets":`...), e.octets, 10)
	}
	b = appendOptional(b, `,"sha256":"`, e.sha256, limit)
	if e.count > 0 {
		b = strconv.AppendInt(append(b, `,"count":`...), e.count, 10)
	}
	return b
}
