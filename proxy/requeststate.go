package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/signature"
)

// maxReadAhead is the maximum size, in bytes, of a request body that is read before a
// wait. net/http notices that a client has left only after it has read the body.
const maxReadAhead = 64 << 10

// A requestState is the state of one request of a client, until its record and its response are
// complete. It belongs to the goroutine that serves the request, except the fields that say otherwise.
type requestState struct {
	from *client
	in   *inbound.Request

	// rules is the generation under which the request began.
	rules *generation

	// targetErr is why the request is refused for its target; nil: it is not.
	targetErr error

	// record is the record of the request, and line the one in the audit while it is under way. written says that the record
	// was written.
	record  audit.Record
	line    sentRequest
	written bool

	// quota is for the client's quota, and work is the request in the memory budget.
	quota policy.Ticket
	work  memory.Work

	sending
	transfer transfer
	response response
}

// A response is the response to a client, as far as it was sent. It is the pipeline's ResponseWriter and streams: it does
// not hold back what the origin has sent. It belongs to the goroutine that serves the request.
type response struct {
	s *requestState

	// headSent says that the head was sent.
	headSent bool

	// muted says that the pipeline's output is not sent to the client.
	muted bool

	// clientLeft says that the client has left, and that its header must not be used.
	clientLeft bool

	// upgraded is the origin's response that changes protocols (101); nil: none.
	upgraded *http.Response

	// length is that of the body that the origin announced; -1: unknown.
	length int64
	body   originBody

	// failure is why the origin gave no response, or ended it early.
	failure error

	// capture archives the request and its response; nil: they are not archived.
	capture *archive.Exchange

	// held is the last byte of the body, which waits for the record; see endsLast.
	held []byte
}

// An originBody is the body of an origin's response. It keeps its error, because the
// pipeline does not return it.
type originBody struct {
	io.ReadCloser
	response *response

	// from is the origin's response, whose trailer is complete when the body was read. connection is its Connection header.
	from       *http.Response
	connection []string
}

// releaseSlot releases the slot, if there is one. Unlike s.slot.Release, it can be deferred before there is a slot.
func (s *requestState) releaseSlot() { s.slot.Release() }

// detachSlot returns the concurrency slot of a response that may last for hours.
func (s *requestState) detachSlot() error {
	if s.slot == nil {
		return nil
	}
	return s.slot.Detach()
}

// shareKey returns the key of the client whose share the request counts against.
func (s *requestState) shareKey() string { return policy.ShareKey(s.record.Request.Client) }

// readAhead reads a small body of known length into memory, so that the proxy notices if
// the client leaves during the wait. A client that expects 100 Continue has not sent its
// body; it gets the 100 only in its turn. readAhead does not read a body that the memory
// budget has no space for.
func (s *requestState) readAhead() error {
	r := s.in.HTTP
	if r.ContentLength <= 0 || r.ContentLength > maxReadAhead || r.Header.Get("Expect") != "" || !s.work.Body(r.ContentLength) {
		return nil
	}
	s.transfer.begin()
	defer s.transfer.watch.stop()
	body := &clientBody{r.Body, &s.transfer, nil}
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(body, b); err != nil {
		return fmt.Errorf("%w: body: %w", inbound.ErrMalformed, err)
	}
	// net/http watches the connection only after it has returned io.EOF.
	if _, err := body.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("%w: body is longer than Content-Length", inbound.ErrMalformed)
	}
	s.transfer.ahead = b
	return nil
}

// setUpload sets the body of the request to the origin. One that is in memory can be sent again.
func (s *requestState) setUpload(r *http.Request) {
	body := r.Body
	upload := func() (io.ReadCloser, error) {
		if s.transfer.ahead != nil {
			body = io.NopCloser(bytes.NewReader(s.transfer.ahead))
		}
		return s.response.capture.Upload(&clientBody{body, &s.transfer, r.Trailer}), nil
	}
	// There is no error.
	r.Body, _ = upload()
	if s.transfer.ahead != nil {
		r.GetBody = upload
	}
}

// recordSignature records the signature of a request, or why it has none, once it was sent.
func (s *requestState) recordSignature(by *signature.Signer, why policy.Unsigned) {
	if !s.wasSent {
		return
	}
	if s.record.Unsigned = why; by != nil {
		s.record.Signed = by.KeyID()
	}
}
