package robots

// RFC 9309 2.2.2 compares paths and patterns in one form: escapes are in
// upper case, unreserved octets (RFC 3986 2.3) stand for themselves, octets
// over 0x7F are escaped, reserved ones are left as they are. Two of these
// have a meaning in patterns, so that RFC 9309 2.2.3 has them escaped where
// they are meant literally: a literal "*" is "%2A" in the one form; a literal
// "$" is "$", for the anchor is told apart by a flag of its rule.

// normalisePerStep is how many bytes of a path are normalised in the time of one step.
const normalisePerStep = 8

// isNormal reports whether path begins with "/" and is normalised already. It returns false for
// any path with a "%".
func isNormal(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	last := len(path) - 8
	if last < 0 {
		for i := range len(path) {
			if c := path[i]; c == '%' || c == '*' || c >= 0x80 {
				return false
			}
		}
		return true
	}
	// Eight octets at a time, the last eight once more where they overlap: the
	// top bit of each octet of odd is set where there is one to be looked at.
	// A borrow may set one above such an octet too, but never alone.
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for i := 0; i < len(path); i += 8 {
		p := path[min(i, last):]
		w := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 |
			uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		percent, star := w^'%'*ones, w^'*'*ones
		odd := w | (percent-ones)&^percent | (star-ones)&^star
		if odd&tops != 0 {
			return false
		}
	}
	return true
}

// appendPath appends a normalised path. It adds a missing "/" in front: "" is "/" (RFC 9110
// 4.2.3), "?q" is "/?q".
func appendPath(dst []byte, path string) []byte {
	if path == "" || path[0] != '/' {
		dst = append(dst, '/')
	}
	return appendNormal(dst, path, "%2A")
}

const upperHex = "0123456789ABCDEF"

// appendNormal appends a normalised path or pattern, with star for each "*".
func appendNormal(dst []byte, s, star string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			if isUnreserved(c) || c == '$' {
				dst = append(dst, c)
			} else {
				dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
			}
			i += 2
		case c >= 0x80:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		case c == '*':
			dst = append(dst, star...)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendEscaped appends a pattern as Google's open-source parser compares it: escapes in upper
// case, bytes over 0x7F escaped, nothing decoded.
func appendEscaped(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			dst = append(dst, '%', toUpper(s[i+1]), toUpper(s[i+2]))
			i += 2
		case c >= 0x80:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func isUnreserved(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

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

func toUpper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c &^ 0x20
	}
	return c
}
