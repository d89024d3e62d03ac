package proxy

import (
	"fmt"
	"net/http"
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
	mu    sync.Mutex
	count int
	ended bool               // Send has returned: no more of them are passed on
	queue chan earlyResponse // nil: there were none
	sent  sync.WaitGroup     // of the goroutine that empties the queue
	left  bool               // the client has left, and its header must not be used any more; owned by that goroutine, then by the exchange's
}

type earlyResponse struct {
	status int
	header textproto.MIMEHeader
}

// end waits until the queue is sent to the client, or cannot be.
func (e *earlyResponses) end() {
	e.mu.Lock()
	e.ended = true
	if e.queue != nil {
		close(e.queue)
	}
	e.mu.Unlock()
	e.sent.Wait()
}

// Informational implements [egress.Gate]: it passes a 1xx response on (RFC 9110 15.2).
// net/http handles 100 with each side itself, and 101 is a final response.
func (x *exchange) Informational(status int, header textproto.MIMEHeader) error {
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
// exchange waits for Send, and then for sendEarly.
func (x *exchange) sendEarly() {
	for r := range x.early.queue {
		if x.early.left {
			continue
		}
		h := x.client.Header()
		for name, values := range r.header {
			h[name] = values
		}
		stripHop(h)
		x.write()
		x.client.WriteHeader(r.status)
		x.writing.Store(false)
		if x.request.Context().Err() != nil {
			// If the client leaves, WriteHeader over HTTP/2 does not wait until the header
			// has been read.
			x.early.left = true
			continue
		}
		clear(h)
	}
}
