package filestore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// neighbours returns n sites whose entries are in one subdirectory.
func neighbours(n int) (all []int) {
	for i := 0; len(all) < n; i++ {
		if filepath.Dir(path("", i)) == filepath.Dir(path("", 0)) {
			all = append(all, i)
		}
	}
	return all
}

// contents returns the names and the bytes of the files in the subdirectory of site 0.
func contents(t *testing.T, dir string) (names []string, total int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path(dir, 0)))
	testkit.Must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		testkit.Must(t, err)
		names = append(names, e.Name())
		total += info.Size()
	}
	return names, total
}

// age sets how long ago a file was written.
func age(t *testing.T, file string, d time.Duration) {
	t.Helper()
	then := time.Now().Add(-d)
	testkit.Must(t, os.Chtimes(file, then, then))
}

// TestLimits: beyond its limits, a subdirectory loses the oldest entries.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size, saved int
		kept        int // entries
	}{
		"files": {100, maxFiles + 20, maxFiles},
		"bytes": {300_000, 20, maxBytes / 300_012},
		"one":   {cache.MaxSaved, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			all := neighbours(c.saved)
			for n, i := range all {
				save(newStore(t, dir), bytes.Repeat([]byte{byte(n)}, c.size), i)
				age(t, path(dir, i), time.Duration(c.saved-n)*time.Second)
			}
			names, total := contents(t, dir)
			if len(names) != c.kept || len(names) > maxFiles || total > maxBytes {
				t.Errorf("%d files of %d bytes, want %d", len(names), total, c.kept)
			}
			for n, i := range all {
				entry := ""
				if n >= c.saved-c.kept {
					entry = strings.Repeat(string([]byte{byte(n)}), c.size)
				}
				want(t, dir, i, entry)
			}
		})
	}
}

// TestUselessFilesAreRemoved: a write removes what has expired and what another process has left half written.
func TestUselessFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	all := neighbours(4)
	save(newStore(t, dir), []byte("entry"), all[:3]...)
	sub := filepath.Dir(path(dir, all[0]))
	expired := seal.New(part{kind: kind}.key(site(all[1])), []byte("entry"), time.Now().Add(-time.Second))
	testkit.Must(t, os.WriteFile(path(dir, all[1]), expired, 0o600))
	age(t, path(dir, all[2]), -2*maxAhead)
	for name, old := range map[string]time.Duration{"new-a.tmp": 2 * tempKept, "new-b.tmp": tempKept / 2, "short": 0} {
		testkit.Must(t, os.WriteFile(filepath.Join(sub, name), []byte("half"), 0o600))
		age(t, filepath.Join(sub, name), old)
	}
	testkit.Must(t, os.Symlink(path(dir, all[0]), filepath.Join(sub, "link")))
	testkit.Must(t, os.Mkdir(filepath.Join(sub, "directory"), 0o700))
	save(newStore(t, dir), []byte("entry"), all[3])
	names, _ := contents(t, dir)
	kept := map[string]bool{filepath.Base(path(dir, all[0])): true, filepath.Base(path(dir, all[3])): true, "new-b.tmp": true}
	for _, name := range names {
		if !kept[name] {
			t.Errorf("%s is still there", name)
		}
	}
	if len(names) != len(kept) {
		t.Errorf("%d files are left: %v", len(names), names)
	}
}

// TestOtherSubdirectoriesAreTidied: expired files also go from subdirectories in which nothing is written.
func TestOtherSubdirectoriesAreTidied(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	s := newStore(t, dir)
	save(s, []byte("entry"), 0)
	expired := seal.New(part{kind: kind}.key(site(0)), []byte("entry"), time.Now().Add(-time.Second))
	testkit.Must(t, os.WriteFile(path(dir, 0), expired, 0o600))
	for i := 1; ; i++ {
		if filepath.Dir(path(dir, i)) == filepath.Dir(path(dir, 0)) {
			continue
		}
		save(s, []byte("entry"), i)
		if names, _ := contents(t, dir); len(names) == 0 {
			return
		}
		if i == 100*subdirectories { // the chance is 1 in 10^43
			t.Fatal("the expired file is still there")
		}
	}
}

// TestManyProcesses: several Stores write, read and tidy one directory at once; each entry that is read is whole.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	all := neighbours(maxFiles + 50)
	var done sync.WaitGroup
	for range 4 {
		s := started(t, dir)
		done.Go(func() {
			for range testkit.Rounds(300) {
				i := all[rand.IntN(len(all))]
				s.Of(kind).Save(site(i), entryOf(i, rand.IntN(20_000)), time.Now().Add(time.Hour), "")
				i = all[rand.IntN(len(all))]
				if got, err := s.Of(kind).Load(t.Context(), site(i)); err != nil || got != nil && !bytes.Equal(got, entryOf(i, len(got))) {
					t.Errorf("site %d: %.40q, %v", i, got, err)
				}
			}
		})
	}
	done.Wait()
}

// entryOf returns an entry of site i of about n bytes.
func entryOf(i, n int) []byte {
	text := fmt.Appendf(nil, "%d\n", i)
	return bytes.Repeat(text, max(1, n/len(text)))
}

// writeForever is the variable that makes the test program a process that saves into a directory until it is killed.
const writeForever = "FILESTORE_WRITE_FOREVER"

func saveForever(dir string) {
	s := New(dir, slog.New(slog.DiscardHandler))
	go s.Run(context.Background())
	fmt.Println("begins")
	for n := 0; ; n++ {
		i := n % 200
		s.Of(kind).Save(site(i), entryOf(i, rand.IntN(400_000)), time.Now().Add(time.Hour), "")
		time.Sleep(100 * time.Microsecond)
	}
}

// TestKill: after the process was killed, each entry is whole or not there, and what it has left half written goes.
func TestKill(t *testing.T) {
	testkit.Long(t, "many processes")
	t.Parallel()
	dir := newDir(t)
	for range 10 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writeForever+"="+dir)
		out, err := cmd.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		testkit.Eventually(t, "an entry is saved", func() bool {
			for i := range 200 {
				if _, err := os.Stat(path(dir, i)); err == nil {
					return true
				}
			}
			return false
		})
		time.Sleep(rand.N(50 * time.Millisecond)) // kill it at any point
		testkit.Must(t, cmd.Process.Kill())
		_ = cmd.Wait() // says that it was killed
		testkit.Must(t, err)
		found := 0
		for i := range 200 {
			if text, err := os.ReadFile(path(dir, i)); err == nil {
				found++
				if v := seal.Value(text); !v.IsWhole(part{kind: kind}.key(site(i))) || !bytes.Equal(v[seal.Bytes:], entryOf(i, len(v)-seal.Bytes)) {
					t.Errorf("site %d has half an entry of %d bytes", i, len(v))
				}
			}
		}
		if found == 0 {
			t.Error("nothing was written")
		}
	}
	temps, err := filepath.Glob(filepath.Join(dir, "*", tempPrefix+"*"))
	testkit.Must(t, err)
	if len(temps) == 0 {
		t.Skip("no process was killed while it wrote")
	}
	for _, temp := range temps {
		age(t, temp, 2*tempKept)
	}
	s := newStore(t, dir)
	for i := 0; len(temps) > 0 && i < 1000; i++ {
		save(s, []byte("x"), i)
		temps, err = filepath.Glob(filepath.Join(dir, "*", tempPrefix+"*"))
		testkit.Must(t, err)
	}
	if len(temps) > 0 {
		t.Errorf("left: %v", temps)
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := newDir(b)
	s := newStore(b, dir)
	save(s, bytes.Repeat([]byte("Disallow: /x\n"), 200), 1)
	for b.Loop() {
		if got, err := s.Of(kind).Load(b.Context(), site(1)); got == nil || err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWrite measures a write into a subdirectory that has few files, and one that is full.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1, maxFiles} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := directory(newDir(b))
			for _, i := range neighbours(n) {
				save(newStore(b, string(dir)), make([]byte, 3000), i)
			}
			v := seal.New("x", make([]byte, 3000), time.Now().Add(time.Hour))
			for b.Loop() {
				if err := dir.write(part{kind: kind}.key(site(0)), v, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
