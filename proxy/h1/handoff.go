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
	conn net.Conn
	err  error
}

// give waits until the http.Server accepts c or err. If the listener is closed first, give closes c and
// returns false.
func (g *handoffListener) give(c net.Conn, err error) bool {
	select {
	case g.results <- acceptResult{c, err}:
		return true
	case <-g.closed:
		if err == nil {
			c.Close()
		}
		return false
	}
}

// Accept returns the next connection that is handed over.
func (g *handoffListener) Accept() (net.Conn, error) {
	select {
	case a := <-g.results:
		return a.conn, a.err
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (g *handoffListener) Close() (err error) {
	g.once.Do(func() {
		close(g.closed)
		err = g.Listener.Close()
	})
	return err
}
