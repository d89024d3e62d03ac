// Package head reads the heads of HTTP/1.1 messages that are written as they should
// be, which nearly all are, for less than net/http's own readers cost. It puts up with
// nothing: whatever else net/http makes something of is for that to read. What a start
// line or a field means is not judged here. Any number of goroutines may use it.
package head

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Parse reads the head that b begins with: its start line, its fields by their
// canonical names, and how many octets it has with the empty line. That is 0 where b
// has no whole head, or one that is not as RFC 9112 2.1 and 5 have it: every line ends
// with CR LF and has neither inside, the name of a field is a token with a colon right
// behind it, and its value is text (RFC 9110 5.5).
//
// A name or a value keeps the octets of all fields in memory, and a piece of the start
// line those of that: who keeps one for long clones it.
func Parse(b []byte) (start string, fields http.Header, octets int) {
	const end = "\r\n\r\n"
	first, whole := bytes.IndexByte(b, '\n'), bytes.Index(b, []byte(end))
	if first < 2 || whole < 0 || bytes.IndexByte(b, '\r') != first-1 {
		return "", nil, 0
	}
	octets = whole + len(end)
	text := string(b[first+1 : octets-len("\r\n")])
	n := strings.Count(text, "\n")
	fields = make(http.Header, n)
	room := make([]string, 0, n) // for all values at once
	for text != "" {
		line, rest, _ := strings.Cut(text, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return "", nil, 0
		}
		text, name, value = rest, http.CanonicalHeaderKey(name), textproto.TrimString(value)
		if before, again := fields[name]; again {
			fields[name] = append(before, value)
			continue
		}
		room = append(room, value)
		fields[name] = room[len(room)-1 : len(room) : len(room)]
	}
	return string(b[:first-1]), fields, octets
}
