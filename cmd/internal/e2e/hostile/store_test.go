package hostile

import (
	"errors"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A lie is what a broken or hostile Redis server sends instead of its replies: a beginning, and then
// the same text without an end.
type lie struct{ begin, rest string }

var lies = map[string]lie{
	"a bulk string of gigabytes":   {"$4000000000\r\n", strings.Repeat("x", 64<<10)},
	"a length of exabytes":         {"$9000000000000000000\r\n", strings.Repeat("x", 64<<10)},
	"a line without an end":        {"+", strings.Repeat("x", 64<<10)},
	"an error without an end":      {"-ERR ", strings.Repeat("x", 64<<10)},
	"an array of many elements":    {"*300000000\r\n", strings.Repeat(":1\r\n", 16<<10)},
	"a map of many elements":       {"%300000000\r\n", strings.Repeat("+x\r\n", 16<<10)},
	"arrays in arrays":             {"", strings.Repeat("*1\r\n", 16<<10)},
	"long arrays in arrays":        {"", strings.Repeat("*1000000\r\n", 4<<10)},
	"messages that nobody ordered": {"", strings.Repeat(">3\r\n+message\r\n+x\r\n$1000\r\n"+strings.Repeat("x", 1000)+"\r\n", 64)},
}

// A lyingStore is a server in front of a real one. It passes everything on until it lies.
type lyingStore struct {
	net.Listener
	asked atomic.Int64  // connections
	told  atomic.Int64  // lies
	mu    sync.Mutex    // guards lie and began
	lie   *lie          // nil: it does not lie
	began chan struct{} // closed when lie is set
}

func newLyingStore(t testing.TB) *lyingStore {
	t.Helper()
	// Its keys do not expire: with ClockTTL, each command walks through all keys, and a push of
	// hundreds of hosts takes more than the second that a replica waits.
	real := miniredis.RunT(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &lyingStore{Listener: l, began: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Log(err)
				continue
			}
			s.asked.Add(1)
			all.Go(func() { s.serve(c, real.Addr()) })
		}
	})
	t.Cleanup(func() {
		s.set(nil)
		l.Close()
		real.Close()
		all.Wait()
		if t.Failed() {
			t.Logf("the store had %d connections, and told %d lies", s.asked.Load(), s.told.Load())
		}
	})
	return s
}

// set makes the store lie, or tell the truth on connections that begin later.
func (s *lyingStore) set(l *lie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lie == nil && l != nil {
		close(s.began)
	}
	if s.lie != nil && l == nil {
		s.began = make(chan struct{})
	}
	s.lie = l
}

func (s *lyingStore) lying() (*lie, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lie, s.began
}

// serve passes a connection on, and then lies until the client leaves.
func (s *lyingStore) serve(c net.Conn, addr string) {
	defer c.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		log.Print(err)
		return
	}
	defer to.Close()
	_, began := s.lying()
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(to, c)
		to.Close()
	})
	both.Go(func() { io.Copy(c, to) })
	gone := make(chan struct{})
	go func() { both.Wait(); close(gone) }()
	select {
	case <-gone:
		return
	case <-began:
	}
	if l, _ := s.lying(); l != nil {
		s.told.Add(1)
		to.Close() // so that nothing comes between
		_, err := io.WriteString(c, l.begin)
		for err == nil {
			_, err = io.WriteString(c, l.rest)
		}
	}
	c.Close()
	<-gone
}

// A Redis server that sends much more than it was asked for does not fill the memory: the replica
// paces alone, and shares the pace again when the server tells the truth.
func TestLyingStore(t *testing.T) {
	testkit.Long(t, "real clock")
	s := newLyingStore(t)
	a := newArena(t, e2e.Settings{"store.redis": "redis://" + s.Addr().String(), "store.replicas": 1, "limits.memory": "64MiB"}, 1)
	shares := func() bool { return a.Metrics(t)["robotsproxy_store_up"] == 1 }
	for name, l := range lies {
		testkit.Eventually(t, "the replica shares before "+name, shares)
		s.set(&l)
		told := s.told.Load()
		testkit.Eventually(t, name+" is told to new connections too", func() bool { return s.told.Load() > told+8 })
		s.set(nil)
	}
	testkit.Eventually(t, "the replica shares", shares)
	a.honest.answered(t, a.asked)
	if peak := a.Memory(t, "VmHWM"); peak > 256<<20 {
		t.Errorf("the proxy took %d MiB of memory", peak>>20)
	}
	a.wantNoHarm(t)
}
