package robots

import "strings"

// RFC 9309 2.2.2 compares paths and patterns in a normalised form: escapes are in upper case,
// unreserved characters (RFC 3986 2.3) are not escaped, bytes that no URI may contain are, and
// reserved characters are left as they are. Two reserved characters have a meaning in patterns, and
// are escaped where they are meant literally (RFC 9309 2.2.3): a literal "*" is normalised to "%2A",
// a literal "$" to "%24". So an incomplete escape, such as that of "/%2", is compared with every
// escape alike.
//
// A rule also matches if the unified forms of its pattern and of the path match, which have reserved
// characters in one form too (RFC 9309 2.2.2, table, row 2): unescaped, except for "/" and "?"
// before the query, where servers take the escape for another thing than the character.

// normalisePerStep is how many bytes of a path are normalised in the time of one step.
const normalisePerStep = 8

// isNormal reports whether path begins with "/" and is normalised already. It returns false for
// any path with a "%", and for a few that are normalised but rare: those with "!", "#" or "~".
func isNormal(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	last := len(path) - 8
	if last < 0 {
		for i := range len(path) {
			if mayChange[path[i]] {
				return false
			}
		}
		return true
	}
	// The loop takes eight bytes at a time; the last eight may overlap those before. The top bit of
	// each byte of odd is set if that byte of the path may not be normal. A borrow or a carry may set
	// the bit of the byte above such a byte too, but of no other byte.
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for i := 0; i < len(path); i += 8 {
		p := path[min(i, last):]
		w := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 |
			uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		star, backquote := w^'*'*ones, w^'`'*ones
		// A byte of brackets is zero for <, >, \, ^, | and ~.
		brackets := (w | 0x62*ones) ^ 0x7E*ones
		// Bytes under 0x26 are controls, blank, ", $ and %; those over 0x7A are {, |, }, ~ and DEL.
		odd := w | (w-0x26*ones)&^w | (w + 0x05*ones) |
			(star-ones)&^star | (backquote-ones)&^backquote | (brackets-ones)&^brackets
		if odd&tops != 0 {
			return false
		}
	}
	return true
}

// mayChange says of each byte whether appendForm may change it. It never changes.
var mayChange = func() (all [256]bool) {
	for c := range all {
		all[c] = c == '%' || c == '*' || c == '$' || notInURI(byte(c))
	}
	return all
}()

// escapes says of each byte what an escape of it becomes. It never changes.
var escapes = func() (all [256]escape) {
	for c := range all {
		switch c := byte(c); c {
		case ':', '@', '!', '\'', '(', ')', ',', ';', '=', '+', '&', '[', ']':
			all[c] = unescapeUnified
		case '/', '?':
			all[c] = unescapeInQuery
		default:
			if isUnreserved(c) {
				all[c] = unescape
			}
		}
	}
	return all
}()

// An escape is what an escaped byte becomes.
type escape uint8

const (
	keepEscape      escape = iota
	unescape               // the byte itself in both forms
	unescapeUnified        // the byte itself in the unified form
	unescapeInQuery        // the byte itself in the unified form, behind the first "?"
)

// notInURI reports whether no URI may contain a byte (RFC 3986 2), so that a client sends it
// percent-encoded.
func notInURI(c byte) bool {
	switch c {
	case '"', '<', '>', '\\', '^', '`', '{', '|', '}':
		return true
	}
	return c <= ' ' || c >= 0x7F
}

// appendForms appends the forms of a path to dst, which is empty, and returns them: its normalised
// form and, if that differs, its unified form. It adds a missing "/" in front: "" is "/" (RFC 9110
// 4.2.3), "?q" is "/?q". A dialect with AsWritten reads a path as a C string, which ends at NUL,
// and expects bytes over 0x7F to be escaped, which they are in all patterns.
func (d *Dialect) appendForms(dst []byte, path string) (normalised, unified []byte) {
	if d.AsWritten {
		path, _, _ = strings.Cut(path, "\x00")
	}
	root := ""
	if path == "" || path[0] != '/' {
		root = "/"
	}
	dst = append(dst, root...)
	if d.AsWritten {
		return appendNonASCII(dst, path), nil
	}
	normalised, differs := appendForm(dst, path, "%2A", formNormalised)
	if !differs || d.ReservedAsWritten {
		return normalised, nil
	}
	// It may take another array, and keeps what is in normalised.
	both, _ := appendForm(append(normalised, root...), path, "%2A", formUnified)
	return both[:len(normalised)], both[len(normalised):]
}

// isWritten reports whether a dialect with AsWritten compares a path as it is.
func isWritten(path string) bool {
	return path != "" && path[0] == '/' && isASCII(path) && strings.IndexByte(path, 0) < 0
}

// isNormalPattern reports whether a pattern without its anchor is normalised already.
func isNormalPattern(pattern string) bool {
	if isNormal(pattern) {
		return true
	}
	for i := range len(pattern) {
		if c := pattern[i]; mayChange[c] && c != '*' {
			return false
		}
	}
	return true
}

// literalDollar is a "$" that is no anchor, normalised.
const literalDollar = "%24"

const upperHex = "0123456789ABCDEF"

// forms is a path or a pattern in both forms.
type forms struct{ normalised, unified string }

// A form is one of the forms in which patterns and paths are compared.
type form bool

const (
	formNormalised form = false
	formUnified    form = true
)

// appendForm appends a path or pattern in a form, with star for each "*". differs reports whether the
// two forms differ.
func appendForm(dst []byte, s, star string, f form) (_ []byte, differs bool) {
	// query says that the first "?" was before s[i].
	query := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case !mayChange[c]:
			query = query || c == '?'
			dst = append(dst, c)
		case c == '*':
			dst = append(dst, star...)
		case c != '%':
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		case i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]):
			dst = append(dst, '%')
		default:
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
			e := escapes[c]
			if e == unescapeUnified || e == unescapeInQuery && query {
				differs = true
				if f == formUnified {
					e = unescape
				}
			}
			if e == unescape {
				dst = append(dst, c)
			} else {
				dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
			}
		}
	}
	return dst, differs
}

// appendEscaped appends a pattern as Google's open-source parser compares it: escapes in upper
// case, bytes over 0x7F escaped, nothing decoded.
func appendEscaped(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			dst = append(dst, strings.ToUpper(s[i:i+3])...)
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

// appendNonASCII appends a path with the bytes over 0x7F percent-encoded.
func appendNonASCII(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x80 {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}
