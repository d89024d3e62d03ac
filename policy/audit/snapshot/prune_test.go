package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

// age makes a file as old as it would be at now.
func age(t *testing.T, path string, now time.Time, by time.Duration) {
	t.Helper()
	if err := os.Chtimes(path, now.Add(-by), now.Add(-by)); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}

// named is a hash that begins with some digits.
func named(digits string) string { return digits + strings.Repeat("0", hexHashLen-len(digits)) }

func TestPrune(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name    string
		maxAge  time.Duration
		maxSize int64
		files   map[string]time.Duration // files of a block each, by their first digits
		want    []string
	}{
		{"nothing is over", 10 * day, 100 * blockSize, map[string]time.Duration{"aa": day, "bb": 9 * day}, []string{"aa", "bb"}},
		{"older than MaxAge", 10 * day, 0, map[string]time.Duration{"aa": day, "bb": 11 * day}, []string{"aa"}},
		{"kept for good", 0, 0, map[string]time.Duration{"aa": day, "bb": 11000 * day}, []string{"aa", "bb"}},
		{"more than four fifths of MaxSize: the oldest go until seven tenths are left", 0, 5 * blockSize,
			map[string]time.Duration{"aa": 5 * day, "ab": 6 * day, "ac": 4 * day, "ad": 3 * day, "ae": 7 * day}, []string{"aa", "ac", "ad"}},
		{"four fifths of MaxSize", 0, 5 * blockSize, map[string]time.Duration{"aa": 5 * day, "bb": 6 * day, "cc": 7 * day, "dd": 8 * day}, []string{"aa", "bb", "cc", "dd"}},
		{"kept within a day: neither age nor size", time.Hour, 1000,
			map[string]time.Duration{"aa": 2 * time.Hour, "bb": day, "cc": 26 * time.Hour}, []string{"aa", "bb"}},
		{"used in the future", 0, 1000, map[string]time.Duration{"aa": -day, "bb": -time.Hour}, []string{"aa", "bb"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "snapshots")
			for digits, old := range tc.files {
				path := gzipPath(dir, named(digits))
				write(t, path, 1000)
				age(t, path, now, old)
			}
			s := open(t, Options{Dir: dir, MaxAge: tc.maxAge, MaxSize: tc.maxSize})
			if err := s.Prune(now, now); err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, name := range slices.Sorted(maps.Keys(tree(t, s.o.Dir))) {
				left = append(left, name[:2])
			}
			if !slices.Equal(left, tc.want) {
				t.Errorf("left: %v, want %v", left, tc.want)
			}
			if size := s.Stats().Bytes; size != int64(blockSize*len(left)) {
				t.Errorf("%d bytes are counted of %d files", size, len(left))
			}
		})
	}
}

// TestPruneOthers: the index by its days, what a crash left, and nothing that is not
// ours.
func TestPruneOthers(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := open(t, Options{MaxAge: 10 * day})
	old := map[string]time.Duration{
		"index/2026-11-21.jsonl":             0,
		"index/2026-11-11.jsonl":             10 * day, // its end is less than MaxAge ago
		"index/2026-11-10.jsonl":             11 * day, // gone
		"index/notes":                        99 * day,
		"new-1.tmp":                          2 * time.Hour, // gone
		"new-2.tmp":                          30 * time.Minute,
		"aa/notes.txt":                       99 * day,
		"aa/" + named("aa")[2:] + ".txt~":    99 * day,
		"aa/" + named("AA")[2:] + "AA.txt":   99 * day,
		"zz/" + named("zz")[2:] + ".txt":     99 * day,
		"notes.txt":                          99 * day,
		"aa/" + named("aa")[2:] + ".txt/dir": 99 * day,
	}
	for name, by := range old {
		write(t, filepath.Join(s.o.Dir, name), 10)
		age(t, filepath.Join(s.o.Dir, name), now, by)
	}
	age(t, filepath.Join(s.o.Dir, "aa", named("aa")[2:]+".txt"), now, 99*day)
	gone := map[string]bool{"index/2026-11-10.jsonl": true, "new-1.tmp": true}
	for _, most := range []int64{0, 0, 1} {
		s.quota.setMax(most)
		if err := s.Prune(now, now); err != nil {
			t.Fatal(err)
		}
		if most == 1 {
			gone["index/2026-11-11.jsonl"] = true
		}
		left := tree(t, s.o.Dir)
		for name := range old {
			if _, there := left[name]; there == gone[name] {
				t.Errorf("MaxSize %d: %s is there: %v", most, name, there)
			}
		}
	}
}

// TestPruneLargeIndex: an old index makes room for bytes that were used since.
func TestPruneLargeIndex(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	dir := filepath.Join(t.TempDir(), "snapshots")
	before, after, data := indexPath(dir, now.Add(-9*day)), indexPath(dir, now), gzipPath(dir, named("aa"))
	for _, path := range []string{before, after, data} {
		write(t, path, blockSize)
	}
	age(t, data, now, 5*day)
	s := open(t, Options{Dir: dir, MaxSize: 3 * blockSize})
	if err := s.Prune(now, now); err != nil {
		t.Fatal(err)
	}
	if left := tree(t, s.o.Dir); len(left) != 2 || left["index/2026-11-12.jsonl"] != 0 || s.Stats().Bytes != 2*blockSize {
		t.Errorf("left: %v, counted: %d", left, s.Stats().Bytes)
	}
}

// TestPruneCountsAll: what is kept after the first count is counted too.
func TestPruneCountsAll(t *testing.T) {
	now := time.Now()
	s := open(t, Options{MaxSize: 7 * blockSize, NoSync: true})
	for n := range 4 {
		path := gzipPath(s.o.Dir, named(fmt.Sprint("a", n)))
		write(t, path, 1000)
		age(t, path, now, time.Duration(2+n)*day)
	}
	for n := range 2 {
		if err := s.Prune(now, now); err != nil { // the same day
			t.Fatal(err)
		}
		if total := space(t, s.o.Dir); total != s.Stats().Bytes {
			t.Errorf("%d bytes are there, %d are counted", total, s.Stats().Bytes)
		}
		keep(t, s, answer("a.test", strings.Repeat("#", 800+n), n))
	}
	if err := s.Prune(now, now); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(gzipPath(s.o.Dir, named("a3"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with %d bytes the oldest is there: %v", s.Stats().Bytes, err)
	}
}

// TestPruneDuringSave: bytes whose keeping has returned are not removed by a Prune
// that found them old before.
func TestPruneDuringSave(t *testing.T) {
	s := open(t, Options{MaxAge: day, NoSync: true})
	var wg sync.WaitGroup
	for n := range testkit.Rounds(300) {
		a := answer("a.test", fmt.Sprint(n), n)
		keep(t, s, a)
		age(t, gzipPath(s.o.Dir, a.SHA256), time.Now(), 9*day)
		s.forget()
		wg.Go(func() {
			var first error
			for f := range files(s.o.Dir) {
				if f.sha == a.SHA256 {
					_, first = s.remove(f, time.Now())
				}
			}
			if first != nil {
				t.Error(first)
			}
		})
		keep(t, s, a)
		if _, err := Read(s.o.Dir, a.SHA256); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if _, err := Read(s.o.Dir, a.SHA256); err != nil {
			t.Errorf("removed behind its keeping: %v", err)
		}
		if err := os.Remove(gzipPath(s.o.Dir, a.SHA256)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPruneLeavesWhatWasSaved: a file is not removed while it is being kept.
func TestPruneLeavesWhatWasSaved(t *testing.T) {
	now := time.Now()
	s := open(t, Options{MaxAge: day})
	path := gzipPath(s.o.Dir, named("aa"))
	write(t, path, 10)
	age(t, path, now, 9*day)
	at := resource{sha: named("aa")}
	f, mine := s.begin(at, answerID{1, 1})
	if !mine {
		t.Fatal("the place is taken")
	}
	for _, want := range []error{nil, fs.ErrNotExist} {
		if err := s.pruneExpired(now, now); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, want) {
			t.Errorf("the file: %v, want %v", err, want)
		}
		if want == nil {
			s.end(at, f, now)
		}
	}
}

// TestRun: it prunes at once and at each full hour, and ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{MaxAge: 10 * day})
		<-time.After(40 * time.Minute)
		left := filepath.Join(s.o.Dir, "new-1.tmp")
		write(t, left, 1)
		age(t, left, time.Now(), 2*time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it does not begin with it")
		}
		write(t, left, 1)
		age(t, left, time.Now(), 2*time.Hour)
		<-time.After(20*time.Minute - 1)
		synctest.Wait()
		if _, err := os.Stat(left); err != nil {
			t.Error("it prunes all the time")
		}
		<-time.After(time.Nanosecond)
		synctest.Wait()
		if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it does not prune at the full hour")
		}
		cancel()
		wg.Wait()
	})
}
