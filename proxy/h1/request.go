package h1

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// parseRequest reads the request that b begins with, as http.ReadRequest does, into a copy of
// template. Its URL has no path and no query: they are in RequestURI, as they were sent. It reads only
// simple requests: GET, HEAD or CONNECT of HTTP/1.1 with one Host, without a body and without fields that
// change the protocol, whose head is complete and well-formed (RFC 9112). It returns the length of the
// head in bytes, and nil and 0 for any other request.
//
// noinline: its stack frame would otherwise stay live for the whole request, and double that
// goroutine's stack.
//
//go:noinline
func parseRequest(b []byte, template *http.Request) (r *http.Request, size int) {
	start, fields, size := ParseHead(b)
	line, ok := strings.CutSuffix(start, " HTTP/1.1")
	if !ok || unsuitable(fields) {
		return nil, 0
	}
	hosts := fields["Host"]
	if len(hosts) != 1 || !httpguts.ValidHostHeader(hosts[0]) {
		return nil, 0
	}
	delete(fields, "Host")
	if pragma := fields["Pragma"]; len(pragma) > 0 && pragma[0] == "no-cache" && fields["Cache-Control"] == nil {
		// This is what net/http adds (RFC 9111 5.4).
		fields["Cache-Control"] = []string{"no-cache"}
	}
	method, target, _ := strings.Cut(line, " ")
	u := parseTarget(method, target, template.URL)
	if u == nil {
		return nil, 0
	}
	r = new(http.Request)
	*r = *template
	// The host of an absolute target comes before the Host field (RFC 9112 3.2.2).
	r.Method, r.RequestURI, r.URL, r.Host, r.Header = method, target, u, u.Host, fields
	if r.Host == "" {
		// A stored host must not keep the whole head in memory.
		r.Host = strings.Clone(hosts[0])
	}
	r.Close = httpguts.HeaderValuesContainsToken(fields["Connection"], "close")
	return r, size
}

// parseTarget returns the scheme and the authority of a request target (RFC 9112 3.2), which are empty
// in originForm, and nothing else: net/url cannot parse every path that clients send, and changes some.
// It returns nil for a target that net/http refuses, and for one with a "#".
func parseTarget(method, target string, originForm *url.URL) (u *url.URL) {
	if target == "" || !Passes(target) {
		return nil
	}
	switch {
	case method == http.MethodConnect && strings.IndexByte(target, '/') < 0 && strings.IndexByte(target, '?') < 0:
		if u, _ = url.Parse("http://" + target); u != nil {
			u.Scheme = ""
		}
	case method != http.MethodGet && method != http.MethodHead:
	case strings.HasPrefix(target, "/"):
		return originForm
	default:
		if u, _ = url.Parse(target[:authorityEnd(target)]); u != nil && (u.Scheme == "" || u.Opaque != "") {
			return nil
		}
	}
	return u
}

// authorityEnd returns where the authority of an absolute URL ends, or 0 for other text.
func authorityEnd(target string) int {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok {
		return 0
	}
	authority, _, _ := strings.Cut(rest, "/")
	authority, _, _ = strings.Cut(authority, "?")
	return len(scheme) + len("://") + len(authority)
}

// Passes reports whether net/http's server can parse the path and the query of a request target, so that
// it passes the request to its handler. It is false for a target with a "#" too, which is invalid (RFC
// 9112 3.2).
func Passes(target string) bool {
	query := false
	for i := range len(target) {
		switch c := target[i]; {
		case c <= ' ' || c == 0x7f || c == '#':
			return false
		case c == '?':
			// net/http does not read the query.
			query = true
		case c == '%' && !query && !isEscape(target[i:]):
			return false
		}
	}
	return true
}

// isEscape reports whether s begins with a complete escape (RFC 3986 2.1).
func isEscape(s string) bool {
	if len(s) < len("%00") {
		return false
	}
	_, err := strconv.ParseUint(s[1:3], 16, 8)
	return err == nil
}

// unsuitable reports whether a request with these fields is not a simple one: it has a body, expects an
// interim response, asks for another protocol, or its Connection is not a list of tokens.
func unsuitable(fields http.Header) bool {
	for name, values := range fields {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Trailer", "Expect", "Upgrade", "Http2-Settings":
			return true
		case "Connection":
			if slices.ContainsFunc(values, isNotList) {
				return true
			}
		}
	}
	return false
}

// isNotList reports whether a field value is not a comma-separated list of tokens (RFC 9110 5.6.1).
func isNotList(value string) bool {
	for token := range strings.SplitSeq(value, ",") {
		if token = textproto.TrimString(token); token != "" && !httpguts.ValidHeaderFieldName(token) {
			return true
		}
	}
	return false
}
