//go:build !race

package proxy_test

import (
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// TestManyTunnels: 1,000 tunnels that are passed through are alive at once, and
// while nothing moves in them each holds two descriptors and little memory.
func TestManyTunnels(t *testing.T) {
	testkit.Long(t, "volume")
	const (
		each   = 4 // descriptors: two of the tunnel, one of its client, one of its origin
		beside = 200
		most   = 48 << 10 // bytes a tunnel, with what net/http keeps for it, all stacks, and its peers
	)
	var limit syscall.Rlimit
	testkit.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	n := int(min(1000, (limit.Cur-beside)/each))
	if n < 100 {
		t.Skipf("only %d files may be open", limit.Cur)
	}
	r := passThroughRig(t)
	to := accepting(t, func(c *net.TCPConn) {
		io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64)) // without a pipe
	})
	files, held := openFiles(t), inUse()
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i], _ = r.plainTunnel(to)
		testkit.Must(t, conns[i].SetDeadline(time.Time{}))
	}
	for range 2 { // the second time all of them have been at rest
		alive(t, conns)
	}
	if got := openFiles(t) - files; got > each*n+beside {
		t.Errorf("%d tunnels at rest have %d files open, want %d for each", n, got, each)
	}
	if got := (inUse() - held) / n; got > most {
		t.Errorf("a tunnel at rest holds %d bytes, want at most %d", got, most)
	} else {
		t.Logf("%d tunnels at rest, of %d bytes each", n, got)
	}
}

// alive sends a byte through each and has it back.
func alive(t *testing.T, conns []net.Conn) {
	t.Helper()
	for _, c := range conns {
		_, err := c.Write([]byte{'.'})
		testkit.Must(t, err)
	}
	for _, c := range conns {
		_, err := c.Read(make([]byte, 1))
		testkit.Must(t, err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	return len(open)
}

// inUse is what the heap and the stacks hold.
func inUse() int {
	for range 2 { // what pools hold goes with the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
