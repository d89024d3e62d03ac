package bolt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/robots/testkit"
)

// wantStops checks what a new Store finds in a file.
func wantStops(t *testing.T, file string, want map[string]string) {
	t.Helper()
	s := open(t, file, t.Output())
	defer s.Close()
	got := map[string]string{}
	for key, text := range s.Stops() {
		got[key] = string(text)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStopsAreKept from one process to the next as soon as SyncStops has returned, without an orderly end.
func TestStopsAreKept(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	save := func(texts map[string][]byte) {
		t.Helper()
		if !s.SaveStops(texts) {
			t.Fatal("no room")
		}
		testkit.Must(t, s.SyncStops(t.Context()))
	}
	testkit.Must(t, s.SyncStops(t.Context()))
	save(map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": {}})
	save(map[string][]byte{"a": nil, "b": []byte("3"), "none": nil})
	// As in a crash, nothing more is written.
	crashed, err := os.ReadFile(file)
	testkit.Must(t, errors.Join(err, os.WriteFile(file+".crashed", crashed, 0o600)))
	stop()
	testkit.Must(t, <-ended)
	s.Close()
	for _, f := range []string{file, file + ".crashed"} {
		wantStops(t, f, map[string]string{"b": "3", "c": ""})
	}
}

// TestStopsOfAnEarlierVersion: a file without them is opened, and gets them.
func TestStopsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	fill(t, s, 1)
	testkit.Must(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(stopsBucket) }))
	s.Close()
	s = open(t, file, t.Output())
	want(t, s, 0, text(0))
	if s.Stops() != nil || !s.SaveStops(map[string][]byte{"a": []byte("1")}) {
		t.Errorf("%q", s.Stops())
	}
	s.Close()
	wantStops(t, file, map[string]string{"a": "1"})
}

// TestStopsWhileTheDiskFails: the last change of each waits, SyncStops does not say that the disk has them, and there is a bound.
func TestStopsWhileTheDiskFails(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	s.SaveStops(map[string][]byte{"a": []byte("1"), "b": []byte("1")})
	// A commit is under way, and fails in the end.
	s.writing, s.pending = s.pending, newBatch()
	s.SaveStops(map[string][]byte{"a": nil})
	s.finishCommit(io.ErrShortWrite)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.SyncStops(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	many := map[string][]byte{}
	for i := range maxStops - 2 {
		many[fmt.Sprint(i)] = []byte("x")
	}
	if !s.SaveStops(many) || s.SaveStops(map[string][]byte{"more": nil}) {
		t.Error("the bound is another one")
	}
	s.Close()
	again := open(t, file, t.Output())
	defer again.Close()
	if all := again.Stops(); len(all) != maxStops-1 || all["a"] != nil || string(all["b"]) != "1" {
		t.Errorf("%d stops", len(all))
	}
}

// TestDamagedStop: a file in which the disk has changed a stop is set aside, as for other damage.
func TestDamagedStop(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	s.SaveStops(map[string][]byte{"a": []byte("1")})
	mustDo(t, s.commit(t.Context(), false))
	testkit.Must(t, s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(stopsBucket)
		value := slices.Clone(b.Get([]byte("a")))
		value[seal.Bytes]++
		return b.Put([]byte("a"), value)
	}))
	s.Close()
	wantStops(t, file, map[string]string{})
	if n := len(damaged(t, file)); n != 1 {
		t.Errorf("%d files were set aside", n)
	}
}
