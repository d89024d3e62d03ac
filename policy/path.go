package policy

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"robotsproxy/robots"
)

// A Form says what servers do to the path of a request before they look for a
// page, so that it is not the path that was sent: a set. The zero Form is that
// of the path as it was sent.
type Form uint8

// What is done to a path. Dots are removed by all servers (RFC 3986 5.2.4), the
// rest by many.
const (
	SlashesDecoded     Form = 1 << iota // "%2F", "%5C" and a backslash are slashes
	ParametersStripped                  // ";" and what follows it in a segment is gone (RFC 3986 3.3)
	SlashesMerged                       // several slashes are one
	DotsRemoved                         // dot segments are removed
	AsFTP                               // it is the path that an FTP server is asked for: see ftpReadings
)

// String gives the name of the form, which is the audit's `reading`: what is
// done to the path, joined by "+"; "" for the path as it was sent.
func (f Form) String() string {
	if f == 0 {
		return ""
	}
	var words []string
	for i, word := range [...]string{"slashes-decoded", "parameters-stripped", "slashes-merged", "dots-removed", "as-ftp"} {
		if f&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, "+")
}

// unusual says what servers may do to a path with a query that changes it. It
// scans the path once.
func unusual(pathQuery string) (found Form) {
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
			found |= SlashesDecoded
		case ';':
			found |= ParametersStripped
		case '%':
			switch escape := pathQuery[i:min(i+3, len(pathQuery))]; {
			case isSlash(escape):
				found |= SlashesDecoded
			case before == '/' && strings.EqualFold(escape, "%2e"):
				found |= DotsRemoved
			}
		}
		before = c
	}
	return found
}

// readings gives the forms of a path with its query that are other than it was
// sent, where servers may do to it what was found: each choice of that, and dots
// removed. Parameters are stripped before slashes are decoded, or after. These
// are at most ten, each once, and the one with its dots removed alone is the
// first. The query is left as it is. What it takes to make them is added to spent.
func readings(pathQuery string, found Form, spent *robots.Effort) iter.Seq2[string, Form] {
	const both = SlashesDecoded | ParametersStripped
	if found&both != 0 {
		found |= SlashesMerged // there may be several slashes then
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
			for _, stripFirst := range [...]bool{false, true} {
				if stripFirst && choice&both != both {
					continue
				}
				*spent += robots.Effort(len(path) / formed)
				read, form := readAs(path, choice, stripFirst)
				if slices.Contains(seen, read) {
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

// formed is how many bytes of a path are brought into another form in the time
// of a step of matching.
const formed = 1

// readAs does to a path what is chosen, and removes its dots. It gives what of
// that has changed it.
func readAs(path string, choice Form, stripFirst bool) (read string, form Form) {
	do := func(f Form, change func(string) string) {
		if choice&f == 0 {
			return
		}
		if changed := change(path); changed != path {
			path, form = changed, form|f
		}
	}
	if stripFirst {
		do(ParametersStripped, withoutParameters)
	}
	do(SlashesDecoded, withSlashes)
	do(ParametersStripped, withoutParameters)
	do(SlashesMerged, mergeSlashes)
	choice |= DotsRemoved
	do(DotsRemoved, withoutDots)
	return path, form
}

// isSlash says whether an escape is that of a slash or a backslash.
func isSlash(escape string) bool {
	return strings.EqualFold(escape, "%2f") || strings.EqualFold(escape, "%5c")
}

// withSlashes decodes the slashes of a path, and makes slashes of backslashes.
func withSlashes(path string) string {
	var out strings.Builder
	out.Grow(len(path))
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case c == '\\':
			c = '/'
		case c == '%' && i+3 <= len(path) && isSlash(path[i:i+3]):
			c = '/'
			i += 2
		}
		out.WriteByte(c)
	}
	return out.String()
}

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

// mergeSlashes makes one of several slashes.
func mergeSlashes(path string) string {
	if !strings.Contains(path, "//") {
		return path
	}
	var out strings.Builder
	out.Grow(len(path))
	for i := range len(path) {
		if path[i] != '/' || i == 0 || path[i-1] != '/' {
			out.WriteByte(path[i])
		}
	}
	return out.String()
}

// withoutDots removes the dot segments of a path (RFC 3986 5.2.4). A dot may be
// escaped: it is an unreserved character.
func withoutDots(path string) string { // begins with a slash
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
			out = append(out, '/') // "/a/." is "/a/"
		}
		rest = rest[end:]
	}
	return string(out)
}

// dotsOf gives how many dots a dot segment has, and 0 for any other segment.
func dotsOf(segment string) (dots int) {
	if len(segment) > len("%2e%2e") {
		return 0
	}
	for ; segment != ""; dots++ {
		rest, ok := strings.CutPrefix(segment, ".")
		if !ok && len(segment) >= 3 && strings.EqualFold(segment[:3], "%2e") {
			rest, ok = segment[3:], true
		}
		if !ok || dots == 2 {
			return 0
		}
		segment = rest
	}
	return dots
}
