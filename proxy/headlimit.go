package proxy

import (
	"bytes"
	"errors"

	"robotsproxy/policy/memory"
)

const (
	maxHead  = 64 << 10 // maximum length of a request's head, in bytes
	maxFrame = 16 << 10 // maximum HTTP/2 frame, in bytes, the smallest that is allowed: net/http keeps a buffer of that size for each connection

	// longHead and manyLines are the length of a request's head, in bytes and in lines, up to which the
	// estimate for a connection includes its memory.
	longHead, manyLines = maxFrame, 64

	// longHeadBytes is the estimate for a longer head, in bytes: the memory that net/http uses while it
	// reads the head, and keeps with an HTTP/2 connection (measured: 60 to 160 KiB).
	longHeadBytes = 160 << 10

	// maxFields is the maximum number of lines in the head of an HTTP/1 request. A field takes about 100
	// bytes, however short it is.
	maxFields = 1024
)

var errManyFields = errors.New("the header of a request has too many lines")

// A headMeter follows the head of an HTTP/1 request while net/http reads it. It belongs to the reading
// goroutine.
type headMeter struct {
	memory *memory.Work // the connection in the memory budget
	size   int
	lines  int
	text   bool  // the current line is not empty
	whole  bool  // the head has ended
	long   bool  // longHeadBytes are counted for the head
	err    error // why the rest of the head is not read
}

// track follows the next bytes that were read. The error is errManyFields or memory.ErrShort.
func (m *headMeter) track(b []byte) error {
	for len(b) > 0 && !m.whole && m.err == nil {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		m.size += len(b) - len(rest)
		m.text = m.text || len(bytes.TrimLeft(line, "\r")) > 0
		b = rest
		if ended {
			m.lines++
			m.whole, m.text = !m.text, false
		}
		switch {
		case m.lines > maxFields:
			m.err = errManyFields
		case !m.long && (m.size > longHead || m.lines > manyLines):
			m.err = m.memory.Hold(longHeadBytes)
			m.long = m.err == nil
		}
	}
	return m.err
}

// reset prepares for the next head.
func (m *headMeter) reset() {
	if m.long {
		m.memory.Free(longHeadBytes)
	}
	*m = headMeter{memory: m.memory}
}

// net/http accepts heads that exceed http.Server.MaxHeaderBytes by these numbers of bytes.
// With HTTP/1, these are what net/http adds, and what it reads for HTTP/2's preface before
// it counts. A pipelined head may be longer by what arrived with the request before.
const (
	slopHTTP1 = 4<<10 + len("PRI * HTTP/2.0")
	slopHTTP2 = 10 * 32 // ten fields' overhead (RFC 9113 6.5.2)
)
