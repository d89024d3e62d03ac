package robots

import "strings"

// PathQuery gives the part of a URL that rules are about: path, parameters and
// query, without scheme, authority and fragment; "/" where there is none. It
// does not judge the URL, and reads what is no URL as Google's open parser
// does. Octets over 0x7F, which no URL has, are escaped (RFC 3987 3.1);
// everything else stays as it is.
func PathQuery(url string) string {
	url = strings.TrimPrefix(url, "//")
	fragment := strings.IndexByte(url, '#')
	from := 0
	if i := strings.Index(url, "://"); i >= 0 && i <= strings.IndexAny(url, "/?;") {
		from = i + len("://")
	}
	i := strings.IndexAny(url[from:], "/?;")
	if i < 0 {
		return "/"
	}
	from += i
	if fragment >= 0 {
		if fragment < from {
			return "/"
		}
		url = url[:fragment]
	}
	path := url[from:]
	if path[0] != '/' {
		path = "/" + path
	}
	return escapeHigh(path)
}

// escapeHigh escapes the octets over 0x7F.
func escapeHigh(s string) string {
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < 0x80 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return b.String()
}

// IsRobotsTxt reports whether a path is that of the file itself, whatever its
// query. It may always be fetched (RFC 9309 2.2.2); the rules are not asked.
func IsRobotsTxt(pathAndQuery string) bool {
	rest, ok := strings.CutPrefix(pathAndQuery, "/robots.txt")
	return ok && (rest == "" || rest[0] == '?')
}

// CutFTPType cuts from the path and query of an ftp URL the type code at its
// end (RFC 1738 3.2.2), which is no part of a file's name: ";type=" and one of
// a, i and d, given in lower case; 0 where none stands there.
func CutFTPType(pathAndQuery string) (path string, code byte) {
	const mark = ";type="
	at := len(pathAndQuery) - len(mark) - 1
	if at < 0 || !strings.EqualFold(pathAndQuery[at:at+len(mark)], mark) {
		return pathAndQuery, 0
	}
	switch code = pathAndQuery[at+len(mark)] | 0x20; code {
	case 'a', 'i', 'd':
		return pathAndQuery[:at], code
	}
	return pathAndQuery, 0
}
