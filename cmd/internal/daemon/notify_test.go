package daemon

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A manager is systemd's side of sd_notify(3).
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return &manager{t, conn}
}

// next returns the next notification, line by line.
func (m *manager) next() []string {
	m.t.Helper()
	var b [4096]byte
	m.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := m.conn.Read(b[:])
	if err != nil {
		m.t.Fatalf("what is waited for is not told: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(b[:n]), "\n"), "\n")
}

// TestNotify: ready, a reload that is refused, one that is taken, the end. The file is
// watched besides: there may be a reload more of each.
func TestNotify(t *testing.T) {
	m := newManager(t)
	want := func(prefixes ...string) {
		t.Helper()
		fits := func(got []string) bool {
			for i, p := range prefixes {
				if len(got) != len(prefixes) || !strings.HasPrefix(got[i], p) {
					return false
				}
			}
			return true
		}
		for !fits(m.next()) {
		}
	}
	s := stand(t, nil)
	serving := "STATUS=serving on " + s.daemon.Addr()
	want("READY=1", serving)
	if err := s.reload(keys{"pace.burst": 0}); err == nil {
		t.Error("it is taken")
	}
	want("RELOADING=1", "MONOTONIC_USEC=")
	want("READY=1", serving+"; the last reload was rejected: "+s.file+":1: pace.burst: ")
	if err := s.reload(keys{"listen": "127.0.0.1:1", "log.format": "json"}); err != nil {
		t.Error(err)
	}
	want("RELOADING=1", "MONOTONIC_USEC=")
	want("READY=1", serving+"; need a restart: listen, log.format")
	if err := s.reload(keys{"mode": "monitor"}); err != nil {
		t.Error(err)
	}
	want("RELOADING=1", "MONOTONIC_USEC=")
	want("READY=1", serving)
	s.stop()
	want("STOPPING=1", "STATUS=shutting down, waiting for requests in flight")
}

// TestNotifyIsOfOneLine: what a message quotes tells systemd nothing.
func TestNotifyIsOfOneLine(t *testing.T) {
	m := newManager(t)
	notifyReady("a stranger's\nWATCHDOG=1")
	if got := m.next(); len(got) != 2 || got[1] != `STATUS=a stranger's\nWATCHDOG=1` {
		t.Errorf("told %q", got)
	}
}

// TestWatchdog: it hears of a process that is well, and not of one that is not.
func TestWatchdog(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- notifyWatchdog(ctx) }()
	for range 3 {
		if got := m.next(); got[0] != "WATCHDOG=1" {
			t.Errorf("told %q", got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNobodyToNotify: nothing happens without NOTIFY_SOCKET.
func TestNobodyToNotify(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "1")
	notifyReady("x")
	notifyReloading()
	notifyStopping()
	if err := notifyWatchdog(t.Context()); err != nil {
		t.Error(err)
	}
}
