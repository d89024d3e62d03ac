package warc

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

// SURT returns the key of a URL in an index (Sort-friendly URI Reordering Transform): the host
// reversed, then the port, the path and the query. It unites URLs that are likely to be the same
// page in the way that pywb does, which looks up keys that it computes itself: without the
// scheme, www., the case of letters, the order of parameters, session IDs and a slash at the end
// of the path. URLs without a host are their own keys. A key has no spaces.
func SURT(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || strings.ContainsAny(scheme, "/?#:") {
		return escape(url, "")
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	key := surtHost(strings.ToLower(scheme), authority) + ")" + surtPath(path)
	if query = surtQuery(query); query != "" {
		key += "?" + query
	}
	return key
}

// EscapeURL returns a URL as the records have it: the bytes that browsers escape everywhere in a URL are
// percent-encoded (URL Standard, query percent-encode set), and nothing else changes.
func EscapeURL(url string) string {
	return escape(url, `"#<>`)
}

var (
	www         = regexp.MustCompile(`^www[0-9]*\.`)
	pathSession = regexp.MustCompile(`/\((?:[0-9a-z]{24}|(?:[a-z]\([0-9a-z]{24}\))+)\)(/[^?]+\.aspx)`)
	sessions    = regexp.MustCompile(`(?:(?:jsessionid|phpsessid|sid)=[0-9a-z]{32}|` +
		`aspsessionid[a-z]{8}=[a-z]{24}|cfid=[^&]+&cftoken=[^&]+)(?:&|$)`)
)

// surtHost returns the key of a host and its port.
func surtHost(scheme, authority string) string {
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	port := ""
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		host, port = host[:colon], host[colon:]
	}
	if port == ":" || scheme == "http" && port == ":80" || scheme == "https" && port == ":443" {
		port = ""
	}
	host = unescape(strings.Trim(host, "[]"))
	if ascii, err := idna.ToASCII(host); err == nil {
		host = ascii
	}
	host = strings.Trim(strings.ReplaceAll(strings.ToLower(host), "..", "."), ".")
	labels := strings.Split(www.ReplaceAllString(host, ""), ".")
	slices.Reverse(labels)
	return escape(strings.Join(labels, ",")+port, "%#")
}

// surtPath returns the key of a path, without empty segments and without "." and "..".
func surtPath(path string) string {
	var kept []string
	for i, segment := range strings.Split(unescape(path), "/") {
		switch {
		case i == 0 || segment == "." || segment == "":
		case segment == ".." && len(kept) > 0:
			kept = kept[:len(kept)-1]
		default:
			kept = append(kept, segment)
		}
	}
	path = strings.ToLower(escape("/"+strings.Join(kept, "/"), "%#"))
	return pathSession.ReplaceAllString(path, "$1")
}

// surtQuery returns the key of a query.
func surtQuery(query string) string {
	query = strings.ToLower(escape(unescape(query), "%#"))
	query = sessions.ReplaceAllString(query, "")
	parts := strings.Split(query, "&")
	// The order is that of the names, then of the values. A parameter without a value comes before one with an empty value.
	slices.SortFunc(parts, func(a, b string) int {
		aName, aValue, _ := strings.Cut(a, "=")
		bName, bValue, _ := strings.Cut(b, "=")
		return cmp.Or(strings.Compare(aName, bName), strings.Compare(aValue, bValue), len(a)-len(b))
	})
	return strings.Join(parts, "&")
}

// unescape decodes percent-encoded bytes until there are none.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		out = append(out, s[i])
		for n := len(out); n >= 3 && out[n-3] == '%'; n = len(out) {
			var decoded [1]byte
			if _, err := hex.Decode(decoded[:], out[n-2:]); err != nil {
				break
			}
			out = append(out[:n-3], decoded[0])
		}
	}
	return string(out)
}

// escape percent-encodes the bytes that are not printable ASCII, spaces, and the characters in unsafe.
func escape(s, unsafe string) string {
	encoded := func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(unsafe, c) }
	if !strings.ContainsFunc(s, encoded) {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if encoded(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
