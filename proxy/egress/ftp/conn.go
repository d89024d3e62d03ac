package ftp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"robotsproxy/robots"
)

// maxReplies is the maximum number of bytes that a server may send on one control
// connection. The library itself reads any number of lines of any length.
const maxReplies = 64 << 10

var (
	errReplyLimit = errors.New("reply of the FTP server too long")
	errNotFTP     = errors.New("malformed FTP reply")
)

// Options are what RoundTrip needs in addition to the request.
type Options struct {
	// Dial makes the connections. It is required.
	Dial func(ctx context.Context, host string, port uint16) (net.Conn, error)
	// Control is the control connection, which RoundTrip closes; nil: Dial makes it.
	Control net.Conn
	// ByName says to dial data connections at the host of the URL, not at the address of the control connection.
	ByName bool
	// Timeout is the time from the control connection to the head of the response, and for the end of a
	// transfer. It is required.
	Timeout time.Duration
	// Sent is called once, when the transfer was requested or the request ended without one. It is required.
	Sent func()
	// Count counts n bytes of memory for a directory listing, instead of those that it has counted before. If it returns an
	// error, the listing fails with that. It is required.
	Count func(n int64) error
}

// A dialError is an error of Options.Dial.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// A controlConn is the control connection of one request, with its data connection. Other
// goroutines than that of the request may call only Close.
type controlConn struct {
	net.Conn

	o   Options
	ctx context.Context

	// deadline is the time until which the response must begin.
	deadline time.Time

	// peer is the host that data connections are made to.
	peer string

	// sent calls Options.Sent, once.
	sent func()

	// requested says that a transfer was requested.
	requested bool

	// left is the number of bytes that the server may still send.
	left int

	// code is that of the last reply.
	code int

	// line has the first bytes of the current reply line, and have is their number.
	line [4]byte
	have int

	// mu guards what Close needs: the data connection, if there is one, and whether Close was called.
	mu     sync.Mutex
	data   net.Conn
	closed bool
}

// dialControl makes the control connection, if there is none.
func dialControl(ctx context.Context, at robots.Origin, o Options) (*controlConn, error) {
	conn := o.Control
	if conn == nil {
		var err error
		if conn, err = o.Dial(ctx, at.Host, at.Port); err != nil {
			return nil, err
		}
	}
	c := &controlConn{Conn: conn, o: o, ctx: ctx, deadline: time.Now().Add(o.Timeout), peer: at.Host, left: maxReplies}
	c.sent = sync.OnceFunc(o.Sent)
	if remote, ok := conn.RemoteAddr().(*net.TCPAddr); ok && !o.ByName {
		c.peer = remote.AddrPort().Addr().String()
	}
	if err := c.SetDeadline(c.deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// dialData makes the data connection. It uses the port in address but the host of the
// control connection, whatever the server says (RFC 2577 3).
func (c *controlConn) dialData(address string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, errNotFTP
	}
	conn, err := c.o.Dial(c.ctx, c.peer, uint16(port))
	if err != nil {
		return nil, dialError{fmt.Errorf("data connection: %w", err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.data = conn; c.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close closes both connections. Any goroutine may call it, more than once.
func (c *controlConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.data != nil {
		c.data.Close()
	}
	return c.Conn.Close()
}

// Write sends a command. A command that starts a transfer counts as the request.
func (c *controlConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	for _, verb := range [...]string{"RETR ", "LIST", "MLSD"} {
		if err == nil && bytes.HasPrefix(b, []byte(verb)) {
			c.requested = true
			c.sent()
		}
	}
	return n, err
}

// Read reads replies and keeps the code of the last one, because the library does not
// return every code to its caller.
func (c *controlConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, errReplyLimit
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	for _, char := range b[:n] {
		switch {
		case char == '\n':
			c.have = 0
		case c.have < len(c.line):
			c.line[c.have] = char
			c.have++
			if code, err := strconv.Atoi(string(c.line[:3])); err == nil && c.have == len(c.line) && char == ' ' {
				c.code = code
			}
		}
	}
	return n, err
}
