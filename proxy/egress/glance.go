package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// nothing is what a glance says where nothing has come. It is Temporary, so that
// crypto/tls goes on with the connection afterwards.
type nothing struct{}

var errNothing = nothing{}

func (nothing) Error() string   { return "nothing has come" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// A glance reads what has come on a socket, and never waits. It is for one
// goroutine at a time.
type glance struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	read func(fd uintptr) (done bool) // kept: a new one for each look would have to be allocated

	to  []byte // of the read under way
	n   int
	err error
}

// newGlance gives nil where no socket of ours is under conn.
func newGlance(conn net.Conn) *glance {
	if tunnel, ok := conn.(*aheadConn); ok {
		conn = tunnel.Conn // what was ahead has been read by the handshake
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	g := &glance{conn: tcp, raw: raw}
	g.read = func(fd uintptr) bool {
		for {
			if g.n, g.err = syscall.Read(int(fd), g.to); g.err != syscall.EINTR {
				return true
			}
		}
	}
	return g
}

// Read gives errNothing where nothing has come.
func (g *glance) Read(b []byte) (int, error) {
	g.to = b
	err := g.raw.Read(g.read)
	if errors.Is(err, os.ErrDeadlineExceeded) { // of an earlier answer's head, which was in time
		g.conn.SetReadDeadline(time.Time{})
		err = g.raw.Read(g.read)
	}
	g.to = nil
	switch {
	case err != nil:
		return 0, err
	case g.err == syscall.EAGAIN:
		return 0, errNothing
	case g.err != nil:
		return 0, os.NewSyscallError("read", g.err)
	case g.n == 0:
		return 0, io.EOF
	}
	return g.n, nil
}

// records follow where those of TLS begin and end (RFC 8446 5.1) in what is read:
// of the octets of half a record crypto/tls says nothing.
type records struct {
	head [5]byte // of the one that comes
	have int     // octets of head that are there
	left int     // octets of its content that are not
}

func (r *records) pass(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left -= n
			b = b[n:]
			continue
		}
		n := copy(r.head[r.have:], b)
		b = b[n:]
		if r.have += n; r.have == len(r.head) {
			r.left = int(r.head[3])<<8 | int(r.head[4])
			r.have = 0
		}
	}
}

// between says whether the last record that came is whole.
func (r *records) between() bool { return r.have == 0 && r.left == 0 }
