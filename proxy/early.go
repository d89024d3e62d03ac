package proxy

import (
	"net/textproto"
	"sync"
)

const (
	maxEarly     = 100 // 1xx responses to one request: net/http sets no limit
	maxEarlyWait = 8   // of them that wait for the client; more are dropped
)

// earlyResponses are the 1xx responses on their way to the client. They have a goroutine of
// their own: with HTTP/2, the goroutine that receives them reads the responses to all
// requests of the connection, and a client that does not read would hold these up.
type earlyResponses struct {
	mu         sync.Mutex
	count      int
	ended      bool               // Send has returned: further responses are dropped
	queue      chan earlyResponse // nil: there were none
	sent       sync.WaitGroup     // waits for the goroutine that empties the queue
	clientLeft bool               // the client has left, and its header must not be used any more; owned by that goroutine, then by the request's
}

type earlyResponse struct {
	status int
	header textproto.MIMEHeader
}

// end waits until the queue is sent to the client, or cannot be.
func (r *earlyResponses) end() {
	r.mu.Lock()
	r.ended = true
	if r.queue != nil {
		close(r.queue)
	}
	r.mu.Unlock()
	r.sent.Wait()
}
