package warc

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"time"
)

// Media types of records (ISO 28500 6.3, 8).
const (
	HTTPRequest  = "application/http; msgtype=request"
	HTTPResponse = "application/http; msgtype=response"
	Fields       = "application/warc-fields"
)

// IdenticalPayload is the WARC-Profile of a revisit record whose payload is that of an earlier
// record (ISO 28500 6.7.2).
const IdenticalPayload = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"

// End follows the block of each record (ISO 28500 4).
const End = "\r\n\r\n"

// AppendType appends the first line of a record and its WARC-Type.
func AppendType(b []byte, kind string) []byte {
	return AppendField(append(b, "WARC/1.1\r\n"...), "WARC-Type", kind)
}

// AppendField appends a field of a record's head, or of a block of type Fields. A control character in value
// becomes a space, so that the value cannot begin another field.
func AppendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	for i := range len(value) {
		if c := value[i]; c < ' ' || c == 0x7f {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return append(b, "\r\n"...)
}

// AppendHead appends the head of a record.
func AppendHead(b []byte, version string, fields Header) []byte {
	b = append(append(append(b, "WARC/"...), version...), "\r\n"...)
	for _, f := range fields {
		b = AppendField(b, f.Name, f.Value)
	}
	return append(b, "\r\n"...)
}

// AppendLength appends Content-Length, and ends the head of a record.
func AppendLength(b []byte, length int64) []byte {
	return append(strconv.AppendInt(append(b, "Content-Length: "...), length, 10), "\r\n\r\n"...)
}

// FormatTime writes a time as WARC-Date has it (ISO 28500 5.4), in milliseconds.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// NewID returns a new WARC-Record-ID, a random UUID (RFC 9562 5.4).
func NewID() string {
	var u [16]byte
	// Read returns no error since Go 1.24.
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("<urn:uuid:%x-%x-%x-%x-%x>", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
