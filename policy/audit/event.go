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
	name      string // as in trail.Entry
	detail    string
	file      string           // name of the file to which a file or bytes were moved; "": none
	fileBytes int64            // size of that file
	sha256    string           // hash of that file
	count     int64            // records that were lost, or refusals that were counted
	reasons   map[string]int64 // number of these refusals for each reason; none is zero
	clients   int              // number of clients that were refused
	client    string           // the client, if there is one; "": there are several, or it is not named
	first     uint64           // seq of the first line that is removed; 0: none is
	last      uint64           // seq of the last line that is removed
	process   Process          // what has started, or was reloaded
	keys      []string         // keys of the configuration that have changed
	ids       []string         // requests that have no records
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
