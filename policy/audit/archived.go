package audit

import (
	"strconv"

	"robotsproxy/policy/audit/trail"
)

// Archived says where an archive has the WARC record of a response.
type Archived = trail.Archived

// appendArchived appends the member warc, if the response was archived.
func appendArchived(b []byte, a *Archived) []byte {
	if a.ID == "" {
		return b
	}
	b = appendString(append(b, `,"warc":{"file":`...), a.File)
	b = strconv.AppendInt(append(b, `,"offset":`...), a.Offset, 10)
	return append(appendString(append(b, `,"id":`...), a.ID), '}')
}
