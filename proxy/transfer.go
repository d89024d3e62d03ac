package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/inbound"
)

// maxReadAhead is the maximum size, in bytes, of a request body that is read before a
// wait. net/http notices that a client has left only after it has read the body.
const maxReadAhead = 64 << 10

// A transfer is the two bodies of a request. Its watch or the Pacer can end it: it is the [pace.Transfer] of its slot. The
// Pacer and the watch use it on goroutines of their own.
type transfer struct {
	in    *inbound.Request
	watch watch
	flow  flow

	// ahead is the client's body, if it was read before the request was sent.
	ahead []byte

	// cancel ends the sending and the response; nil: nothing is being sent.
	cancel context.CancelCauseFunc
}

// Progress implements [pace.Transfer].
func (t *transfer) Progress() (bytes int64, waits pace.Party) { return t.flow.progress() }

// End implements [pace.Transfer].
func (t *transfer) End() { t.watch.endSlow() }

// begin starts the watch, until t.watch.stop.
func (t *transfer) begin() { t.watch.begin(t) }

// abandon makes all reads and writes fail that wait for the client or the
// origin. If the response has not begun, the client can still get one.
func (t *transfer) abandon() {
	// The origin waits for the body too.
	t.flow.failUpload(t.brokenBody(errSilent), true)
	if t.flow.endUpload(uploadAbandoned) {
		// An error means that nothing waits. Otherwise the deadline would end net/http's background read and the connection.
		http.NewResponseController(t.in.Writer).SetReadDeadline(longAgo)
	}
	if t.flow.now().writing {
		t.failWrites()
	}
	if t.cancel != nil {
		t.cancel(t.watch.err())
	}
}

// brokenBody returns the error for a client's body that cannot be read because of err.
func (t *transfer) brokenBody(err error) error {
	if t.watch.err() == errTooSlow {
		// The watch has set the body's deadline.
		return fmt.Errorf("body: %w", errTooSlow)
	}
	return fmt.Errorf("%w: body: %w", inbound.ErrMalformed, err)
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

func (t *transfer) failWrites() {
	http.NewResponseController(t.in.Writer).SetWriteDeadline(longAgo)
}

// beginWrite marks the response as being written. If the watch has just ended the
// transfer, the writes fail.
func (t *transfer) beginWrite() {
	t.flow.setWriting(true)
	if t.watch.err() != nil {
		t.failWrites()
	}
}

// beginLast starts another watch, of what is sent after the slot was released, which End does not end.
func (t *transfer) beginLast() *watch {
	w := &watch{limit: t.watch.limit, pool: t.watch.pool}
	w.begin(t)
	return w
}

// readAhead reads a small body of known length into memory, so that the proxy notices if
// the client leaves during the wait. A client that expects 100 Continue has not sent its
// body; it gets the 100 only in its turn. readAhead does not read a body that the memory
// budget has no space for.
func (t *transfer) readAhead(work *memory.Work) error {
	r := t.in.HTTP
	if r.ContentLength <= 0 || r.ContentLength > maxReadAhead || r.Header.Get("Expect") != "" || !work.Body(r.ContentLength) {
		return nil
	}
	t.begin()
	defer t.watch.stop()
	body := &clientBody{r.Body, t, nil}
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(body, b); err != nil {
		return fmt.Errorf("%w: body: %w", inbound.ErrMalformed, err)
	}
	// net/http watches the connection only after it has returned io.EOF.
	if _, err := body.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("%w: body is longer than Content-Length", inbound.ErrMalformed)
	}
	t.ahead = b
	return nil
}

// setUpload sets the body of the request to the origin, which capture archives. One that is in memory can be sent again.
func (t *transfer) setUpload(r *http.Request, capture *archive.Exchange) {
	body := r.Body
	upload := func() (io.ReadCloser, error) {
		if t.ahead != nil {
			body = io.NopCloser(bytes.NewReader(t.ahead))
		}
		return capture.Upload(&clientBody{body, t, r.Trailer}), nil
	}
	// upload never fails.
	r.Body, _ = upload()
	if t.ahead != nil {
		r.GetBody = upload
	}
}

// A clientBody is the body of a client's request. It keeps its error, which is not the
// origin's fault.
type clientBody struct {
	io.ReadCloser
	transfer *transfer

	// trailer is that of the request to the origin; its fields get their values at the end of the body.
	trailer http.Header
}

// Read reads from the client.
func (b *clientBody) Read(p []byte) (int, error) {
	t := b.transfer
	t.flow.beginRead()
	n, err := b.ReadCloser.Read(p)
	t.flow.endRead(n)
	t.watch.moved()
	switch {
	case err == io.EOF:
		t.flow.endUpload(uploadComplete)
		for name := range b.trailer {
			b.trailer[name] = t.in.HTTP.Trailer[name]
		}
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		t.flow.failUpload(t.brokenBody(err), false)
	}
	return n, err
}

// Close does nothing: net/http closes the body after the request. An earlier Close would
// wait for the part that the client has not sent.
func (b *clientBody) Close() error { return nil }
