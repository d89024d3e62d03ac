package audit

import "strconv"

// Archived says where an archive has the WARC record of a response.
type Archived struct {
	// Name of the file once it is complete.
	File string

	// Of the record in the file, in bytes.
	Offset int64

	// WARC-Record-ID.
	ID string
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
