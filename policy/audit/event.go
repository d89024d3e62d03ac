package audit

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"robotsproxy/policy/audit/trail"
)

// An event is a line that speaks of the trail itself.
type event struct {
	name    string // as in trail.Entry
	detail  string
	file    string           // what was set aside is in, beside the audit; "": nothing was
	octets  int64            // of it
	sha256  string           // of it
	count   int64            // of records that were lost, or refusals that were counted
	reasons map[string]int64 // how many of the refusals each reason has; none is zero
	clients int              // how many clients the refusals are of
	client  string           // that client, if there is one; "": there are several, or it is not named
	first   uint64           // seq of the first line that is removed; 0: none is
	last    uint64           // seq of the last one
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
	if len(e.reasons) > 0 {
		b = append(b, `,"reasons":{`...)
		for _, reason := range slices.Sorted(maps.Keys(e.reasons)) {
			b = appendString(b, reason)
			b = append(strconv.AppendInt(append(b, ':'), e.reasons[reason], 10), ',')
		}
		b[len(b)-1] = '}'
	}
	if e.clients > 0 {
		b = strconv.AppendInt(append(b, `,"clients":`...), int64(e.clients), 10)
	}
	if e.first > 0 {
		b = strconv.AppendUint(append(b, `,"first_seq":`...), e.first, 10)
		b = strconv.AppendUint(append(b, `,"last_seq":`...), e.last, 10)
	}
	return appendOptional(b, `,"client":"`, e.client, limit)
}
