package h1

import (
	"net"
	"sync"
)

// A handoffListener is the listener of the http.Server. It accepts the connections that are handed
// over.
type handoffListener struct {
	net.Listener
	results chan acceptResult
	closed  chan struct{}
	once    sync.Once
}

type acceptResult struct {
	c   net.Conn
	err error
}

// give waits until the http.Server accepts c or err. If the listener is closed first, give closes c and
// returns false.
func (h *handoffListener) give(c net.Conn, err error) bool {
	select {
	case h.results <- acceptResult{c, err}:
		return true
	case <-h.closed:
		if err == nil {
			c.Close()
		}
		return false
	}
}

// Accept returns the next connection that is handed over.
func (h *handoffListener) Accept() (net.Conn, error) {
	select {
	case a := <-h.results:
		return a.c, a.err
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (h *handoffListener) Close() (err error) {
	h.once.Do(func() {
		close(h.closed)
		err = h.Listener.Close()
	})
	return err
}
