package proxy

import (
	"net/textproto"
	"sync"
)

const (
	maxEarly     = 100 // maximum 1xx responses to one request, because net/http sets no limit
	maxEarlyWait = 8   // maximum of them that wait for the client; further ones are dropped
)

// earlyResponses are the 1xx responses that are sent to the client. A separate goroutine
// sends them: with HTTP/2, the goroutine that receives them reads the responses to all
// requests of the connection, and a client that does not read would delay these.
type earlyResponses struct {
	mu         sync.Mutex
	count      int
	ended      bool               // Send has returned: further responses are dropped
	queue      chan earlyResponse // nil: there was no 1xx response
	sent       sync.WaitGroup     // waits for the goroutine that empties the queue
	clientLeft bool               // the client has left, and its header must not be used; owned by that goroutine, then by the request's
}

type earlyResponse struct {
	status int
	header textproto.MIMEHeader
}

// end waits until the queue was sent to the client, or cannot be sent.
func (r *earlyResponses) end() {
	r.mu.Lock()
	r.ended = true
	if r.queue != nil {
		close(r.queue)
	}
	r.mu.Unlock()
	r.sent.Wait()
}
