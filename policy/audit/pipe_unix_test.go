//go:build unix

package audit

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/policy/osfile"
	"robotsproxy/robots/testkit"
)

func TestNamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "audit")
	testkit.Fifo(t, pipe)
	if _, err := Open(Options{File: pipe, FIFO: true, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, unix.ENXIO) {
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
	l := open(t, Options{File: pipe, FIFO: true})
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

func TestIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, link, regular := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "regular")
	testkit.Fifo(t, pipe)
	testkit.Must(t, os.Symlink(os.DevNull, link))
	testkit.Must(t, os.WriteFile(regular, nil, 0o600))
	for _, c := range []struct {
		file string
		fifo bool
		want error
	}{
		{link, false, errIrregular}, {pipe, false, errIrregular}, {dir, false, errIrregular}, {os.DevNull, false, errIrregular},
		{regular, true, errNoFIFO}, {link, true, errNoFIFO}, {filepath.Join(dir, "missing"), true, errNoFIFO},
	} {
		if _, err := Open(Options{File: c.file, FIFO: c.fifo, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, c.want) {
			t.Errorf("%s, fifo %v: %v", c.file, c.fifo, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
}

// TestFileThatHangs checks that a write that does not return counts as failed, until it returns.
func TestFileThatHangs(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "audit")
	testkit.Fifo(t, pipe)
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	testkit.Must(t, err)
	defer reader.Close()
	l := open(t, Options{File: pipe, FIFO: true})
	const writers = 3
	failures := make(chan error, writers)
	for range writers {
		go func() {
			for {
				if err := l.Write(refused()); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	for range writers - 1 { // the last one waits for the system
		if err := <-failures; !errors.Is(err, ErrUnwritable) || !errors.Is(err, osfile.ErrHangs) {
			t.Errorf("a refusal that waits for the file: %v", err)
		}
	}
	if err := l.Refusal(); !errors.Is(err, osfile.ErrHangs) {
		t.Errorf("what follows is not refused: %v", err)
	}
	if err := l.Close(); !errors.Is(err, osfile.ErrHangs) {
		t.Errorf("closed: %v", err)
	}
	go io.Copy(io.Discard, reader)
	testkit.Eventually(t, "the file can be written again", func() bool { return l.Refusal() == nil })
	testkit.Must(t, reader.Close())
	<-failures
}
