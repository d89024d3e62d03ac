package robots

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A Target is what a request asks for, as its client has sent it (RFC 9110 7.1).
type Target struct {
	Origin Origin

	// PathQuery is the path and the query byte for byte (RFC 9110 7.7): escapes stay as they are,
	// and so do broken escapes and bytes that no URI contains. It begins with "/". The only other
	// value is "*", which means the whole origin (RFC 9112 3.2.4).
	PathQuery string
}

// wholeOrigin is the PathQuery of a request about an origin as a whole.
const wholeOrigin = "*"

// NewTarget returns the Target of a request with a method. pathQuery is what the client has sent
// behind the authority, or in place of a URL (RFC 9112 3.2.1). If the path is empty, it is "/", or
// "*" for OPTIONS without a query. The error says what cannot be forwarded: a blank, a control byte,
// a fragment, or a path that does not begin with a slash.
func NewTarget(method string, o Origin, pathQuery string) (Target, error) {
	switch {
	case pathQuery == "" && method == "OPTIONS", pathQuery == wholeOrigin && method == "OPTIONS":
		return Target{o, wholeOrigin}, nil
	case pathQuery == "":
		return Target{o, "/"}, nil
	case pathQuery[0] == '?':
		// An empty path is "/" (RFC 9110 4.2.3).
		pathQuery = "/" + pathQuery
	case pathQuery == wholeOrigin:
		return Target{}, errors.New("the target * is for OPTIONS only")
	}
	if fault := faultOf(pathQuery); fault >= 0 {
		part := "path"
		if strings.IndexByte(pathQuery[:fault], '?') >= 0 {
			part = "query"
		}
		return Target{}, fmt.Errorf("the %s contains %s", part, nameOf(pathQuery[fault]))
	}
	if pathQuery[0] != '/' {
		return Target{}, errors.New("the path does not begin with a slash")
	}
	return Target{o, pathQuery}, nil
}

// faultOf returns the index of the first byte that ends a request target, or -1: a blank or a
// control byte ends it in HTTP/1.1, and "#" does so for some servers. A proxy must not correct such
// a target (RFC 9112 3.2).
func faultOf(pathQuery string) int {
	for i := 0; i < len(pathQuery); i++ {
		if c := pathQuery[i]; c <= ' ' || c == 0x7F || c == '#' {
			return i
		}
	}
	return -1
}

// nameOf returns words for a byte at which faultOf stops.
func nameOf(c byte) string {
	switch c {
	case ' ':
		return "a blank"
	case '#':
		return "a fragment, which begins with #"
	}
	return fmt.Sprintf("the control byte 0x%02X", c)
}

// ParseTarget returns the Target of a request with a method for an absolute URL (RFC 9112 3.2.2).
// It returns the errors of [NewTarget] and [ParseOrigin], and one for a URL with credentials.
func ParseTarget(method, address string) (Target, error) {
	scheme, authority, pathQuery, ok := SplitURL(address)
	if !ok {
		return Target{}, errors.New("no scheme: a URL begins with http://, https:// or ftp://")
	}
	if strings.IndexByte(authority, '@') >= 0 {
		return Target{}, errors.New("credentials in the URL")
	}
	o, err := ParseOrigin(scheme, authority)
	if err != nil {
		return Target{}, err
	}
	return NewTarget(method, o, pathQuery)
}

// SplitURL cuts an absolute URL into its scheme, its authority, and the rest, which it does not
// change. ok is false for other text. It validates nothing.
func SplitURL(address string) (scheme, authority, pathQuery string, ok bool) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || strings.ContainsAny(scheme, "/?#") {
		return "", "", "", false
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return scheme, rest[:end], rest[end:], true
	}
	return scheme, rest, "", true
}

// String returns the URL of t. Its path and query are PathQuery; the whole origin has none.
func (t Target) String() string {
	if t.IsWhole() {
		return t.Origin.String()
	}
	return t.Origin.String() + t.PathQuery
}

// URL returns t in a form in which net/http sends PathQuery as it is, also in HTTP/2. HTTP/1.1 is an
// exception: net/http sends a PathQuery that begins with "//" in absolute form.
func (t Target) URL() *url.URL {
	authority := t.Origin.String()[len(t.Origin.Scheme)+len("://"):]
	u := &url.URL{Scheme: t.Origin.Scheme, Host: authority, Opaque: t.PathQuery}
	// net/http would take what follows "//" for an authority.
	if strings.HasPrefix(t.PathQuery, "//") {
		u.Opaque = "//" + authority + t.PathQuery
	}
	return u
}

// PathQueryOf returns the PathQuery of a URL that [Target.URL] has made, and the path and query that
// net/http sends for any other URL.
func PathQueryOf(u *url.URL) string {
	rest, absolute := strings.CutPrefix(u.Opaque, "//")
	switch {
	case !absolute:
		return u.RequestURI()
	case strings.HasPrefix(rest, u.Host):
		return rest[len(u.Host):]
	}
	return u.Opaque
}

// IsWhole reports whether t is an origin as a whole.
func (t Target) IsWhole() bool { return t.PathQuery == wholeOrigin }

// MatchPath returns the path and query that rules match. A request about the whole origin is
// matched as one for "/".
func (t Target) MatchPath() string {
	if t.IsWhole() {
		return "/"
	}
	return t.PathQuery
}

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
