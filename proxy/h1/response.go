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

var responseBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxBuffered); return &b }}

// A response is the http.ResponseWriter of one request. It writes what net/http's would. With
// http.ResponseController it supports Flush, Hijack and SetWriteDeadline. Only the handler's
// goroutine may use it, except SetWriteDeadline.
type response struct {
	c      *conn
	r      *http.Request
	header http.Header
	buf    *[]byte // what has not been written to the connection
	err    error   // of the connection; then nothing more is written

	status      int         // 0: WriteHeader has not been called
	headEnded   bool        // the head is complete
	bodiless    bool        // HEAD, 204, 304
	chunked     bool        // the body is sent in chunks
	close       bool        // the connection is closed after the response
	hijacked    bool        // the handler has the connection
	deadlineSet atomic.Bool // SetWriteDeadline was called, by any goroutine
	length      int64       // of the body, from the handler's Content-Length; -1: unknown
	written     int64       // bytes of the body so far
	held        []byte      // those bytes until headEnded
	hasType     bool        // the head has a Content-Type
	trailers    []string    // names that the handler announced
}

func newResponse(c *conn, r *http.Request) *response {
	return &response{c: c, r: r, header: make(http.Header), buf: responseBuffers.Get().(*[]byte), length: -1, close: r.Close}
}

// release returns the buffer to the pool and clears the write deadline.
func (a *response) release() {
	if *a.buf = (*a.buf)[:0]; cap(*a.buf) == maxBuffered { // else it had to grow
		responseBuffers.Put(a.buf)
	}
	a.buf = nil
	if a.deadlineSet.Load() && !a.hijacked {
		a.c.rw.SetWriteDeadline(time.Time{})
	}
}

func (a *response) Header() http.Header { return a.header }

// WriteHeader begins the head of the response, or sends an informational response (RFC 9110 15.2).
func (a *response) WriteHeader(status int) {
	switch {
	case a.hijacked || a.status != 0:
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("h1: %d is no status", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		a.writeHead(status, omitFraming)
		a.append("\r\n")
		a.flush()
		return
	}
	a.status = status
	a.bodiless = a.r.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if n, err := strconv.ParseUint(a.header.Get("Content-Length"), 10, 63); err == nil && status != http.StatusNoContent {
		a.length = int64(n)
	}
	a.close = a.close || a.c.set.shuttingDown.Load() || httpguts.HeaderValuesContainsToken(a.header["Connection"], "close")
	_, a.hasType = a.header["Content-Type"]
	for _, list := range a.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(textproto.TrimString(name)); httpguts.ValidTrailerHeader(name) {
				a.trailers = append(a.trailers, name)
			}
		}
	}
	a.writeHead(status, a.omittedFields())
	if _, dated := a.header["Date"]; !dated {
		*a.buf = time.Now().UTC().AppendFormat(append(*a.buf, "Date: "...), http.TimeFormat+"\r\n")
	}
	if a.close {
		a.append("Connection: close\r\n")
	}
}

// Fields that are left out of a head: the response frames the body itself.
var (
	omitConnection = map[string]bool{"Connection": true, "Transfer-Encoding": true}
	omitFraming    = map[string]bool{"Connection": true, "Transfer-Encoding": true, "Content-Length": true}
	omitContent    = map[string]bool{"Connection": true, "Transfer-Encoding": true, "Content-Length": true, "Content-Type": true}
)

// omittedFields returns the fields that are left out of the head.
func (a *response) omittedFields() map[string]bool {
	left := omitConnection
	switch {
	case a.status == http.StatusNotModified:
		left = omitContent
	case a.length < 0:
		left = omitFraming
	}
	for name := range a.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			left = maps.Clone(left)
			left[name] = true
		}
	}
	return left
}

// writeHead writes a status line and the handler's fields.
func (a *response) writeHead(status int, left map[string]bool) {
	*a.buf = strconv.AppendInt(append(*a.buf, "HTTP/1.1 "...), int64(status), 10)
	a.append(" ")
	a.append(http.StatusText(status))
	a.append("\r\n")
	a.header.WriteSubset(appendWriter{a.buf}, left) // cannot fail
}

// appendWriter is a writer that appends to a slice.
type appendWriter struct{ to *[]byte }

func (g appendWriter) Write(b []byte) (int, error) {
	*g.to = append(*g.to, b...)
	return len(b), nil
}

func (g appendWriter) WriteString(s string) (int, error) {
	*g.to = append(*g.to, s...)
	return len(s), nil
}

func (a *response) append(s string) { *a.buf = append(*a.buf, s...) }

// Write buffers or writes a part of the body.
func (a *response) Write(b []byte) (int, error) {
	if a.hijacked {
		return 0, http.ErrHijacked
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	switch {
	case a.bodiless && a.r.Method != http.MethodHead:
		return 0, http.ErrBodyNotAllowed
	case a.length >= 0 && a.written+int64(len(b)) > a.length:
		return 0, http.ErrContentLength
	case a.err != nil:
		return 0, a.err
	}
	a.written += int64(len(b))
	if a.length < 0 && !a.headEnded && a.written <= maxHeld {
		a.held = append(a.held, b...)
		return len(b), nil
	}
	if len(a.held) > 0 {
		a.endHead(false, a.held)
	}
	a.endHead(false, b)
	a.writeBody(b)
	return len(b), a.err
}

// endHead completes the head: it chooses how the body is delimited (RFC 9112 6), and detects the type of
// the body from its first bytes if the handler has set none. whole reports that the body has ended.
func (a *response) endHead(whole bool, first []byte) {
	if a.headEnded {
		return
	}
	a.headEnded = true
	switch {
	case a.length >= 0:
	case a.bodiless && (!whole || a.written == 0 || len(a.trailers) > 0): // the handler has not written all of the body
	case whole && len(a.trailers) == 0:
		*a.buf = strconv.AppendInt(append(*a.buf, "Content-Length: "...), a.written, 10)
		a.append("\r\n")
	default:
		a.chunked = true
		a.append("Transfer-Encoding: chunked\r\n")
	}
	if !a.hasType && len(first) > 0 && a.header.Get("Content-Encoding") == "" {
		a.append("Content-Type: ")
		a.append(http.DetectContentType(first))
		a.append("\r\n")
	}
	a.append("\r\n")
	a.writeBody(a.held)
	a.held = nil
}

// writeBody writes a part of the body, unless the response has none.
func (a *response) writeBody(b []byte) {
	switch {
	case a.bodiless || len(b) == 0: // an empty chunk would be the last one
	case a.chunked:
		*a.buf = strconv.AppendInt(*a.buf, int64(len(b)), 16)
		a.append("\r\n")
		a.bufferBody(b)
		a.append("\r\n")
	default:
		a.bufferBody(b)
	}
}

// A pairWriter is a connection that writes two slices with one system call.
type pairWriter interface {
	WriteBoth(a, b []byte) (int, error)
}

// bufferBody adds b to the buffer, and writes the buffer when it is full.
func (a *response) bufferBody(b []byte) {
	out := *a.buf
	if len(out)+len(b) <= maxBuffered-2 { // two for the CRLF after a chunk
		*a.buf = append(out, b...)
		return
	}
	if w, ok := a.c.rw.(pairWriter); ok && a.err == nil {
		*a.buf = out[:0]
		a.setErr(w.WriteBoth(out, b))
		return
	}
	n := min(len(b), max(0, maxBuffered-len(out)))
	*a.buf = append(out, b[:n]...)
	a.flush()
	if len(b) > n && a.err == nil {
		a.setErr(a.c.rw.Write(b[n:]))
	}
}

// flush writes the buffer to the connection.
func (a *response) flush() {
	if len(*a.buf) > 0 && a.err == nil {
		a.setErr(a.c.rw.Write(*a.buf))
	}
	*a.buf = (*a.buf)[:0]
}

// setErr records the error of a write and cancels the request's context.
func (a *response) setErr(_ int, err error) {
	if err != nil && a.err == nil {
		a.err = err
		a.c.cancel()
	}
}

// FlushError writes what is buffered, after the head.
func (a *response) FlushError() error {
	if a.hijacked {
		return http.ErrHijacked
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.endHead(false, a.held)
	a.flush()
	return a.err
}

// Flush is FlushError without its error.
func (a *response) Flush() { a.FlushError() }

// SetWriteDeadline sets the deadline for the rest of this response.
func (a *response) SetWriteDeadline(t time.Time) error {
	a.deadlineSet.Store(true)
	return a.c.rw.SetWriteDeadline(t)
}

// Hijack hands the connection to the handler, with the bytes that were read ahead.
func (a *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.hijacked {
		return nil, nil, http.ErrHijacked
	}
	a.hijacked = true
	return a.c.hijack()
}

// finish completes the response and reports whether another request may follow on the connection.
func (a *response) finish() bool {
	if a.hijacked {
		return false
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.endHead(true, a.held)
	if a.chunked {
		a.append("0\r\n")
		a.addTrailers()
		a.append("\r\n")
	}
	a.flush()
	whole := a.bodiless || a.length < 0 || a.written == a.length
	return a.err == nil && whole && !a.close
}

// addTrailers writes the announced trailers that the handler has set, and the fields with
// http.TrailerPrefix.
func (a *response) addTrailers() {
	trailer := make(http.Header)
	for _, name := range a.trailers {
		if values, ok := a.header[name]; ok {
			trailer[name] = values
		}
	}
	for name, values := range a.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailer[http.CanonicalHeaderKey(name)] = values
		}
	}
	var b bytes.Buffer
	trailer.Write(&b) // cannot fail
	*a.buf = append(*a.buf, b.Bytes()...)
}
