package robots

import "strings"

// DropQueries removes the queries of the URLs in a text, such as an error: what follows a question mark in a word with a
// slash before it. A word ends at white space or a quotation mark; what stands between two quotation marks is one word.
func DropQueries(text string) string {
	if !strings.Contains(text, "?") {
		return text
	}
	b := make([]byte, 0, len(text))
	var quoted, slash, query bool
	for _, c := range []byte(text) {
		switch {
		case c == '"':
			quoted, slash, query = !quoted, false, false
		case !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
			slash, query = false, false
		case c == '/':
			slash = true
		case c == '?' && slash:
			query = true
		}
		if !query {
			b = append(b, c)
		}
	}
	return string(b)
}
