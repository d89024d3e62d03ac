package fetch

import "strings"

// DropQueries removes the queries of the URLs in a text, such as an error: what follows a question mark in a word with a
// slash before it, or between quotation marks. A query ends with its word: at white space, or at the closing quotation mark.
func DropQueries(text string) string {
	if !strings.Contains(text, "?") {
		return text
	}
	b := make([]byte, 0, len(text))
	var quoted, escaped, url, query bool
	for _, c := range []byte(text) {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"' && (quoted || !query):
			quoted = !quoted
			url, query = quoted, false
		case !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
			url, query = false, false
		case c == '/':
			url = true
		case c == '?' && url:
			query = true
		}
		if !query {
			b = append(b, c)
		}
	}
	return string(b)
}
