package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestStats(t *testing.T) {
	s := open(t, Options{MaxSize: 1 << 20})
	a := answer("a.test", text, 1)
	keep(t, s, a, a, answer("b.test", text, 2))
	if got, want := s.Stats(), (Stats{Bytes: space(t, s.o.Dir), MaxBytes: 1 << 20, Saved: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestStatsOfFailures(t *testing.T) {
	s := open(t, Options{})
	damaged := answer("a.test", text, 1)
	damaged.Body = []byte("other")
	if s.Save(damaged, "someone") == nil {
		t.Error("bytes of another hash were kept")
	}
	if got := s.Stats(); got.SaveFailed != 1 || got.Saved != 0 {
		t.Errorf("%+v", got)
	}
	if err := os.RemoveAll(s.o.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(s.o.Dir)+"/x", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Dir(s.o.Dir)+"/x", s.o.Dir); err != nil { // a file in the directory's place
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	s.Run(ended) // which prunes once
	s.disk.addPending(filepath.Join(s.o.Dir, "a"))
	if s.Flush() == nil {
		t.Error("the disk has what it cannot have")
	}
	if got := s.Stats(); got.PruneFailed != 1 || got.SyncFailed != 1 {
		t.Errorf("%+v", got)
	}
}
