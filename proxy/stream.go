package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A streamConn is the connection inside a CONNECT that came as a stream of
// HTTP/2 (RFC 9113 8.5): a pipe for each direction, whose other ends the
// exchange's pumps join to the stream. A stream's own deadlines cannot be taken
// back, as net/http does with those of a connection. What is sent to the client
// ends with the stream, and so with both directions.
type streamConn struct {
	net.Conn          // what is sent
	received net.Conn // what is read
	remote   net.Addr
	client   *http.ResponseController
	broken   atomic.Bool // the stream is to be reset

	mu   sync.Mutex
	over bool // nothing more is written to the stream, which may have ended
}

func (c *streamConn) RemoteAddr() net.Addr { return c.remote }

func (c *streamConn) Read(b []byte) (int, error) { return c.received.Read(b) }

func (c *streamConn) SetReadDeadline(t time.Time) error { return c.received.SetReadDeadline(t) }

func (c *streamConn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetWriteDeadline(t), c.received.SetReadDeadline(t))
}

// Close ends both directions. What is still to be written to the stream gets
// a little time.
func (c *streamConn) Close() error {
	c.mu.Lock()
	if !c.over {
		c.client.SetWriteDeadline(time.Now().Add(lastWait))
	}
	c.mu.Unlock()
	return errors.Join(c.Conn.Close(), c.received.Close())
}

func (c *streamConn) end() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
}

// streamed answers a CONNECT that came by HTTP/2 and makes a connection of its
// stream. Whoever serves the exchange ends with x.endStream.
func (x *exchange) streamed() (net.Conn, *bufio.Reader, error) {
	client := http.NewResponseController(x.client)
	header := x.client.Header()
	header["Content-Type"], header["Date"] = nil, nil // an established tunnel has neither
	x.headSent = true
	x.client.WriteHeader(http.StatusOK)
	if err := client.Flush(); err != nil {
		return nil, nil, err
	}
	sent, toClient := net.Pipe()
	received, fromClient := net.Pipe()
	x.stream = &streamConn{Conn: sent, received: received, remote: remoteAddr(x.request), client: client}
	body := x.request.Body
	x.pumps.Go(func() {
		io.Copy(fromClient, body)
		fromClient.Close()
	})
	x.pumps.Go(func() {
		io.Copy(flushing{x.client, client}, toClient)
		x.stream.end()
		toClient.Close()
		body.Close() // ends the other pump
	})
	return x.stream, bufio.NewReader(received), nil
}

// endStream waits until a stream has ended, if there is one: it ends with its
// handler.
func (x *exchange) endStream() {
	x.leave() // what comes out of it are requests of their own
	x.pumps.Wait()
	if x.stream != nil && x.stream.broken.Load() {
		panic(http.ErrAbortHandler) // net/http resets the stream
	}
}

// remoteAddr is where a request came from, as an address.
func remoteAddr(r *http.Request) net.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(at)
}

// flushing sends each part at once.
type flushing struct {
	io.Writer
	client *http.ResponseController
}

func (w flushing) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err == nil {
		err = w.client.Flush()
	}
	return n, err
}
