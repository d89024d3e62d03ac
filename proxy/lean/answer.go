package lean

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
	outOctets  = 4 << 10 // of an answer that wait for more, to go out at once
	heldOctets = 2 << 10 // of a body that wait for its end, where nobody has told its length
)

var outs = sync.Pool{New: func() any { b := make([]byte, 0, outOctets); return &b }}

// An answer is the http.ResponseWriter of one request, with what
// http.ResponseController asks for: Flush, Hijack and the deadline of writing. It
// answers as net/http's does. Its handler's goroutine alone may use it, as there, but for
// SetWriteDeadline.
type answer struct {
	c      *conn
	r      *http.Request
	header http.Header
	out    *[]byte // what was not sent yet
	err    error   // why nothing more can be

	status   int         // 0: the head has not begun
	framed   bool        // and has ended
	bodiless bool        // HEAD, 204, 304
	chunked  bool        // the body is
	last     bool        // the connection ends with it
	hijacked bool        // it is the handler's
	timed    atomic.Bool // a deadline was set: by another goroutine too
	length   int64       // of the body, as the handler has it; -1: unknown
	written  int64       // octets of the body so far
	held     []byte      // of them, until framed
	typed    bool        // the head has a Content-Type
	trailers []string    // names, as the handler announced them
}

func newAnswer(c *conn, r *http.Request) *answer {
	return &answer{c: c, r: r, header: make(http.Header), out: outs.Get().(*[]byte), length: -1, last: r.Close}
}

// release gives back what the next answer can use.
func (a *answer) release() {
	if *a.out = (*a.out)[:0]; cap(*a.out) == outOctets { // else it had to grow
		outs.Put(a.out)
	}
	a.out = nil
	if a.timed.Load() && !a.hijacked {
		a.c.io.SetWriteDeadline(time.Time{})
	}
}

func (a *answer) Header() http.Header { return a.header }

// WriteHeader begins the answer, or sends one before it (RFC 9110 15.2).
func (a *answer) WriteHeader(status int) {
	switch {
	case a.hijacked || a.status != 0:
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("lean: %d is no status", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		a.begin(status, unframed)
		a.add("\r\n")
		a.send()
		return
	}
	a.status = status
	a.bodiless = a.r.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if n, err := strconv.ParseUint(a.header.Get("Content-Length"), 10, 63); err == nil && status != http.StatusNoContent {
		a.length = int64(n)
	}
	a.last = a.last || a.c.front.ending.Load() || httpguts.HeaderValuesContainsToken(a.header["Connection"], "close")
	_, a.typed = a.header["Content-Type"]
	for _, list := range a.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(textproto.TrimString(name)); httpguts.ValidTrailerHeader(name) {
				a.trailers = append(a.trailers, name)
			}
		}
	}
	a.begin(status, a.left())
	if _, dated := a.header["Date"]; !dated {
		*a.out = time.Now().UTC().AppendFormat(append(*a.out, "Date: "...), http.TimeFormat+"\r\n")
	}
	if a.last {
		a.add("Connection: close\r\n")
	}
}

// What is left out of a head: the framing is our own.
var (
	linked    = map[string]bool{"Connection": true, "Transfer-Encoding": true}
	unframed  = map[string]bool{"Connection": true, "Transfer-Encoding": true, "Content-Length": true}
	unchanged = map[string]bool{"Connection": true, "Transfer-Encoding": true, "Content-Length": true, "Content-Type": true}
)

// left gives the fields that are left out of the head.
func (a *answer) left() map[string]bool {
	left := linked
	switch {
	case a.status == http.StatusNotModified:
		left = unchanged
	case a.length < 0:
		left = unframed
	}
	for name := range a.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			left = maps.Clone(left)
			left[name] = true
		}
	}
	return left
}

// begin writes a status line and the handler's fields.
func (a *answer) begin(status int, left map[string]bool) {
	*a.out = strconv.AppendInt(append(*a.out, "HTTP/1.1 "...), int64(status), 10)
	a.add(" ")
	a.add(http.StatusText(status))
	a.add("\r\n")
	a.header.WriteSubset(gathering{a.out}, left) // cannot fail
}

// gathering is a writer into a slice.
type gathering struct{ to *[]byte }

func (g gathering) Write(b []byte) (int, error) {
	*g.to = append(*g.to, b...)
	return len(b), nil
}

func (g gathering) WriteString(s string) (int, error) {
	*g.to = append(*g.to, s...)
	return len(s), nil
}

func (a *answer) add(s string) { *a.out = append(*a.out, s...) }

// Write sends a part of the body on, or keeps it until there is more.
func (a *answer) Write(b []byte) (int, error) {
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
	if a.length < 0 && !a.framed && a.written <= heldOctets {
		a.held = append(a.held, b...)
		return len(b), nil
	}
	if len(a.held) > 0 {
		a.frame(false, a.held)
	}
	a.frame(false, b)
	a.body(b)
	return len(b), a.err
}

// frame ends the head, and says how the body will be told to have ended (RFC 9112 6).
// The first of that, or what is held of it, tells its type where the handler has not.
func (a *answer) frame(whole bool, first []byte) {
	if a.framed {
		return
	}
	a.framed = true
	switch {
	case a.length >= 0:
	case a.bodiless && (!whole || a.written == 0 || len(a.trailers) > 0): // nobody has made all of it
	case whole && len(a.trailers) == 0:
		*a.out = strconv.AppendInt(append(*a.out, "Content-Length: "...), a.written, 10)
		a.add("\r\n")
	default:
		a.chunked = true
		a.add("Transfer-Encoding: chunked\r\n")
	}
	if !a.typed && len(first) > 0 && a.header.Get("Content-Encoding") == "" {
		a.add("Content-Type: ")
		a.add(http.DetectContentType(first))
		a.add("\r\n")
	}
	a.add("\r\n")
	a.body(a.held)
	a.held = nil
}

// body adds a part of the body, where there is to be one.
func (a *answer) body(b []byte) {
	switch {
	case a.bodiless || len(b) == 0: // in chunks, nothing would be the end
	case a.chunked:
		*a.out = strconv.AppendInt(*a.out, int64(len(b)), 16)
		a.add("\r\n")
		a.put(b)
		a.add("\r\n")
	default:
		a.put(b)
	}
}

// A bothWriter is a connection that writes one part and then another by one system call.
type bothWriter interface {
	WriteBoth(a, b []byte) (int, error)
}

// put adds octets, and sends all where they become many.
func (a *answer) put(b []byte) {
	out := *a.out
	if len(out)+len(b) <= outOctets-2 { // two for the end of a chunk
		*a.out = append(out, b...)
		return
	}
	if w, ok := a.c.io.(bothWriter); ok && a.err == nil {
		*a.out = out[:0]
		a.noteSent(w.WriteBoth(out, b))
		return
	}
	n := min(len(b), max(0, outOctets-len(out)))
	*a.out = append(out, b[:n]...)
	a.send()
	if len(b) > n && a.err == nil {
		a.noteSent(a.c.io.Write(b[n:]))
	}
}

// send sends what has gathered.
func (a *answer) send() {
	if len(*a.out) > 0 && a.err == nil {
		a.noteSent(a.c.io.Write(*a.out))
	}
	*a.out = (*a.out)[:0]
}

// noteSent keeps why nothing more can be sent.
func (a *answer) noteSent(_ int, err error) {
	if err != nil && a.err == nil {
		a.err = err
		a.c.cancel()
	}
}

// FlushError sends what has gathered.
func (a *answer) FlushError() error {
	if a.hijacked {
		return http.ErrHijacked
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.frame(false, a.held)
	a.send()
	return a.err
}

// Flush is FlushError, for those who do not ask.
func (a *answer) Flush() { a.FlushError() }

// SetWriteDeadline is for this answer alone.
func (a *answer) SetWriteDeadline(t time.Time) error {
	a.timed.Store(true)
	return a.c.io.SetWriteDeadline(t)
}

// Hijack gives the connection to the handler, with what was read of it.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.hijacked {
		return nil, nil, http.ErrHijacked
	}
	a.hijacked = true
	return a.c.hijack()
}

// finish ends the answer, and says whether another may follow on the connection.
func (a *answer) finish() bool {
	if a.hijacked {
		return false
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.frame(true, a.held)
	if a.chunked {
		a.add("0\r\n")
		a.addTrailers()
		a.add("\r\n")
	}
	a.send()
	whole := a.bodiless || a.length < 0 || a.written == a.length
	return a.err == nil && whole && !a.last
}

// addTrailers adds what the handler has set of the fields it announced, and those that
// it marks as trailers by their names.
func (a *answer) addTrailers() {
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
	*a.out = append(*a.out, b.Bytes()...)
}
