package robots

import "strings"

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// trimSpace trims only ASCII white space, unlike strings.TrimSpace.
func trimSpace(s string) string {
	for len(s) > 0 && isSpace(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// hasPrefixFold reports whether s begins with lower, without regard to case.
func hasPrefixFold(s, lower string) bool {
	return len(s) >= len(lower) && strings.EqualFold(s[:len(lower)], lower)
}

// compareFold compares lower, which is in lower case, with s, whose case does not matter.
func compareFold(lower, s string) int {
	for i := 0; i < len(lower) && i < len(s); i++ {
		if c := toLower(s[i]); lower[i] != c {
			return int(lower[i]) - int(c)
		}
	}
	return len(lower) - len(s)
}

// lower returns a name with its ASCII letters in lower case. Bytes over 0x7F stay as they are.
func lower(s string) string {
	b := make([]byte, len(s))
	for i := range len(s) {
		b[i] = toLower(s[i])
	}
	return string(b)
}

// clip limits the length of untrusted text in an error.
func clip(s string) string {
	const limit = 100
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
