package egress

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"robotsproxy/proxy/h1"
)

const (
	// continueTimeout is how long a body with Expect waits for 100 Continue (RFC 9110 10.1.1).
	continueTimeout = time.Second

	// lateResponse is how long an origin that accepts no more of a body may take to respond. It may have
	// responded and closed its connection.
	lateResponse = time.Second

	// uploadEnd is how long the end of an upload may take after the end of the response, for the
	// connection to be reused.
	uploadEnd = 50 * time.Millisecond
)

var errNotWanted = errors.New("the origin responded without asking for the request body")

// An upload sends the body of a request over HTTP/1.1 on a goroutine of its own, while the goroutine
// of the request waits for the response.
type upload struct {
	// wanted receives whether to send the body; nil: the body is sent at once.
	wanted chan bool

	// run closes done at its end.
	done chan struct{}

	// mu guards what follows.
	mu sync.Mutex

	// waiting says that the goroutine of the request waits for the response, with the deadline that run sets.
	waiting bool

	// err is why the body could not be sent.
	err error
}

// decide says whether the origin wants the body. Only the first call counts.
func (u *upload) decide(wanted bool) {
	select {
	case u.wanted <- wanted:
	default:
	}
}

// run sends the body of r to conn. The head of the response must arrive within timeout after it.
func (u *upload) run(conn net.Conn, r *http.Request, timeout time.Duration) {
	defer close(u.done)
	err := u.await(r.Context())
	if err == nil {
		// The buffer is for the sizes of chunks. The data is longer and bypasses it.
		to := bufio.NewWriterSize(conn, 64)
		if err = h1.WriteBody(to, r); err == nil {
			err = to.Flush()
		}
	}
	r.Body.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err = err; !u.waiting {
		return
	}
	switch _, broken := errors.AsType[*h1.BodyError](err); {
	case err == nil:
		conn.SetReadDeadline(time.Now().Add(timeout))
	case broken:
		// The request cannot be completed.
		conn.Close()
	default:
		conn.SetReadDeadline(time.Now().Add(min(timeout, lateResponse)))
	}
}

// await waits until the body is wanted.
func (u *upload) await(ctx context.Context) error {
	if u.wanted == nil {
		return nil
	}
	select {
	case wanted := <-u.wanted:
		if !wanted {
			return errNotWanted
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(continueTimeout):
	}
	return nil
}

// responseBegan says that the response has begun. A body that was not wanted before is not sent, and the upload no longer
// sets the deadline.
func (u *upload) responseBegan() {
	u.decide(false)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting = false
}

// cause returns why there was no response: because of the upload, or because of err.
func (u *upload) cause(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return u.err
	}
	return err
}

// waitSent reports whether the whole body was sent. It waits at most uploadEnd.
func (u *upload) waitSent() bool {
	select {
	case <-u.done:
		return u.err == nil
	case <-time.After(uploadEnd):
		return false
	}
}
