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

// relay copies between a client and an origin until both directions have
// ended, and closes both. Where half is false the first end ends both. It gives
// the octets that went either way. What stands still both ways for longer than silence
// is ended.
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
	run := func(p *pump) {
		p.run()
		if p.err != nil || !half || !closeWrite(p.dst) {
			both.abandon()
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(up)
	}()
	run(down)
	<-done
	total := int64(len(ahead)) + up.total + down.total
	if w.ended.Load() {
		return total, errSilent
	}
	for _, p := range []*pump{up, down} {
		if p.err != nil && !errors.Is(p.err, net.ErrClosed) && !errors.Is(p.err, io.ErrClosedPipe) {
			return total, p.err
		}
	}
	return total, nil
}

// relayedConns are the two connections that a relay joins.
type relayedConns struct{ client, origin io.Closer }

func (e relayedConns) abandon() {
	e.client.Close()
	e.origin.Close()
}

// A pump copies one way. While little moves it hands on what it reads at once;
// what is long is left to the kernel (splice), which takes a pipe for it, and so
// two more descriptors. While nothing comes from a TCP connection it holds no buffer.
type pump struct {
	dst   io.Writer
	src   io.Reader
	watch *watch
	total int64
	err   error

	to     *socket.Conn    // dst; nil: the kernel cannot copy to it
	out    syscall.RawConn // of that
	send   func(fd uintptr) bool
	buf    *[relayBufferSize]byte
	unsent []byte // of buf
	streak int    // octets since nothing was there to read
	ended  bool
}

const (
	relayBufferSize = 16 << 10
	// spliceAfter is how many octets in a row make the kernel's copying pay.
	spliceAfter = 64 << 10
	// spliceInterval is how long the kernel copies on before what moved is noted.
	spliceInterval = time.Second
)

var relayBuffers = sync.Pool{New: func() any { return new([relayBufferSize]byte) }}

// run copies until the source ends.
func (p *pump) run() {
	src, ok := p.src.(*socket.Conn)
	if !ok {
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

// setTarget finds out whether the kernel can copy to dst.
func (p *pump) setTarget(dst io.Writer) (err error) {
	if p.to, _ = dst.(*socket.Conn); p.to != nil {
		p.send = p.write
		p.out, err = p.to.SyscallConn()
	}
	return err
}

// read hands on what there is to read, until that is nothing (false), or there is
// something else to do: the end, an error, much, or more than dst takes at once. It
// waits for nothing, since its source could not be closed meanwhile.
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

// write writes what dst takes at once. An error is the next write's to see.
func (p *pump) write(fd uintptr) bool {
	if n, err := socket.Write(fd, p.unsent); err == nil {
		p.sent(n)
	}
	return true
}

// flush waits until dst has taken the rest.
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

// splice lets the kernel copy for a stretch.
func (p *pump) splice(src *socket.Conn) error {
	p.streak = 0
	src.SetReadDeadline(time.Now().Add(min(spliceInterval, p.watch.limit/2))) // an error shows in the next read
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

// watchedWriter notes when something was written.
type watchedWriter struct {
	io.Writer
	watch *watch
}

func (w watchedWriter) Write(b []byte) (int, error) {
	w.watch.moved()
	return w.Writer.Write(b)
}

// closeWrite ends one direction and leaves the other open, where that can be.
func closeWrite(w io.Writer) bool {
	c, ok := w.(interface{ CloseWrite() error })
	return ok && c.CloseWrite() == nil
}
