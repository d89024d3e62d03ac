package proxy

import (
	"fmt"
	"net/http"
	"net/textproto"
	"sync"
)

const (
	maxEarly     = 100 // answers before the answer: net/http sets no limit to what is passed on
	maxEarlyWait = 8   // of them that wait for the client; more are left out
)

// earlyAnswers are those before the answer, on their way to the client. They
// are not written where they are heard: for HTTP/2 that is where the answers to
// all requests of the connection are read, and a client that does not read
// would hold up the others'.
type earlyAnswers struct {
	mu    sync.Mutex
	heard int
	over  bool           // the transport has returned: no more of them
	queue chan hint      // nil: there were none
	sent  sync.WaitGroup // of the goroutine that empties it
	left  bool           // the client, meanwhile: its header is not to be touched any more; that goroutine's, then the exchange's
}

// A hint is one of them.
type hint struct {
	status int
	header textproto.MIMEHeader
}

// end waits until those that wait are with the client, or cannot be.
func (e *earlyAnswers) end() {
	e.mu.Lock()
	e.over = true
	if e.queue != nil {
		close(e.queue)
	}
	e.mu.Unlock()
	e.sent.Wait()
}

// Informational implements [egress.Gate]: it passes an answer before the answer on (RFC 9110
// 15.2). 100 is net/http's own business with each side, 101 is a final answer.
func (x *exchange) Informational(status int, header textproto.MIMEHeader) error {
	e := &x.early
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard++; e.heard > maxEarly {
		return fmt.Errorf("the origin sends more than %d answers before its answer", maxEarly)
	}
	if status == http.StatusContinue || status == http.StatusSwitchingProtocols || !x.request.ProtoAtLeast(1, 1) || e.over {
		return nil
	}
	if len(x.request.Header["Expect"]) > 0 {
		return nil // net/http may be about to answer 100 Continue from another goroutine
	}
	if e.queue == nil {
		e.queue = make(chan hint, maxEarlyWait)
		e.sent.Go(x.sendHints)
	}
	select {
	case e.queue <- hint{status, header}:
	default:
	}
	return nil
}

// sendHints has the client to itself: the exchange waits for the transport, and
// then for this.
func (x *exchange) sendHints() {
	for hint := range x.early.queue {
		if x.early.left {
			continue
		}
		h := x.client.Header()
		for name, values := range hint.header {
			h[name] = values
		}
		stripHop(h)
		x.write()
		x.client.WriteHeader(hint.status)
		x.writing.Store(false)
		if x.request.Context().Err() != nil {
			// Over HTTP/2 WriteHeader does not wait, for a client that leaves, until
			// the header has been read.
			x.early.left = true
			continue
		}
		clear(h)
	}
}
