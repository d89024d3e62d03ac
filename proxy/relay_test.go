package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestWhatMovesInATunnel checks that a passed-through tunnel delivers all bytes, however they are
// split and however slow the reader is, and the end of each direction.
func TestWhatMovesInATunnel(t *testing.T) {
	t.Parallel()
	to := echo(t)
	r := passThroughRig(t)
	for _, size := range []int{0, 1, 16<<10 - 1, 16 << 10, 64<<10 + 1, 4 << 20} {
		for _, part := range []int{1000, 100_000, 4 << 20} {
			t.Run(fmt.Sprintf("%d in parts of %d", size, part), func(t *testing.T) {
				sent := make([]byte, size)
				rand.NewChaCha8([32]byte{byte(size)}).Read(sent)
				c, _ := r.plainTunnel(to)
				done := make(chan error, 1)
				go func() {
					var err error
					for rest := sent; len(rest) > 0 && err == nil; rest = rest[min(part, len(rest)):] {
						_, err = c.Write(rest[:min(part, len(rest))])
					}
					if err == nil {
						err = c.(*net.TCPConn).CloseWrite()
					}
					done <- err
				}()
				got, err := io.ReadAll(c)
				testkit.Must(t, err)
				testkit.Must(t, <-done)
				if !bytes.Equal(got, sent) {
					t.Errorf("%d bytes of %d came back, or they differ", len(got), size)
				}
			})
		}
	}
}

// TestResetAfterTheLastBytes checks that a reset right after the last bytes ends the tunnel.
func TestResetAfterTheLastBytes(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	to := accepting(t, func(c *net.TCPConn) {
		const last = "the last"
		if got, _ := io.ReadAll(io.LimitReader(c, int64(len(last)))); string(got) == last { // this is not the fetch of robots.txt
			io.Copy(io.Discard, c)
			close(ended)
		}
	})
	r := passThroughRig(t)
	c, _ := r.plainTunnel(to)
	testkit.Must(t, c.(*net.TCPConn).SetLinger(0))
	_, err := io.WriteString(c, "the last")
	testkit.Must(t, err)
	testkit.Must(t, c.Close())
	<-ended
}
