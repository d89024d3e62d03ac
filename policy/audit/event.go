package audit

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"robotsproxy/policy/audit/trail"
)

// An event is a line about the trail itself.
type event struct {
	// As in trail.Entry.
	name   string
	detail string

	// name of the file to which a file or bytes were moved; "": none.
	file string

	// Size of that file.
	fileBytes int64

	// Hash of that file.
	sha256 string

	// Records that were lost, or refusals that were counted.
	count int64

	// Number of these refusals for each reason; none is zero.
	reasons map[string]int64

	// Number of clients that were refused.
	clients int

	// The client, if there is one; "": there are several, or it is not named.
	client string

	// Seq of the first line that is removed; 0: none is.
	first uint64

	// Seq of the last line that is removed.
	last uint64

	// What has started, or was reloaded.
	process Process

	// keys of the configuration that have changed.
	keys []string

	// Requests that have no records.
	ids []string
}

func (e event) appendWithin(b []byte, o *Options, limit int) (line []byte, url int) {
	b = appendKind(b, time.Now(), trail.KindEvent, o, limit)
	b = appendString(append(b, `,"event":`...), e.name)
	b = appendOptional(b, `,"detail":"`, e.detail, limit)
	b = appendOptional(b, `,"file":"`, e.file, limit)
	b = appendNumber(b, `,"octets":`, e.fileBytes)
	b = appendOptional(b, `,"sha256":"`, e.sha256, limit)
	b = appendNumber(b, `,"count":`, e.count)
	if len(e.reasons) > 0 {
		b = append(b, `,"reasons":{`...)
		for _, reason := range slices.Sorted(maps.Keys(e.reasons)) {
			b = appendString(b, reason)
			b = append(strconv.AppendInt(append(b, ':'), e.reasons[reason], 10), ',')
		}
		b[len(b)-1] = '}'
	}
	b = appendNumber(b, `,"clients":`, e.clients)
	b = appendStrings(b, `,"ids":[`, e.ids, limit)
	b = appendStrings(b, `,"keys":[`, e.keys, limit)
	b = appendOptional(b, `,"config_sha256":"`, e.process.Config, limit)
	b = appendOptional(b, `,"ca_sha256":"`, e.process.CA, limit)
	b = appendOptional(b, `,"version":"`, e.process.Version, limit)
	b = appendNumber(b, `,"first_seq":`, e.first)
	b = appendNumber(b, `,"last_seq":`, e.last)
	return appendOptional(b, `,"client":"`, e.client, limit), 0
}
