package proxy

import (
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy/pace"
)

// A body is copied with a buffer of smallCopy bytes, which the estimate for a request includes. If the body is longer, and
// the memory budget has space, the buffer has copySize bytes.
const (
	smallCopy = 4 << 10
	copySize  = 32 << 10
)

var (
	copyBuffers  = sync.Pool{New: func() any { return new([copySize]byte) }}
	smallBuffers = sync.Pool{New: func() any { return new([smallCopy]byte) }}
)

// fail keeps the first error, because the pipeline does not return errors.
func (r *response) fail(err error) {
	if r.failure != nil || err == nil {
		return
	}
	if ended := r.s.transfer.watch.err(); ended != nil && r.s.transfer.flow.now().failure == nil {
		// The watch has ended the transfer, and caused the error.
		err = ended
	}
	r.failure = err
}

// mute stores why there is no response, and drops the response of the pipeline.
func (r *response) mute(err error) error {
	r.muted = true
	r.fail(err)
	return err
}

// Header returns the header of the response. After the client has left, it returns a
// header that is not used.
func (r *response) Header() http.Header {
	if r.clientLeft {
		return http.Header{}
	}
	return r.s.in.Writer.Header()
}

// WriteHeader sends the head of the response to the client.
func (r *response) WriteHeader(status int) {
	s := r.s
	if r.muted || r.headSent {
		return
	}
	if err := s.line.await(s.in.HTTP.Context()); err != nil {
		r.mute(err)
		return
	}
	r.headSent = true
	s.record.Status = status
	s.in.EndConnection(s.transfer.flow.uploaded())
	s.transfer.beginWrite()
	s.in.Writer.WriteHeader(status)
	// A field in the head is no trailer, even if it has the name of one.
	for _, list := range s.in.Writer.Header()["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			s.in.Writer.Header().Del(textproto.TrimString(name))
		}
	}
	if r.length < 0 && s.in.Method != http.MethodHead {
		// The client gets the head of a stream before its first byte.
		r.Flush()
	}
}

// Write sends a part of the body to the client.
func (r *response) Write(b []byte) (int, error) {
	s := r.s
	if r.muted {
		return len(b), nil
	}
	if err := s.line.await(s.in.HTTP.Context()); err != nil {
		r.fail(err)
		return 0, err
	}
	if n := len(b); n > 0 && r.endsLast() && s.record.Bytes+int64(n) == r.length {
		r.held = []byte{b[n-1]}
		b = b[:n-1]
	}
	s.transfer.flow.beginSend()
	n, err := s.in.Writer.Write(b)
	if err == nil {
		n += len(r.held)
	}
	s.transfer.flow.endSend(n)
	s.transfer.watch.moved()
	s.record.Bytes += int64(n)
	r.fail(err)
	return n, err
}

// endsLast reports whether the end of the response waits for its record.
func (r *response) endsLast() bool { return r.s.rules.RecordFirst || r.capture.EndsLast() }

// Flush sends what is buffered to the client.
func (r *response) Flush() {
	if !r.muted {
		r.s.transfer.flow.beginSend()
		// The next Write returns an error.
		http.NewResponseController(r.s.in.Writer).Flush()
		r.s.transfer.flow.endSend(0)
	}
}

// flushLast sends the last bytes while the watch runs. With HTTP/2, net/http sends them
// in one frame with the end of the stream when the handler returns. In that case
// flushLast limits their time, and no watch is needed.
func (r *response) flushLast() {
	switch {
	case len(r.held) > 0:
		// sendHeld sends them after the record.
		return
	case r.s.in.HTTP.ProtoMajor == 1:
		r.Flush()
		return
	}
	http.NewResponseController(r.s.in.Writer).SetWriteDeadline(time.Now().Add(r.s.transfer.watch.limit))
}

// sendHeld sends the byte that Write has held back, after the record was written.
func (r *response) sendHeld() {
	last := r.held
	if r.held = nil; last == nil {
		return
	}
	defer r.s.transfer.beginLast().stop()
	r.s.transfer.flow.beginSend()
	// The record is written, so an error does not matter.
	r.s.in.Writer.Write(last)
	r.s.transfer.flow.endSend(0)
	r.flushLast()
}

// ReadFrom copies a body. It flushes whenever the origin has sent less than a buffer, or nothing
// behind the head, so that the client has everything while the origin is silent.
func (r *response) ReadFrom(body io.Reader) (total int64, err error) {
	if r.length > 0 && r.s.in.Method != http.MethodHead && !r.body.hasBegun() {
		r.Flush()
	}
	small := smallBuffers.Get().(*[smallCopy]byte)
	defer smallBuffers.Put(small)
	var large *[copySize]byte
	defer func() {
		if large != nil {
			copyBuffers.Put(large)
			r.s.work.Free(copySize)
		}
	}()
	// The body needs the large buffer if it is long.
	buf, long := small[:], r.length > smallCopy
	for {
		if long && large == nil && r.s.work.Spare(copySize) {
			large = copyBuffers.Get().(*[copySize]byte)
			buf = large[:]
		}
		n, rerr := body.Read(buf)
		long = n == len(buf)
		if n > 0 {
			m, werr := r.Write(buf[:n])
			total += int64(m)
			if werr != nil {
				return total, werr
			}
		}
		switch {
		case rerr == io.EOF:
			return total, nil
		case rerr != nil:
			return total, rerr
		case n < len(buf) && total != r.length:
			r.Flush()
		}
	}
}

// await implements [sender].
func (r *response) await(ctx context.Context, slot *pace.Slot) error {
	r.s.transfer.watch.pause(true)
	defer r.s.transfer.watch.pause(false)
	return slot.Ready(ctx)
}

// check implements [sender].
func (r *response) check() error {
	return cmp.Or(r.s.client.h.o.Ready(), r.s.held(&r.s.record.Decision), r.s.ticket.Renew())
}

// sent implements [sender].
func (r *response) sent() { r.s.client.h.sent.add(&r.s.line, &r.s.record, r.s.rules.RecordFirst) }

// passInterim implements [sender]: it sends a 1xx response to the client (RFC 9110 15.2). net/http sends 100 itself.
func (r *response) passInterim(resp *http.Response) {
	in := r.s.in
	if r.s.line.await(in.HTTP.Context()) != nil || resp.StatusCode == http.StatusContinue || !in.HTTP.ProtoAtLeast(1, 1) || r.clientLeft {
		return
	}
	if len(in.HTTP.Header["Expect"]) > 0 {
		// net/http may be about to send 100 on another goroutine.
		return
	}
	h := in.Writer.Header()
	maps.Copy(h, resp.Header)
	stripHop(h)
	r.s.transfer.flow.setWriting(true)
	// If the watch has ended the transfer, a refusal follows, whose writes beginWrite would make fail.
	if r.s.transfer.watch.err() == nil {
		in.Writer.WriteHeader(resp.StatusCode)
	}
	r.s.transfer.flow.setWriting(false)
	// If the client has left over HTTP/2, WriteHeader has not waited until the header was read.
	if r.clientLeft = in.HTTP.Context().Err() != nil; !r.clientLeft {
		clear(h)
	}
}

// hasBegun reports whether a part of the body is known to have arrived with the head.
func (b *originBody) hasBegun() bool {
	with, ok := b.ReadCloser.(interface{ Buffered() int })
	return ok && with.Buffered() > 0
}

// Read reads from the origin.
func (b *originBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.response.s.transfer.watch.moved()
	err = b.response.capture.Read(p[:n], err)
	if b.digest != nil {
		// A hash returns no error.
		b.digest.Write(p[:n])
		b.response.s.record.Received.Bytes += int64(n)
	}
	if err != nil {
		stripTrailer(b.received.Trailer, b.connection)
	}
	if err != nil && err != io.EOF {
		b.response.fail(err)
	}
	return n, err
}
