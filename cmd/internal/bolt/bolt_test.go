package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/cache/storetest"
	"robotsproxy/robots/testkit"
)

// Tests wait for the disk.
func TestMain(m *testing.M) {
	testkit.SetParallel()
	goleak.VerifyTestMain(m)
}

func site(i int) cache.StoreKey {
	return cache.StoreKey{Origin: robots.Origin{Scheme: "http", Host: fmt.Sprintf("h%d.test", i), Port: 80}, Agent: "robotsproxy"}
}

// text is what is saved for site i: most fit on a page, some do not.
func text(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "entry %d\n", i), 1+i%7*(i%7)*30) }

func stateFile(t testing.TB) string { return filepath.Join(t.TempDir(), "state.db") }

// A record is a log that a test may read.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.b.String(), what)
}

func open(t testing.TB, file string, log io.Writer) *Store {
	t.Helper()
	s, err := Open(Options{File: file, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if s.db != nil { // the file could be opened
		s.db.NoSync = true // no test cuts the power
	}
	return s
}

// started is a Store that runs until the test ends.
func started(t testing.TB, s *Store) *Store {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		s.Close()
	})
	return s
}

// fill saves n entries and commits them.
func fill(t testing.TB, s *Store, n int) {
	t.Helper()
	for i := range n {
		s.Save(site(i), text(i), time.Now().Add(time.Hour), "someone")
	}
	if err := s.commit(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, s *Store, i int, entry []byte) {
	t.Helper()
	if got, err := s.Load(t.Context(), site(i)); err != nil || !bytes.Equal(got, entry) {
		t.Errorf("%v: %.20q, %v; want %.20q", site(i), got, err, entry)
	}
}

// damaged are the files that were set aside beside file.
func damaged(t testing.TB, file string) []string {
	t.Helper()
	initial, err := filepath.Glob(file + ".damaged-*")
	if err != nil {
		t.Fatal(err)
	}
	return initial
}

func TestStore(t *testing.T) {
	t.Parallel()
	for name, openOrReplace := range map[string]func(testing.TB, *Store) *Store{
		"gathered": func(t testing.TB, s *Store) *Store { t.Cleanup(s.Close); return s },
		"running":  started,
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) cache.Store { return openOrReplace(t, open(t, stateFile(t), t.Output())) })
		})
	}
	t.Run("in the file", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) cache.Store {
			s := open(t, stateFile(t), t.Output())
			t.Cleanup(s.Close)
			return committed{s, t}
		})
	})
}

// committed is a Store whose entries are in the file at once.
type committed struct {
	*Store
	t *testing.T
}

var committing sync.Mutex

func (c committed) Save(k cache.StoreKey, entry []byte, until time.Time, client string) {
	c.Store.Save(k, entry, until, client)
	committing.Lock()
	defer committing.Unlock()
	if err := c.commit(c.t.Context(), false); err != nil {
		c.t.Error(err)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	var log record
	s := open(t, file, &log)
	if !s.Since().IsZero() || s.Clocks() != nil {
		t.Errorf("a new file: since %v, %v", s.Since(), s.Clocks())
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	now := time.Now().UTC().Round(0)
	clocks := []pace.Clock{
		{Key: "a.test", Sent: now, Gap: 10 * time.Second, SlowAverage: 3 * time.Second, AnsweredAt: now},
		{Key: "b.test", BackOffUntil: now.Add(time.Minute), BackOffLength: time.Minute},
	}
	fill(t, s, 100)
	s.SaveClocks([]pace.Clock{{Key: "a.test", Sent: now.Add(-time.Hour)}, {Key: "b.test"}})
	s.SaveClocks(clocks)
	s.Save(site(1), []byte("newer"), now.Add(time.Hour), "someone")
	s.Save(site(2), []byte("over"), now, "someone")
	s.Close()

	s = open(t, file, &log)
	defer s.Close()
	if got := s.Clocks(); !s.Since().IsZero() || !reflect.DeepEqual(got, clocks) {
		t.Errorf("since %v, %+v", s.Since(), got)
	}
	for i := range 101 {
		switch i {
		case 1:
			want(t, s, i, []byte("newer"))
		case 2, 100:
			want(t, s, i, nil)
		default:
			want(t, s, i, text(i))
		}
	}
	if log.b.Len() > 0 {
		t.Errorf("it was said:\n%s", &log.b)
	}
}

// TestAuditEnd: the last AuditEnd that was saved is found, also after a crash.
func TestAuditEnd(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	if got := s.AuditEnd(); got != (AuditEnd{}) {
		t.Errorf("a new file: %v", got)
	}
	want := AuditEnd{File: "/a/audit.jsonl", Seq: 7, Hash: trail.Hash{1, 2, 3}}
	s.SaveAuditEnd(AuditEnd{File: "/b", Seq: 8})
	s.SaveAuditEnd(want)
	if err := s.commit(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	killed := stateFile(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put(t, killed, text)
	if end, err := ReadAuditEnd(file); !errors.Is(err, ErrInUse) {
		t.Errorf("ReadAuditEnd of an open file: %v, %v", end, err)
	}
	s.Close()
	for _, file := range []string{file, killed} {
		before, _ := os.ReadFile(file)
		if end, err := ReadAuditEnd(file); err != nil || end != want {
			t.Errorf("ReadAuditEnd: %v, %v, want %v", end, err, want)
		}
		if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
			t.Error("ReadAuditEnd has changed the file")
		}
		s := open(t, file, t.Output())
		if got := s.AuditEnd(); got != want {
			t.Errorf("%v, want %v", got, want)
		}
		s.Close()
	}
	if end, err := ReadAuditEnd(stateFile(t)); err != nil || end != (AuditEnd{}) {
		t.Errorf("ReadAuditEnd of no file: %v, %v", end, err)
	}
	put(t, file, text[:len(text)/2])
	if end, err := ReadAuditEnd(file); !errors.Is(err, errDamaged) {
		t.Errorf("ReadAuditEnd of a damaged file: %v, %v", end, err)
	}
}

// TestKilled: after a kill, committed changes are present, and Open reports that the last
// process did not close the file. A later process that closes it cleanly cannot make up
// for that.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := open(t, stateFile(t), t.Output())
	defer s.Close()
	fill(t, s, 100)
	copied := stateFile(t)
	bytes, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	var since time.Time
	for i := range 3 {
		again := open(t, copied, t.Output())
		if i == 0 {
			since = again.Since()
		}
		if !again.Since().Equal(since) || since.Before(begun) {
			t.Errorf("start %d: since %v, first %v, begun %v", i, again.Since(), since, begun)
		}
		want(t, again, 99, text(99))
		if i == 1 {
			again.SaveClocks([]pace.Clock{{Key: "a.test"}})
		}
		again.Close()
	}
}

// TestGaps: after an end at which a clock was lost something may have been sent until
// the next start.
func TestGaps(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	s.SaveClocks([]pace.Clock{{Key: "a.test", Sent: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)}})
	s.Close()
	ended := time.Now()
	s = open(t, file, t.Output())
	defer s.Close()
	if s.Since().Before(ended) {
		t.Errorf("since %v, ended %v", s.Since(), ended)
	}
}

// TestGapsWithoutEnd: a clock is kept for as long as it may count, however long.
func TestGapsWithoutEnd(t *testing.T) {
	file := stateFile(t)
	s := open(t, file, t.Output())
	s.SaveClocks([]pace.Clock{{Key: "a.test", Gap: 1<<63 - 1}})
	s.Close()
	s = open(t, file, t.Output())
	defer s.Close()
	if len(s.Clocks()) != 1 {
		t.Errorf("%v", s.Clocks())
	}
}

func TestInUse(t *testing.T) {
	file := stateFile(t)
	s := open(t, file, t.Output())
	defer s.Close()
	fill(t, s, 1)
	synctest.Test(t, func(t *testing.T) {
		_, err := Open(Options{File: file, Log: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), file) {
			t.Errorf("err = %v", err)
		}
	})
	want(t, s, 0, text(0))
	s.Close()
	open(t, file, t.Output()).Close()
	if initial := damaged(t, file); initial != nil {
		t.Errorf("set aside: %v", initial)
	}
}

// TestOpenWaitsForAReader: doctor has the lock for a moment while it reads the end of the audit, and a
// process that starts at that moment waits.
func TestOpenWaitsForAReader(t *testing.T) {
	file := stateFile(t)
	open(t, file, t.Output()).Close()
	synctest.Test(t, func(t *testing.T) {
		reader, err := os.Open(file)
		if err == nil {
			err = lock(reader, osfile.TryRLock)
		}
		if err != nil {
			t.Fatal(err)
		}
		opened := make(chan *Store)
		go func() {
			s, err := Open(Options{File: file, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
		<-time.After(lockWait / 2)
		select {
		case <-opened:
			t.Fatal("it does not wait")
		default:
		}
		reader.Close()
		if s := <-opened; s != nil {
			s.Close()
		}
	})
}

func TestAfterClose(t *testing.T) {
	s := open(t, stateFile(t), t.Output())
	fill(t, s, 1)
	s.Close()
	want(t, s, 0, nil)
}

func TestOptions(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, o := range []Options{{}, {File: stateFile(t)}, {Log: log}, {File: stateFile(t), Log: log, MaxBytes: -1}} {
		if _, err := Open(o); err == nil {
			t.Errorf("Open(%+v) is no error", o)
		}
	}
}

// BenchmarkOpen opens a file of some thousand entries.
func BenchmarkOpen(b *testing.B) {
	file := stateFile(b)
	s := open(b, file, io.Discard)
	for i := range 5000 {
		s.Save(site(i), make([]byte, 2000), time.Now().Add(time.Hour), "someone")
	}
	s.Close()
	for b.Loop() {
		s := open(b, file, io.Discard)
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}

// BenchmarkLoad is of an entry in the file.
func BenchmarkLoad(b *testing.B) {
	s := open(b, stateFile(b), io.Discard)
	defer s.Close()
	fill(b, s, 1000)
	for i := 0; b.Loop(); i++ {
		if got, err := s.Load(b.Context(), site(i%1000)); got == nil || err != nil {
			b.Fatal(err)
		}
	}
}

// TestUses: what was saved last of each key is found until it expires, also in a file that an earlier version has made.
func TestUses(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	var log record
	s := open(t, file, &log)
	fill(t, s, 3)
	if s.Uses() != nil {
		t.Errorf("a new file: %q", s.Uses())
	}
	testkit.Must(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(usesBucket) }))
	s.Close()

	s = open(t, file, &log)
	soon := time.Now().Add(time.Hour)
	for _, key := range []string{"a", "b", "over"} {
		s.SaveUse(key, []byte("first "+key), soon)
	}
	testkit.Must(t, s.commit(t.Context(), false))
	s.SaveUse("a", []byte("second a"), soon)
	s.SaveUse("over", nil, time.Time{})
	s.Close()

	s = open(t, file, &log)
	if got := fmt.Sprintf("%q", s.Uses()); got != `["second a" "first b"]` || s.kept[useTable] != 2 {
		t.Errorf("%s, %d are in the file", got, s.kept[useTable])
	}
	want(t, s, 1, text(1))
	if log.b.Len() > 0 {
		t.Errorf("it was said:\n%s", &log.b)
	}
	testkit.Must(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(usesBucket).Put([]byte("c"), []byte("no checksum")) }))
	s.Close()

	s = open(t, file, &log)
	defer s.Close()
	if s.Uses() != nil || len(damaged(t, file)) != 1 {
		t.Errorf("a damaged value: %q, set aside: %v", s.Uses(), damaged(t, file))
	}
}
