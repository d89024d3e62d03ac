package inbound

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h2"
)

// maxBlock is the maximum length, in bytes, of the frames of one head or trailer of HTTP/2.
// net/http accepts fields of up to maxHead bytes, and clients encode them in fewer bytes.
const maxBlock = 2 * maxHead

var (
	errLongBlock = errors.New("the header of a request is too long")
	// errPadding is a connection error (RFC 9113 6.2).
	errPadding = errors.New("a HEADERS frame has more padding than bytes")
)

// A headReader reads the frames of an HTTP/2 client. It puts a stand-in in the place of a head that
// net/http would not pass to the handler. So net/http's decoder no longer gets what the client's encoder has put
// into the dynamic table (RFC 7541 2.3.2), and from then on the headReader encodes all heads of the
// connection anew.
//
// A headReader belongs to one goroutine.
type headReader struct {
	from io.Reader

	// memory is the connection in the memory budget.
	memory *memory.Work

	// long says that longHeadBytes are counted for a head.
	long bool

	// frame has the head of the last frame.
	frame h2.Tracker

	// buffer is nil while it is not in use.
	buffer *[maxHeld]byte

	// unread are the bytes that were read and not returned yet. They are in buffer unless there are too many.
	unread []byte

	// left is the number of bytes of the last frame's payload that were not read yet.
	left int

	// last is the last stream that the client has opened.
	last  uint32
	heads http2Heads
}

// Read returns the client's frames to net/http.
func (r *headReader) Read(b []byte) (int, error) {
	if len(r.unread) == 0 && r.left == 0 {
		if err := r.advance(); err != nil {
			return 0, err
		}
	}
	if len(r.unread) == 0 {
		n, err := r.from.Read(b[:min(len(b), r.left)])
		r.left -= n
		return n, err
	}
	n := copy(b, r.unread)
	if r.unread = r.unread[n:]; len(r.unread) == 0 {
		r.unread = nil
		r.putBuffer()
	}
	return n, nil
}

// putBuffer returns the buffer to the pool.
func (r *headReader) putBuffer() {
	if r.buffer != nil {
		heldBuffers.Put(r.buffer)
		r.buffer = nil
	}
}

// advance reads the next frame if it is a HEADERS frame, with its CONTINUATION frames. Of other
// frames it reads only the head. net/http handles frames out of order and ends the connection.
func (r *headReader) advance() error {
	// No buffer is used during this wait.
	if _, err := io.ReadFull(r.from, r.frame.Head[:]); err != nil {
		return err
	}
	r.buffer = heldBuffers.Get().(*[maxHeld]byte)
	r.unread = append(r.buffer[:0], r.frame.Head[:]...)
	if r.frame.Type() != h2.Headers {
		r.left = r.frame.Size()
		return nil
	}
	if err := r.readBytes(r.frame.Size()); err != nil {
		return err
	}
	if _, ok := fieldBlock(r.unread); !ok {
		return errPadding
	}
	for !r.frame.Has(h2.EndHeaders) {
		if err := r.readFrameHead(); err != nil {
			return err
		}
		if r.frame.Type() != h2.Continuation || h2.StreamOf(r.frame.Head[:]) != h2.StreamOf(r.unread) {
			r.left = r.frame.Size()
			return nil
		}
		if err := r.readBytes(r.frame.Size()); err != nil {
			return err
		}
	}
	return r.rewrite()
}

// rewrite rewrites a whole head if net/http would not pass it to the handler, or if the heads of the connection are
// encoded anew. A block on a stream that was opened before is a trailer (RFC 9113 8.1).
func (r *headReader) rewrite() error {
	stream := h2.StreamOf(r.unread)
	trailer := stream <= r.last
	r.last = max(r.last, stream)
	// net/http resets such a stream, although priorities mean nothing any more (RFC 9113 5.3.2).
	if dependsOnItself(r.unread) {
		r.heads.encodeAnew()
	}
	block, changed, err := r.heads.rewrite(wholeBlock(r.unread), trailer)
	if err == nil && changed {
		r.unread = recode(r.unread, block)
	}
	return err
}

// dependsOnItself reports whether a HEADERS frame has a priority that depends on its own stream
// (RFC 7540 5.3.1).
func dependsOnItself(frame []byte) bool {
	at := h2.HeadSize
	if frame[4]&h2.Padded != 0 {
		at++
	}
	return frame[4]&h2.Priority != 0 && binary.BigEndian.Uint32(frame[at:])&(1<<31-1) == h2.StreamOf(frame)
}

// readFrameHead reads the head of a frame.
func (r *headReader) readFrameHead() error {
	before := len(r.unread)
	if err := r.readBytes(h2.HeadSize); err != nil {
		return err
	}
	copy(r.frame.Head[:], r.unread[before:])
	return nil
}

// readBytes reads n more bytes.
func (r *headReader) readBytes(n int) error {
	before := len(r.unread)
	if before+n > maxBlock {
		return errLongBlock
	}
	if err := r.grow(before + n); err != nil {
		return err
	}
	_, err := io.ReadFull(r.from, r.unread[before:])
	return err
}

// growStep is the minimum number of bytes by which the memory of a head grows. It grows at
// most maxBlock/growStep times.
const growStep = 8 << 10

// grow makes unread n bytes long. A head longer than longHead is counted until the connection is
// closed, because net/http keeps buffers of that size.
func (r *headReader) grow(n int) error {
	if n > longHead+h2.HeadSize && !r.long {
		if err := r.memory.Hold(longHeadBytes); err != nil {
			return err
		}
		r.long = true
	}
	if n > cap(r.unread) {
		r.unread = append(make([]byte, 0, (n+growStep-1)/growStep*growStep), r.unread...)
		r.putBuffer()
	}
	r.unread = r.unread[:n]
	return nil
}

// wholeBlock returns the encoded fields in a HEADERS frame and the CONTINUATION frames that
// follow.
func wholeBlock(b []byte) []byte {
	size := func() int { return h2.HeadSize + int(b[0])<<16 + int(b[1])<<8 + int(b[2]) }
	first := b[:size()]
	block, _ := fieldBlock(first)
	if len(first) == len(b) {
		return block
	}
	whole := append(make([]byte, 0, len(b)), block...)
	for b = b[len(first):]; len(b) > 0; b = b[size():] {
		whole = append(whole, b[h2.HeadSize:size()]...)
	}
	return whole
}

// fieldBlock returns the encoded fields in a HEADERS frame.
func fieldBlock(frame []byte) (block []byte, ok bool) {
	begin, end := h2.HeadSize, len(frame)
	if frame[4]&h2.Padded != 0 {
		if begin == end {
			return nil, false
		}
		end -= int(frame[begin])
		begin++
	}
	if frame[4]&h2.Priority != 0 {
		begin += 5
	}
	if begin > end {
		return nil, false
	}
	return frame[begin:end], true
}

// recode returns frames like the HEADERS frame that frames begins with, with other fields. If the block is
// long, CONTINUATION frames follow.
func recode(frames, block []byte) (out []byte) {
	kind, flags := frames[3], frames[4]&^(h2.Padded|h2.Priority|h2.EndHeaders)
	for first := true; first || len(block) > 0; first = false {
		size := min(len(block), maxFrame)
		if size == len(block) {
			flags |= h2.EndHeaders
		}
		out = append(out, byte(size>>16), byte(size>>8), byte(size), kind, flags)
		out = append(append(out, frames[5:h2.HeadSize]...), block[:size]...)
		kind, flags, block = h2.Continuation, 0, block[size:]
	}
	return out
}

const (
	// maxHeld is how many bytes are held back; net/http's server writes more at once only for bodies.
	maxHeld = 4 << 10
	// heldFor is long enough for a handler that has the body ready.
	heldFor = time.Millisecond
	// bareHeadSize is the length of a head with only a status, such as the 200 to a CONNECT, after which the client sends first.
	bareHeadSize = 1
)

// heldBuffers is the pool of buffers for h2Conns and headReaders.
var heldBuffers = sync.Pool{New: func() any { return new([maxHeld]byte) }}

// awaitsBody reports whether the last byte ended a head that a body follows (RFC 9113 6.2).
func awaitsBody(f *h2.Tracker) bool {
	return f.Whole() && f.Type() == h2.Headers && f.Has(h2.EndHeaders) && !f.Has(h2.EndStream) && f.Size() > bareHeadSize
}
