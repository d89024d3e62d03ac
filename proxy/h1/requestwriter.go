package h1

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// bodyBufferSize is in bytes.
const bodyBufferSize = 32 << 10

var bodyBuffers = sync.Pool{New: func() any { return new([bodyBufferSize]byte) }}

// excludedFields are the fields that WriteHead writes itself.
var excludedFields = map[string]bool{"Host": true, "User-Agent": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true}

// WriteHead writes the head of a request, with target in the form in which it is sent (RFC 9112 3.2). extra is further
// field lines, each with its CR LF, or "". WriteHead adds no field except Host and those of message framing and of the
// connection, and of several User-Agent fields it sends the first. It fails if the host, the target, the method or a
// field cannot be sent; then to has nothing of it. Other errors are those of to.
func WriteHead(to *bufio.Writer, r *http.Request, target, extra string) error {
	host := cmp.Or(r.Host, r.URL.Host)
	switch {
	case !httpguts.ValidHostHeader(host) || strings.Contains(host, "%"):
		return errors.New("the host cannot be sent")
	case strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return errors.New("the target cannot be sent")
	}
	if err := checkRequest(r); err != nil {
		return err
	}
	add := func(parts ...string) {
		for _, s := range parts {
			// The last write returns the error of any.
			to.WriteString(s)
		}
	}
	add(cmp.Or(r.Method, http.MethodGet), " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n")
	if agent := r.Header["User-Agent"]; len(agent) > 0 && agent[0] != "" {
		add("User-Agent: ", textproto.TrimString(agent[0]), "\r\n")
	}
	switch {
	case isChunked(r):
		add("Transfer-Encoding: chunked\r\n")
		if names := slices.Sorted(maps.Keys(r.Trailer)); len(names) > 0 {
			add("Trailer: ", strings.Join(names, ","), "\r\n")
		}
	case HasBody(r):
		add("Content-Length: ", strconv.FormatInt(r.ContentLength, 10), "\r\n")
	case r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch:
		add("Content-Length: 0\r\n")
	}
	if r.Close && r.Header["Connection"] == nil {
		add("Connection: close\r\n")
	}
	if r.Header["Te"] != nil {
		// RFC 9110 10.1.4.
		add("Connection: TE\r\n")
	}
	add(extra)
	r.Header.WriteSubset(to, excludedFields)
	_, err := to.WriteString("\r\n")
	return err
}

// A BodyError is the error of a request's body, which could not be read.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }

// HasBody reports whether r has a body.
func HasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// isChunked reports whether the length of r's body is unknown. As for http.Transport, the length 0 of a
// body that is not nil is unknown.
func isChunked(r *http.Request) bool { return HasBody(r) && r.ContentLength <= 0 }

// WriteBody writes the body of r, with its trailer. What the body's Read returns is written at once. The
// last bytes may still be in the buffer. WriteBody does not close the body, whose error is a *BodyError.
func WriteBody(to *bufio.Writer, r *http.Request) error {
	buf := bodyBuffers.Get().(*[bodyBufferSize]byte)
	defer bodyBuffers.Put(buf)
	// Reading the body may replace r.Trailer by what was not announced.
	chunked, trailer := isChunked(r), r.Trailer
	var out io.Writer = to
	if chunked {
		out = httputil.NewChunkedWriter(to)
	}
	for left := r.ContentLength; ; {
		n, err := r.Body.Read(buf[:])
		if left -= int64(n); !chunked && left < 0 {
			return &BodyError{errors.New("the body is longer than its Content-Length")}
		}
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF && !chunked && left > 0:
			return &BodyError{fmt.Errorf("the body ends %d bytes early: %w", left, io.ErrUnexpectedEOF)}
		case err == io.EOF && chunked:
			return writeTrailer(to, trailer)
		case err == io.EOF:
			return nil
		case err != nil:
			return &BodyError{err}
		case left == 0 && !chunked && r.GetBody != nil:
			// The last byte was read from memory, so the end follows at once.
		default:
			if err := to.Flush(); err != nil {
				return err
			}
		}
	}
}

// writeTrailer writes the last chunk and the trailer (RFC 9112 7.1.2).
func writeTrailer(to *bufio.Writer, trailer http.Header) error {
	io.WriteString(to, "0\r\n")
	if err := trailer.Write(to); err != nil {
		return err
	}
	_, err := io.WriteString(to, "\r\n")
	return err
}

// checkRequest returns an error for a request whose method or fields cannot be sent as they are.
func checkRequest(r *http.Request) error {
	// A method is a token, like a field name (RFC 9110 9.1).
	if r.Method != "" && !httpguts.ValidHeaderFieldName(r.Method) {
		return errors.New("the method is not valid")
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("the field name %q is not valid", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("the value of the field %s is not valid", name)
			}
		}
	}
	return nil
}
