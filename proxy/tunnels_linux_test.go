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

// TestManyTunnels checks that 1,000 passed-through tunnels work at the same time, and that an idle
// tunnel uses two file descriptors and little memory.
func TestManyTunnels(t *testing.T) {
	testkit.Long(t, "volume")
	const (
		each   = 4 // file descriptors: two of the tunnel, one each of its client and origin
		beside = 200
		most   = 48 << 10 // bytes per tunnel, including net/http, all stacks, and the peers
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
	for range 2 { // the second time, all tunnels have been idle
		alive(t, conns)
	}
	if got := openFiles(t) - files; got > each*n+beside {
		t.Errorf("%d idle tunnels have %d files open, want %d each", n, got, each)
	}
	if got := (inUse() - held) / n; got > most {
		t.Errorf("an idle tunnel uses %d bytes, want at most %d", got, most)
	} else {
		t.Logf("%d idle tunnels of %d bytes each", n, got)
	}
}

// alive sends a byte through each tunnel and back.
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

// inUse returns the size of the heap and the stacks.
func inUse() int {
	for range 2 { // the second run frees what pools hold
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
