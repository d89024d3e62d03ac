package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/h2"
)

const (
	// shortTrailer is the maximum length of an encoded trailer, in bytes, that counts only when it was read.
	shortTrailer = 1 << 10
	// closeTime is how long the alert that ends a TLS connection may take, as in net/http.
	closeTime = 250 * time.Millisecond
)

// errHeadMemory ends a connection on which a head of several frames arrives that finds no memory, or that no request waits for.
// net/http cannot skip a head: it decodes later ones with the help of this one (RFC 9113 4.3).
var errHeadMemory = errors.New("the origin sent a long head that finds no memory, to another request on the same connection")

// A streamMemory is the memory of the response on one stream of HTTP/2. Any number of goroutines may use it.
type streamMemory struct {
	// fail ends the request.
	fail context.CancelCauseFunc

	// mu guards what follows.
	mu          sync.Mutex
	heads, body reserve

	// begun is the number of heads and trailers that have begun, and known that of the decoded ones. waits is the last
	// that is a long trailer, counted from 1; 0: none is.
	begun, known, waits int

	// size is the size of the decoded ones, in bytes, and fields the number of their fields.
	size, fields int

	// unread is the number of bytes of the body that were received and not read.
	unread int
}

// begin counts a head or trailer whose first frame begins to arrive. A head counts when it was decoded, at once. A trailer
// waits until the body was read: a long one counts as the longest until then.
func (m *streamMemory) begin(size int, whole bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun++; m.begun == 1 || whole && size <= shortTrailer {
		return nil
	}
	m.waits = m.begun
	return m.countHeads()
}

// countHeads counts the heads and the trailer. The caller holds m.mu.
func (m *streamMemory) countHeads() error {
	size := m.size
	if m.waits > m.known {
		size += h1.MaxHead
	}
	return m.heads.set(headMemory(size, m.fields))
}

// decoded counts a head or trailer that was decoded. The error is h1.ErrFieldCount, h1.ErrHeadSize or memory.ErrShort.
func (m *streamMemory) decoded(header http.Header) error {
	size, fields := sizeOf(header)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known++
	m.size += size
	m.fields += fields
	switch {
	case fields > h1.MaxFields:
		return h1.ErrFieldCount
	case m.size > h1.MaxHead:
		return h1.ErrHeadSize
	}
	return m.countHeads()
}

// receive counts n bytes of the body that arrive, or that were read if n is negative.
func (m *streamMemory) receive(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unread = max(0, m.unread+n)
	return m.body.set(int64(m.unread))
}

// A frameConn is a connection of HTTP/2 below net/http. It follows the frames, and counts what they add to a response before
// net/http gets them. It may be used like any net.Conn.
type frameConn struct {
	*tls.Conn

	// mu guards what follows.
	mu             sync.Mutex
	sent, received h2.Tracker

	// padded has a DATA frame whose next byte is the length of its padding (RFC 9113 6.1); nil: there is none.
	padded *streamMemory

	// streams has the open streams on which something may arrive. last is the last one that was opened, and next is the
	// memory of the one that is opened next.
	streams map[uint32]*streamMemory
	last    uint32
	next    *streamMemory
	closed  bool

	// long is what a head of several frames takes: it may never end, and net/http keeps buffers of its size as long as the
	// connection lives. The client that has caused the first one pays for all: only one arrives at a time (RFC 9113 4.3).
	long    memory.Work
	hasLong bool
}

func newFrameConn(conn *tls.Conn) *frameConn {
	c := &frameConn{Conn: conn, streams: make(map[uint32]*streamMemory)}
	c.sent.Skip(len(h2.Preface))
	return c
}

// Read reads frames. It fails with errHeadMemory.
func (c *frameConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if short := c.follow(b[:n]); short != nil {
		return 0, short
	}
	return n, err
}

// follow counts what was read.
func (c *frameConn) follow(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	for len(b) > 0 {
		if c.padded != nil {
			// To count less is no error.
			c.padded.receive(-1 - int(b[0]))
			c.padded = nil
		}
		n, begins := c.received.Next(b)
		if b = b[n:]; !begins {
			continue
		}
		if err := c.begin(h2.StreamOf(c.received.Head[:])); err != nil {
			return err
		}
	}
	return nil
}

// begin counts a frame of a stream whose head was read. The caller holds c.mu.
func (c *frameConn) begin(stream uint32) error {
	f := &c.received
	whole := f.Type() != h2.Headers || f.Has(h2.EndHeaders)
	m := c.streams[stream]
	if m == nil {
		if whole {
			return nil
		}
		return errHeadMemory
	}
	var short error
	switch f.Type() {
	case h2.Headers:
		if short = m.begin(f.Size(), whole); short == nil && !whole {
			short = c.beginLong(m.heads.work)
		}
	case h2.Data:
		if short = m.receive(f.Size()); f.Has(h2.Padded) && f.Size() > 0 {
			c.padded = m
		}
	case h2.Reset:
		delete(c.streams, stream)
		return nil
	default:
		return nil
	}
	// It is said before the request fails, so that no later one gets this connection.
	c.hasLong = c.hasLong || !whole
	if short != nil {
		m.fail(short)
	}
	if short != nil || f.Has(h2.EndStream) {
		delete(c.streams, stream)
	}
	if short != nil && !whole {
		return errHeadMemory
	}
	return nil
}

// beginLong counts a head of several frames in work; nil: it is not counted. The caller holds c.mu.
func (c *frameConn) beginLong(work *memory.Work) (err error) {
	if work != nil && !c.hasLong {
		c.long, err = work.Apart(headMemory(h1.MaxHead, 0))
	}
	return err
}

// Write writes frames. net/http calls it on one goroutine at a time.
func (c *frameConn) Write(b []byte) (int, error) {
	c.open(b)
	return c.Conn.Write(b)
}

// open notes the streams that are opened and reset by what is written.
func (c *frameConn) open(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) > 0 {
		n, begins := c.sent.Next(b)
		if b = b[n:]; !begins {
			continue
		}
		stream := h2.StreamOf(c.sent.Head[:])
		switch {
		case c.sent.Type() == h2.Headers && stream > c.last:
			// Another frame of this type is a trailer.
			c.last, c.streams[stream], c.next = stream, c.next, nil
		case c.sent.Type() == h2.Reset:
			delete(c.streams, stream)
		}
	}
}

// expect makes m the memory of the stream that is opened next. net/http has a lock from before it encodes the fields of a
// head, which it reports, until it has written that head.
func (c *frameConn) expect(m *streamMemory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = m
}

// hadLong reports whether a head of several frames has begun to arrive.
func (c *frameConn) hadLong() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasLong
}

// Close closes the connection, also if its peer does not read.
func (c *frameConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.long.End()
	c.mu.Unlock()
	defer time.AfterFunc(closeTime, func() { c.NetConn().Close() }).Stop()
	return c.Conn.Close()
}
