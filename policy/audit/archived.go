package audit

import "strconv"

// Archived says where an archive has the WARC record of a response.
type Archived struct {
	File   string // name of the file once it is complete
	Offset int64  // of the record in the file, in bytes
	ID     string // WARC-Record-ID
}

// append appends the member warc, if the response was archived.
func (a *Archived) append(b []byte) []byte {
	if a.ID == "" {
		return b
	}
	b = appendString(append(b, `,"warc":{"file":`...), a.File)
	b = strconv.AppendInt(append(b, `,"offset":`...), a.Offset, 10)
	return append(appendString(append(b, `,"id":`...), a.ID), '}')
}
