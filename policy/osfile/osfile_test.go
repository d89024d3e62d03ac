package osfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
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
