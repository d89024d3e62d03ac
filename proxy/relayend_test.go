package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// A closedOrigin has sent its last bytes and closed its connection: it accepts nothing once they were read.
type closedOrigin struct {
	last  io.Reader
	once  sync.Once
	ended chan struct{}
}

func (o *closedOrigin) Read(b []byte) (int, error) {
	n, err := o.last.Read(b)
	if err != nil {
		o.once.Do(func() { close(o.ended) })
	}
	return n, err
}

func (o *closedOrigin) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	<-o.ended
	return 0, syscall.EPIPE
}

func (o *closedOrigin) Close() error { return nil }

// TestLastBytesOfAClosedOrigin checks that the last bytes of an origin that has closed its connection reach a client that
// still sends, without a reset.
func TestLastBytesOfAClosedOrigin(t *testing.T) {
	for _, half := range []bool{false, true} {
		t.Run(fmt.Sprint("half ", half), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			testkit.Must(t, err)
			defer l.Close()
			dialed, err := net.Dial("tcp", l.Addr().String())
			testkit.Must(t, err)
			c := dialed
			defer c.Close()
			accepted, err := l.Accept()
			testkit.Must(t, err)
			last := bytes.Repeat([]byte("last"), 1<<20)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				relay(accepted, bufio.NewReader(accepted), &closedOrigin{last: bytes.NewReader(last), ended: make(chan struct{})}, half, maxSilence)
			}()
			testkit.Must(t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
			c.Write(make([]byte, 64<<20)) // until all buffers are full
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, last) {
				t.Errorf("%d bytes of %d arrived, %v", len(got), len(last), err)
			}
			testkit.Must(t, c.Close())
			<-ended
		})
	}
}
