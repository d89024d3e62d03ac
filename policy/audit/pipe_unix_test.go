//go:build unix

package audit

import (
	"bufio"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "audit")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{File: pipe, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, unix.ENXIO) {
		t.Fatalf("opened, and nobody reads: %v", err)
	}
	reader := func() *os.File {
		r, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	read := func(r *os.File) string {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		return line
	}
	r := reader()
	l := open(t, Options{File: pipe})
	if err := l.Write(refused()); err != nil {
		t.Fatal(err)
	}
	if line := read(r); !strings.Contains(line, `"seq":1,`) {
		t.Errorf("got %q", line)
	}
	r.Close()
	if err := l.Write(refused()); !errors.Is(err, unix.EPIPE) {
		t.Errorf("nobody reads any more: %v", err)
	}
	r = reader()
	defer r.Close()
	l.probe(true)
	if line := read(r); l.Err() != nil || !strings.Contains(line, `"seq":2,`) {
		t.Errorf("%v, got %q", l.Err(), line)
	}
}
