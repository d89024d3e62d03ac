package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// relay copies between a client and an origin until both directions have
// ended, and closes both. Where half is false the first end ends both. It gives
// the octets that went either way. Between TCP connections the kernel does the
// copying (splice). What stands still both ways for longer than silence is ended.
func relay(client net.Conn, buffered *bufio.Reader, origin io.ReadWriteCloser, half bool, silence time.Duration) (int64, error) {
	w := watch{limit: silence}
	closeBoth := func() {
		client.Close()
		origin.Close()
	}
	defer closeBoth()
	w.begin(closeBoth)
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
			closeBoth()
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
	if w.silent.Load() {
		return total, errSilent
	}
	for _, p := range []*pump{up, down} {
		if p.err != nil && !errors.Is(p.err, net.ErrClosed) && !errors.Is(p.err, io.ErrClosedPipe) {
			return total, p.err
		}
	}
	return total, nil
}

// A pump copies one way.
type pump struct {
	dst   io.Writer
	src   io.Reader
	watch *watch
	total int64
	err   error
}

// stretch is how long a direction may stand still before it gives back what
// the kernel's copying takes.
const stretch = time.Second

// run copies until the source ends. A source that knows deadlines is read in
// stretches, so that the kernel may do the copying, what moved is noted all the
// same, and a tunnel at rest holds next to nothing.
func (p *pump) run() {
	src, timed := p.src.(interface{ SetReadDeadline(time.Time) error })
	if !timed {
		p.total, p.err = io.Copy(noting{p.dst, p.watch}, p.src)
		return
	}
	for {
		src.SetReadDeadline(time.Now().Add(p.watch.limit)) // an error shows in the next read
		err := awaitReadable(p.src)
		if err == nil {
			src.SetReadDeadline(time.Now().Add(min(stretch, p.watch.limit/2)))
			var n int64
			n, err = io.Copy(p.dst, p.src)
			p.total += n
			if n > 0 {
				p.watch.moved()
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			p.err = err
			return
		}
	}
}

// noting notes when something was written.
type noting struct {
	io.Writer
	watch *watch
}

func (w noting) Write(b []byte) (int, error) {
	w.watch.moved()
	return w.Writer.Write(b)
}

// closeWrite ends one direction and leaves the other open, where that can be.
func closeWrite(w io.Writer) bool {
	c, ok := w.(interface{ CloseWrite() error })
	return ok && c.CloseWrite() == nil
}
