package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	continueTimeout = time.Second // how long a body with Expect waits for 100 Continue (RFC 9110 10.1.1)

	// lateAnswer is how long an origin that accepts no more of a body may take to respond. It may have
	// responded and closed its connection.
	lateAnswer = time.Second

	// uploadEnd is how long the end of an upload may take after the end of the response, for the
	// connection to be reused.
	uploadEnd = 50 * time.Millisecond

	uploadBuffer = 32 << 10 // bytes
)

var (
	uploadBuffers = sync.Pool{New: func() any { return new([uploadBuffer]byte) }}

	errNotWanted = errors.New("the origin responded without asking for the request body")
)

// An upload sends the body of a request over HTTP/1.1 on a goroutine of its own, while the goroutine
// of the request waits for the response.
type upload struct {
	wanted chan bool     // receives whether to send the body; nil: it is sent at once
	done   chan struct{} // closed at the end of run

	mu      sync.Mutex
	waiting bool // the goroutine of the request waits for the response, with the deadline that run sets
	err     error
}

// newUpload returns an upload. If expects is set, it waits for begin.
func newUpload(expects bool) *upload {
	u := &upload{done: make(chan struct{}), waiting: true}
	if expects {
		u.wanted = make(chan bool, 1)
	}
	return u
}

// begin says whether the origin wants the body. Only the first call counts.
func (u *upload) begin(wanted bool) {
	if u.wanted != nil {
		select {
		case u.wanted <- wanted:
		default:
		}
	}
}

// run sends the body of r to conn. The head of the response must arrive within timeout after it.
func (u *upload) run(conn net.Conn, r *http.Request, timeout time.Duration) {
	defer close(u.done)
	err := u.await(r.Context())
	if err == nil {
		to := bufio.NewWriterSize(conn, 64) // for the sizes of chunks
		if err = writeBody(to, r); err == nil {
			err = to.Flush()
		}
	}
	r.Body.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err = err; !u.waiting {
		return
	}
	switch _, broken := errors.AsType[*bodyError](err); {
	case err == nil:
		conn.SetReadDeadline(time.Now().Add(timeout))
	case broken:
		conn.Close() // the request cannot be completed
	default:
		conn.SetReadDeadline(time.Now().Add(min(timeout, lateAnswer)))
	}
}

// await waits until the body is wanted.
func (u *upload) await(ctx context.Context) error {
	if u.wanted == nil {
		return nil
	}
	timer := time.NewTimer(continueTimeout)
	defer timer.Stop()
	select {
	case wanted := <-u.wanted:
		if !wanted {
			return errNotWanted
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	return nil
}

// answered says that the response has begun. The upload no longer sets the deadline.
func (u *upload) answered() {
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

// ended reports whether the whole body was sent. It waits a moment for its end.
func (u *upload) ended() bool {
	timer := time.NewTimer(uploadEnd)
	defer timer.Stop()
	select {
	case <-u.done:
		return u.cause(nil) == nil
	case <-timer.C:
		return false
	}
}

// A bodyError is the error of a request's body, which could not be read.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// hasBody reports whether r has a body.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// isChunked reports whether the length of r's body is unknown. As for http.Transport, the length 0 of a
// body that is not nil is unknown.
func isChunked(r *http.Request) bool { return hasBody(r) && r.ContentLength <= 0 }

// writeBody writes the body of r, with its trailer. What the body's Read returns is written at once. The
// last bytes may still be in the buffer. The error of the body is a *bodyError.
func writeBody(to *bufio.Writer, r *http.Request) error {
	buf := uploadBuffers.Get().(*[uploadBuffer]byte)
	defer uploadBuffers.Put(buf)
	chunked := isChunked(r)
	var out io.Writer = to
	if chunked {
		out = httputil.NewChunkedWriter(to)
	}
	for left := r.ContentLength; ; {
		n, err := r.Body.Read(buf[:])
		if left -= int64(n); !chunked && left < 0 {
			return &bodyError{errors.New("the body is longer than its Content-Length")}
		}
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF && !chunked && left > 0:
			return &bodyError{fmt.Errorf("the body ends %d bytes early: %w", left, io.ErrUnexpectedEOF)}
		case err == io.EOF && chunked:
			return writeTrailer(to, r.Trailer)
		case err == io.EOF:
			return nil
		case err != nil:
			return &bodyError{err}
		case left == 0 && !chunked && r.GetBody != nil:
			// The last byte was read from memory: the end follows at once.
		default:
			if err := to.Flush(); err != nil {
				return err
			}
		}
	}
}

// writeTrailer writes the last chunk and the trailer (RFC 9112 7.1.2).
func writeTrailer(to *bufio.Writer, trailer http.Header) error {
	io.WriteString(to, "0\r\n")
	if err := trailer.Write(to); err != nil {
		return err
	}
	_, err := io.WriteString(to, "\r\n")
	return err
}

// checkHead returns an error for a request that cannot be sent as it is.
func checkHead(r *http.Request) error {
	if r.Method != "" && !httpguts.ValidHeaderFieldName(r.Method) { // also a token (RFC 9110 9.1)
		return errors.New("the method is not valid")
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("the field name %q is not valid", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("the value of the field %s is not valid", name)
			}
		}
	}
	return nil
}
