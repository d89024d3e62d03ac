package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/archive"
)

// A body is copied with a buffer of smallCopy bytes, which the estimate for a request includes. If the body is longer, and
// the memory budget has space, the buffer has copySize bytes.
const (
	smallCopy = 4 << 10
	copySize  = 32 << 10
)

// maxLateUpload is how many bytes of a request body are read after the response.
const maxLateUpload = 256 << 10

// maxReadAhead is the maximum size, in bytes, of a request body that is read before a
// wait. net/http notices that a client has left only after it has read the body.
const maxReadAhead = 64 << 10

var (
	copyBuffers  = sync.Pool{New: func() any { return new([copySize]byte) }}
	smallBuffers = sync.Pool{New: func() any { return new([smallCopy]byte) }}
)

// A requestState is the state of one request of a client, until its record and its response are
// complete. It is the pipeline's ResponseWriter and streams: it does not hold back what the origin has
// sent. It is also the [pace.Transfer] of its slot. It belongs to the goroutine that serves the request,
// except the fields that say otherwise.
type requestState struct {
	client http.ResponseWriter

	// As the client has sent it.
	request *http.Request

	// The generation under which the request began.
	rules *generation

	// rules was released.
	rulesReleased bool

	// Why the request is refused for its target; nil: it is not.
	noTarget error
	record   audit.Record

	// The record was written.
	recorded bool

	// For the client's quota.
	quota policy.Ticket

	// The request in the memory budget.
	work memory.Work

	// The client's body, if readAhead has read it.
	ahead []byte

	// On which the request is in progress; nil: none, or leave was called.
	carrier *clientConn

	// The client has left, and its header must not be used.
	clientLeft bool

	// That of the handler, like allSent.
	draining    *atomic.Bool
	allSent     *sentRequests
	sentRequest sentRequest

	// The origin was dialled for a CONNECT.
	dialled bool
	watch   watch
	flow    flow
	sending

	// Ends the sending and the response; nil: nothing is being sent.
	cancel   context.CancelCauseFunc
	response responseState
	tunnel   streamTunnel

	// nil: the request is not archived.
	capture *archive.Exchange
}

// A responseState says how far the response was sent to the client.
type responseState struct {
	// The head was sent.
	headSent bool

	// The pipeline's output is not sent to the client.
	muted bool

	// The origin's response that changes protocols (101); nil: none.
	upgraded *http.Response

	// length of the body that the origin announced; -1: unknown.
	length int64
	body   originBody

	// Why the origin gave no response, or ended it early.
	failure error

	// last byte of the body, which waits for the record; see endsLast.
	held []byte
}

// A streamTunnel is the tunnel of a CONNECT that arrived as a stream of HTTP/2.
type streamTunnel struct {
	// nil: none, or not yet.
	conn *streamConn

	// The goroutines that copy between conn and the stream.
	copies sync.WaitGroup
}

// readAhead reads a small body of known length into memory, so that the proxy notices if
// the client leaves during the wait. A client that expects 100 Continue has not sent its
// body; it gets the 100 only in its turn. readAhead does not read a body that the memory
// budget has no space for.
func (s *requestState) readAhead() error {
	r := s.request
	if r.ContentLength <= 0 || r.ContentLength > maxReadAhead || r.Header.Get("Expect") != "" || !s.work.Body(r.ContentLength) {
		return nil
	}
	s.watch.begin(s)
	defer s.watch.stop()
	body := &clientBody{r.Body, s, nil}
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(body, b); err != nil {
		return fmt.Errorf("%w: body: %w", errMalformed, err)
	}
	// net/http watches the connection only after it has returned io.EOF.
	if _, err := body.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("%w: body is longer than Content-Length", errMalformed)
	}
	s.ahead = b
	return nil
}

// releaseRules releases the generation, once.
func (s *requestState) releaseRules() {
	if !s.rulesReleased {
		s.rulesReleased = true
		s.rules.release()
	}
}

// use counts the request as in progress on a connection, which may be nil.
func (s *requestState) use(c *clientConn) {
	if s.carrier = c; c != nil {
		c.begin()
	}
}

// leave ends what use has begun, once.
func (s *requestState) leave() {
	if s.carrier != nil {
		s.carrier.end()
		s.carrier = nil
	}
}

// fail keeps the first error, because the pipeline does not return errors.
func (s *requestState) fail(err error) {
	if s.response.failure != nil || err == nil {
		return
	}
	if s.watch.hasEnded() && s.flow.uploadFailure() == nil {
		// The watch has caused the error.
		err = s.watch.cause()
	}
	s.response.failure = err
}

// releaseSlot releases the slot, if there is one. Unlike s.slot.Release, it can be deferred before there is a slot.
func (s *requestState) releaseSlot() { s.slot.Release() }

// await implements [sender].
func (s *requestState) await(ctx context.Context, slot *pace.Slot) error {
	s.watch.pause(true)
	defer s.watch.pause(false)
	return slot.Ready(ctx)
}

// sent implements [sender].
func (s *requestState) sent() { s.allSent.add(&s.sentRequest, &s.record, s.rules.RecordFirst) }

// Header returns the header of the response. After the client has left, it returns a
// header that is not used.
func (s *requestState) Header() http.Header {
	if s.clientLeft {
		return http.Header{}
	}
	return s.client.Header()
}

// WriteHeader sends the head of the response to the client.
func (s *requestState) WriteHeader(status int) {
	if s.response.muted || s.response.headSent {
		return
	}
	if err := s.sentRequest.awaitLine(s.request.Context()); err != nil {
		s.mute(err)
		return
	}
	s.response.headSent = true
	s.record.Status = status
	s.setConnectionClose()
	s.beginWrite()
	s.client.WriteHeader(status)
	// A field of the same name in the head is not the trailer's.
	for _, list := range s.client.Header()["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			s.client.Header().Del(textproto.TrimString(name))
		}
	}
	if s.response.length < 0 && s.request.Method != http.MethodHead {
		// The client gets the head of a stream before its first byte.
		s.Flush()
	}
}

// setConnectionClose makes the response the last of its connection while the handler drains; with
// HTTP/2 net/http then sends GOAWAY. It also does so for an HTTP/1 connection on which the next
// bytes could be misread as a request: if the client's body was not read to its end; after a
// chunked body, because net/http does not tell whether there was a Content-Length as well (RFC
// 9112 6.1); and with HTTP/1.0, whose Transfer-Encoding net/http ignores (RFC 9112 9.3).
func (s *requestState) setConnectionClose() {
	if s.draining.Load() {
		s.client.Header().Set("Connection", "close")
	}
	if s.request.ProtoMajor != 1 {
		return
	}
	whole := s.flow.uploaded()
	if whole && s.request.ProtoAtLeast(1, 1) && len(s.request.TransferEncoding) == 0 {
		return
	}
	s.client.Header().Set("Connection", "close")
	if !whole {
		http.NewResponseController(s.client).EnableFullDuplex()
	}
}

// abort breaks off the response so that the client notices: net/http closes the connection or
// resets the stream. If closing the connection would look like the end of the body, abort
// resets it.
func (s *requestState) abort() {
	if s.response.length < 0 && !s.request.ProtoAtLeast(1, 1) {
		if conn, _, err := http.NewResponseController(s.client).Hijack(); err == nil {
			reset(conn)
		}
	}
	panic(http.ErrAbortHandler)
}

// drainUpload reads the rest of the client's body after the response, for at most lastWait.
// net/http would read it without a time limit. After a refusal it reads on if the body is broken.
func (s *requestState) drainUpload(refused bool) {
	if s.flow.uploaded() || s.request.ProtoMajor != 1 {
		return
	}
	client := http.NewResponseController(s.client)
	// The response does not wait for the body.
	client.Flush()
	until := time.Now().Add(lastWait)
	c := connInfoFrom(s.request).http
	// Its body is all that follows.
	if sentHeadOf(s.request).fault != nil && c != nil {
		drain(c.Conn, until)
		return
	}
	client.SetReadDeadline(until)
	// Also waits for egress, which may still read the body.
	_, err := io.CopyN(io.Discard, s.request.Body, maxLateUpload)
	if refused && err != nil && err != io.EOF && c != nil {
		drain(c.Conn, until)
	}
}

// Write sends a part of the body to the client.
func (s *requestState) Write(b []byte) (int, error) {
	if s.response.muted {
		return len(b), nil
	}
	if err := s.sentRequest.awaitLine(s.request.Context()); err != nil {
		s.fail(err)
		return 0, err
	}
	if n := len(b); n > 0 && s.endsLast() && s.record.Bytes+int64(n) == s.response.length {
		s.response.held = []byte{b[n-1]}
		b = b[:n-1]
	}
	s.flow.beginSend()
	n, err := s.client.Write(b)
	if err == nil {
		n += len(s.response.held)
	}
	s.flow.endSend(n)
	s.watch.moved()
	s.record.Bytes += int64(n)
	s.fail(err)
	return n, err
}

// endsLast reports whether the end of the response waits for its record.
func (s *requestState) endsLast() bool { return s.rules.RecordFirst || s.capture.EndsLast() }

// Flush sends what is buffered to the client.
func (s *requestState) Flush() {
	if !s.response.muted {
		s.flow.beginSend()
		// The next Write returns an error.
		http.NewResponseController(s.client).Flush()
		s.flow.endSend(0)
	}
}

// flushLast sends the last bytes while the watch runs. With HTTP/2, net/http sends them
// in one frame with the end of the stream when the handler returns. In that case
// flushLast limits their time, and no watch is needed.
func (s *requestState) flushLast() {
	switch {
	case len(s.response.held) > 0:
		// See sendHeld.
		return
	case s.request.ProtoMajor == 1:
		s.Flush()
		return
	}
	http.NewResponseController(s.client).SetWriteDeadline(time.Now().Add(s.watch.limit))
}

// sendHeld sends the byte that Write has held back, after the record was written.
func (s *requestState) sendHeld() {
	last := s.response.held
	if s.response.held = nil; last == nil {
		return
	}
	w := s.lastWatch()
	w.begin(s)
	defer w.stop()
	s.flow.beginSend()
	// The record is written, so an error does not matter.
	s.client.Write(last)
	s.flow.endSend(0)
	s.flushLast()
}

// ReadFrom copies a body. It flushes whenever the origin has sent less than a buffer, or nothing
// behind the head, so that the client has everything while the origin is silent.
func (s *requestState) ReadFrom(body io.Reader) (total int64, err error) {
	if s.response.length > 0 && s.request.Method != http.MethodHead && !s.response.body.hasBegun() {
		s.Flush()
	}
	small := smallBuffers.Get().(*[smallCopy]byte)
	defer smallBuffers.Put(small)
	var large *[copySize]byte
	defer func() {
		if large != nil {
			copyBuffers.Put(large)
			s.work.Free(copySize)
		}
	}()
	// long: the body needs the large buffer.
	buf, long := small[:], s.response.length > smallCopy
	for {
		if long && large == nil && s.work.Spare(copySize) {
			large = copyBuffers.Get().(*[copySize]byte)
			buf = large[:]
		}
		n, rerr := body.Read(buf)
		long = n == len(buf)
		if n > 0 {
			m, werr := s.Write(buf[:n])
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
		case n < len(buf) && total != s.response.length:
			s.Flush()
		}
	}
}

// hijack takes over the client's connection from the server, with a reader for the bytes that
// the server has read ahead.
func (s *requestState) hijack() (net.Conn, *bufio.Reader, error) {
	conn, rw, err := http.NewResponseController(s.client).Hijack()
	if err != nil {
		return nil, nil, err
	}
	s.response.headSent = true
	// The server no longer reads the body.
	s.flow.endUpload(uploadComplete)
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, nil, err
	}
	if c, ok := conn.(*httpConn); ok {
		return conn, c.requests.withAhead(rw.Reader), nil
	}
	return conn, rw.Reader, nil
}

// passInterim implements [sender]: it sends a 1xx response to the client (RFC 9110 15.2). net/http sends 100 itself.
func (s *requestState) passInterim(resp *http.Response) {
	if s.sentRequest.awaitLine(s.request.Context()) != nil || resp.StatusCode == http.StatusContinue || !s.request.ProtoAtLeast(1, 1) || s.clientLeft ||
		// net/http may be about to send 100 on another goroutine.
		len(s.request.Header["Expect"]) > 0 {
		return
	}
	h := s.client.Header()
	maps.Copy(h, resp.Header)
	stripHop(h)
	s.flow.setWriting(true)
	// Otherwise a refusal follows, whose writes beginWrite would make fail.
	if !s.watch.hasEnded() {
		s.client.WriteHeader(resp.StatusCode)
	}
	s.flow.setWriting(false)
	// Over HTTP/2, WriteHeader has not waited until the header was read.
	if s.clientLeft = s.request.Context().Err() != nil; !s.clientLeft {
		clear(h)
	}
}

// detachSlot returns the concurrency slot of a response that may last for hours.
func (s *requestState) detachSlot() error {
	if s.slot == nil {
		return nil
	}
	return s.slot.Detach()
}

// shareKey returns the key of the client whose share the request counts against.
func (s *requestState) shareKey() string { return policy.ShareKey(s.record.Request.Client) }

// keptOfLongURL is how many bytes of a target that is malformed, or of the path and query of a URL that
// is too long, are repeated in the refusal. Of the latter, the record has as many.
const keptOfLongURL = 1 << 10

// beginningOf returns the first bytes of a target, at most keptOfLongURL.
func beginningOf(target string) string { return target[:min(len(target), keptOfLongURL)] }

// setTarget puts the Target of a request into its record, or sets noTarget. Later steps rely on it. sent is
// the request target that the client has sent. The Target of a URL that is longer than limits.url is cut.
func (s *requestState) setTarget(sent string) {
	q := &s.record.Request
	if q.Target, s.noTarget = target(s.request, sent); s.noTarget != nil {
		return
	}
	if s.noTarget = s.rules.checkURLLength(q.Target); s.noTarget != nil {
		q.PathQuery = strings.Clone(beginningOf(q.PathQuery))
	}
}

// abandon implements transfer: it makes all reads and writes fail that wait for the client or the
// origin. If the response has not begun, the client can still get one.
func (s *requestState) abandon() {
	// The origin waits for the body too.
	s.flow.failUpload(s.brokenBody(errSilent), true)
	// Otherwise the deadline would end net/http's background read and the connection.
	if s.flow.endUpload(uploadAbandoned) {
		// An error means that nothing waits.
		http.NewResponseController(s.client).SetReadDeadline(longAgo)
	}
	if s.flow.isWriting() {
		s.failWrites()
	}
	if s.cancel != nil {
		s.cancel(s.watch.cause())
	}
}

// Progress implements [pace.Transfer].
func (s *requestState) Progress() (bytes int64, waits pace.Party) { return s.flow.progress() }

// End implements [pace.Transfer].
func (s *requestState) End() { s.watch.endSlow() }

// lastWatch returns the watch of what is sent after the slot was released, which End does not end.
func (s *requestState) lastWatch() *watch { return &watch{limit: s.watch.limit, pool: s.watch.pool} }

// brokenBody returns the error for a client's body that cannot be read because of err.
func (s *requestState) brokenBody(err error) error {
	if s.watch.cause() == errTooSlow {
		// The watch has set the body's deadline.
		return fmt.Errorf("body: %w", errTooSlow)
	}
	return fmt.Errorf("%w: body: %w", errMalformed, err)
}

var longAgo = time.Unix(1, 0)

func (s *requestState) failWrites() { http.NewResponseController(s.client).SetWriteDeadline(longAgo) }

// beginWrite marks the response as being written. If the watch has just ended the
// transfer, the writes fail.
func (s *requestState) beginWrite() {
	s.flow.setWriting(true)
	if s.watch.hasEnded() {
		s.failWrites()
	}
}

// An originBody is the body of an origin's response. It keeps its error, because the
// pipeline does not return it.
type originBody struct {
	io.ReadCloser
	state *requestState

	// Its trailer is complete when the body was read.
	response *http.Response

	// Its Connection header.
	connection []string
}

// hasBegun reports whether a part of the body is known to have arrived with the head.
func (b *originBody) hasBegun() bool {
	with, ok := b.ReadCloser.(interface{ Buffered() int })
	return ok && with.Buffered() > 0
}

// Read reads from the origin.
func (b *originBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.state.watch.moved()
	err = b.state.capture.Read(p[:n], err)
	if err != nil {
		stripTrailer(b.response.Trailer, b.connection)
	}
	if err != nil && err != io.EOF {
		b.state.fail(err)
	}
	return n, err
}

// A clientBody is the body of a client's request. It keeps its error, which is not the
// origin's fault.
type clientBody struct {
	io.ReadCloser
	state *requestState

	// trailer of the request to the origin; its fields get their values at the end of the body.
	trailer http.Header
}

// Read reads from the client.
func (b *clientBody) Read(p []byte) (int, error) {
	b.state.flow.beginRead()
	n, err := b.ReadCloser.Read(p)
	b.state.flow.endRead(n)
	b.state.watch.moved()
	switch {
	case err == io.EOF:
		b.state.flow.endUpload(uploadComplete)
		for name := range b.trailer {
			b.trailer[name] = b.state.request.Trailer[name]
		}
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.state.flow.failUpload(b.state.brokenBody(err), false)
	}
	return n, err
}

// Close does nothing: net/http closes the body after the request. An earlier Close would
// wait for the part that the client has not sent.
func (b *clientBody) Close() error { return nil }
