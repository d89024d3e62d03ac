package lean

import (
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/proxy/head"
)

// plain reads the request that b begins with, as http.ReadRequest does but into a copy
// of blank, where it is one that is served here: GET, HEAD or CONNECT of HTTP/1.1 with
// one Host, no body and nothing that changes the protocol, whose head is whole and as
// RFC 9112 has it. With it comes how many octets that has; 0: it is no such request.
// Inlined, its room would stand under a request's whole way, and double that stack.
//
//go:noinline
func plain(b []byte, blank *http.Request) (r *http.Request, octets int) {
	start, fields, octets := head.Parse(b)
	line, ok := strings.CutSuffix(start, " HTTP/1.1")
	if !ok || changes(fields) {
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
	u := locate(method, target)
	if u == nil {
		return nil, 0
	}
	r = new(http.Request)
	*r = *blank
	r.Method, r.RequestURI, r.URL, r.Host, r.Header = method, target, u, u.Host, fields // RFC 9112 3.2.2
	if r.Host == "" {
		r.Host = strings.Clone(hosts[0]) // what is remembered of an origin keeps no head alive
	}
	r.Close = httpguts.HeaderValuesContainsToken(fields["Connection"], "close")
	return r, octets
}

// locate reads a target (RFC 9112 3.2); nil: it is none, or has octets that none has.
func locate(method, target string) (u *url.URL) {
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

// changes says whether a request with these fields is not served here: it has a body,
// or waits for an answer before its answer, or may become something else.
func changes(fields http.Header) bool {
	for name := range fields {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Trailer", "Expect", "Upgrade", "Http2-Settings":
			return true
		}
	}
	return false
}
