package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

const entries = 200

var native = binary.NativeEndian

// wholeFile is one with a tree of several levels, free pages and clocks, ended well.
func wholeFile(t testing.TB) []byte {
	t.Helper()
	s := open(t, stateFile(t), t.Output())
	fill(t, s, entries/2)
	fill(t, s, entries)
	for i := range 20 {
		s.SaveClocks([]pace.Clock{{Key: fmt.Sprintf("h%d.test", i), Sent: time.Now(), Gap: time.Minute}})
	}
	s.Close()
	bytes, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func put(t testing.TB, file string, bytes []byte) {
	t.Helper()
	if err := os.WriteFile(file, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
}

// foreign is a bbolt file with one value in it.
func foreign(t testing.TB, bucket, key, value string) []byte {
	t.Helper()
	file := stateFile(t)
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	bytes, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// spoilers make what is no store, at a name where nothing is.
func spoilers(t testing.TB) map[string]func(t testing.TB, name string) {
	whole := wholeFile(t)
	file := func(bytes []byte) func(testing.TB, string) {
		return func(t testing.TB, name string) { put(t, name, bytes) }
	}
	return map[string]func(t testing.TB, name string){
		"zeros":                 file(make([]byte, len(whole))),
		"a few bytes":           file([]byte("x")),
		"text":                  file([]byte(strings.Repeat("no store at all\n", 10_000))),
		"its first page":        file(whole[:4096]),
		"its first two pages":   file(whole[:8192]),
		"cut in half":           file(whole[:len(whole)/2]),
		"of another program":    file(foreign(t, "keys", "key", "value")),
		"of another version":    file(foreign(t, string(metaBucket), string(formatKey), "robotsproxy 2")),
		"without its buckets":   file(foreign(t, string(metaBucket), string(formatKey), string(format))),
		"zeros behind the head": file(append(bytes.Clone(whole[:8192]), make([]byte, len(whole)-8192)...)),
		"a directory":           func(t testing.TB, name string) { mustDo(t, os.Mkdir(name, 0o700)) },
		"a full directory":      func(t testing.TB, name string) { mustDo(t, os.MkdirAll(name+"/more", 0o700)) },
		"a pipe":                func(t testing.TB, name string) { testkit.Fifo(t, name) },
		"a link to itself":      func(t testing.TB, name string) { mustDo(t, os.Symlink(name, name)) },
		"unreadable": func(t testing.TB, name string) {
			put(t, name, whole)
			mustDo(t, os.Chmod(name, 0))
			if f, err := os.Open(name); err == nil {
				f.Close()
				t.Skip("nothing is unreadable to us")
			}
		},
	}
}

// TestSetAside: a file that is not a store is renamed unchanged and logged. Later changes
// are stored, and the next process finds them.
func TestSetAside(t *testing.T) {
	t.Parallel()
	for name, spoil := range spoilers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := stateFile(t)
			spoil(t, name)
			var was []byte
			info, err := os.Lstat(name)
			mustDo(t, err)
			regular := info.Mode().IsRegular() // or reading it might wait for ever
			if regular {
				was, _ = os.ReadFile(name)
			}
			var log record
			begun := time.Now()
			s := open(t, name, &log)
			since := s.Since()
			aside := damaged(t, name)
			if len(aside) != 1 || since.Before(begun) || s.Clocks() != nil {
				t.Fatalf("set aside %v; since %v, clocks %v\n%s", aside, since, s.Clocks(), &log.b)
			}
			if is, err := os.Lstat(aside[0]); err != nil || !os.SameFile(is, info) {
				t.Errorf("it is not what it was: %v", err)
			}
			if regular {
				if is, _ := os.ReadFile(aside[0]); !bytes.Equal(is, was) {
					t.Error("it was changed")
				}
			}
			if log.count("set aside") != 1 || log.count(aside[0]) != 1 || log.count("forgotten=") != 1 {
				t.Errorf("it is not said:\n%s", &log.b)
			}
			want(t, s, 1, nil)
			fill(t, s, 10)
			s.Close()
			s = open(t, name, &log)
			defer s.Close()
			want(t, s, 1, text(1))
			if len(damaged(t, name)) != 1 || !s.Since().Equal(since) {
				t.Errorf("since %v, before %v; set aside again:\n%s", s.Since(), since, &log.b)
			}
		})
	}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNotDamaged: what is less than whole, but ours.
func TestNotDamaged(t *testing.T) {
	t.Parallel()
	whole := wholeFile(t)
	page := os.Getpagesize()
	older := bytes.Clone(whole) // torn by a loss of power: the commit before counts
	first, second := native.Uint64(whole[pageHead+48:]), native.Uint64(whole[page+pageHead+48:])
	newer := 0
	if second > first {
		newer = page
	}
	older[newer+pageHead+48]++
	file := stateFile(t)
	put(t, file, older)
	s := open(t, file, t.Output())
	want(t, s, 7, text(7))
	if s.Since().IsZero() || damaged(t, file) != nil {
		t.Errorf("since %v, set aside: %v", s.Since(), damaged(t, file))
	}
	s.Close()

	empty := stateFile(t)
	put(t, empty, nil)
	s = open(t, empty, t.Output())
	defer s.Close()
	if fill(t, s, 1); damaged(t, empty) != nil {
		t.Error("an empty file is set aside")
	}
}

// flipped is whole with some bits changed: anywhere, where pages begin, or in the
// first pages.
func flipped(whole []byte, round int, random *rand.Rand) []byte {
	bytes := bytes.Clone(whole)
	for range 1 + random.IntN(20) {
		at := random.IntN(len(bytes))
		switch round % 3 {
		case 1:
			at = at/4096*4096 + random.IntN(64)
		case 2:
			at = random.IntN(16 << 10)
		}
		bytes[at] ^= 1 << random.IntN(8)
	}
	return bytes
}

// TestFlippedBits: whatever changes in a file, the process continues, and Load returns
// what was saved, or nothing.
func TestFlippedBits(t *testing.T) {
	testkit.Long(t, "many files")
	t.Parallel()
	flipBits(t, 30)
}

// BenchmarkFlippedBits is TestFlippedBits with more files.
func BenchmarkFlippedBits(b *testing.B) {
	for b.Loop() {
		flipBits(b, 150)
	}
}

// flipBits changes bits in so many files. At least a fifth of the files must be set aside,
// and some must not: else the changes test nothing.
func flipBits(t testing.TB, files int) {
	whole := wholeFile(t)
	random := rand.New(rand.NewPCG(9, 6))
	aside, initial := 0, 0
	for round := range files {
		file := stateFile(t)
		put(t, file, flipped(whole, round, random))
		var log record
		initial += loadsWhatWasSaved(t, file, &log)
		aside += min(1, len(damaged(t, file)))
		if t.Failed() {
			t.Fatalf("round %d:\n%s", round, &log.b)
		}
	}
	t.Logf("%d of %d files were set aside, %d entries found", aside, files, initial)
	if aside < files/5 || aside > files*14/15 || initial < 7*files {
		t.Error("which is too many or too few for a test")
	}
}

// loadsWhatWasSaved fails unless each entry is loaded as it was saved, or not at all, and
// unless other entries can be saved in their place. It returns how many were found at first.
func loadsWhatWasSaved(t testing.TB, file string, log *record) (initial int) {
	s := open(t, file, log)
	for i := range entries {
		got, err := s.Load(t.Context(), site(i))
		switch {
		case err == nil && bytes.Equal(got, text(i)):
			initial++
		case got != nil:
			t.Errorf("%v: %q, %v", site(i), got, err)
		}
	}
	for i := range entries {
		s.Save(site(i), text(i+1), time.Now().Add(time.Hour), "someone")
	}
	for range 3 { // one may find damage, and begin a new file
		if s.commit(t.Context(), false) == nil {
			break
		}
	}
	for i := range entries {
		want(t, s, i, text(i+1))
	}
	s.Close()
	s = open(t, file, log)
	defer s.Close()
	for i := range entries {
		got, err := s.Load(t.Context(), site(i))
		if got != nil && !bytes.Equal(got, text(i+1)) {
			t.Errorf("then: %v: %q, %v", site(i), got, err)
		}
	}
	return initial
}

// TestNoWayBack: bbolt would follow such a page, or come to write one, until the
// process dies.
func TestNoWayBack(t *testing.T) {
	t.Parallel()
	const branchPage, freelistPage = 1, 16
	whole := wholeFile(t)
	page := os.Getpagesize()
	newest := whole[pageHead:]
	if second := whole[page+pageHead:]; native.Uint64(second[48:]) > native.Uint64(newest[48:]) {
		newest = second
	}
	free := int(native.Uint64(newest[32:])) * page // where the list of free pages is
	branch := 0
	for at := 0; at < len(whole); at += page {
		if b := whole[at:]; native.Uint16(b[8:]) == branchPage && native.Uint64(b) == uint64(at/page) {
			branch = at // the last: there is one
		}
	}
	if branch == 0 || native.Uint16(whole[free+8:]) != freelistPage || native.Uint16(whole[free+10:]) < 2 {
		t.Fatalf("no branch, or no free pages: %d, %d", branch, free)
	}
	child := native.Uint64(whole[branch+pageHead+childAt:])
	for name, spoil := range map[string]func(bytes []byte){
		"leads to itself":     func(b []byte) { native.PutUint64(b[branch+pageHead+childAt:], uint64(branch/page)) },
		"leads nowhere":       func(b []byte) { native.PutUint64(b[branch+pageHead+childAt:], 1<<62) },
		"leads to a meta":     func(b []byte) { native.PutUint64(b[branch+pageHead+childAt:], 0) },
		"twice the same":      func(b []byte) { native.PutUint64(b[branch+pageHead+branchElement+childAt:], child) },
		"goes over a billion": func(b []byte) { native.PutUint32(b[int(child)*page+12:], 1<<30) },
		"goes over another":   func(b []byte) { native.PutUint32(b[branch+12:], 1) },
		"free and in use":     func(b []byte) { native.PutUint64(b[free+pageHead:], child) },
		"free twice":          func(b []byte) { copy(b[free+pageHead:], b[free+pageHead+8:free+pageHead+16]) },
		"free beyond the end": func(b []byte) { native.PutUint64(b[free+pageHead:], 1<<40) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bytes := bytes.Clone(whole)
			spoil(bytes)
			file := stateFile(t)
			put(t, file, bytes)
			s := open(t, file, t.Output())
			defer s.Close()
			if len(damaged(t, file)) != 1 {
				t.Error("it is not set aside")
			}
		})
	}
}

// TestDamagedWhileOpen: the file changes while the process has it mapped.
func TestDamagedWhileOpen(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t testing.TB, file string){
		"emptied":     func(t testing.TB, file string) { mustDo(t, os.Truncate(file, 0)) },
		"cut":         func(t testing.TB, file string) { mustDo(t, os.Truncate(file, 3*4096)) },
		"overwritten": func(t testing.TB, file string) { put(t, file, make([]byte, 1<<20)) },
		"noise":       func(t testing.TB, file string) { put(t, file, bytes.Repeat([]byte{0xA5}, 1<<20)) },
	} {
		for _, first := range []string{"read", "written"} {
			t.Run(name+", then "+first, func(t *testing.T) {
				t.Parallel()
				file := stateFile(t)
				put(t, file, wholeFile(t))
				var log record
				s := open(t, file, &log)
				spoil(t, file)
				for range 2 {
					if first == "read" {
						for i := 1; i < entries; i++ {
							if got, _ := s.Load(t.Context(), site(i)); got != nil && !bytes.Equal(got, text(i)) {
								t.Fatalf("%q", got)
							}
						}
					}
					s.Save(site(0), []byte("new"), time.Now().Add(time.Hour), "someone")
					want(t, s, 0, []byte("new"))
					_ = s.commit(t.Context(), false)
					want(t, s, 0, []byte("new"))
				}
				s.Close()
				if len(damaged(t, file)) != 1 || log.count("set aside") != 1 {
					t.Errorf("set aside: %v\n%s", damaged(t, file), &log.b)
				}
				s = open(t, file, &log)
				defer s.Close()
				want(t, s, 0, []byte("new"))
			})
		}
	}
}

// TestDamagedAgainAndAgain: not every damage is followed by a new file at once.
func TestDamagedAgainAndAgain(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	defer s.Close()
	for range 5 {
		fillIn := func() error {
			s.Save(site(0), text(0), time.Now().Add(time.Hour), "someone")
			return s.commit(t.Context(), false)
		}
		_ = fillIn()
		if s.handle != nil {
			mustDo(t, os.Truncate(file, 0))
		}
		_ = fillIn()
		want(t, s, 0, text(0))
	}
	if n := len(damaged(t, file)); n != 2 {
		t.Errorf("%d files were set aside, want the first two alone", n)
	}
}

// TestDeleted: if the file is deleted, nothing is set aside.
func TestDeleted(t *testing.T) {
	file := stateFile(t)
	s := open(t, file, t.Output())
	fill(t, s, 10)
	mustDo(t, os.Remove(file))
	want(t, s, 1, text(1))
	s.Close()
	if _, err := os.Stat(file); err == nil || damaged(t, file) != nil {
		t.Error("it is back")
	}
}
