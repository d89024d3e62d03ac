package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"robotsproxy/policy/memory"
)

// maxBlock is the maximum length, in bytes, of the frames of one head or trailer of HTTP/2.
// net/http accepts fields of up to maxHead bytes, and clients encode them in fewer bytes.
const maxBlock = 2 * maxHead

var (
	errLongBlock = errors.New("the header of a request is too long")
	errPadding   = errors.New("a HEADERS frame has more padding than bytes") // RFC 9113 6.2: a connection error
)

// A headReader reads the frames of an HTTP/2 client. It puts a stand-in in the place of a head that
// net/http would not pass to the handler. So net/http's decoder no longer gets what the client's encoder has put
// into the dynamic table (RFC 7541 2.3.2), and from then on the headReader encodes all heads of the
// connection anew.
//
// A headReader belongs to one goroutine.
type headReader struct {
	from   io.Reader
	memory *memory.Work   // the connection in the memory budget
	long   bool           // longHeadBytes are counted for a head
	frame  frameTracker   // contains the head of the last frame
	buffer *[maxHeld]byte // nil: it is not in use
	unread []byte         // bytes that were read and not returned yet; in buffer unless there are too many
	left   int            // bytes of the last frame's payload that were not read yet
	last   uint32         // the last stream that the client has opened
	heads  http2Heads
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

// Parts of frames (RFC 9113 4.1, 6.2, 6.10).
const (
	frameHead                                = 9 // bytes
	typeHeaders, typeContinuation            = 0x1, 0x9
	flagEndHeaders, flagPadded, flagPriority = 0x4, 0x8, 0x20
)

// advance reads the next frame if it is a HEADERS frame, with its CONTINUATION frames. Of other
// frames it reads only the head. net/http handles frames out of order and ends the connection.
func (r *headReader) advance() error {
	if _, err := io.ReadFull(r.from, r.frame.head[:]); err != nil { // no buffer is used during this wait
		return err
	}
	r.buffer = heldBuffers.Get().(*[maxHeld]byte)
	r.unread = append(r.buffer[:0], r.frame.head[:]...)
	if r.frame.head[3] != typeHeaders {
		r.left = r.frame.size()
		return nil
	}
	if err := r.readBytes(r.frame.size()); err != nil {
		return err
	}
	if _, ok := fieldBlock(r.unread); !ok {
		return errPadding
	}
	for r.frame.head[4]&flagEndHeaders == 0 {
		if err := r.readFrameHead(); err != nil {
			return err
		}
		if r.frame.head[3] != typeContinuation || streamOf(r.frame.head[:]) != streamOf(r.unread) {
			r.left = r.frame.size()
			return nil
		}
		if err := r.readBytes(r.frame.size()); err != nil {
			return err
		}
	}
	return r.rewrite()
}

// rewrite rewrites a whole head if net/http would not pass it to the handler, or if the heads of the connection are
// encoded anew. A block on a stream that was opened before is a trailer (RFC 9113 8.1).
func (r *headReader) rewrite() error {
	stream := streamOf(r.unread)
	trailer := stream <= r.last
	r.last = max(r.last, stream)
	if dependsOnItself(r.unread) { // net/http resets such a stream, although priorities mean nothing any more (RFC 9113 5.3.2)
		r.heads.encodeAnew()
	}
	block, changed, err := r.heads.rewrite(wholeBlock(r.unread), trailer)
	if err == nil && changed {
		r.unread = recode(r.unread, block)
	}
	return err
}

// streamOf returns the stream of a frame, without the reserved bit (RFC 9113 4.1).
func streamOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[5:frameHead]) & (1<<31 - 1) }

// dependsOnItself reports whether a HEADERS frame has a priority that depends on its own stream
// (RFC 7540 5.3.1).
func dependsOnItself(frame []byte) bool {
	at := frameHead
	if frame[4]&flagPadded != 0 {
		at++
	}
	return frame[4]&flagPriority != 0 && binary.BigEndian.Uint32(frame[at:])&(1<<31-1) == streamOf(frame)
}

// readFrameHead reads the head of a frame.
func (r *headReader) readFrameHead() error {
	before := len(r.unread)
	if err := r.readBytes(frameHead); err != nil {
		return err
	}
	copy(r.frame.head[:], r.unread[before:])
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
	if n > longHead+frameHead && !r.long {
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
	size := func() int { return frameHead + int(b[0])<<16 + int(b[1])<<8 + int(b[2]) }
	first := b[:size()]
	block, _ := fieldBlock(first)
	if len(first) == len(b) {
		return block
	}
	whole := append(make([]byte, 0, len(b)), block...)
	for b = b[len(first):]; len(b) > 0; b = b[size():] {
		whole = append(whole, b[frameHead:size()]...)
	}
	return whole
}

// fieldBlock returns the encoded fields in a HEADERS frame.
func fieldBlock(frame []byte) (block []byte, ok bool) {
	begin, end := frameHead, len(frame)
	if frame[4]&flagPadded != 0 {
		if begin == end {
			return nil, false
		}
		end -= int(frame[begin])
		begin++
	}
	if frame[4]&flagPriority != 0 {
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
	kind, flags := frames[3], frames[4]&^(flagPadded|flagPriority|flagEndHeaders)
	for first := true; first || len(block) > 0; first = false {
		size := min(len(block), maxFrame)
		if size == len(block) {
			flags |= flagEndHeaders
		}
		out = append(out, byte(size>>16), byte(size>>8), byte(size), kind, flags)
		out = append(append(out, frames[5:frameHead]...), block[:size]...)
		kind, flags, block = typeContinuation, 0, block[size:]
	}
	return out
}

const (
	maxHeld      = 4 << 10          // bytes; net/http's server writes more at once only for bodies
	heldFor      = time.Millisecond // long enough for a handler that has the body ready
	bareHeadSize = 1                // length of a head with only a status, such as the 200 to a CONNECT, after which the client sends first
)

// heldBuffers is the pool of buffers for h2Conns and headReaders.
var heldBuffers = sync.Pool{New: func() any { return new([maxHeld]byte) }}

// A frameTracker follows the frames of HTTP/2 (RFC 9113 4.1) in a stream of bytes.
type frameTracker struct {
	head [9]byte // of the last frame
	have int     // number of bytes of head so far
	left int     // bytes of its payload that are still missing
}

// track follows the next bytes of the stream.
func (f *frameTracker) track(b []byte) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			f.left -= n
			b = b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		b = b[n:]
		if f.have += n; f.have == len(f.head) {
			f.have = 0
			f.left = f.size()
		}
	}
}

// size returns the size of the payload.
func (f *frameTracker) size() int { return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]) }

// awaitBody reports whether the last byte ended a head that a body follows (RFC 9113 6.2).
func (f *frameTracker) awaitBody() bool {
	const headers, endStream, endHeaders = 0x1, 0x1, 0x4
	whole := f.have == 0 && f.left == 0
	return whole && f.head[3] == headers && f.head[4]&(endStream|endHeaders) == endHeaders && f.size() > bareHeadSize
}
