//go:build unix

package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/robots/testkit"
)

// TestFailedFlushIsTriedAgain: what a flush has failed to wait for is tried again, however much was written meanwhile,
// and no more than maxPending paths are pending.
func TestFailedFlushIsTriedAgain(t *testing.T) {
	s := open(t, Options{})
	slow := filepath.Join(s.o.Dir, "slow") // a pipe: to open it takes until there is a writer, and then fsync fails
	testkit.Must(t, unix.Mkfifo(slow, 0o600))
	s.disk.pending = map[string]struct{}{slow: {}}
	flushed := make(chan error)
	go func() { flushed <- s.Flush() }()
	pending := func() int {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		return len(s.disk.pending)
	}
	testkit.Eventually(t, "the flush has begun", func() bool { return pending() == 0 })
	for n := range maxPending {
		s.disk.addPending(filepath.Join(s.o.Dir, fmt.Sprint("gone", n)))
	}
	writer, err := os.OpenFile(slow, os.O_WRONLY, 0)
	testkit.Must(t, err)
	defer writer.Close()
	if err := <-flushed; err == nil {
		t.Fatal("the flush has not failed")
	}
	if n := pending(); n > maxPending {
		t.Errorf("%d paths are pending", n)
	}
	if err := s.Flush(); err == nil {
		t.Error("what has failed was not tried again")
	}
}
