package inbound

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/policy/memory"
	"robotsproxy/robots"
)

const (
	// maxHead is the maximum length of a request's head, in bytes.
	maxHead = 64 << 10
	// maxFrame is the maximum length of an HTTP/2 frame, in bytes. It is the smallest that is allowed, because net/http
	// keeps a buffer of that size for each connection.
	maxFrame = 16 << 10

	// longHead and manyLines are the length of a request's head, in bytes and in lines, up to which the
	// estimate for a connection includes its memory.
	longHead, manyLines = maxFrame, 64

	// longHeadBytes is the estimate for a longer head, in bytes: the memory that is used while the head
	// is read, and that net/http keeps with an HTTP/2 connection (measured: 60 to 160 KiB).
	longHeadBytes = 160 << 10

	// maxFields is the maximum number of lines in the head of an HTTP/1 request. A field takes about 100
	// bytes, however short it is.
	maxFields = 1024

	// maxStandIn is http.Server.MaxHeaderBytes: a stand-in may be longer than the head that it replaces.
	maxStandIn = 4 * maxHead
)

var errLongHead = &MalformedError{
	http.StatusRequestHeaderFieldsTooLarge,
	"the header of the request is longer than 64 KiB or has more than 1,024 lines",
	"Send a shorter URL or fewer header fields.",
}

// A requestReader reads the HTTP/1 requests of a connection for net/http's server. It reads a head
// whole before net/http gets any of it, limits it, and puts a stand-in in its place if net/http would
// not pass the request to the handler.
//
// It belongs to one goroutine at a time, as reads of a connection do.
type requestReader struct {
	// from reads from the connection, and limit limits the time for the rest of a head.
	from  func([]byte) (int, error)
	limit func() error

	// memory is the connection in the memory budget, in which longHeadBytes are counted if long is set.
	memory *memory.Work
	long   bool

	// active is set when net/http serves the connection. Until then bytes pass.
	active   bool
	protocol wireProtocol

	// sent is the head that is read, or was read last. delivered says that there was one.
	sent      sentHead
	delivered bool
	// afterPOST says that the head before is that of a POST.
	afterPOST bool

	// ready is what net/http gets before anything else. ahead follows next on the connection.
	ready []byte
	next  nextHead
	ahead []byte
	rest  afterHead

	// err says why no more is read; nil: more is.
	err error
}

// A wireProtocol is what a connection carries, as far as its first bytes tell.
type wireProtocol uint8

const (
	noBytes wireProtocol = iota
	wireHTTP1
	wireHTTP2
	// wireTLS is the beginning of a TLS handshake.
	wireTLS
)

// A nextHead is a head that is being read.
type nextHead struct {
	text []byte
	// lines is the number of complete lines in text, and line is where the current one begins.
	lines, line int
	// timed says that its time is limited.
	timed bool
}

// An afterHead says how many of the bytes behind a head are no head.
type afterHead struct {
	// left is how many of them net/http has not read; math.MaxInt64: unknown.
	left int64
	// If left is unknown, passed is how many net/http has read, and least how many there are in any case.
	passed, least int64
}

// http2Preface is the first line of an HTTP/2 connection (RFC 9113 3.4). tlsHandshake is the first byte
// of a TLS handshake (RFC 8446 5.1).
const (
	http2Preface = "PRI * HTTP/2.0"
	tlsHandshake = 22
)

// Read returns the next bytes for net/http.
func (r *requestReader) Read(b []byte) (int, error) {
	if !r.active {
		return r.from(b)
	}
	for len(r.ready) == 0 && r.rest.left == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if err := r.readHead(b); err != nil {
			return 0, err
		}
	}
	if len(r.ready) > 0 {
		return take(b, &r.ready), nil
	}
	n, err := r.readAny(b[:min(int64(len(b)), r.rest.left)])
	if r.rest.left < math.MaxInt64 {
		r.rest.left -= int64(n)
	} else {
		r.rest.passed += int64(n)
	}
	return n, err
}

// readAny returns the bytes in ahead, then reads from the connection.
func (r *requestReader) readAny(b []byte) (int, error) {
	if len(r.ahead) > 0 {
		return take(b, &r.ahead), nil
	}
	return r.from(b)
}

// take moves bytes from the beginning of from to b.
func take(b []byte, from *[]byte) (n int) {
	n = copy(b, *from)
	if *from = (*from)[n:]; len(*from) == 0 {
		// The memory is no longer needed.
		*from = nil
	}
	return n
}

// readHead reads a part of the next head. It waits with b as its buffer, so that a connection without a
// request needs no other. b has one byte if net/http waits for the end of the connection during a request.
// Otherwise the head has begun for net/http as well, whose own time limit begins with what it is given.
func (r *requestReader) readHead(b []byte) error {
	if len(r.next.text) > 0 {
		if !r.next.timed && len(b) > 1 {
			if err := r.limit(); err != nil {
				return err
			}
			r.next.timed = true
		}
		const chunk = 4 << 10
		r.next.text = slices.Grow(r.next.text, chunk)
		b = r.next.text[len(r.next.text) : len(r.next.text)+chunk]
	}
	n, err := r.readAny(b)
	if r.protocol == noBytes && n > 0 {
		if r.protocol = wireHTTP1; b[0] == tlsHandshake {
			r.protocol = wireTLS
		}
	}
	if n > 0 {
		// The next read returns it again.
		err = nil
	}
	if len(r.next.text) == 0 {
		// net/http does the same, because of old clients.
		if r.afterPOST {
			b = bytes.TrimLeft(b[:n], "\r\n")
			n = len(b)
		}
		r.sent = sentHead{}
	}
	r.next.text = append(r.next.text, b[:n]...)
	if err != nil {
		// net/http answers half a head, unless it has ended the read itself.
		if len(r.next.text) > 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			r.giveUp(err)
			return nil
		}
		return err
	}
	if r.protocol == wireTLS {
		// There is no line to wait for.
		r.deliver(nil)
		r.rest.left = math.MaxInt64
		return nil
	}
	return r.advance()
}

// advance looks for the end of the head in what was read, and then delivers the head.
func (r *requestReader) advance() error {
	for r.next.line < len(r.next.text) {
		n := bytes.IndexByte(r.next.text[r.next.line:], '\n')
		size := len(r.next.text)
		if n >= 0 {
			size = r.next.line + n + 1
			r.next.lines++
		}
		switch {
		case size > maxHead || r.next.lines > maxFields:
			if r.next.lines == 0 {
				r.parseStart(r.next.text)
			}
			r.deliverFault(errLongHead)
			return nil
		case !r.long && (size > longHead || r.next.lines > manyLines):
			if err := r.memory.Hold(longHeadBytes); err != nil {
				r.giveUp(err)
				return nil
			}
			r.long = true
		}
		if n < 0 {
			return nil
		}
		line := r.next.text[r.next.line:size]
		if r.next.lines == 1 {
			if fault := r.parseStart(line); fault != nil {
				r.deliverFault(fault)
				return nil
			}
		} else if string(line) == "\n" || string(line) == "\r\n" {
			r.ahead = slices.Concat(r.next.text[size:], r.ahead)
			r.complete(r.next.text[:size])
			return nil
		}
		r.next.line = size
	}
	return nil
}

// giveUp gives net/http what was read of a head, and then err. net/http answers that if it has begun to
// read a request.
func (r *requestReader) giveUp(err error) {
	if r.next.lines == 0 {
		r.parseStart(r.next.text)
	}
	r.ready, r.err = r.next.text, err
	r.next, r.rest = nextHead{}, afterHead{}
}

// complete delivers a complete head.
func (r *requestReader) complete(head []byte) {
	line, fields, _ := bytes.Cut(head, []byte("\n"))
	method, target := r.sent.method, r.sent.target
	switch {
	case !r.delivered && strings.TrimSuffix(string(line), "\r") == http2Preface:
		r.protocol = wireHTTP2
		r.deliver(head)
		r.rest.left = math.MaxInt64
		return
	case needsStandIn(target) && !isAuthority(method, target):
		version := line[bytes.LastIndexByte(line, ' '):]
		r.deliver(slices.Concat([]byte(method+" "+r.sent.standIn()), version, []byte("\n"), fields))
	default:
		r.deliver(head)
	}
	var known bool
	if r.rest.left, known = bodyLength(method, fields); !known {
		r.rest.left, r.rest.least = math.MaxInt64, r.rest.left
	}
	r.afterPOST = method == http.MethodPost
}

// isAuthority reports whether a CONNECT has a target that net/http does not parse as a URL
// (RFC 9112 3.2.3).
func isAuthority(method, target string) bool {
	return method == http.MethodConnect && !needsStandIn("http://"+target) && !strings.HasPrefix(target, "/")
}

// parseStart reads the request line (RFC 9112 3) into sent.
func (r *requestReader) parseStart(line []byte) *MalformedError {
	method, rest, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), " ")
	target, version := rest, ""
	if end := strings.LastIndexByte(rest, ' '); end >= 0 {
		target, version = rest[:end], rest[end+1:]
	}
	_, _, ok := http.ParseHTTPVersion(version)
	if !ok {
		target = rest
	}
	r.sent = sentHead{method: method, target: target}
	switch {
	case !ok:
		return malformed("the request line does not end with an HTTP version")
	// A method is a token, as a field name is.
	case !httpguts.ValidHeaderFieldName(method):
		return malformed("the method is not a token")
	case target == "":
		return malformed("the request line has no target")
	case strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return malformed(blankIn(target))
	}
	return nil
}

// blankIn says what is wrong with a target that contains a blank or a control byte. It may be meant as
// the end of the request line, so that no more requests are read.
func blankIn(target string) string {
	if _, _, pathQuery, ok := robots.SplitURL(target); ok {
		target = pathQuery
	}
	if _, err := robots.NewTarget("", robots.Origin{}, target); err != nil {
		return err.Error()
	}
	return "the host contains a blank or a control byte"
}

// deliver gives text to net/http in place of the head. The caller sets rest, if there is a body.
func (r *requestReader) deliver(text []byte) {
	// net/http waits for as many bytes, to see whether they are the preface.
	const least = len(http2Preface)
	if len(text) < least {
		text = append(text, bytes.Repeat([]byte("\n"), least-len(text))...)
	}
	r.ready, r.delivered = text, true
	r.next, r.rest = nextHead{}, afterHead{}
}

// deliverFault gives net/http a stand-in for a malformed request. What follows on the connection is its
// body, so that the handler reads it for a while before the connection ends. A client that is not reset
// gets the answer.
func (r *requestReader) deliverFault(fault *MalformedError) {
	r.ahead = slices.Concat(r.next.text, r.ahead)
	r.sent.fault = fault
	method := http.MethodGet
	if r.sent.method == http.MethodHead {
		method = http.MethodHead
	}
	fields := "Host: stand-in.invalid\r\nContent-Length: " + strconv.FormatInt(math.MaxInt64, 10)
	r.deliver([]byte(method + " " + r.sent.standIn() + " HTTP/1.1\r\n" + fields + "\r\n\r\n"))
	r.rest.left = math.MaxInt64
}

// bodyLength returns how many bytes behind a head with these fields are no head, and whether that is all. A
// body that was taken for a head could be changed, so what is not certain is unknown: a length that is folded
// or repeated, or a transfer coding, after which the connection ends. After CONNECT, and a request for another
// protocol, that protocol may follow.
func bodyLength(method string, fields []byte) (n int64, known bool) {
	known = method != http.MethodConnect
	lengths := 0
	for line := range bytes.Lines(fields) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		// The line continues the value before (RFC 9112 5.2).
		case line[0] == ' ' || line[0] == '\t':
			return math.MaxInt64, false
		case isField(name, "Transfer-Encoding"):
			return math.MaxInt64, false
		case isField(name, "Upgrade"):
			known = false
		case isField(name, "Content-Length"):
			length, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
			if lengths++; err != nil || lengths > 1 {
				return math.MaxInt64, false
			}
			n = int64(length)
		}
	}
	return n, known
}

// isField reports whether name is that of a field, with white space around it or not.
func isField(name []byte, field string) bool {
	return strings.EqualFold(string(bytes.TrimSpace(name)), field)
}

// reset prepares for the next head, after a response. net/http may have begun to read that head before.
// If more bytes have passed than those of the body, they may contain heads, so that all others pass too.
func (r *requestReader) reset() {
	// HTTP/2 comes first, because its responses end while the connection is read.
	if r.protocol == wireHTTP2 || len(r.ready) > 0 {
		return
	}
	if r.long {
		r.memory.Free(longHeadBytes)
		r.long = false
	}
	if r.rest.left == math.MaxInt64 && r.rest.passed <= r.rest.least {
		r.rest.left = r.rest.least - r.rest.passed
	}
	// If the next head has begun to arrive, sent is that one.
	if len(r.next.text) == 0 {
		r.sent = sentHead{}
	}
}

// withAhead returns a reader with what r has read ahead of net/http, for a connection that net/http has
// given to its handler together with the reader from.
func (r *requestReader) withAhead(from *bufio.Reader) *bufio.Reader {
	if n := from.Buffered() + len(r.ahead); len(r.ahead) > 0 {
		from = bufio.NewReaderSize(from, n)
		// It cannot fail, because no byte of it comes from the connection.
		from.Peek(n)
	}
	return from
}
