package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"robotsproxy/proxy"
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

// TestLastMessageOfAnUpgrade checks that the end of an upgraded connection reaches the client without a reset if the origin
// closes as RFC 6455 7.1.1 says, the sending half first, while the client is still sending.
func TestLastMessageOfAnUpgrade(t *testing.T) {
	t.Parallel()
	last := bytes.Repeat([]byte("last"), 1<<20)
	sending := make(chan struct{})
	origin := accepting(t, func(c *net.TCPConn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil || r.URL.Path != "/ws" {
			return // the fetch of robots.txt
		}
		io.WriteString(c, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		<-sending
		c.Write(last)
		c.CloseWrite()
		io.Copy(io.Discard, c)
	})
	r := start(t, setup{change: func(o *proxy.Options) { o.Monitor = true }})
	c, br := r.dial()
	fmt.Fprintf(c, "GET http://%s/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", origin)
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	testkit.Must(t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	c.Write(make([]byte, 64<<20)) // until all buffers are full
	close(sending)
	if got, err := io.ReadAll(br); err != nil || !bytes.Equal(got, last) {
		t.Errorf("%d bytes of %d arrived, %v", len(got), len(last), err)
	}
}
