package audit

import (
	"bytes"
	"math/bits"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"robotsproxy/policy/audit/trail"
)

// A line is the content of one line of the trail: a [Record] for a request, a fetchLine or
// an event.
type line interface {
	// appendWithin appends the line as a JSON object without its end, which
	// trail.AppendLink appends. Its strings have at most limit bytes, except for the URL;
	// url is the length of the URL in the line. A line that is not a request's begins with
	// appendKind.
	appendWithin(b []byte, o *Options, limit int) (line []byte, url int)
}

const (
	// maxRest bounds a line without its URL and without what trail.AppendLink appends, in
	// bytes. With that it is 5 KiB.
	maxRest = 5<<10 - trail.MaxLink - len(trail.VersionMember)
	// minText is the lowest limit for strings, in bytes, in a line that would exceed maxRest.
	minText = 60
	// minClient is the lowest limit for the name of a client, in bytes: filters and reports need the whole
	// name, which has at most 100 characters.
	minClient = 128
)

// appendLine appends a line. While the line without its URL is longer than maxRest, it halves
// the limit for strings, which shortens only the longest ones.
func appendLine(b []byte, what line, o *Options) []byte {
	for limit := trail.MaxText; ; limit = max(limit/2, minText) {
		line, url := what.appendWithin(b, o, limit)
		if len(line)-len(b)-url <= maxRest || limit <= minText {
			return line
		}
	}
}

// appendKind appends the beginning of a line that is not a request's.
func appendKind(b []byte, at time.Time, kind string, o *Options, limit int) []byte {
	b = appendTime(append(b, `{"time":"`...), at)
	b = appendString(append(b, `","kind":`...), kind)
	return appendOptional(b, `,"replica":"`, o.Replica, limit)
}

// appendURLText is appendText for the URL of a fetch, or for text that is no URL. It percent-encodes
// what is not printable.
func appendURLText(b []byte, url string, limit int) []byte {
	return appendText(b, percentEncoded(url[:min(len(url), limit+1)]), limit, len(url))
}

// percentEncoded returns a URL in which each byte that is not part of a printable character
// is percent-encoded. It takes at most three times its length in a line.
func percentEncoded(url string) string {
	return percentEncode(url, func(r rune, size int) bool { return r != utf8.RuneError && unicode.IsPrint(r) })
}

// percentEncode returns a URL in which the bytes that are not part of a character to keep are
// percent-encoded. A byte that is not UTF-8 is utf8.RuneError of size 1.
func percentEncode(url string, keep func(r rune, size int) bool) string {
	if plainPrefix(url) == len(url) {
		return url
	}
	b := make([]byte, 0, len(url))
	for url != "" {
		r, n := utf8.DecodeRuneInString(url)
		if keep(r, n) {
			b = append(b, url[:n]...)
		} else {
			for _, c := range []byte(url[:n]) {
				b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
			}
		}
		url = url[n:]
	}
	return string(b)
}

// appendTime appends a time in UTC as RFC 3339 with all nine digits of the second, so that
// lines sort by time. The time package is fast for RFC 3339 without a fraction only.
func appendTime(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(b, time.RFC3339)
	b = append(b[:len(b)-len("Z")], ".000000000Z"...)
	for i, ns := len(b)-2, t.Nanosecond(); ns > 0; i, ns = i-1, ns/10 {
		b[i] += byte(ns % 10)
	}
	return b
}

// appendSeconds appends a duration in seconds.
func appendSeconds(b []byte, d time.Duration) []byte {
	if d%time.Second == 0 {
		return strconv.AppendInt(b, int64(d/time.Second), 10)
	}
	return strconv.AppendFloat(b, d.Seconds(), 'f', -1, 64)
}

// appendMillis appends a duration in milliseconds with up to three decimals.
func appendMillis(b []byte, d time.Duration) []byte {
	us := max(0, d.Round(time.Microsecond).Microseconds())
	b = strconv.AppendInt(b, us/1000, 10)
	if us %= 1000; us == 0 {
		return b
	}
	b = append(b, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
	return bytes.TrimRight(b, "0")
}

// appendOptional appends a string member, unless it is empty. member is everything before
// the value. The value has at most limit bytes in the line.
func appendOptional(b []byte, member, value string, limit int) []byte {
	if value == "" {
		return b
	}
	return append(appendText(append(b, member...), value, limit, len(value)), '"')
}

// appendStrings appends a member that is a list of strings, unless it is empty.
func appendStrings(b []byte, member string, values []string, limit int) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, member...)
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(append(b, '"'), v, limit, len(v)), '"')
	}
	return append(b, ']')
}

// appendNumber appends a number member, unless it is not positive.
func appendNumber[N int | int64 | uint64](b []byte, member string, n N) []byte {
	if n <= 0 {
		return b
	}
	return strconv.AppendUint(append(b, member...), uint64(n), 10)
}

// appendTrue appends a member that is true, unless is is false.
func appendTrue(b []byte, member string, is bool) []byte {
	if !is {
		return b
	}
	return append(append(b, member...), "true"...)
}

// appendDelay appends a member in seconds, rounded to milliseconds, unless it is not positive.
func appendDelay(b []byte, member string, d time.Duration) []byte {
	if d <= 0 {
		return b
	}
	return appendSeconds(append(b, member...), d.Round(time.Millisecond))
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	return append(appendEscaped(append(b, '"'), s), '"')
}

// appendText is appendEscaped with at most limit bytes; limit is at least minText. It cuts
// a longer string between characters and escapes, and appends its original length
// (trail.AppendCut). whole is that length; s may be only the beginning of the string.
func appendText(b []byte, s string, limit, whole int) []byte {
	start := len(b)
	if n := plainPrefix(s); n == len(s) && n == whole && n <= limit {
		return append(b, s...)
	}
	most := limit - trail.MaxCut
	// end is that of the text that fits before the mark of the cut.
	end := start
	for rest := s[:min(len(s), limit+1)]; rest != "" && len(b)-start <= limit; {
		n := plainPrefix(rest)
		if n > 0 {
			if len(b)-start < most {
				end = min(len(b)+n, start+most)
			}
			b = append(b, rest[:n]...)
		} else {
			var r rune
			r, n = utf8.DecodeRuneInString(rest)
			if b = appendRune(b, r); len(b)-start <= most {
				end = len(b)
			}
		}
		rest = rest[n:]
	}
	if len(b)-start > limit || whole > len(s) {
		b = trail.AppendCut(b[:end], whole)
	}
	return b
}

// appendEscaped appends a string as the inside of a JSON string. Beyond what JSON requires,
// it escapes all characters that are not printable, so that no line can move a terminal's
// cursor or change its text direction.
func appendEscaped(b []byte, s string) []byte {
	for {
		n := plainPrefix(s)
		b = append(b, s[:n]...)
		if s = s[n:]; s == "" {
			return b
		}
		r, n := utf8.DecodeRuneInString(s)
		b = appendRune(b, r)
		s = s[n:]
	}
}

// plainPrefix returns how many bytes at the beginning of s need no escape. It checks eight
// bytes at a time: the highest bit of a byte in special is set if the byte needs one. After the
// first such byte the bits may be wrong, because of the borrow.
func plainPrefix(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash, del := x^ones*'"', x^ones*'\\', x^ones*0x7f
		special := (x | (x - ones*' ') | (quote - ones) | (slash - ones) | (del - ones)) & high
		if special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			break
		}
	}
	return i
}

// appendRune appends one character of a JSON string, escaped if it has to be.
func appendRune(b []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r != utf8.RuneError && unicode.IsPrint(r):
		return utf8.AppendRune(b, r)
	}
	return appendUnicode(b, r)
}

// appendUnicode appends a character in the form \u0000, or in two of them (RFC 8259 7).
func appendUnicode(b []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		return appendUnicode(appendUnicode(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	const hexDigits = "0123456789abcdef"
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

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
