package osfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// open opens a new file with some text for appending.
func open(t *testing.T) *os.File {
	t.Helper()
	f, err := OpenFile(filepath.Join(t.TempDir(), "file"), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLocks(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second func(*os.File) error
		want          error
	}{
		{"exclusive beside exclusive", Lock, TryLock, ErrLocked},
		{"exclusive beside shared", TryRLock, TryLock, ErrLocked},
		{"shared beside exclusive", TryLock, TryRLock, ErrLocked},
		{"shared beside shared", TryRLock, TryRLock, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t)
			other, err := Open(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if err := c.first(f); err != nil {
				t.Fatal(err)
			}
			if err := c.second(other); !errors.Is(err, c.want) {
				t.Errorf("the second handle got %v, want %v", err, c.want)
			}
			if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "text" {
				t.Errorf("the locked file reads as %q, %v", text, err)
			}
			f.Close()
			if err := TryLock(other); err != nil {
				t.Errorf("after the first handle was closed: %v", err)
			}
		})
	}
}

func TestOpenFilesAreRenamedAndRemoved(t *testing.T) {
	f := open(t)
	old, renamed := f.Name(), f.Name()+".1"
	reader, err := Open(old)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if size, ok := Named(f, old); size != 4 || !ok {
		t.Errorf("before the renaming: size %d, %v", size, ok)
	}
	if err := os.Rename(old, renamed); err != nil {
		t.Fatal(err)
	}
	if _, ok := Named(f, old); ok {
		t.Error("a renamed file has its old name")
	}
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := Named(f, old); ok {
		t.Error("another file is taken for the renamed one")
	}
	if _, ok := Named(f, renamed); !ok {
		t.Error("a renamed file does not have its new name")
	}
	if err := os.Remove(renamed); err != nil {
		t.Error(err)
	}
}

func TestTruncate(t *testing.T) {
	f := open(t)
	if err := Truncate(f, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("!"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "te!" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestSync(t *testing.T) {
	f := open(t)
	if err := errors.Join(Sync(f.Name()), Sync(filepath.Dir(f.Name()))); err != nil {
		t.Error(err)
	}
	if err := Sync(f.Name() + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestFree(t *testing.T) {
	if n, err := Free(t.TempDir()); n <= 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := Free(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}

// TestRewrite: a file keeps its mode and its time, a link stays, and what a crash has left of the one before goes.
func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	file, link, left := filepath.Join(dir, "real", "a"), filepath.Join(dir, "a"), filepath.Join(dir, "real", ".a-17")
	testkit.Must(t, os.Mkdir(filepath.Dir(file), 0o700))
	testkit.Must(t, os.WriteFile(file, []byte("before"), 0o640))
	other := filepath.Join(dir, "real", ".a-17-of-somebody")
	testkit.Must(t, os.WriteFile(left, nil, 0o600))
	testkit.Must(t, os.WriteFile(other, nil, 0o600))
	then := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	testkit.Must(t, os.Chtimes(file, then, then))
	if err := os.Symlink(file, link); err != nil {
		// Windows lets only some users make links.
		link = file
	}
	change := func(in *os.File, size int64, out io.Writer) error {
		text, err := io.ReadAll(in)
		if err == nil && size == int64(len("before")) {
			_, err = fmt.Fprintf(out, "after %s", text)
		}
		return err
	}
	failed := errors.New("no")
	for _, want := range []string{"before", "after before"} {
		err := Rewrite(link, func(in *os.File, size int64, out io.Writer) error {
			return errors.Join(change(in, size, out), failed)
		})
		text, _ := os.ReadFile(file)
		info, statErr := os.Lstat(link)
		if !errors.Is(err, failed) || string(text) != want || statErr != nil || link != file && info.Mode().IsRegular() {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
		failed = nil
	}
	info, err := os.Stat(file)
	testkit.Must(t, err)
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); err == nil || !info.ModTime().Equal(then) || HasModes && info.Mode() != 0o640 {
		t.Errorf("%v, %v, %v", info.Mode(), info.ModTime(), err)
	}
}
