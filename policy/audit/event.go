package audit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"robotsproxy/policy/audit/trail"
)

// An event is a line about the trail itself. It has the fields of an Entry from Event to LastSeq, Host and Reason, and Client for
// refusals of one client that were counted; its Time and Kind are not used.
type event trail.Entry

func (e *event) appendWithin(b []byte, o *Options, limit int) (line []byte, url int) {
	b = appendKind(b, time.Now(), trail.KindEvent, o, limit)
	b = appendOptional(b, `,"host":"`, e.Host, limit)
	b = appendOptional(b, `,"reason":"`, e.Reason, limit)
	b = appendString(append(b, `,"event":`...), e.Event)
	b = appendOptional(b, `,"detail":"`, e.Detail, limit)
	if !e.Until.IsZero() {
		b = append(appendTime(append(b, `,"until":"`...), e.Until), '"')
	}
	b = appendOptional(b, `,"by":"`, e.By, limit)
	b = appendOptional(b, `,"file":"`, e.File, limit)
	b = appendNumber(b, `,"octets":`, e.FileBytes)
	b = appendOptional(b, `,"sha256":"`, e.SHA256, limit)
	b = appendNumber(b, `,"count":`, e.Count)
	if len(e.Reasons) > 0 {
		b = append(b, `,"reasons":{`...)
		for _, reason := range slices.Sorted(maps.Keys(e.Reasons)) {
			b = appendString(b, reason)
			b = append(strconv.AppendInt(append(b, ':'), e.Reasons[reason], 10), ',')
		}
		b[len(b)-1] = '}'
	}
	b = appendNumber(b, `,"clients":`, e.Clients)
	b = appendStrings(b, `,"ids":[`, e.IDs, limit)
	b = appendStrings(b, `,"keys":[`, e.Keys, limit)
	b = appendOptional(b, `,"config_sha256":"`, e.Config, limit)
	b = appendOptional(b, `,"ca_sha256":"`, e.CA, limit)
	b = appendOptional(b, `,"include":"`, e.Include, limit)
	b = appendOptional(b, `,"version":"`, e.Program, limit)
	b = appendOptional(b, `,"origin":"`, e.Origin, limit)
	b = appendNumber(b, `,"first_seq":`, e.FirstSeq)
	b = appendNumber(b, `,"last_seq":`, e.LastSeq)
	return appendOptional(b, `,"client":"`, e.Client, limit), 0
}

// unlikeItsHash completes the detail of a changedEvent.
const unlikeItsHash = "does not match its hash"

func changedEvent(seq uint64, what string) *event {
	return &event{Event: trail.EventChanged, FirstSeq: seq, LastSeq: seq, Detail: fmt.Sprintf("the line seq %d %s", seq, what)}
}
