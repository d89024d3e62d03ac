package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
)

// copySize is the size, in bytes, of the buffers that bodies are copied through.
const copySize = 32 << 10

// maxLateUpload bounds, in bytes, what is read of a request body after its response.
const maxLateUpload = 256 << 10

// maxReadAhead bounds, in bytes, the request bodies that are read before a
// wait. net/http notices that a client has left only when the body is read.
const maxReadAhead = 64 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// A requestState is the state of one request of a client, up to its record and its response. As the
// pipeline's ResponseWriter it streams: it does not hold back what the origin has sent. It is also the
// [egress.Gate] of the request, and the [pace.Transfer] of its slot. It belongs to the goroutine that
// serves the request, except for the fields that say otherwise.
type requestState struct {
	client        http.ResponseWriter
	request       *http.Request // as the client sent it
	rules         *generation   // that the request began under
	rulesReleased bool          // rules is released
	url           *url.URL      // the target, normalised; nil: none, or a CONNECT
	noURL         error         // why there is no target
	record        audit.Record
	recorded      bool          // the record has been written
	quota         policy.Ticket // of the client's quota
	work          memory.Work   // what the request counts for in the memory budget
	draining      *atomic.Bool  // the handler's
	watch         watch
	passed        atomic.Int64 // bytes of both bodies so far
	attempt
	upload   uploadState
	early    earlyResponses
	response responseState
	tunnel   streamTunnel
}

// An attempt is the sending of a request to the origin, with its slot; the slot is nil while there is none.
type attempt struct {
	slotGate
	addr       netip.Addr              // that the slot is for, and that the request is sent to; zero: any of the host
	connecting atomic.Bool             // egress makes a connection for the request; goroutines of egress set it
	cancel     context.CancelCauseFunc // ends the sending and the response; nil: nothing is being sent
}

// An uploadState is how far the client's body was read. Goroutines of egress read the body.
type uploadState struct {
	err      atomic.Pointer[error] // why the body ended early
	complete atomic.Bool           // the body was read to its end
	reading  atomic.Bool           // a read is under way
}

// A responseState is how far the response was sent to the client.
type responseState struct {
	headSent bool           // the head was sent
	muted    bool           // what the pipeline writes is not for the client
	upgraded *http.Response // the origin's, which changes protocols (101); nil: there is none
	length   int64          // of the body, as the origin announced it; -1: unknown
	body     originBody
	failure  error       // why there is no response from the origin, or why it ended early
	writing  atomic.Bool // the response is being sent
	sending  atomic.Bool // a write to the client is under way
}

// A streamTunnel is the tunnel of a CONNECT that came as a stream of HTTP/2.
type streamTunnel struct {
	conn   *streamConn    // nil: there is none, or not yet
	copies sync.WaitGroup // of the goroutines that join conn and the stream
}

// readAhead reads a small body of known length into memory, so that a client
// that leaves during the wait is noticed. A client that expects 100 Continue
// has not sent its body, and gets the 100 only in its turn. readAhead leaves a body unread
// that the memory budget has no room for.
func (x *requestState) readAhead() error {
	r := x.request
	if r.ContentLength <= 0 || r.ContentLength > maxReadAhead || r.Header.Get("Expect") != "" || !x.work.Body(r.ContentLength) {
		return nil
	}
	x.watch.begin(x)
	defer x.watch.stop()
	body := &clientBody{r.Body, x, nil}
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(body, b); err != nil {
		return fmt.Errorf("%w: body: %w", errMalformed, err)
	}
	// net/http watches the connection only after it has returned io.EOF.
	if _, err := body.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("%w: body is longer than its length", errMalformed)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// releaseRules ends the use of the generation, once.
func (x *requestState) releaseRules() {
	if !x.rulesReleased {
		x.rulesReleased = true
		x.rules.release()
	}
}

// fail keeps the first error. The pipeline does not return errors.
func (x *requestState) fail(err error) {
	if x.response.failure != nil || err == nil {
		return
	}
	if x.watch.ended.Load() && x.upload.err.Load() == nil {
		err = x.watch.cause() // the watch has caused the error
	}
	x.response.failure = err
}

// releaseSlot gives the slot back, if there is one.
func (x *requestState) releaseSlot() { x.slot.Release() }

// Ready implements [egress.Gate].
func (x *requestState) Ready(ctx context.Context) error {
	x.connecting.Store(false)
	if x.slot == nil {
		return nil
	}
	return x.ready(func() error {
		x.watch.paused.Store(true)
		defer x.watch.paused.Store(false)
		defer x.watch.moved()
		return x.slot.Ready(ctx)
	})
}

// Retry implements [egress.Gate].
func (x *requestState) Retry() {
	x.slotGate.Retry()
	x.connecting.Store(true)
}

// Header returns the header of the response, or an unused one after the client has left.
func (x *requestState) Header() http.Header {
	if x.early.clientLeft {
		return http.Header{}
	}
	return x.client.Header()
}

// WriteHeader sends the head of the response to the client.
func (x *requestState) WriteHeader(status int) {
	if x.response.muted || x.response.headSent {
		return
	}
	x.response.headSent = true
	x.record.Status = status
	x.setConnectionClose()
	x.beginWrite()
	x.client.WriteHeader(status)
	for _, list := range x.client.Header()["Trailer"] { // a field of the same name in the head is not the trailer's
		for name := range strings.SplitSeq(list, ",") {
			x.client.Header().Del(textproto.TrimString(name))
		}
	}
	if x.response.length < 0 {
		x.Flush() // the client gets the head of a stream before its first byte
	}
}

// setConnectionClose makes the response the last of its connection while the handler drains; with
// HTTP/2 net/http then sends GOAWAY. It also does so for an HTTP/1 connection on which the
// bytes that follow might be read as another request than the client means: if the client's
// body has not been read to its end, which the response does not wait for; after a chunked
// body, because net/http does not tell whether there was a Content-Length as well (RFC
// 9112 6.1); and with HTTP/1.0, whose Transfer-Encoding net/http ignores (RFC 9112 9.3).
func (x *requestState) setConnectionClose() {
	if x.draining.Load() {
		x.client.Header().Set("Connection", "close")
	}
	if x.request.ProtoMajor != 1 {
		return
	}
	whole := x.upload.complete.Load()
	if whole && x.request.ProtoAtLeast(1, 1) && len(x.request.TransferEncoding) == 0 {
		return
	}
	x.client.Header().Set("Connection", "close")
	if !whole {
		http.NewResponseController(x.client).EnableFullDuplex()
	}
}

// abort breaks off the response so that the client notices: net/http closes the connection, or
// resets the stream. If the end of the connection would end the body, abort resets the
// connection.
func (x *requestState) abort() {
	if x.response.length < 0 && !x.request.ProtoAtLeast(1, 1) {
		if conn, _, err := http.NewResponseController(x.client).Hijack(); err == nil {
			reset(conn)
		}
	}
	panic(http.ErrAbortHandler)
}

// drainUpload reads the rest of the client's body after the response, for at most lastWait.
// net/http would read without a time limit.
func (x *requestState) drainUpload() {
	if x.upload.complete.Load() || x.request.ProtoMajor != 1 {
		return
	}
	client := http.NewResponseController(x.client)
	client.Flush() // the response does not wait for the body
	client.SetReadDeadline(time.Now().Add(lastWait))
	io.CopyN(io.Discard, x.request.Body, maxLateUpload) // also waits for the transport, which may still read the body
}

// Write sends a part of the body to the client.
func (x *requestState) Write(b []byte) (int, error) {
	if x.response.muted {
		return len(b), nil
	}
	x.response.sending.Store(true)
	n, err := x.client.Write(b)
	x.response.sending.Store(false)
	x.passed.Add(int64(n))
	x.watch.moved()
	x.record.Bytes += int64(n)
	x.fail(err)
	return n, err
}

// Flush sends what is buffered to the client.
func (x *requestState) Flush() {
	if !x.response.muted {
		x.response.sending.Store(true)
		http.NewResponseController(x.client).Flush() // the next Write returns an error
		x.response.sending.Store(false)
	}
}

// flushLast sends the last bytes while the watch runs. With HTTP/2 net/http sends them in
// one frame with the end of the stream when the handler returns: then flushLast limits
// their time, and no watch is needed.
func (x *requestState) flushLast() {
	if x.request.ProtoMajor == 1 {
		x.Flush()
		return
	}
	http.NewResponseController(x.client).SetWriteDeadline(time.Now().Add(x.watch.limit))
}

// ReadFrom copies a body. It flushes whenever the origin has sent less than a buffer, so that
// the client gets everything while the origin is silent.
func (x *requestState) ReadFrom(body io.Reader) (total int64, err error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	for {
		n, rerr := body.Read(buf[:])
		if n > 0 {
			m, werr := x.Write(buf[:n])
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
		case n < len(buf) && total != x.response.length:
			x.Flush()
		}
	}
}

// hijack takes the client's connection over from the server, with a reader of what the server
// has read ahead.
func (x *requestState) hijack() (net.Conn, *bufio.Reader, error) {
	conn, rw, err := http.NewResponseController(x.client).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.response.headSent = true
	x.upload.complete.Store(true) // the server reads no body any more
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, rw.Reader, nil
}

// Informational implements [egress.Gate]: it passes a 1xx response on (RFC 9110 15.2).
// net/http handles 100 with each side itself, and 101 is a final response.
func (x *requestState) Informational(status int, header textproto.MIMEHeader) error {
	e := &x.early
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count++; e.count > maxEarly {
		return fmt.Errorf("the origin sends more than %d answers before its answer", maxEarly)
	}
	if status == http.StatusContinue || status == http.StatusSwitchingProtocols || !x.request.ProtoAtLeast(1, 1) || e.ended {
		return nil
	}
	if len(x.request.Header["Expect"]) > 0 {
		return nil // net/http may be about to answer 100 Continue from another goroutine
	}
	if e.queue == nil {
		e.queue = make(chan earlyResponse, maxEarlyWait)
		e.sent.Go(x.sendEarly)
	}
	select {
	case e.queue <- earlyResponse{status, header}:
	default:
	}
	return nil
}

// sendEarly sends the queue to the client. Nothing else writes to the client meanwhile: the
// goroutine that serves the request waits for Send, and then for sendEarly.
func (x *requestState) sendEarly() {
	for r := range x.early.queue {
		if x.early.clientLeft {
			continue
		}
		h := x.client.Header()
		for name, values := range r.header {
			h[name] = values
		}
		stripHop(h)
		x.beginWrite()
		x.client.WriteHeader(r.status)
		x.response.writing.Store(false)
		if x.request.Context().Err() != nil {
			// If the client leaves, WriteHeader over HTTP/2 does not wait until the header
			// has been read.
			x.early.clientLeft = true
			continue
		}
		clear(h)
	}
}

// detachSlot gives the concurrency slot of a response back, because the response may last for hours.
func (x *requestState) detachSlot() error {
	if x.slot == nil {
		return nil
	}
	return x.slot.Detach()
}

// shareKey returns the key of the client whose share the request counts against.
func (x *requestState) shareKey() string { return policy.ShareKey(x.record.Request.Client) }

// keptOfLongURL is how many bytes of the path and query of a URL that is too long
// are recorded and repeated in the refusal.
const keptOfLongURL = 1 << 10

// recordURL puts the path and query into the record, and sets noURL for a URL longer than
// limits.url.
func (x *requestState) recordURL() {
	u, q := x.url, &x.record.Request
	q.PathQuery = u.RequestURI()
	if x.noURL = x.rules.checkURLLength(len(u.Scheme) + len("://") + len(u.Host) + len(q.PathQuery)); x.noURL != nil {
		q.PathQuery = strings.Clone(q.PathQuery[:min(len(q.PathQuery), keptOfLongURL)])
	}
}

// abandon implements transfer: it fails all reads and writes that wait for the client or the origin.
// If no response has begun, the client can still be sent one.
func (x *requestState) abandon() {
	if x.upload.reading.Load() {
		x.upload.err.Store(new(x.brokenBody(errSilent))) // the origin waits for the body too
	}
	if !x.upload.complete.Load() { // else the deadline would end net/http's background read, and with it the connection
		http.NewResponseController(x.client).SetReadDeadline(longAgo) // an error means that nothing waits
	}
	if x.response.writing.Load() {
		x.failWrites()
	}
	if x.cancel != nil {
		x.cancel(x.watch.cause())
	}
}

// Progress implements [pace.Transfer].
func (x *requestState) Progress() (bytes int64, waits pace.Party) {
	switch {
	case x.response.sending.Load():
		waits = pace.Reader
	case x.upload.reading.Load():
		waits = pace.Uploader
	}
	return x.passed.Load(), waits
}

// End implements [pace.Transfer].
func (x *requestState) End() { x.watch.endSlow() }

// brokenBody returns the error for a client's body that cannot be read because of err.
func (x *requestState) brokenBody(err error) error {
	if x.watch.slow.Load() {
		return fmt.Errorf("body: %w", errTooSlow) // the watch has set the body's deadline
	}
	return fmt.Errorf("%w: body: %w", errMalformed, err)
}

var longAgo = time.Unix(1, 0)

func (x *requestState) failWrites() { http.NewResponseController(x.client).SetWriteDeadline(longAgo) }

// beginWrite notes that the response is being written. If the watch has just ended the
// transfer, the writes fail.
func (x *requestState) beginWrite() {
	x.response.writing.Store(true)
	if x.watch.ended.Load() {
		x.failWrites()
	}
}

// An originBody is the body of an origin's response. It keeps its error, which the pipeline
// does not return.
type originBody struct {
	io.ReadCloser
	x          *requestState
	response   *http.Response // its trailer is complete when the body has been read
	connection []string       // its Connection header
}

// Read reads from the origin.
func (b *originBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.x.watch.moved()
	if err != nil {
		stripTrailer(b.response.Trailer, b.connection)
	}
	if err != nil && err != io.EOF {
		b.x.fail(err)
	}
	return n, err
}

// A clientBody is the body of a client's request. It keeps its error, which is not the
// origin's.
type clientBody struct {
	io.ReadCloser
	x       *requestState
	trailer http.Header // of the request to the origin; its fields get their values when the body ends
}

// Read reads from the client.
func (b *clientBody) Read(p []byte) (int, error) {
	b.x.upload.reading.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.x.upload.reading.Store(false)
	b.x.passed.Add(int64(n))
	b.x.watch.moved()
	switch {
	case err == io.EOF:
		b.x.upload.complete.Store(true)
		for name := range b.trailer {
			b.trailer[name] = b.x.request.Trailer[name]
		}
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.x.upload.err.Store(new(b.x.brokenBody(err)))
	}
	return n, err
}

// Close does nothing: net/http closes the body after the request. An earlier Close would
// wait for what the client has not sent.
func (b *clientBody) Close() error { return nil }
