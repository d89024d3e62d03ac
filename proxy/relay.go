package proxy

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"robotsproxy/proxy/socket"
)

// relay copies between a client and an origin until both directions have ended, and closes both
// connections. If half is false, the end of the client's direction ends both. The end of the
// origin's ends both after lastWait, if half is false or the origin accepts nothing more. It also
// ends if no data moves in either direction for longer than silence. relay returns the number of
// bytes that were copied in both directions.
func relay(client net.Conn, buffered *bufio.Reader, origin io.ReadWriteCloser, half bool, silence time.Duration) (int64, error) {
	w := watch{limit: silence}
	both := relayedConns{client, origin}
	defer both.abandon()
	w.begin(both)
	defer w.stop()
	ahead, err := buffered.Peek(buffered.Buffered())
	if err == nil {
		_, err = origin.Write(ahead)
	}
	if err != nil {
		return 0, err
	}
	up, down := &pump{dst: origin, src: client, watch: &w}, &pump{dst: client, src: origin, watch: &w}
	done, refused := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		// The origin may have closed its connection after its last bytes, which down still copies.
		if up.run(); up.err != nil {
			close(refused)
			client.SetReadDeadline(time.Time{})
			io.Copy(io.Discard, client)
		}
		if up.err != nil || !half || socket.CloseWrite(origin) != nil {
			both.abandon()
		}
	}()
	// If the client's connection were closed with unread bytes, the system would reset it.
	if down.run(); down.err != nil || socket.CloseWrite(client) != nil {
		both.abandon()
	}
	limited := !half
	if half {
		select {
		case <-done:
		case <-refused:
			limited = true
		}
	}
	if limited {
		defer time.AfterFunc(lastWait, both.abandon).Stop()
	}
	<-done
	total := int64(len(ahead)) + up.total + down.total
	if ended := w.err(); ended != nil {
		return total, ended
	}
	if !half && down.err == nil {
		// The origin has ended it, and may not accept more.
		return total, nil
	}
	for _, p := range []*pump{up, down} {
		if p.err != nil && !errors.Is(p.err, net.ErrClosed) && !errors.Is(p.err, io.ErrClosedPipe) {
			return total, p.err
		}
	}
	return total, nil
}

// relayedConns are the two connections of a relay.
type relayedConns struct{ client, origin io.Closer }

func (r relayedConns) abandon() {
	r.client.Close()
	r.origin.Close()
}

// A pump copies in one direction. It copies small amounts itself and lets the kernel copy large
// ones (splice), which needs a pipe with two descriptors. While a TCP connection sends nothing,
// the pump holds no buffer.
type pump struct {
	dst   io.Writer
	src   io.Reader
	watch *watch
	total int64
	err   error

	// to is the socket of dst; nil: the kernel cannot copy to it.
	to *socket.Conn

	// out and send write to the socket of to.
	out  syscall.RawConn
	send func(fd uintptr) bool
	buf  *[relayBufferSize]byte

	// unsent is the part of buf that was not written yet.
	unsent []byte

	// streak is the number of bytes since there was last nothing to read.
	streak int
	ended  bool
}

const (
	relayBufferSize = 16 << 10
	// spliceAfter is the number of consecutive bytes after which splice is faster.
	spliceAfter = 64 << 10
	// spliceInterval is how long a splice runs before the watch learns of progress.
	spliceInterval = time.Second
)

var relayBuffers = sync.Pool{New: func() any { return new([relayBufferSize]byte) }}

// run copies until the source ends.
func (p *pump) run() {
	src, ok := p.src.(*socket.Conn)
	if !ok || !socket.Direct {
		p.total, p.err = io.CopyBuffer(watchedWriter{p.dst, p.watch}, p.src, make([]byte, relayBufferSize))
		return
	}
	in, err := src.SyscallConn()
	if err == nil {
		err = p.setTarget(p.dst)
	}
	for err == nil && !p.ended {
		err = in.Read(p.read)
		if err = cmp.Or(p.err, err); err == nil && p.buf != nil {
			err = p.flush()
		}
		if err == nil && p.streak >= spliceAfter && p.to != nil {
			err = p.splice(src)
		}
	}
	p.err = err
}

// setTarget sets to and out if the kernel can copy to dst.
func (p *pump) setTarget(dst io.Writer) (err error) {
	if p.to, _ = dst.(*socket.Conn); p.to != nil {
		p.send = p.write
		p.out, err = p.to.SyscallConn()
	}
	return err
}

// read copies until there is nothing to read, and then returns false. It returns true at the end, after an
// error, after spliceAfter bytes, or if dst does not accept everything at once. It does not block, because
// the source cannot be closed meanwhile.
func (p *pump) read(fd uintptr) bool {
	p.buf = relayBuffers.Get().(*[relayBufferSize]byte)
	for {
		n, err := socket.Read(fd, p.buf[:])
		switch {
		case err == syscall.EAGAIN:
			p.release()
			p.streak = 0
			return false
		case err != nil:
			p.err = os.NewSyscallError("read", err)
			return true
		case n == 0:
			p.ended = true
			return true
		}
		p.streak += n
		p.unsent = p.buf[:n]
		if p.to != nil {
			p.err = p.out.Write(p.send)
		}
		if p.err != nil || len(p.unsent) > 0 || p.streak >= spliceAfter {
			return true
		}
	}
}

// write writes as much as dst accepts at once. The next write repeats an error.
func (p *pump) write(fd uintptr) bool {
	if n, err := socket.Write(fd, p.unsent); err == nil {
		p.sent(n)
	}
	return true
}

// flush writes the rest of buf.
func (p *pump) flush() (err error) {
	if len(p.unsent) > 0 {
		var n int
		n, err = p.dst.Write(p.unsent)
		p.sent(n)
	}
	p.release()
	return err
}

func (p *pump) sent(n int) {
	p.unsent = p.unsent[n:]
	p.total += int64(n)
	p.watch.moved()
}

func (p *pump) release() {
	relayBuffers.Put(p.buf)
	p.buf, p.unsent = nil, nil
}

// splice lets the kernel copy for at most spliceInterval.
func (p *pump) splice(src *socket.Conn) error {
	p.streak = 0
	// The next read returns an error of this.
	src.SetReadDeadline(time.Now().Add(min(spliceInterval, p.watch.limit/2)))
	n, err := src.Splice(p.to)
	p.total += n
	if n > 0 {
		p.watch.moved()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return src.SetReadDeadline(time.Time{})
	}
	p.ended = err == nil
	return err
}

// A watchedWriter tells the watch of each write.
type watchedWriter struct {
	io.Writer
	watch *watch
}

func (w watchedWriter) Write(b []byte) (int, error) {
	w.watch.moved()
	return w.Writer.Write(b)
}
