package proxy

import (
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"robotsproxy/policy/memory"
)

// maxBlock is the maximum length, in bytes, of the frames of one head or trailer of HTTP/2.
// net/http accepts fields of up to maxHead bytes, and clients encode them in fewer bytes.
const maxBlock = 2 * maxHead

var errLongBlock = errors.New("the header of a request is too long")

// A headReader reads the frames of an HTTP/2 client. A head with a connection-specific field is
// malformed (RFC 9113 8.2.2). net/http answers it with a 400 that does not identify the proxy. A
// headReader puts an invalid field into such a head, so that net/http resets the stream with
// PROTOCOL_ERROR (RFC 9113 8.1.1).
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
	fields fieldTable
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
		return nil
	}
	for r.frame.head[4]&flagEndHeaders == 0 {
		if err := r.readFrameHead(); err != nil {
			return err
		}
		if r.frame.head[3] != typeContinuation {
			r.left = r.frame.size()
			return nil
		}
		if err := r.readBytes(r.frame.size()); err != nil {
			return err
		}
	}
	if block := wholeBlock(r.unread); r.fields.forbidden(block) {
		r.unread = invalidate(r.unread, block)
	}
	return nil
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

// invalidField is a literal without indexing (RFC 7541 6.2.2) for a pseudo-header that no
// request may have, since extended CONNECT is not offered (RFC 8441 3). When net/http finds this
// field, it knows the stream, which it would not with an invalid name. Therefore a body that
// follows does not end the connection.
const invalidField = "\x00\x09:protocol\x01-"

// invalidate returns a HEADERS frame like frame, with an invalid field before the first field of
// block. net/http still decodes the whole block, because later blocks refer to it.
func invalidate(frame, block []byte) []byte {
	size := len(block) + len(invalidField)
	out := append(make([]byte, 0, frameHead+size), byte(size>>16), byte(size>>8), byte(size))
	out = append(out, frame[3], frame[4]&^(flagPadded|flagPriority)|flagEndHeaders)
	out = append(out, frame[5:frameHead]...)
	fields := fieldReader{block}
	fields.sizeUpdates() // these are allowed only at the beginning (RFC 7541 4.2)
	out = append(out, block[:len(block)-len(fields.rest)]...)
	out = append(out, invalidField...)
	return append(out, fields.rest...)
}

// A fieldKind says whether an HTTP/2 request may have a field.
type fieldKind uint8

const (
	ordinary      fieldKind = iota
	teTrailers              // TE with the value that HTTP/2 allows, or an empty value, which net/http accepts
	teOther                 // TE with another value
	hopByHopField           // another connection-specific field
)

// Encodings of the strings to look for, plain and Huffman-coded (RFC 7541 5.2).
var (
	literalNames = func() map[string]fieldKind {
		kinds := map[string]fieldKind{}
		for _, name := range [...]string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"} {
			plain, huffman := encodings(name)
			kinds[plain], kinds[huffman] = hopByHopField, hopByHopField
		}
		plain, huffman := encodings("te")
		kinds[plain], kinds[huffman] = teOther, teOther
		return kinds
	}()
	plainTrailers, huffmanTrailers = encodings("trailers")
)

// encodings returns both encodings of a string shorter than 127 bytes.
func encodings(s string) (plain, huffman string) {
	coded := hpack.AppendHuffmanString(nil, s)
	return string(rune(len(s))) + s, string([]byte{0x80 | byte(len(coded))}) + string(coded)
}

// maxEntries is the maximum number of fields in the dynamic table: net/http offers 4,096
// bytes, and each field takes more than 32 of them (RFC 7541 4.1).
const maxEntries = 4096 / 32

// A fieldTable contains the kinds of the fields in the dynamic table of a connection's decoder
// (RFC 7541 2.3.2). It evicts nothing: a block that refers to an evicted field cannot be decoded,
// and net/http ends the connection.
type fieldTable struct {
	kinds    [maxEntries]fieldKind
	inserted uint
}

// add adds a field.
func (t *fieldTable) add(k fieldKind) {
	t.kinds[t.inserted%maxEntries] = k
	t.inserted++
}

// at returns the kind of the field with an index (RFC 7541 2.3.3).
func (t *fieldTable) at(index uint) fieldKind {
	const static, transferEncoding = 61, 57
	switch {
	case index == transferEncoding:
		return hopByHopField
	case index <= static:
		return ordinary
	}
	return t.kinds[(t.inserted-(index-static))%maxEntries]
}

// forbidden adds the fields of a block to the table. It reports whether an HTTP/2 request must
// not have one of them. It stops at the first field that cannot be decoded.
func (t *fieldTable) forbidden(block []byte) (found bool) {
	r := fieldReader{block}
	r.sizeUpdates()
	seenTE := false
	for len(r.rest) > 0 {
		first := r.rest[0]
		var kind fieldKind
		switch {
		case first&0x80 != 0: // RFC 7541 6.1: an indexed field
			kind = t.at(r.integer(7))
		case first&0xc0 == 0x40: // 6.2.1: a literal that is added to the table
			kind = t.literal(&r, 6)
			t.add(kind)
		case first&0xe0 == 0x20: // 6.3
			r.integer(5)
		default: // 6.2.2, 6.2.3: another literal
			kind = t.literal(&r, 4)
		}
		te := kind == teTrailers
		found = found || kind > teTrailers || te && seenTE
		seenTE = seenTE || te
	}
	return found
}

// literal reads a literal field. Its name index has a prefix of the given number of bits.
func (t *fieldTable) literal(r *fieldReader, prefix int) fieldKind {
	var kind fieldKind
	if index := r.integer(prefix); index > 0 {
		kind = t.at(index)
	} else {
		kind = literalNames[string(r.stringLiteral())]
	}
	value := r.stringLiteral()
	if kind != teTrailers && kind != teOther {
		return kind
	}
	if s := string(value); s == plainTrailers || s == huffmanTrailers || len(s) == 1 {
		return teTrailers
	}
	return teOther
}

// A fieldReader parses a field block (RFC 7541 5, 6). After an error, nothing of the block is
// left.
type fieldReader struct{ rest []byte }

// sizeUpdates reads the updates of the table's size at the beginning of a block.
func (r *fieldReader) sizeUpdates() {
	for len(r.rest) > 0 && r.rest[0]&0xe0 == 0x20 {
		r.integer(5)
	}
}

// integer reads an integer with a prefix of the given number of bits (RFC 7541 5.1).
func (r *fieldReader) integer(prefix int) uint {
	if len(r.rest) == 0 {
		return 0
	}
	most := uint(1)<<prefix - 1
	n := uint(r.rest[0]) & most
	r.rest = r.rest[1:]
	if n < most {
		return n
	}
	for shift := 0; shift < 28 && len(r.rest) > 0; shift += 7 {
		b := r.rest[0]
		r.rest = r.rest[1:]
		n += uint(b&0x7f) << shift
		if b&0x80 == 0 {
			return n
		}
	}
	r.rest = nil
	return 0
}

// stringLiteral reads a string (RFC 7541 5.2) and returns its encoding, including the
// length.
func (r *fieldReader) stringLiteral() []byte {
	whole := r.rest
	n := r.integer(7)
	if n > uint(len(r.rest)) {
		r.rest = nil
		return nil
	}
	r.rest = r.rest[n:]
	return whole[:len(whole)-len(r.rest)]
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
