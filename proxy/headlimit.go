package proxy

import (
	"bytes"
	"errors"

	"robotsproxy/policy/memory"
)

const (
	maxHead  = 64 << 10 // bytes of a request's head
	maxFrame = 16 << 10 // bytes of an HTTP/2 frame, the least that is allowed: net/http keeps a buffer for one frame with each connection

	// longHead and manyLines are the length of a request's head, in bytes and in lines, up to which its
	// memory is in the estimate for a connection.
	longHead, manyLines = maxFrame, 64

	// longHeadBytes is the estimate for a longer one, in bytes: what net/http keeps of it while it reads,
	// and after that on a connection of HTTP/2 (measured: 60 to 160 KiB).
	longHeadBytes = 160 << 10

	// maxFields bounds the lines of a request's head by HTTP/1. A field takes some 100 bytes, however short
	// it is.
	maxFields = 1024
)

var errManyFields = errors.New("the header of a request has too many lines")

// A headMeter follows the head of a request by HTTP/1 while net/http reads it. It belongs to the goroutine
// that reads.
type headMeter struct {
	memory *memory.Work // what the connection counts as in the memory budget
	size   int
	lines  int
	text   bool  // the current line is not empty
	whole  bool  // the head has ended
	long   bool  // longHeadBytes are counted for the head
	err    error // why the head is not read on
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

// reset ends the count of a head; the next one begins.
func (m *headMeter) reset() {
	if m.long {
		m.memory.Free(longHeadBytes)
	}
	*m = headMeter{memory: m.memory}
}

// net/http takes longer heads than http.Server.MaxHeaderBytes says, by so many bytes. In
// HTTP/1 these are what it adds, and what it looks at for HTTP/2's preface before it counts;
// a head that is pipelined may be longer by what came with the request before.
const (
	slopHTTP1 = 4<<10 + len("PRI * HTTP/2.0")
	slopHTTP2 = 10 * 32 // ten fields' overhead (RFC 9113 6.5.2)
)
