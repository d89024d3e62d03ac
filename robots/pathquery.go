package robots

import "strings"

// PathQuery returns the part of a URL that rules match: path, parameters and query, without
// scheme, authority and fragment; "/" if it is empty. PathQuery does not validate the URL: it
// reads anything as Google's open-source parser does, and changes nothing. The targets of requests
// are read by [NewTarget] and [ParseTarget].
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
	return path
}

// IsRobotsTxt reports whether a path and query is that of the robots.txt. It may always be fetched,
// whatever the rules say (RFC 9309 2.2.2). With a query it is a page as any other.
func IsRobotsTxt(pathAndQuery string) bool { return pathAndQuery == "/robots.txt" }

// CutFTPType cuts the type code from the end of the path and query of an ftp URL (RFC 1738
// 3.2.2): ";type=" and one of a, i and d. The type code is no part of a file's name. code is in
// lower case; 0: there is none.
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
