package policy

import (
	"bytes"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"robotsproxy/robots"
)

// A Form is the set of changes that a server makes to the path of a request
// before it looks for a page. The zero Form is the path as it was sent.
type Form uint16

// The changes. All servers remove dot segments (RFC 3986 5.2.4); many make the other changes.
const (
	// SlashesDecoded: "%2F", "%5C" and a backslash are slashes; for some servers only the first is, or only the others.
	SlashesDecoded Form = 1 << iota
	// ParametersStripped: ";" and what follows it in a segment is removed (RFC 3986 3.3); some servers take "%3B" for ";".
	ParametersStripped
	// SlashesMerged: several slashes are one.
	SlashesMerged
	// PunctuationDecoded: "%3A" and other escaped punctuation is what it stands for.
	PunctuationDecoded
	// DotsRemoved: dot segments are removed.
	DotsRemoved
	// AsFTP: the path is the one that an FTP server is asked for, see ftpForms.
	AsFTP

	// The rest are no changes, but facts about a path that changesOf finds with them: it has a "%3B", a "%2F", and a "%5C" or
	// a backslash.
	semicolonsEscaped
	slashesEscaped
	backslashes
)

// The changes that count under all readings of a path, and under literal ones.
const (
	allChanges     = ^AsFTP
	literalChanges = DotsRemoved
)

// String returns the name of the form, which is `reading` in the audit: the names of the
// changes, joined by "+", or "" for the path as it was sent.
func (f Form) String() string {
	var words []string
	names := [...]string{"slashes-decoded", "parameters-stripped", "slashes-merged", "punctuation-decoded", "dots-removed", "as-ftp"}
	for i, word := range names {
		if f&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, "+")
}

// changesOf returns the changes that a server may make to a path with a query. It scans
// the path once.
func changesOf(pathQuery string) (found Form) {
	before := byte(0)
	for i := 0; i < len(pathQuery); i++ {
		c := pathQuery[i]
		switch c {
		case '?':
			return found
		case '.':
			if before == '/' {
				found |= DotsRemoved
			}
		case '/':
			if before == '/' {
				found |= SlashesMerged
			}
		case '\\':
			found |= SlashesDecoded | backslashes
			// Dots behind a backslash may be a segment.
			c = '/'
		case ';':
			found |= ParametersStripped
		case '%':
			switch of := escaped(pathQuery, i); {
			case of == '/':
				found |= SlashesDecoded | slashesEscaped
				c = '/'
			case of == '\\':
				found |= SlashesDecoded | backslashes
				c = '/'
			case of == ';':
				found |= ParametersStripped | semicolonsEscaped
			case of == '.' && before == '/':
				found |= DotsRemoved
			case plainPunctuation[of] != 0:
				found |= PunctuationDecoded
			}
			if c == '/' {
				i += len("2F")
			}
		}
		before = c
	}
	return found
}

// A changeOrder says in which order a server makes its changes. In the zero order it decodes
// slashes, strips parameters, merges slashes and then removes dot segments.
type changeOrder uint8

// Other orders are any combination of these.
const (
	stripFirst         changeOrder = 1 << iota // parameters are stripped before slashes are decoded
	semicolonsFirst                            // "%3B" is decoded before parameters are stripped
	dotsFirst                                  // dot segments are also removed before all other changes
	dotsThenMerge                              // dot segments are also removed before slashes are merged
	keepBackslashes                            // "%5C" and backslashes are no slashes
	keepEscapedSlashes                         // "%2F" is no slash
)

// ordersOf returns the bits of an order that may matter if the chosen changes of those found
// are made.
func ordersOf(choice, found Form) (bits changeOrder) {
	const both = SlashesDecoded | ParametersStripped
	if choice&both == both {
		bits |= stripFirst
	}
	if choice&ParametersStripped != 0 && found&semicolonsEscaped != 0 {
		bits |= semicolonsFirst
	}
	if mixed := slashesEscaped | backslashes; choice&SlashesDecoded != 0 && found&mixed == mixed {
		bits |= keepBackslashes | keepEscapedSlashes
	}
	if found&DotsRemoved == 0 {
		return bits
	}
	if choice&both != 0 {
		bits |= dotsFirst
	}
	if choice&SlashesMerged != 0 {
		bits |= dotsThenMerge
	}
	return bits
}

// forms returns the other forms of a path with its query, where servers may make
// the changes found: each subset of these changes in each order, always with dot segments
// removed at the end. There are at most 210 such forms, each given once; the form with only its
// dot segments removed is the first. The query stays as it is. forms adds to spent what it
// takes to make them, and gives a form twice rather than go on when that is too much. With AsFTP the
// forms are those of ftpForms.
func forms(pathQuery string, found Form, spent *robots.Effort) iter.Seq2[string, Form] {
	if found == AsFTP {
		return func(yield func(string, Form) bool) {
			for _, path := range ftpForms(pathQuery) {
				if !yield(path, AsFTP) {
					return
				}
			}
		}
	}
	const both, keepAll = SlashesDecoded | ParametersStripped, keepBackslashes | keepEscapedSlashes
	if found&both != 0 {
		// These two changes may make several slashes of one.
		found |= SlashesMerged
	}
	return func(yield func(string, Form) bool) {
		path, query := pathQuery, ""
		if i := strings.IndexByte(pathQuery, '?'); i >= 0 {
			path, query = pathQuery[:i], pathQuery[i:]
		}
		seen := append(make([]string, 0, 11), path)
		for choice := range DotsRemoved {
			if choice&^found != 0 {
				continue
			}
			bits := ordersOf(choice, found)
			for order := range bits + 1 {
				// To keep both kinds of slashes is another choice: that without SlashesDecoded.
				if order&^bits != 0 || order&keepAll == keepAll {
					continue
				}
				// A byte changed takes as long as a step of matching.
				*spent += robots.Effort(len(path))
				read, form := readAs(path, choice, order)
				if *spent <= robots.MaxEffort && slices.Contains(seen, read) {
					continue
				}
				seen = append(seen, read)
				if !yield(read+query, form) {
					return
				}
			}
		}
	}
}

// readAs makes the chosen changes to a path in an order, and removes its dot segments. form is
// the set of those that changed the path.
func readAs(path string, choice Form, o changeOrder) (read string, form Form) {
	choice |= DotsRemoved
	do := func(f Form, change func(string) string) {
		if choice&f == 0 {
			return
		}
		if changed := change(path); changed != path {
			path, form = changed, form|f
		}
	}
	do(PunctuationDecoded, withPunctuation)
	strip := withoutParameters
	if o&semicolonsFirst != 0 {
		strip = func(path string) string { return withoutParameters(semicolons.Replace(path)) }
	}
	if o&dotsFirst != 0 {
		do(DotsRemoved, withoutDots)
	}
	if o&stripFirst != 0 {
		do(ParametersStripped, strip)
	}
	do(SlashesDecoded, func(path string) string { return withSlashes(path, o) })
	do(ParametersStripped, strip)
	if o&dotsThenMerge != 0 {
		do(DotsRemoved, withoutDots)
	}
	do(SlashesMerged, mergeSlashes)
	do(DotsRemoved, withoutDots)
	return path, form
}

// escaped returns the byte that the escape at s[i] stands for, or 0 if there is none.
func escaped(s string, i int) byte {
	if i+3 > len(s) || s[i] != '%' {
		return 0
	}
	// ParseUint returns 0 with an error.
	b, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
	return byte(b)
}

// decode replaces bytes of a path, whether they are escaped or not, by what replacement has for them; 0: they stay.
func decode(path string, replacement *[256]byte) string {
	var out strings.Builder
	out.Grow(len(path))
	for i := 0; i < len(path); i++ {
		c, of, size := path[i], path[i], 1
		if c == '%' {
			of, size = escaped(path, i), len("%2F")
		}
		if by := replacement[of]; by != 0 {
			c = by
			i += size - 1
		}
		out.WriteByte(c)
	}
	return out.String()
}

// withSlashes decodes the escaped slashes of a path, and turns backslashes into slashes, as far
// as the order says.
func withSlashes(path string, o changeOrder) string {
	var slashes [256]byte
	if o&keepEscapedSlashes == 0 {
		slashes['/'] = '/'
	}
	if o&keepBackslashes == 0 {
		slashes['\\'] = '/'
	}
	return decode(path, &slashes)
}

// withPunctuation decodes the escaped punctuation of a path.
func withPunctuation(path string) string { return decode(path, &plainPunctuation) }

// plainPunctuation has the bytes that are the same for a server whether a path has them escaped or not, though not for a rule
// (RFC 9309 2.2.2). Other changes are about slashes and semicolons, and a rule is compared with unreserved characters, "$"
// and "*" in one spelling.
var plainPunctuation = func() (same [256]byte) {
	for _, c := range []byte(`!"&'()+,:<=>@[]^{|}` + "`") {
		same[c] = c
	}
	return same
}()

// withoutParameters cuts each segment of a path at its first ";".
func withoutParameters(path string) string {
	var out strings.Builder
	out.Grow(len(path))
	for path != "" {
		segment, rest := path, ""
		if i := strings.IndexByte(path[1:], '/'); i >= 0 {
			segment, rest = path[:1+i], path[1+i:]
		}
		segment, _, _ = strings.Cut(segment, ";")
		out.WriteString(segment)
		path = rest
	}
	return out.String()
}

// semicolons decodes "%3B".
var semicolons = strings.NewReplacer("%3b", ";", "%3B", ";")

// mergeSlashes replaces several slashes in a row by one.
func mergeSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// withoutDots removes the dot segments of a path, which begins with a slash (RFC 3986 5.2.4). A dot may be
// escaped: it is an unreserved character.
func withoutDots(path string) string {
	if !strings.Contains(path, "/.") && !strings.Contains(path, "/%2") {
		return path
	}
	out := make([]byte, 0, len(path))
	for rest := path; rest != ""; {
		end := 1 + strings.IndexByte(rest[1:], '/')
		if end == 0 {
			end = len(rest)
		}
		dots := dotsOf(rest[1:end])
		switch dots {
		case 0:
			out = append(out, rest[:end]...)
		case 2:
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		}
		if dots > 0 && end == len(rest) {
			// "/a/." is "/a/".
			out = append(out, '/')
		}
		rest = rest[end:]
	}
	return string(out)
}

// pathWithoutDots returns a path and query without dot segments, which all origins remove.
func pathWithoutDots(pathQuery string) string {
	path, query, asked := strings.Cut(pathQuery, "?")
	if path = withoutDots(path); asked {
		path += "?" + query
	}
	return path
}

// dotsOf returns the number of dots of a dot segment, and 0 for any other segment.
func dotsOf(segment string) (dots int) {
	for ; segment != ""; dots++ {
		switch {
		case dots == 2:
			return 0
		case segment[0] == '.':
			segment = segment[1:]
		case len(segment) >= 3 && strings.EqualFold(segment[:3], "%2e"):
			segment = segment[3:]
		default:
			return 0
		}
	}
	return dots
}

// ftpForms returns the other forms of a path in which an FTP server may get it. They have
// no type code (which lists a directory whether or not its name ends in a slash) and no
// dot segments. There are two spellings, because FTP decodes characters that rules keep
// apart (RFC 3986 2.2, RFC 9309 2.2.2).
func ftpForms(pathQuery string) []string {
	plain, code := robots.CutFTPType(pathQuery)
	if code == 'd' && !strings.HasSuffix(plain, "/") {
		plain += "/"
	}
	plain = pathWithoutDots(plain)
	forms := []string{plain}
	if decoded, err := url.PathUnescape(plain); err == nil {
		isPlain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }
		forms = append(forms, escapePath(decoded, isPlain), escapePath(decoded, isUnreserved))
	}
	return slices.DeleteFunc(forms, func(form string) bool { return form == pathQuery })
}

// escapePath writes a decoded path: what is not literal, but for slashes, is escaped.
func escapePath(path string, literal func(byte) bool) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c == '/' || literal(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// isUnreserved reports whether a byte is an unreserved character (RFC 3986 2.3).
func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
