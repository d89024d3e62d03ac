package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/proxy/inbound"
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

// newRequestState returns the state of a request of c that has just arrived.
func newRequestState(c *client, in *inbound.Request) *requestState {
	s := &requestState{from: c, in: in, rules: c.h.rules.acquire(), transfer: transfer{in: in}}
	s.response.s = s
	s.transfer.watch.limit, s.transfer.watch.pool = c.h.o.Silence, &c.h.alarms
	if in.HTTP.Body == nil || in.HTTP.Body == http.NoBody {
		s.transfer.flow.endUpload(uploadComplete)
	}
	newRecord(&s.record, in.HTTP.RemoteAddr)
	s.recordRequest()
	s.targetErr = s.checkTarget()
	return s
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
