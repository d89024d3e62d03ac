package inbound

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"robotsproxy/proxy/mitm"
	"robotsproxy/robots"
)

// AcceptTunnel answers a CONNECT to o and turns its connection into a Tunnel, which counts in the memory budget for share.
// An error that is memory.ErrShort has not answered. The caller must call Serve.
func (r *Request) AcceptTunnel(o robots.Origin, share string) (*Tunnel, error) {
	s := r.Conn.server
	held, err := s.o.Memory.Open(share, time.Now())
	if err != nil {
		return nil, err
	}
	// At shutdown, the alert of a client that has ended is read.
	raw, err := r.accept(closeReadOrClose)
	if err != nil {
		held.End()
		return nil, err
	}
	s.counts.intercepted.Begin()
	t := &Tunnel{Conn: raw.whole, ahead: raw.Ahead, raw: raw, Origin: o, Authority: authority(o), server: s, carrier: r.Conn, memory: held}
	// Each request inside counts for itself, and a tunnel without one is idle.
	r.Leave()
	return t, nil
}

// AcceptRaw answers a CONNECT whose tunnel is passed through, and takes over its connection.
func (r *Request) AcceptRaw() (*Raw, error) { return r.accept(closeConn) }

// accept answers a CONNECT and takes over its connection, which a shutdown ends with end.
func (r *Request) accept(end func(net.Conn)) (*Raw, error) {
	accept := r.acceptStream
	if r.HTTP.ProtoMajor == 1 {
		accept = r.acceptHTTP1
	}
	conn, ahead, err := accept()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return r.Conn.server.takeOver(conn, ahead, end)
}

// acceptHTTP1 takes over an HTTP/1 connection and answers its CONNECT. A redirected client has
// sent none and gets no answer.
func (r *Request) acceptHTTP1() (net.Conn, *bufio.Reader, error) {
	conn, ahead, err := r.hijack()
	if err != nil {
		return nil, nil, err
	}
	if c, ok := conn.(*httpConn); ok && c.connect != "" {
		return conn, ahead, nil
	}
	err = conn.SetWriteDeadline(time.Now().Add(lastWait))
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	}
	if err == nil {
		err = conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, ahead, nil
}

// ErrHandshake is the error of a TLS handshake in a tunnel that the client has begun and not completed.
var ErrHandshake = errors.New("tls handshake in the tunnel")

// Serve passes the tunnel to the server, after the TLS handshake if the client speaks TLS, for which authority has
// the certificate; nil: TLS is refused. h gets the requests. An error says why the tunnel has ended before; it is
// ErrHandshake if the handshake has failed.
func (t *Tunnel) Serve(h Handler, authority *mitm.Authority) error {
	t.handler = h
	defer t.server.hijacked.Remove(t.raw)
	// Its reader must not stay in memory longer than that of the Tunnel.
	t.raw = nil
	inner, err := t.handshake(authority)
	if err == nil && !t.server.handoff.Give(inner, nil) {
		err = net.ErrClosed
	}
	if err != nil {
		t.server.o.Log.Debug("tunnel closed before its first request", "origin", t.Origin.String(), "error", err)
		t.Close()
	}
	return err
}

// handshake returns the connection inside a tunnel: TLS after the handshake, or HTTP without
// TLS.
func (t *Tunnel) handshake(authority *mitm.Authority) (net.Conn, error) {
	limit := t.server.o.HeadTimeout
	// Twice the time, because browsers make tunnels before they need them.
	if err := t.SetDeadline(time.Now().Add(2 * limit)); err != nil {
		return nil, err
	}
	first, err := t.ahead.Peek(1)
	if err != nil {
		return nil, err
	}
	if first[0] != tlsHandshake {
		return t.server.newHTTPConn(t), t.SetDeadline(time.Time{})
	}
	if authority == nil {
		return nil, errors.New("TLS on a port of plain HTTP, to a host whose tunnels are passed through")
	}
	// A deadline of the connection, because a context's would need a goroutine.
	if err := t.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	secure, err := authority.Handshake(context.Background(), t, t.Origin.Host, t.Origin.Port)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	if err := t.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	state := secure.ConnectionState()
	t.secured, t.serverName = time.Now(), state.ServerName
	if state.NegotiatedProtocol == "h2" {
		return secure, nil
	}
	return t.server.newHTTPConn(secure), nil
}

// Unused reports whether no request has begun to arrive in the tunnel. secured is when its TLS handshake ended; zero: there
// was none.
func (t *Tunnel) Unused() (unused bool, secured time.Time) { return !t.spoke.Load(), t.secured }

// Read returns the bytes that were read ahead, then reads from the connection.
func (t *Tunnel) Read(b []byte) (int, error) {
	if t.ahead != nil {
		if t.ahead.Buffered() > 0 {
			return t.ahead.Read(b[:min(len(b), t.ahead.Buffered())])
		}
		t.ahead = nil
	}
	return t.Conn.Read(b)
}

// Close closes the connection.
func (t *Tunnel) Close() error {
	t.once.Do(func() {
		if !t.spoke.Load() {
			t.server.counts.unused.Add(1)
		}
		t.handler.Closed()
		t.memory.End()
		t.server.counts.intercepted.End()
	})
	return t.Conn.Close()
}

// CloseWrite closes the sending half of the connection.
func (t *Tunnel) CloseWrite() error { return closeWriteOrClose(t.Conn) }

// acceptStream answers a CONNECT of HTTP/2 and makes a connection from its stream.
func (r *Request) acceptStream() (net.Conn, *bufio.Reader, error) {
	client := http.NewResponseController(r.Writer)
	header := r.Writer.Header()
	// The response that establishes a tunnel has neither field.
	header["Content-Type"], header["Date"] = nil, nil
	r.Writer.WriteHeader(http.StatusOK)
	if err := client.Flush(); err != nil {
		return nil, nil, err
	}
	sent, toClient := net.Pipe()
	received, fromClient := net.Pipe()
	r.stream = &streamConn{Conn: sent, received: received, remote: r.Conn.RemoteAddr(), client: client}
	body := r.HTTP.Body
	r.copies.Go(func() {
		io.Copy(fromClient, body)
		fromClient.Close()
	})
	r.copies.Go(func() {
		io.Copy(flushWriter{r.Writer, client}, toClient)
		r.stream.end()
		toClient.Close()
		// Ends the other copy.
		body.Close()
	})
	return r.stream, bufio.NewReader(received), nil
}

// WaitForTunnel waits until the tunnel of a CONNECT that arrived with HTTP/2 has ended, if there is one, because net/http
// ends the stream when the handler returns. The handler of a CONNECT must call it last.
func (r *Request) WaitForTunnel() {
	r.copies.Wait()
	if r.stream != nil && r.stream.broken.Load() {
		// net/http resets the stream.
		panic(http.ErrAbortHandler)
	}
}

// A flushWriter flushes after each write.
type flushWriter struct {
	io.Writer
	client *http.ResponseController
}

func (w flushWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err == nil {
		err = w.client.Flush()
	}
	return n, err
}
