package bolt

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/policy/pace"
)

// fileSize is what the file has.
func fileSize(t testing.TB, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// bounded is a Store whose file may have so many bytes.
func bounded(t testing.TB, file string, most int64) *Store {
	t.Helper()
	s, err := Open(Options{File: file, MaxBytes: most, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.db.NoSync = true
	return s
}

// TestFileKeepsItsCeiling: whatever is saved, in whatever order and sizes, the file does
// not outgrow MaxBytes, and newer entries are kept nevertheless.
func TestFileKeepsItsCeiling(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	for name, size := range map[string]func(*rand.Rand) int{
		"large": func(*rand.Rand) int { return 500_000 },
		"small": func(r *rand.Rand) int { return r.IntN(5000) },
		"both":  func(r *rand.Rand) int { return []int{300, 3000, 500_000}[r.IntN(3)] },
		"any":   func(r *rand.Rand) int { return r.IntN(500_000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := stateFile(t)
			s := bounded(t, file, most)
			random := rand.New(rand.NewPCG(1, 2))
			for saved := 0; saved < 2*most; {
				for n := 0; n < 1<<20; {
					entry := make([]byte, size(random))
					s.Save(site(random.IntN(1<<20)), entry, time.Now().Add(time.Duration(1+random.IntN(1000))*time.Hour), "someone")
					n += len(entry)
					saved += len(entry)
				}
				if err := s.commit(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				if got := fileSize(t, file); got > most {
					t.Fatalf("%d bytes of at most %d after %d", got, most, saved)
				}
			}
			if kept := len(s.filed.sums); kept == 0 {
				t.Error("nothing is kept")
			}
			s.Close()
		})
	}
}

// TestThoseOfUseForLongestStay: and what is saved in place of others takes no more.
func TestThoseOfUseForLongestStay(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := bounded(t, file, 1<<20)
	entry := make([]byte, 1000)
	save := func(from, to int) {
		for i := from; i < to; i++ {
			s.Save(site(i), entry, time.Now().Add(time.Duration(i+1)*time.Hour), "someone")
			if i%10 == 9 {
				if err := s.commit(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	save(0, 2000)
	kept := len(s.filed.sums)
	save(1900, 2000)
	if got := len(s.filed.sums); got != kept {
		t.Errorf("%d entries, then %d", kept, got)
	}
	for _, i := range []int{0, 500, 1400} {
		want(t, s, i, nil)
	}
	for i := 1850; i < 2000; i++ {
		want(t, s, i, entry)
	}
	s.Close()
	s = bounded(t, file, 1<<20)
	defer s.Close()
	want(t, s, 1999, entry)
}

// TestFileOfAnOlderVersion: a file that is too large is rewritten with the entries that
// last longest and the clocks.
func TestFileOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := bounded(t, file, 64<<20)
	entry := bytes.Repeat([]byte("x"), 100_000)
	for i := range 100 {
		s.Save(site(i), entry, time.Now().Add(time.Duration(i+1)*time.Hour), "someone")
	}
	s.SaveClocks([]pace.Clock{{Key: "a.test", Gap: time.Hour}})
	s.Close()
	const most = 4 << 20
	if fileSize(t, file) <= most {
		t.Fatal("the file is not too large")
	}
	for range 2 {
		s = bounded(t, file, most)
		if got := fileSize(t, file); got > most {
			t.Errorf("%d bytes of at most %d", got, most)
		}
		want(t, s, 99, entry)
		if len(s.Clocks()) != 1 {
			t.Errorf("clocks: %v", s.Clocks())
		}
		s.Save(site(99), entry, time.Now().Add(1000*time.Hour), "someone")
		s.Close()
	}
	if left, _ := os.ReadDir(strings.TrimSuffix(file, "/state.db")); len(left) != 1 {
		t.Errorf("beside it: %v", left)
	}
}

// TestNoRoomForACommit: where the file has no room for what is saved, entries make room,
// all of them if need be; clocks stay.
func TestNoRoomForACommit(t *testing.T) {
	t.Parallel()
	log := new(record)
	file := stateFile(t)
	s, err := Open(Options{File: file, MaxBytes: 4 << 20, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SaveClocks([]pace.Clock{{Key: "a.test", Gap: time.Hour}})
	fill(t, s, 200)
	if err := s.use(t.Context(), func(db *bbolt.DB) error {
		db.MaxSize = 1 // nothing but what is free may be used
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	entry := bytes.Repeat([]byte("y"), 100_000)
	s.Save(site(1000), entry, time.Now().Add(time.Hour), "someone")
	if err := s.commit(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	want(t, s, 1000, entry)
	want(t, s, 1, nil)
	if log.count("state.db full") != 1 || s.Stats().Failures != 0 {
		t.Errorf("%+v, and it was said %d times", s.Stats(), log.count("state.db full"))
	}
	if err := s.use(t.Context(), func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			if tx.Bucket(clocksBucket).Get([]byte("a.test")) == nil {
				t.Error("the clock is gone")
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
}

// TestGreedyClientsEntriesGoFirst: a client that has many hosts fetched does not push out
// what others need, however long its own entries are of use.
func TestGreedyClientsEntriesGoFirst(t *testing.T) {
	t.Parallel()
	s := bounded(t, stateFile(t), 4<<20)
	defer s.Close()
	entry := make([]byte, 5000)
	for i := range 40 {
		s.Save(site(i), entry, time.Now().Add(time.Hour), "honest")
	}
	for i := range 2000 {
		s.Save(site(100+i), entry, time.Now().Add(24*time.Hour), "greedy")
		if i%100 == 0 {
			s.Save(site(i/100), entry, time.Now().Add(time.Hour), "") // a refresh
			if err := s.commit(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.commit(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		want(t, s, i, entry)
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sizes []int64
		most  int64
		want  int64
	}{
		{[]int64{10}, 4, 4},
		{[]int64{1, 1, 10}, 6, 4},
		{[]int64{5, 5, 10}, 9, 3},
		{[]int64{1, 8, 9}, 11, 5},
	} {
		if got := fairShare(c.sizes, c.most); got != c.want {
			t.Errorf("%v of %d: %d, want %d", c.sizes, c.most, got, c.want)
		}
	}
}

// TestChunks: an entry is read as it was written, whatever was stored before it. An entry
// of an older version, which is one chunk, is read too.
func TestChunks(t *testing.T) {
	db, err := bbolt.Open(stateFile(t), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(robotsBucket)
		if err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(1, 2))
		for _, name := range []string{"http://a.test:80", "http://a.test:800", "http://" + strings.Repeat("a", 250) + ":80"} {
			key := []byte(name)
			for round := range 60 {
				value := make(seal.Value, seal.Bytes+random.IntN(20_000)*(round%2)+random.IntN(2*chunkRoom))
				for i := range value {
					value[i] = byte(random.Uint32())
				}
				err := putEntry(b, key, value)
				if round%10 == 0 {
					err = dropChunks(b, key, 0)
					err = cmp.Or(err, b.Put(key, value)) // as older versions did
				}
				if err != nil {
					return err
				}
				if got := getEntry(b, key); !slices.Equal(got, value) {
					return fmt.Errorf("round %d: %d bytes, want %d", round, len(got), len(value))
				}
			}
		}
		var stays bucketValues
		if err := stays.read(b, math.MinInt64); err != nil || len(stays.kept) != 3 {
			t.Errorf("%d entries are read: %v", len(stays.kept), err)
		}
		for _, h := range stays.kept {
			if got := int64(len(getEntry(b, h.key))); got != h.size {
				t.Errorf("%s: %d bytes are counted, %d are there", h.key, h.size, got)
			}
			if err := dropChunks(b, h.key, 0); err != nil {
				return err
			}
		}
		if n := b.Stats().KeyN; n != 0 {
			t.Errorf("%d keys are left behind", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
