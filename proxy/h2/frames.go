// Package h2 follows the frames of HTTP/2 in a stream of bytes that passes. It knows their heads (RFC 9113 4.1), and reads
// nothing itself.
package h2

import "encoding/binary"

// Preface is the beginning of each connection of a client (RFC 9113 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// HeadSize is the size of the head of a frame, in bytes.
const HeadSize = 9

// Types of frames, and their flags (RFC 9113 6).
const (
	Data, Headers, Reset, Continuation      = 0x0, 0x1, 0x3, 0x9
	EndStream, EndHeaders, Padded, Priority = 0x1, 0x4, 0x8, 0x20
)

// A Tracker follows the frames in one direction of a connection. The zero Tracker expects the head of a frame. It belongs
// to one goroutine at a time.
type Tracker struct {
	// Head is that of the last frame, and have the number of its bytes so far.
	Head [HeadSize]byte
	have int

	// left is the number of bytes of the payload that are still missing.
	left int
}

// Skip makes the Tracker pass over n bytes that are no frame.
func (t *Tracker) Skip(n int) { t.left += n }

// Next follows b up to the end of a payload, or up to the end of a frame's head: then begins is true. It returns the number
// of bytes.
func (t *Tracker) Next(b []byte) (n int, begins bool) {
	if t.left > 0 {
		n = min(t.left, len(b))
		t.left -= n
		return n, false
	}
	n = copy(t.Head[t.have:], b)
	if t.have += n; t.have == len(t.Head) {
		t.have, t.left = 0, t.Size()
		return n, true
	}
	return n, false
}

// Track follows all of b.
func (t *Tracker) Track(b []byte) {
	for len(b) > 0 {
		n, _ := t.Next(b)
		b = b[n:]
	}
}

// Whole reports whether the last byte was the end of a frame.
func (t *Tracker) Whole() bool { return t.have == 0 && t.left == 0 }

// Type returns the type of the last frame.
func (t *Tracker) Type() byte { return t.Head[3] }

// Has reports whether the last frame has all of the flags.
func (t *Tracker) Has(flags byte) bool { return t.Head[4]&flags == flags }

// Size returns the size of the payload, in bytes.
func (t *Tracker) Size() int { return int(t.Head[0])<<16 | int(t.Head[1])<<8 | int(t.Head[2]) }

// StreamOf returns the stream of a frame, without the reserved bit.
func StreamOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[5:HeadSize]) & (1<<31 - 1) }
