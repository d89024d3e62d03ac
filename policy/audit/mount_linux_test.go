package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mount mounts a small file system of its own, which needs root.
func mount(t *testing.T, dir, options string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "size=64k")
	l := open(t, Options{File: filepath.Join(dir, "audit.jsonl")})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	written := 0
	for l.Write(refused()) == nil {
		if written++; written > 1000 {
			t.Fatal("the disk does not become full")
		}
	}
	if !errors.Is(l.Err(), unix.ENOSPC) || l.writtenBytes == 0 {
		t.Errorf("%v with %d bytes of a line written", l.Err(), l.writtenBytes)
	}
	l.probe(true)
	if l.Err() == nil {
		t.Error("a probe says that all is well")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	l.probe(true)
	if err := l.Write(refused()); err != nil {
		t.Fatal(err)
	}
	close(t, l)
	if got := len(chained(t, l.opened.File)); got != written+2 {
		t.Errorf("%d lines, want %d: each that was answered, the torn one and the last", got, written+2)
	}
}

func TestReadOnlyFileSystem(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "size=1m")
	l := open(t, Options{File: filepath.Join(dir, "audit.jsonl")})
	l.Write(refused())
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	mount(t, dir, "size=1m,ro")
	if err := l.Write(refused()); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v", err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	l.probe(true)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(chained(t, l.opened.File), " "); got != "block replaced" {
		t.Errorf("got %q", got)
	}
}
