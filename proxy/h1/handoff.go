package h1

import (
	"net"
	"sync"
)

// A Handoff is a listener that accepts the connections that are given to it. Make one with [NewHandoff]. Any number of
// goroutines may use it.
type Handoff struct {
	// Listener has the address. Close closes it.
	net.Listener
	results chan acceptResult
	closed  chan struct{}
	once    sync.Once
}

type acceptResult struct {
	c   net.Conn
	err error
}

// NewHandoff returns a Handoff with the address of l, which it closes when it is closed.
func NewHandoff(l net.Listener) *Handoff {
	return &Handoff{Listener: l, results: make(chan acceptResult), closed: make(chan struct{})}
}

// Give waits until Accept returns c and err. It returns false if the Handoff is closed first.
func (h *Handoff) Give(c net.Conn, err error) bool {
	select {
	case h.results <- acceptResult{c, err}:
		return true
	case <-h.closed:
		return false
	}
}

// Accept returns the next connection that is given.
func (h *Handoff) Accept() (net.Conn, error) {
	select {
	case a := <-h.results:
		return a.c, a.err
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Closed returns a channel that Close closes.
func (h *Handoff) Closed() <-chan struct{} { return h.closed }

// Close closes the Handoff and its Listener.
func (h *Handoff) Close() (err error) {
	h.once.Do(func() {
		close(h.closed)
		err = h.Listener.Close()
	})
	return err
}
