package h1

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// parseRequest reads the request that b begins with, as http.ReadRequest does, into a copy of
// template. It reads only simple requests: GET, HEAD or CONNECT of HTTP/1.1 with one Host, without
// a body and without fields that change the protocol, whose head is complete and well-formed (RFC
// 9112). It returns the length of the head in bytes, and nil and 0 for any other request.
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
		fields["Cache-Control"] = []string{"no-cache"} // RFC 9111 5.4
	}
	method, target, _ := strings.Cut(line, " ")
	u := parseTarget(method, target)
	if u == nil {
		return nil, 0
	}
	r = new(http.Request)
	*r = *template
	r.Method, r.RequestURI, r.URL, r.Host, r.Header = method, target, u, u.Host, fields // RFC 9112 3.2.2
	if r.Host == "" {
		r.Host = strings.Clone(hosts[0]) // a stored host must not keep the whole head in memory
	}
	r.Close = httpguts.HeaderValuesContainsToken(fields["Connection"], "close")
	return r, size
}

// parseTarget parses a request target (RFC 9112 3.2). It returns nil for an invalid one.
func parseTarget(method, target string) (u *url.URL) {
	for _, c := range []byte(target) {
		if c <= ' ' || c >= 0x7f {
			return nil
		}
	}
	switch {
	case target == "":
		return nil
	case method == http.MethodGet, method == http.MethodHead:
		u, _ = url.ParseRequestURI(target)
	case method == http.MethodConnect:
		if u, _ = url.ParseRequestURI("http://" + target); u != nil {
			u.Scheme = ""
		}
	}
	return u
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
