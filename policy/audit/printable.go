package audit

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// EscapeJSON escapes the characters in JSON text that are not printable. encoding/json leaves
// most of them, and they could move a terminal's cursor or change its text direction.
func EscapeJSON(text []byte) []byte {
	return escape(text, func(r rune) bool { return r == '\n' || unicode.IsPrint(r) })
}

// EscapeASCII escapes all characters in JSON text that are not ASCII, and DEL.
func EscapeASCII(text []byte) []byte { return escape(text, func(r rune) bool { return r < 0x7f }) }

// escape escapes the characters in JSON text that are not to be kept.
func escape(text []byte, keep func(r rune) bool) []byte {
	if !slices.ContainsFunc(text, func(c byte) bool { return c >= 0x7F }) {
		return text
	}
	out := make([]byte, 0, 2*len(text))
	for _, r := range string(text) {
		if keep(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = appendUnicode(out, r)
		}
	}
	return out
}
