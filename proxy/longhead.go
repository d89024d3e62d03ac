package proxy

import (
	"bytes"
	"errors"

	"robotsproxy/policy/memory"
)

const (
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

var errManyFields = errors.New("the head of a request has too many lines")

// held gives what the connection counts as in the memory budget.
func (a arrival) held() *memory.Work {
	switch {
	case a.client != nil:
		return &a.client.held
	case a.tunnel != nil:
		return &a.tunnel.held
	}
	return new(memory.Work)
}

// A headMeter follows the head of a request by HTTP/1 while net/http reads it. It belongs to the goroutine
// that reads.
type headMeter struct {
	size  int
	lines int
	text  bool  // the line that has begun is not empty
	whole bool  // the head has ended
	long  bool  // longHeadBytes are counted for it
	err   error // why no more of it is read
}

// pass takes in what was read next. The error is errManyFields or memory.ErrShort.
func (m *headMeter) pass(b []byte, conn *httpConn) error {
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
			m.err = arrivalOf(conn).held().Hold(longHeadBytes)
			m.long = m.err == nil
		}
	}
	return m.err
}

// next begins another head.
func (m *headMeter) next(conn *httpConn) {
	if m.long {
		arrivalOf(conn).held().Free(longHeadBytes)
	}
	*m = headMeter{}
}
