package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecondWriterIsRefused(t *testing.T) {
	for name, before := range map[string]func(l *Log) error{
		"as it is":         func(*Log) error { return nil },
		"the lock removed": func(l *Log) error { return os.Remove(l.opened.File + lockName) },
		"another file by then": func(l *Log) error {
			l.SetOptions(Options{MaxSize: 1})
			return errors.Join(l.Write(refused()), l.Write(refused()), os.Remove(l.opened.File+lockName))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, Options{})
			if err := before(l); err != nil {
				t.Fatal(err)
			}
			_, err := Open(Options{File: l.opened.File, Log: l.opened.Log})
			if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), l.opened.File) {
				t.Errorf("got %v", err)
			}
			close(t, l)
			close(t, open(t, Options{File: l.opened.File}))
		})
	}
}

func TestFileOfAnotherIsLeftToIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := open(t, Options{File: filepath.Join(dir, "audit.jsonl")})
	l.Write(refused())
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	other := open(t, Options{File: l.opened.File})
	other.Write(refused())
	if err := l.Write(refused()); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	if err := other.Write(allowed()); err != nil {
		t.Error(err)
	}
	close(t, other)
	if got := strings.Join(chained(t, l.opened.File), " "); got != "block allow" {
		t.Errorf("the other's file was not left alone: %q", got)
	}
}
