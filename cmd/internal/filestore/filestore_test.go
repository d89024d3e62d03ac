package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/policy/osfile"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/cache/storetest"
	"robotsproxy/robots/testkit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writeForever); dir != "" {
		saveForever(dir)
	}
	testkit.SetParallel()
	goleak.VerifyTestMain(m)
}

const kind = "robots"

func site(i int) cache.StoreKey {
	return cache.StoreKey{Origin: robots.Origin{Scheme: "http", Host: fmt.Sprintf("h%d.test", i), Port: 80}, Agent: "robotsproxy"}
}

// path returns the path of the entry of site i in a directory.
func path(dir string, i int) string { return filepath.Join(dir, pathOf(part{kind: kind}.key(site(i)))) }

func newDir(t testing.TB) string { return filepath.Join(t.TempDir(), "robots") }

func newStore(t testing.TB, dir string) *Store {
	return New(dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// started is a Store that runs until the test ends.
func started(t testing.TB, dir string) *Store {
	s := newStore(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		s.Close()
	})
	return s
}

// save saves entries for an hour, and waits until they are written.
func save(s *Store, entry []byte, sites ...int) {
	for _, i := range sites {
		s.Of(kind).Save(site(i), entry, time.Now().Add(time.Hour), "someone")
	}
	s.Close()
}

// want checks what another process finds.
func want(t testing.TB, dir string, i int, entry string) {
	t.Helper()
	if got, err := newStore(t, dir).Of(kind).Load(t.Context(), site(i)); err != nil || string(got) != entry {
		t.Errorf("site %d: %.40q, %v; want %q", i, got, err, entry)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	t.Run("pending", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) cache.Store { return newStore(t, newDir(t)).Of(kind) })
	})
	t.Run("running", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) cache.Store { return started(t, newDir(t)).Of(kind) })
	})
	t.Run("on the disk", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) cache.Store {
			s := newStore(t, newDir(t))
			return &written{Store: s.Of(kind), close: s.Close}
		})
	})
}

// written is a Store whose entries are on the disk at once.
type written struct {
	cache.Store
	close func()
	mu    sync.Mutex
}

func (w *written) Save(k cache.StoreKey, entry []byte, until time.Time, client string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Store.Save(k, entry, until, client)
	w.close()
}

// TestKindsAreKeptApart: the robots.txt and the tdmrep.json of an origin have entries of their own.
func TestKindsAreKeptApart(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	s := newStore(t, dir)
	s.Of("robots").Save(site(1), []byte("rules"), time.Now().Add(time.Hour), "")
	s.Of("tdmrep").Save(site(1), []byte("terms"), time.Now().Add(time.Hour), "")
	s.Close()
	for kind, entry := range map[string]string{"robots": "rules", "tdmrep": "terms", "other": ""} {
		if got, err := newStore(t, dir).Of(kind).Load(t.Context(), site(1)); err != nil || string(got) != entry {
			t.Errorf("%s: %q, %v; want %q", kind, got, err, entry)
		}
	}
}

func TestOnlyTheOwnerHasAccess(t *testing.T) {
	t.Parallel()
	if !osfile.HasModes {
		t.Skip("no modes here")
	}
	dir := newDir(t)
	save(newStore(t, dir), []byte("x"), 1, 2, 3)
	files := 0
	testkit.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		testkit.Must(t, err)
		info, err := d.Info()
		testkit.Must(t, err)
		mode := fs.FileMode(0o600)
		if d.IsDir() {
			mode = 0o700
		} else {
			files++
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%s has the mode %04o", path, info.Mode().Perm())
		}
		return nil
	}))
	if files != 3 {
		t.Errorf("%d files", files)
	}
}

// TestDamagedFiles: a file that is not the entry as it was written counts as none. It is removed, and replaced by the next
// entry.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	testkit.Must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	put := func(change func(whole []byte) []byte) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			whole, err := os.ReadFile(file)
			testkit.Must(t, err)
			testkit.Must(t, os.WriteFile(file, change(whole), 0o600))
		}
	}
	link := func(to string) func(t *testing.T, file string) {
		return func(t *testing.T, file string) { testkit.Must(t, errors.Join(os.Remove(file), os.Symlink(to, file))) }
	}
	for name, damage := range map[string]func(t *testing.T, file string){
		"nothing in it": put(func([]byte) []byte { return nil }),
		"half of it":    put(func(b []byte) []byte { return b[:len(b)/2] }),
		"a flipped bit": put(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		"more behind":   put(func(b []byte) []byte { return append(b, 0) }),
		"very long":     put(func(b []byte) []byte { return append(b, make([]byte, 2*cache.MaxSaved)...) }),
		"the entry of another site": func(t *testing.T, file string) {
			testkit.Must(t, os.Rename(path(filepath.Dir(filepath.Dir(file)), 2), file))
		},
		"a link out of the directory": link(outside),
		"a link to another entry":     func(t *testing.T, file string) { link(path(filepath.Dir(filepath.Dir(file)), 2))(t, file) },
		"a FIFO":                      func(t *testing.T, file string) { testkit.Must(t, os.Remove(file)); testkit.Fifo(t, file) },
		"a directory":                 func(t *testing.T, file string) { testkit.Must(t, errors.Join(os.Remove(file), os.Mkdir(file, 0o700))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			save(newStore(t, dir), []byte("entry"), 1, 2)
			damage(t, path(dir, 1))
			want(t, dir, 1, "")
			if _, err := os.Lstat(path(dir, 1)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
			save(newStore(t, dir), []byte("next"), 1)
			want(t, dir, 1, "next")
		})
	}
	if text, err := os.ReadFile(outside); string(text) != "secret" {
		t.Errorf("the file outside has %q, %v", text, err)
	}
}

// TestPlacesThatCannotBeUsed: nothing is written through a link in place of a directory, and a failure is logged once.
func TestPlacesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, dir, elsewhere string){
		"a link":             func(t *testing.T, dir, elsewhere string) { testkit.Must(t, os.Symlink(elsewhere, dir)) },
		"a file":             func(t *testing.T, dir, _ string) { testkit.Must(t, os.WriteFile(dir, nil, 0o600)) },
		"no directory above": func(t *testing.T, dir, _ string) { testkit.Must(t, os.Remove(filepath.Dir(dir))) },
		"a link as a subdirectory": func(t *testing.T, dir, to string) {
			everySubdirectory(t, dir, func(d string) error { return os.Symlink(to, d) })
		},
		"files as a subdirectories": func(t *testing.T, dir, _ string) {
			everySubdirectory(t, dir, func(d string) error { return os.WriteFile(d, nil, 0o600) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := newDir(t), t.TempDir()
			spoil(t, dir, elsewhere)
			var log bytes.Buffer
			s := New(dir, slog.New(slog.NewTextHandler(&log, nil)))
			save(s, []byte("entry"), 1, 2, 3)
			for i := range 4 {
				if got, _ := s.Of(kind).Load(t.Context(), site(i)); got != nil {
					t.Errorf("site %d: %q", i, got)
				}
			}
			if n := strings.Count(log.String(), "fetched file not kept"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, &log)
			}
			if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
				t.Errorf("elsewhere there are %v, %v", left, err)
			}
		})
	}
}

func everySubdirectory(t *testing.T, dir string, make func(string) error) {
	testkit.Must(t, os.Mkdir(dir, 0o700))
	for b := range subdirectories {
		testkit.Must(t, make(filepath.Join(dir, subdirectory(byte(b)))))
	}
}

// TestHangingDisk: while the disk hangs, nobody waits for it.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := started(t, newDir(t))
		ends, began := make(chan struct{}), time.Now()
		hang := func() (seal.Value, error) {
			<-ends
			return seal.New("", []byte("late"), time.Now().Add(time.Hour)), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v, err := s.read(ctx, hang); v != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("read returned %q, %v after %v", v, err, time.Since(began))
		}
		time.Sleep(osfile.MaxWrite)
		began = time.Now()
		for i := range 100 {
			s.Of(kind).Save(site(i), make([]byte, 1000), time.Now().Add(time.Hour), "")
		}
		if _, err := s.Of(kind).Load(t.Context(), site(1000)); !errors.Is(err, osfile.ErrHangs) {
			t.Errorf("Load fails with %v", err)
		}
		s.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
		close(ends)
		synctest.Wait()
	})
}

// TestQueueIsBounded: what does not fit into memory is dropped, and a newer entry replaces the one of the same key.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	s := newStore(t, newDir(t))
	large := make([]byte, 1<<20)
	for round := range 3 {
		for i := range 100 {
			large[0] = byte(round)
			s.Of(kind).Save(site(i), large, time.Now().Add(time.Hour), "")
		}
	}
	if s.bytes > maxPending || s.bytes < maxPending-len(large)-100 || len(s.pending) < 15 {
		t.Errorf("%d bytes in %d entries are pending", s.bytes, len(s.pending))
	}
	if got, _ := s.Of(kind).Load(t.Context(), site(1)); len(got) != len(large) || got[0] != 2 {
		t.Errorf("the pending entry has %d bytes", len(got))
	}
	s.Close()
	if s.bytes != 0 || len(s.pending) != 0 {
		t.Errorf("%d bytes in %d entries are pending at the end", s.bytes, len(s.pending))
	}
}

// FuzzRead: whatever a file has, Load returns the entry as it was sealed, or none.
func FuzzRead(f *testing.F) {
	key := part{kind: kind}.key(site(1))
	whole := seal.New(key, []byte("entry"), time.Now().Add(time.Hour))
	for _, seed := range [][]byte{nil, whole, whole[:seal.Bytes], whole[:len(whole)-1], append(whole[:len(whole):len(whole)], 0)} {
		f.Add(seed)
	}
	dir := newDir(f)
	file := path(dir, 1)
	testkit.Must(f, os.MkdirAll(filepath.Dir(file), 0o700))
	s := newStore(f, dir)
	f.Fuzz(func(t *testing.T, text []byte) {
		testkit.Must(t, os.WriteFile(file, text, 0o600))
		got, err := s.Of(kind).Load(t.Context(), site(1))
		if err != nil || got != nil && !bytes.HasSuffix(text, got) {
			t.Fatalf("%q, %v", got, err)
		}
		switch _, err := os.Lstat(file); {
		case seal.Value(text).IsWhole(key):
			if err != nil || got == nil && seal.Value(text).Until() > time.Now().Unix() {
				t.Errorf("a whole file is gone or not read: %q, %v", got, err)
			}
		case got != nil || !errors.Is(err, fs.ErrNotExist):
			t.Errorf("a damaged file: read %q, then %v", got, err)
		}
	})
}
