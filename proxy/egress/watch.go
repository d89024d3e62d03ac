package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

var longAgo = time.Unix(1, 0)

// maxAhead bounds, in octets, what an HTTP/2 peer says before it is asked; its
// settings take some 100.
const maxAhead = 16 << 10

// A watch reads a connection that waits for a request: it takes in what TLS has to
// say after the handshake (session tickets), with HTTP/2 the peer's settings too,
// and sees when the peer hangs up. Who makes one runs it.
type watch struct {
	conn  net.Conn
	http2 *countedConn  // the same under TLS, where HTTP/2 was agreed on; else nil
	done  chan struct{} // closed when it has ended
	sound bool          // the peer neither spoke out of turn nor hung up; set before done is closed
}

// newWatch makes the watch of conn, which ends by itself at until.
func newWatch(conn net.Conn, until time.Time) (*watch, error) {
	w := &watch{conn: conn, done: make(chan struct{})}
	if c := counted(conn); c != nil && c.http2 {
		w.http2 = c
	}
	return w, conn.SetReadDeadline(until)
}

func (w *watch) run() {
	w.sound = w.listen()
	close(w.done)
}

// listen says whether the connection was fit for a request all the while. A
// peer that speaks HTTP/1 before it was asked is not one to send a request to;
// one that speaks HTTP/2 begins with its settings (RFC 9113 3.4), which are
// kept, unread, for the Transport.
func (w *watch) listen() bool {
	if w.http2 == nil {
		var b [1]byte
		n, err := w.conn.Read(b[:])
		return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	}
	ahead, err := io.ReadAll(io.LimitReader(w.http2, maxAhead))
	w.http2.ahead = ahead
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// end ends it, and says whether the connection is fit for a request.
func (w *watch) end() bool {
	err := w.conn.SetReadDeadline(longAgo) // leaves TLS intact
	<-w.done
	return err == nil && w.sound && w.conn.SetReadDeadline(time.Time{}) == nil
}
