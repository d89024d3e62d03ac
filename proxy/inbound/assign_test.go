package inbound

import (
	"log/slog"
	"regexp"
	"runtime"
	"testing"
)

var blockedInMove = regexp.MustCompile(`\[sync\.Mutex\.Lock.*\]:\n(?:.+\n)*?.*\(\*clientConns\)\.move\(`)

// TestCountForTwice checks that a connection counts once against its client's limit, although two of its requests name the
// client at once, as with HTTP/2.
func TestCountForTwice(t *testing.T) {
	const requests = 2
	s := New(Options{Log: slog.New(slog.DiscardHandler), Rules: func() Rules { return Rules{MaxConnsPerClient: 1} }})
	all := &s.conns
	c := &Conn{server: s}
	c.place.share = "127.0.0.1"
	all.open(&c.place)
	admitted := make(chan bool)
	all.mu.Lock()
	for range requests {
		go func() { admitted <- c.CountFor("crawler") }()
	}
	for stacks := make([]byte, 1<<20); len(blockedInMove.FindAll(stacks[:runtime.Stack(stacks, true)], -1)) < requests; {
		runtime.Gosched()
	}
	all.mu.Unlock()
	for range requests {
		if !<-admitted {
			t.Error("a request of the client's only connection was refused")
		}
	}
	if n := all.of["crawler"]; n != 1 || len(all.of) != 1 {
		t.Errorf("counted as %v", all.of)
	}
}
