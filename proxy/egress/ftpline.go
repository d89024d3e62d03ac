package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"robotsproxy/robots"
)

// maxFTPReplies bounds, in octets, what a server says on one control
// connection: the library reads lines of any length, and any number of them.
const maxFTPReplies = 64 << 10

var errFTPTalks = errors.New("the FTP server says too much")

// A line is the connections of one request to an FTP server: the control
// connection, and the data connection once the server has named a port.
// Everything but Close belongs to the one who made it.
type line struct {
	net.Conn // control

	door  *Door
	ctx   context.Context // of the request
	until time.Time       // the answer has to begin
	peer  string          // where data connections go: the control connection's peer; the host where a parent stands between
	asked func()          // says, once, that the request has been handed over
	sent  bool            // a transfer has been asked for
	left  int             // octets that the server may still say
	code  int             // of the last reply
	head  [4]byte         // of the reply that is coming in
	at    int             // octets of head that are there

	mu     sync.Mutex
	data   net.Conn
	closed bool
}

// dialFTP makes the control connection, and tells ctx's trace of it. The time
// limit is for all that is said before the answer.
func (d *Door) dialFTP(ctx context.Context, o robots.Origin, at netip.Addr) (*line, error) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.GetConn != nil {
		trace.GetConn(o.Addr())
	}
	conn, err := d.At(at).Dial(ctx, o.Host, o.Port)
	if err != nil {
		return nil, err
	}
	peer := o.Host // a parent finds the server again by it
	if d.parent == nil {
		remote, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err != nil {
			conn.Close()
			return nil, err
		}
		peer = remote.Addr().String()
	}
	l := &line{Conn: conn, door: d, ctx: ctx, peer: peer, asked: func() {}, left: maxFTPReplies}
	if trace != nil && trace.WroteHeaders != nil {
		l.asked = sync.OnceFunc(trace.WroteHeaders)
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: l}) // which may take its time
	}
	l.until = time.Now().Add(d.headerTimeout)
	if err := conn.SetDeadline(l.until); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// dialData makes the data connection, to the port of address: the host is the
// one that the control connection is with, whatever the server says
// (RFC 2577 3).
func (l *line) dialData(address string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, errNotFTP
	}
	conn, err := l.door.Dial(l.ctx, l.peer, uint16(port))
	if err != nil {
		return nil, fmt.Errorf("data connection: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.data = conn; l.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close ends both connections. It may be called at any time, by anybody, and
// more than once.
func (l *line) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.data != nil {
		l.data.Close()
	}
	return l.Conn.Close()
}

// Write sends a command. When it asks for a transfer, the request has been
// handed over: from now on the pace counts.
func (l *line) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	for _, verb := range [...]string{"RETR ", "LIST", "MLSD"} {
		if err == nil && bytes.HasPrefix(b, []byte(verb)) {
			l.sent = true
			l.asked()
		}
	}
	return n, err
}

// Read reads replies and keeps the code of the last: the library does not give
// each to its caller.
func (l *line) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, errFTPTalks
	}
	n, err := l.Conn.Read(b[:min(len(b), l.left)])
	l.left -= n
	for _, c := range b[:n] {
		switch {
		case c == '\n':
			l.at = 0
		case l.at < len(l.head):
			l.head[l.at] = c
			l.at++
			if code, err := strconv.Atoi(string(l.head[:3])); err == nil && l.at == len(l.head) && c == ' ' {
				l.code = code
			}
		}
	}
	return n, err
}
