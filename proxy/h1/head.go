package h1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ParseHead reads the head of a message that b begins with. It returns the start line, the fields
// by their canonical names, and the length of the head in bytes, with the empty line. It is stricter
// than net/http: the length is 0 if b does not begin with a complete head as in RFC 9112 2.1 and 5,
// where every line ends with CR LF and contains neither, a field name is a token directly followed by
// a colon, and a value is text (RFC 9110 5.5). ParseHead does not interpret the start line or the fields.
//
// A name or a value keeps the text of all fields in memory, and a part of the start line keeps the
// line: clone what is stored for long.
func ParseHead(b []byte) (start string, fields http.Header, size int) {
	const end = "\r\n\r\n"
	first, whole := bytes.IndexByte(b, '\n'), bytes.Index(b, []byte(end))
	if first < 2 || whole < 0 || bytes.IndexByte(b, '\r') != first-1 {
		return "", nil, 0
	}
	size = whole + len(end)
	text := string(b[first+1 : size-len("\r\n")])
	n := strings.Count(text, "\n")
	fields = make(http.Header, n)
	// All values share one allocation.
	all := make([]string, 0, n)
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
		all = append(all, value)
		fields[name] = all[len(all)-1 : len(all) : len(all)]
	}
	return string(b[:first-1]), fields, size
}
