package confine

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestJoinPassesAReset checks that a client inside does not take a response for complete if the service outside has broken
// it off.
func TestJoinPassesAReset(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    func(*net.TCPConn) error
		broken bool
	}{
		{"closed", (*net.TCPConn).Close, false},
		{"reset", func(c *net.TCPConn) error { c.SetLinger(0); return c.Close() }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			service, port := listenOnLoopback(t)
			inside, _ := listenOnLoopback(t)
			client, err := net.Dial("tcp", inside.Addr().String())
			testkit.Must(t, err)
			defer client.Close()
			c, err := inside.Accept()
			testkit.Must(t, err)
			joined := make(chan struct{})
			go func() {
				defer close(joined)
				join(t.Context(), c.(*net.TCPConn), port)
			}()
			s, err := service.Accept()
			testkit.Must(t, err)
			io.WriteString(s, "half")
			first := make([]byte, 4)
			_, err = io.ReadFull(client, first)
			testkit.Must(t, err)
			testkit.Must(t, tt.end(s.(*net.TCPConn)))
			if _, err := client.Read(first); (err != io.EOF) != tt.broken {
				t.Errorf("the client sees %v", err)
			}
			client.Close()
			<-joined
		})
	}
}

func listenOnLoopback(t *testing.T) (net.Listener, uint16) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l, netip.MustParseAddrPort(l.Addr().String()).Port()
}
