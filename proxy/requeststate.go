package proxy

import (
	"hash"
	"io"
	"net/http"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/signature"
)

// A requestState is the state of one request of a client, until its record and its response are
// complete. It belongs to the goroutine that serves the request, except the fields that say otherwise.
type requestState struct {
	// client is the connection, or the tunnel, on which the request has arrived as in.
	client *client
	in     *inbound.Request

	// rules is the generation under which the request began.
	rules *generation

	// targetErr is why the request is refused for its target; nil: it is not.
	targetErr error

	// record is the record of the request, and line the one in the audit while it is under way. written says that the record
	// was written.
	record  audit.Record
	line    sentRequest
	written bool

	// attempt is for the cool-down of the host, ticket for the client's quota and the budgets of the host, and work is the request in
	// the memory budget.
	attempt policy.Attempt
	ticket  policy.Ticket
	work    memory.Work

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

	// received is the origin's response, whose trailer is complete when the body was read. connection is its Connection header.
	received   *http.Response
	connection []string

	// digest is the hash of what was read; nil: it is not recorded, or the archive has it.
	digest hash.Hash
}

// shareKey returns the key of the client whose share the request counts against.
func (s *requestState) shareKey() string { return policy.ShareKey(s.record.Request.Client) }

// recordSignature records the signature of a request, or why it has none, once it was sent.
func (s *requestState) recordSignature(signer *signature.Signer, why policy.Unsigned) {
	if !s.wasSent {
		return
	}
	if s.record.Unsigned = why; signer != nil {
		s.record.Signed = signer.KeyID()
	}
}
