package proxy

import (
	"regexp"
	"runtime"
	"testing"
)

var blockedInAssign = regexp.MustCompile(`\[sync\.Mutex\.Lock.*\]:\n(?:.+\n)*?.*\(\*clientConn\)\.assign\(`)

// TestAssignTwice checks that a connection counts once against its client's limit, although two of its requests name the
// client at once, as with HTTP/2.
func TestAssignTwice(t *testing.T) {
	const requests = 2
	h := &Handler{}
	h.rules.install(Rules{MaxConnsPerClient: 1}, 1)
	address := "127.0.0.1"
	l := &listener{h: h, open: map[string]int{address: 1}}
	c := &clientConn{listener: l}
	c.client.Store(&address)
	admitted := make(chan bool)
	l.mu.Lock()
	for range requests {
		go func() { admitted <- c.assign("crawler") }()
	}
	for stacks := make([]byte, 1<<20); len(blockedInAssign.FindAll(stacks[:runtime.Stack(stacks, true)], -1)) < requests; {
		runtime.Gosched()
	}
	l.mu.Unlock()
	for range requests {
		if !<-admitted {
			t.Error("a request of the client's only connection was refused")
		}
	}
	if n := l.open["crawler"]; n != 1 || len(l.open) != 1 {
		t.Errorf("counted as %v", l.open)
	}
}
