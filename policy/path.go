package policy

import "strings"

// withoutDots gives a path and query in the form without dot segments (RFC
// 3986 5.2.4), in which an origin will read them, and whether that is another.
// A dot may be escaped: it is an unreserved character.
func withoutDots(pathQuery string) (plain string, other bool) {
	path, query := pathQuery, ""
	if i := strings.IndexByte(pathQuery, '?'); i >= 0 {
		path, query = pathQuery[:i], pathQuery[i:]
	}
	if !strings.Contains(path, "/.") && !strings.Contains(path, "/%2") {
		return pathQuery, false
	}
	var out []string
	segments := strings.Split(path, "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch undot(s) {
		case ".":
		case "..":
			if len(out) > 1 { // the first is what stands before the leading slash
				out = out[:len(out)-1]
			}
		default:
			out = append(out, s)
			continue
		}
		if last {
			out = append(out, "") // "/a/." is "/a/"
		}
	}
	plain = strings.Join(out, "/") + query
	return plain, plain != pathQuery
}

// undot gives "." and ".." for the segments that mean them.
func undot(segment string) string {
	if len(segment) > len("%2e%2e") {
		return segment
	}
	return strings.ReplaceAll(strings.ReplaceAll(segment, "%2e", "."), "%2E", ".")
}
