package egress

import (
	"errors"
	"net/http"
	"time"

	"robotsproxy/proxy/h1"
)

const (
	// MaxTries is how often a request may be tried, each time on another connection.
	MaxTries = 3

	// minHeld is how long a new connection must have waited for its request before another one is
	// tried because it has ended.
	minHeld = time.Millisecond
)

// The errors after which a request may be sent again.
type (
	// An unsentError says that nothing of the request was sent. Only a body that is in memory may have been read.
	unsentError struct{ error }

	// An unprocessedError says that the origin has not processed the request.
	unprocessedError struct{ error }

	// A lostError says that a connection that had worked ended before the response.
	lostError struct{ error }
)

func (e *unsentError) Unwrap() error      { return e.error }
func (e *unprocessedError) Unwrap() error { return e.error }
func (e *lostError) Unwrap() error        { return e.error }

// Repeat reports whether r may be sent again after an error of a Conn. If so, it gives r a new body where that is
// needed.
func Repeat(r *http.Request, err error) bool {
	if _, unsent := errors.AsType[*unsentError](err); unsent {
		// Send may have read a body that is in memory.
		return r.GetBody == nil || rewind(r)
	}
	if _, unprocessed := errors.AsType[*unprocessedError](err); unprocessed {
		// RFC 9113 8.7 and 6.8, and 7 for HTTP_1_1_REQUIRED.
		return rewind(r)
	}
	// RFC 9112 9.3.1, RFC 9113 8.7.
	_, lost := errors.AsType[*lostError](err)
	return lost && idempotent(r.Method) && !h1.HasBody(r)
}

// failedAtOnce reports whether a connection ended right after it was made, before a response. Another one would
// probably end in the same way.
func failedAtOnce(used bool, made time.Time) bool { return !used && time.Since(made) < minHeld }

// rewind makes the body of r ready to be sent again. It returns false if it cannot.
func rewind(r *http.Request) bool {
	if !h1.HasBody(r) {
		return true
	}
	if r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	r.Body = body
	return err == nil
}

// idempotent reports whether a request with the method may be sent again although it may have been
// processed (RFC 9110 9.2.2). Clients repeat PUT and DELETE themselves.
func idempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
