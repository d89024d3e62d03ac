package h1

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	maxBuffered = 4 << 10 // bytes of a response that are written at once
	maxHeld     = 2 << 10 // bytes of a body of unknown length that are held back until its end may be known
)

var responseBuffers = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, maxBuffered)) }}

// A response is the http.ResponseWriter of one request. It writes what net/http's would. With
// http.ResponseController it supports Flush, Hijack and SetWriteDeadline. Only the handler's
// goroutine may use it, except SetWriteDeadline.
type response struct {
	c      *conn
	r      *http.Request
	header http.Header

	// buf is what has not been written to the connection.
	buf *bytes.Buffer

	// err is the error of the connection; after one nothing more is written.
	err error

	// status is 0 until WriteHeader is called.
	status int

	// headEnded says that the head is complete.
	headEnded bool

	// bodiless says that the response is one to HEAD, a 204 or a 304.
	bodiless bool

	// chunked says that the body is sent in chunks.
	chunked bool

	// close says that the connection is closed after the response.
	close bool

	// deadlineSet says that SetWriteDeadline was called, by any goroutine.
	deadlineSet atomic.Bool

	// length is the length of the body, from the handler's Content-Length; -1: unknown.
	length int64

	// written is the number of bytes of the body so far, and held are those bytes until headEnded.
	written int64
	held    []byte

	// hasType says that the head has a Content-Type.
	hasType bool

	// trailers are the names that the handler announced.
	trailers []string
}

func newResponse(c *conn, r *http.Request) *response {
	return &response{c: c, r: r, header: make(http.Header), buf: responseBuffers.Get().(*bytes.Buffer), length: -1, close: r.Close}
}

// release returns the buffer to the pool and clears the write deadline.
func (r *response) release() {
	// A buffer that had to grow is not kept.
	if r.buf.Reset(); r.buf.Cap() == maxBuffered {
		responseBuffers.Put(r.buf)
	}
	r.buf = nil
	if r.deadlineSet.Load() && !r.c.gone.Load() {
		r.c.rw.SetWriteDeadline(time.Time{})
	}
}

func (r *response) Header() http.Header { return r.header }

// WriteHeader begins the head of the response, or sends an informational response (RFC 9110 15.2).
func (r *response) WriteHeader(status int) {
	switch {
	case r.c.gone.Load() || r.status != 0:
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("h1: invalid status %d", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		r.writeHead(status, omitFraming)
		r.add("\r\n")
		r.flush()
		return
	}
	r.status = status
	r.bodiless = r.r.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if n, err := strconv.ParseUint(r.header.Get("Content-Length"), 10, 63); err == nil && status != http.StatusNoContent {
		r.length = int64(n)
	}
	r.close = r.close || r.c.group.ended.Load() || httpguts.HeaderValuesContainsToken(r.header["Connection"], "close")
	_, r.hasType = r.header["Content-Type"]
	for _, list := range r.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(textproto.TrimString(name)); httpguts.ValidTrailerHeader(name) {
				r.trailers = append(r.trailers, name)
			}
		}
	}
	r.writeHead(status, r.omittedFields())
	if _, dated := r.header["Date"]; !dated {
		r.add("Date: ")
		r.buf.Write(time.Now().UTC().AppendFormat(r.buf.AvailableBuffer(), http.TimeFormat+"\r\n"))
	}
	if r.close {
		r.add("Connection: close\r\n")
	}
}

// Fields that are left out of a head: the response frames the body itself.
var (
	omitConnection = map[string]bool{"Connection": true, "Transfer-Encoding": true}
	omitFraming    = map[string]bool{"Connection": true, "Transfer-Encoding": true, "Content-Length": true}
	omitContent    = map[string]bool{"Connection": true, "Transfer-Encoding": true, "Content-Length": true, "Content-Type": true}
)

// omittedFields returns the fields that are left out of the head.
func (r *response) omittedFields() map[string]bool {
	left := omitConnection
	switch {
	case r.status == http.StatusNotModified:
		left = omitContent
	case r.length < 0:
		left = omitFraming
	}
	for name := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			left = maps.Clone(left)
			left[name] = true
		}
	}
	return left
}

// writeHead writes a status line and the handler's fields.
func (r *response) writeHead(status int, left map[string]bool) {
	r.add("HTTP/1.1 ")
	r.addInt(int64(status), 10)
	r.add(" ", http.StatusText(status), "\r\n")
	// A write to a buffer cannot fail.
	r.header.WriteSubset(r.buf, left)
}

func (r *response) add(parts ...string) {
	for _, s := range parts {
		r.buf.WriteString(s)
	}
}

func (r *response) addInt(n int64, base int) {
	r.buf.Write(strconv.AppendInt(r.buf.AvailableBuffer(), n, base))
}

// Write buffers or writes a part of the body.
func (r *response) Write(b []byte) (int, error) {
	if r.c.gone.Load() {
		return 0, http.ErrHijacked
	}
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	switch {
	case r.bodiless && r.r.Method != http.MethodHead:
		return 0, http.ErrBodyNotAllowed
	case r.length >= 0 && r.written+int64(len(b)) > r.length:
		return 0, http.ErrContentLength
	case r.err != nil:
		return 0, r.err
	}
	r.written += int64(len(b))
	if r.length < 0 && !r.headEnded && r.written <= maxHeld {
		r.held = append(r.held, b...)
		return len(b), nil
	}
	if len(r.held) > 0 {
		r.endHead(false, r.held)
	}
	r.endHead(false, b)
	r.writeBody(b)
	return len(b), r.err
}

// endHead completes the head: it chooses how the body is delimited (RFC 9112 6), and detects the type of
// the body from its first bytes if the handler has set none. whole reports that the body has ended.
func (r *response) endHead(whole bool, first []byte) {
	if r.headEnded {
		return
	}
	r.headEnded = true
	switch {
	case r.length >= 0:
	case r.bodiless && (!whole || r.written == 0 || len(r.trailers) > 0):
		// The length is unknown: the handler has not written all of the body.
	case whole && len(r.trailers) == 0:
		r.add("Content-Length: ")
		r.addInt(r.written, 10)
		r.add("\r\n")
	default:
		r.chunked = true
		r.add("Transfer-Encoding: chunked\r\n")
	}
	if !r.hasType && len(first) > 0 && r.header.Get("Content-Encoding") == "" {
		r.add("Content-Type: ", http.DetectContentType(first), "\r\n")
	}
	r.add("\r\n")
	r.writeBody(r.held)
	r.held = nil
}

// writeBody writes a part of the body, unless the response has none.
func (r *response) writeBody(b []byte) {
	switch {
	case r.bodiless || len(b) == 0:
		// An empty chunk would be the last one.
	case r.chunked:
		r.addInt(int64(len(b)), 16)
		r.add("\r\n")
		r.bufferBody(b)
		r.add("\r\n")
	default:
		r.bufferBody(b)
	}
}

// A pairWriter is a connection that writes two slices with one system call.
type pairWriter interface {
	WriteBoth(a, b []byte) (int, error)
}

// bufferBody adds b to the buffer, and writes the buffer when it is full.
func (r *response) bufferBody(b []byte) {
	// Two bytes are for the CR LF after a chunk.
	if r.buf.Len()+len(b) <= maxBuffered-2 {
		r.buf.Write(b)
		return
	}
	if w, ok := r.c.rw.(pairWriter); ok && r.err == nil {
		r.setErr(w.WriteBoth(r.buf.Bytes(), b))
		r.buf.Reset()
		return
	}
	n := min(len(b), max(0, maxBuffered-r.buf.Len()))
	r.buf.Write(b[:n])
	r.flush()
	if len(b) > n && r.err == nil {
		r.setErr(r.c.rw.Write(b[n:]))
	}
}

// flush writes the buffer to the connection.
func (r *response) flush() {
	if r.buf.Len() > 0 && r.err == nil {
		r.setErr(r.c.rw.Write(r.buf.Bytes()))
	}
	r.buf.Reset()
}

// setErr records the error of a write and cancels the request's context.
func (r *response) setErr(_ int, err error) {
	if err != nil && r.err == nil {
		r.err = err
		r.c.cancel()
	}
}

// FlushError writes what is buffered, after the head.
func (r *response) FlushError() error {
	if r.c.gone.Load() {
		return http.ErrHijacked
	}
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.endHead(false, r.held)
	r.flush()
	return r.err
}

// Flush is FlushError without its error.
func (r *response) Flush() { r.FlushError() }

// SetWriteDeadline sets the deadline for the rest of this response.
func (r *response) SetWriteDeadline(t time.Time) error {
	r.deadlineSet.Store(true)
	return r.c.rw.SetWriteDeadline(t)
}

// Hijack hands the connection to the handler, with the bytes that were read ahead.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return r.c.hijack()
}

// finish completes the response and reports whether another request may follow on the connection.
func (r *response) finish() bool {
	if r.c.gone.Load() {
		return false
	}
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.endHead(true, r.held)
	if r.chunked {
		r.add("0\r\n")
		r.addTrailers()
		r.add("\r\n")
	}
	r.flush()
	whole := r.bodiless || r.length < 0 || r.written == r.length
	return r.err == nil && whole && !r.close
}

// addTrailers writes the announced trailers that the handler has set, and the fields with
// http.TrailerPrefix.
func (r *response) addTrailers() {
	trailer := make(http.Header)
	for _, name := range r.trailers {
		if values, ok := r.header[name]; ok {
			trailer[name] = values
		}
	}
	for name, values := range r.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailer[http.CanonicalHeaderKey(name)] = values
		}
	}
	trailer.Write(r.buf)
}
