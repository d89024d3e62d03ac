package egress

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// settle makes a request wait, on a connection that was used before, until all
// that has come on it is used up. net/http hands a connection on before it has
// looked whether the origin sent more than it was asked for (the body of an
// answer to HEAD, say), and would take that for the answer to the next request:
// somebody else's. Given the time, it finds it and closes the connection. HTTP/2
// numbers its answers, and one of the pool's has looked at its connection already.
func settle(got httptrace.GotConnInfo) {
	if !got.Reused {
		return
	}
	if c := counted(got.Conn); c != nil && !c.http2 && !c.kept && !c.reader.idle() {
		end := time.AfterFunc(settleTime, func() { c.Close() })
		c.reader.settle()
		end.Stop()
	}
}

// settleTime is how long a reader may take to use up what has come.
const settleTime = time.Second

// A Tries counts the new connections that a request was given, and is
// GotConn's too. net/http sends a request again, without an end, to a peer that
// says of each HTTP/2 connection that it takes no more requests (GOAWAY). The
// zero Tries has counted none; it is one request's.
type Tries struct{ fresh atomic.Int32 }

// maxTries is how many new connections one request is worth.
const maxTries = 3

var errTries = errors.New("the origin takes requests on none of its connections")

// Got settles a connection. An error says that the request has had its tries;
// whoever called for it has to cancel it, by that cause.
func (t *Tries) Got(got httptrace.GotConnInfo) error {
	if !got.Reused && t.fresh.Add(1) > maxTries {
		return errTries
	}
	settle(got)
	return nil
}

// Drop keeps a request, whose context has been cancelled, from being written to
// the connection that it was given. HTTP/2 looks at the context before it
// writes, and has other requests on the connection.
func Drop(got httptrace.GotConnInfo) {
	if c := counted(got.Conn); c == nil || !c.http2 {
		got.Conn.Close()
	}
}

// A Writer is told of the next octets that are written to a connection.
type Writer interface {
	Writing() error // right before; an error keeps them from being written, and is the write's
	Written()       // right after
}

// NextWrite tells w when the next octets are written to an HTTP/1 connection, and so,
// on one that a request was just given, when its head is: WroteHeaders comes before they
// leave a buffer. It says false, and does nothing, where WroteHeaders tells the moment:
// with HTTP/2 and FTP.
func NextWrite(got httptrace.GotConnInfo, w Writer) bool {
	c := counted(got.Conn)
	if c == nil || c.http2 {
		return false
	}
	c.waiting.mu.Lock()
	defer c.waiting.mu.Unlock()
	c.waiting.to = w
	return true
}

// A waiting holds who waits for the next write; nil: nobody.
type waiting struct {
	mu sync.Mutex // guards to
	to Writer
}

// next is who waits, and not any more once the octets are written.
func (w *waiting) next(written bool) Writer {
	w.mu.Lock()
	defer w.mu.Unlock()
	to := w.to
	if written {
		w.to = nil
	}
	return to
}

// Settling is the Client for those who have no httptrace of their own to count
// tries and settle connections.
func (d *Client) Settling() http.RoundTripper { return settling{d} }

type settling struct{ client *Client }

// RoundTrip sends one request to its origin. Its context has to end.
func (s settling) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var tries Tries
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if err := tries.Got(got); err != nil {
			cancel(err)
			Drop(got)
		}
	}}
	return s.client.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
}

// A reader knows whether somebody waits for what the peer sends next, and so
// has used up what came before.
type reader struct {
	mu      sync.Mutex
	change  sync.Cond // of what follows; its L is mu
	waiting bool
	closed  bool
}

func (r *reader) note(waiting bool) {
	r.mu.Lock()
	r.waiting = waiting
	r.mu.Unlock()
	if waiting {
		r.change.Broadcast()
	}
}

// close ends all waits.
func (r *reader) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.change.Broadcast()
}

// idle says whether somebody waits, or nobody will.
func (r *reader) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting || r.closed
}

func (r *reader) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.waiting && !r.closed {
		r.change.Wait()
	}
}
