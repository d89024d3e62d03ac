package audit

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeJSON escapes in JSON text what a terminal would not print as it stands, which
// encoding/json lets pass: no stranger's string can move the cursor or turn a line around.
func EscapeJSON(text []byte) []byte {
	if !slices.ContainsFunc(text, func(c byte) bool { return c >= 0x7F }) {
		return text
	}
	out := make([]byte, 0, 2*len(text))
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	return out
}
