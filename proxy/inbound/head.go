package inbound

import (
	"crypto/rand"
	"errors"
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
	fault *MalformedError
}

var (
	// ErrMalformed is the error of a request that cannot be read or forwarded. It is always a *MalformedError, except where a
	// body or a path of FTP is malformed.
	ErrMalformed = errors.New("malformed request")

	// ErrMisdirected is the error of a request in a tunnel that names another host than the tunnel's.
	ErrMisdirected = errors.New("the request names another host than its tunnel")

	// ErrLoop is the error of a request that has already passed the proxy.
	ErrLoop = errors.New("the request has already passed this proxy")

	// ErrNoSite is the error of a request that does not say for which site it is. It is ErrMalformed.
	ErrNoSite error = malformed("this is a proxy, which needs an absolute URL, as in GET http://example.com/")
)

// A MalformedError says why a request cannot be read or forwarded. It is ErrMalformed.
type MalformedError struct {
	// Status is that of the response.
	Status int

	// Cause completes the sentence "The request is malformed: ...".
	Cause string

	// Advice says what the client can do; "": nothing particular.
	Advice string
}

func (e *MalformedError) Error() string { return fmt.Sprintf("%v: %s", ErrMalformed, e.Cause) }

func (e *MalformedError) Is(target error) bool { return target == ErrMalformed }

// Sentence returns the error for the client.
func (e *MalformedError) Sentence() string { return "The request is malformed: " + e.Cause + "." }

// malformed returns a MalformedError that is answered with 400.
func malformed(cause string) *MalformedError {
	return &MalformedError{http.StatusBadRequest, cause, ""}
}

// maxStandInText is how many bytes of the method, and of the target, a stand-in for a malformed
// request keeps. The record has no more.
const maxStandInText = 2 << 10

// standIn returns the path of a stand-in for a request.
func (s sentHead) standIn() string {
	if s.fault == nil {
		return standInMark + escapeForStandIn(s.target)
	}
	path := standInMark + strconv.Itoa(s.fault.Status)
	for _, text := range [...]string{s.fault.Cause, s.fault.Advice, s.method, s.target} {
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
		// What escapeForStandIn has written can be read.
		parts[i], _ = url.PathUnescape(part)
	}
	if len(parts) == 1 {
		return sentHead{method: r.Method, target: parts[0]}
	}
	// standIn has written a number.
	status, _ := strconv.Atoi(parts[0])
	return sentHead{parts[3], parts[4], &MalformedError{status, parts[1], parts[2]}}
}
