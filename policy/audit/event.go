package audit

import (
	"strconv"
	"time"
)

// An event is a line that speaks of the trail itself.
type event struct {
	kind    string // torn, unchained, replaced or lost
	replica string // see Options
	detail  string
	file    string // what was set aside is in, beside the audit; "": nothing was
	octets  int64  // of it
	sha256  string // of it
	count   int64  // of lost records
}

// append writes the event as a JSON object without its end.
func (e event) append(b []byte) []byte {
	b = appendTime(append(b, `{"time":"`...), time.Now())
	b = appendString(append(b, `","event":`...), e.kind)
	b = appendOptional(b, `,"replica":"`, e.replica)
	b = appendOptional(b, `,"detail":"`, e.detail)
	b = appendOptional(b, `,"file":"`, e.file)
	if e.octets > 0 {
		b = strconv.AppendInt(append(b, `,"octets":`...), e.octets, 10)
	}
	b = appendOptional(b, `,"sha256":"`, e.sha256)
	if e.count > 0 {
		b = strconv.AppendInt(append(b, `,"count":`...), e.count, 10)
	}
	return b
}
