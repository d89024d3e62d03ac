package proxy

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"robotsproxy/proxy/h1"
)

// net/http's servers answer some requests themselves, or reset their streams: those with a path that
// net/url cannot parse, and malformed ones. So that each of them gets an answer and a record like any
// other request, the readers of clients' connections put a stand-in in their place: a request that
// net/http passes to the handler, with a path that says what the client has sent.

// standInMark begins the path of each stand-in. It is random, so that no client can send one. A path
// with a "#" gets a stand-in itself.
var standInMark = "/#" + rand.Text() + "#"

// A sentHead is what a client has sent.
type sentHead struct {
	method string
	// target is the request target (RFC 9112 3.2).
	target string
	// fault says what is wrong with the head; nil: nothing, but net/url may be unable to parse the target.
	fault *malformedError
}

// A malformedError says why a request cannot be read or forwarded. It is errMalformed.
type malformedError struct {
	// status is that of the answer.
	status int
	// cause completes the sentence "The request is malformed: ...".
	cause string
	// advice says what the client can do; "": that of policy.ReasonMalformed.
	advice string
}

func (e *malformedError) Error() string { return fmt.Sprintf("%v: %s", errMalformed, e.cause) }

func (e *malformedError) Is(target error) bool { return target == errMalformed }

// sentence returns the error for the client.
func (e *malformedError) sentence() string { return "The request is malformed: " + e.cause + "." }

// malformed returns a malformedError that is answered with 400.
func malformed(cause string) *malformedError {
	return &malformedError{http.StatusBadRequest, cause, ""}
}

// maxStandInText is how many bytes of the method, and of the target, a stand-in for a malformed
// request keeps. The record has no more.
const maxStandInText = 2 << 10

// standIn returns the path of a stand-in for a request.
func (s sentHead) standIn() string {
	if s.fault == nil {
		return standInMark + escapeForStandIn(s.target)
	}
	path := standInMark + strconv.Itoa(s.fault.status)
	for _, text := range [...]string{s.fault.cause, s.fault.advice, s.method, s.target} {
		path += "#" + escapeForStandIn(text[:min(len(text), maxStandInText)])
	}
	return path
}

// escapeForStandIn escapes what net/http does not accept in a path, and "#".
func escapeForStandIn(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		const hex = "0123456789ABCDEF"
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '%' || c == '#' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// needsStandIn reports whether net/http would not pass a request with this target to the handler, or
// would take it for a stand-in.
func needsStandIn(target string) bool {
	if !strings.HasPrefix(target, "/") {
		_, err := url.ParseRequestURI(target)
		return err != nil || strings.ContainsAny(target, " #")
	}
	return !h1.Passes(target)
}

// sentHeadOf returns what the client of a request has sent.
func sentHeadOf(r *http.Request) sentHead {
	text, ok := strings.CutPrefix(r.RequestURI, standInMark)
	if !ok {
		return sentHead{method: r.Method, target: r.RequestURI}
	}
	parts := strings.Split(text, "#")
	for i, part := range parts {
		// Cannot fail: escapeForStandIn wrote it.
		parts[i], _ = url.PathUnescape(part)
	}
	if len(parts) == 1 {
		return sentHead{method: r.Method, target: parts[0]}
	}
	// Likewise.
	status, _ := strconv.Atoi(parts[0])
	return sentHead{parts[3], parts[4], &malformedError{status, parts[1], parts[2]}}
}
