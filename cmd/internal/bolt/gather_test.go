package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"robotsproxy/policy/pace"
)

// commits is how many there were.
func commits(t testing.TB, s *Store) (n int) {
	t.Helper()
	if err := s.use(t.Context(), func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil })
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCommits: at once after a quiet time, then a few a second.
func TestCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := started(t, open(t, stateFile(t), t.Output()))
		was := commits(t, s)
		step := func(saves int, after time.Duration, more int) {
			t.Helper()
			for i := range saves {
				s.Save(site(i), text(i), time.Now().Add(time.Hour), "someone")
			}
			<-time.After(after)
			synctest.Wait()
			if now := commits(t, s); now != was+more {
				t.Errorf("%d commits, want %d", now-was, more)
			}
			was += more
		}
		step(0, time.Hour-time.Second, 0)
		step(1, 0, 1)
		step(1, commitEvery-1, 0)
		step(100, 1, 1)
		step(0, time.Second, 0)
		for range 1000 {
			s.Save(site(1), text(1), time.Now().Add(time.Hour), "someone")
			<-time.After(time.Millisecond)
		}
		step(0, 0, 5) // at the start of each quarter of the second, and at its end
	})
}

// TestSweep: what is over leaves the file, when it is opened and once an hour.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := stateFile(t)
		count := func(s *Store) (entries, clocks int) {
			t.Helper()
			if err := s.use(t.Context(), func(db *bbolt.DB) error {
				return db.View(func(tx *bbolt.Tx) error {
					clocks = tx.Bucket(clocksBucket).Stats().KeyN
					return tx.Bucket(robotsBucket).ForEach(func(key, _ []byte) error {
						if !isChunk(key) {
							entries++
						}
						return nil
					})
				})
			}); err != nil {
				t.Fatal(err)
			}
			return entries, clocks
		}
		save := func(s *Store) {
			for i := range 10 {
				s.Save(site(i), text(i), time.Now().Add(time.Duration(i+1)*30*time.Minute), "someone")
			}
			s.SaveClocks([]pace.Clock{{Key: "a.test"}, {Key: "b.test", Gap: 10 * time.Hour}})
		}
		s := open(t, file, t.Output())
		save(s)
		s.Close()
		<-time.After(4 * time.Hour)
		s = started(t, open(t, file, t.Output()))
		if entries, clocks := count(s); entries != 2 || clocks != 1 || len(s.Clocks()) != 1 {
			t.Errorf("%d entries and %d clocks after 4 hours, Clocks has %d", entries, clocks, len(s.Clocks()))
		}
		save(s)
		<-time.After(3*time.Hour + time.Second)
		synctest.Wait()
		if entries, clocks := count(s); entries != 4 || clocks != 1 {
			t.Errorf("%d entries and %d clocks after 3 hours more", entries, clocks)
		}
	})
}

// TestGathers: while the disk is full, and no more than may be.
func TestGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log record
		s := started(t, open(t, stateFile(t), &log))
		s.turn <- struct{}{}
		s.db.MaxSize = 1 // as full as a disk can be
		<-s.turn
		entry := make([]byte, 1<<20)
		const saves = maxPending>>20 + 10
		for i := range saves {
			s.Save(site(i), append(text(i), entry...), time.Now().Add(time.Hour), "someone")
			if i == 0 {
				synctest.Wait() // the first commit fails
			}
		}
		s.SaveClocks([]pace.Clock{{Key: "a.test"}})
		<-time.After(time.Minute)
		synctest.Wait()
		gathered := func() (bytes, clocks int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.pending.bytes, len(s.pending.tables[clockTable])
		}
		if n := log.count("state.db write failed"); n != 1 {
			t.Errorf("it was said %d times", n)
		}
		if n, clocks := gathered(); n > maxPending || n < maxPending-2<<20 || clocks != 1 {
			t.Errorf("%d bytes and %d clocks are gathered", n, clocks)
		}
		want(t, s, 0, nil)
		want(t, s, saves-1, append(text(saves-1), entry...))
		s.turn <- struct{}{}
		s.db.MaxSize = 0
		<-s.turn
		<-time.After(retryEvery)
		synctest.Wait()
		if n, clocks := gathered(); n != 0 || clocks != 0 || log.count("state.db written again") != 1 {
			t.Errorf("%d bytes and %d clocks are gathered still", n, clocks)
		}
		want(t, s, saves-1, append(text(saves-1), entry...))
	})
}

// TestNothingOlderComesBack: a purge, or a newer entry, that was dropped while the disk took nothing leaves nothing older
// in force.
func TestNothingOlderComesBack(t *testing.T) {
	t.Parallel()
	const purged, replaced, written, other = 0, 1, 2, 3
	s := open(t, stateFile(t), t.Output())
	defer s.Close()
	until := time.Now().Add(time.Hour)
	fill(t, s, written)
	s.Save(site(written), text(written), until, "someone")
	s.writing, s.pending = s.pending, newBatch() // a commit is under way, and fails in the end
	s.Save(site(purged), []byte{0}, time.Now(), "")
	for i := range maxPending>>20 + 10 {
		s.Save(site(replaced+i), make([]byte, 1<<20), until, "someone")
	}
	check := func() {
		t.Helper()
		for _, i := range []int{purged, replaced, written, other} {
			want(t, s, i, nil)
		}
	}
	check()
	s.finishCommit(io.ErrShortWrite)
	check()
	mustDo(t, s.commit(t.Context(), false))
	check()
	if n := s.Stats().Lost; n < 10 || n > 12 {
		t.Errorf("%d entries are lost", n)
	}
}

// TestNewerCounts: a change whose write failed does not replace a later change.
func TestNewerCounts(t *testing.T) {
	s := open(t, stateFile(t), t.Output())
	defer s.Close()
	now := time.Now().Add(time.Hour)
	s.Save(site(0), []byte("old"), now, "someone")
	s.Save(site(1), []byte("only"), now, "someone")
	s.SaveClocks([]pace.Clock{{Key: "a.test", Gap: 1}, {Key: "b.test", Gap: 1}})
	s.writing, s.pending = s.pending, newBatch() // a commit is under way
	want(t, s, 0, []byte("old"))
	s.Save(site(0), []byte("new"), now, "someone")
	s.SaveClocks([]pace.Clock{{Key: "a.test", Gap: 2}})
	want(t, s, 0, []byte("new"))
	s.finishCommit(io.ErrShortWrite)
	want(t, s, 0, []byte("new"))
	want(t, s, 1, []byte("only"))
	if n := len(s.pending.tables[clockTable]); n != 2 || !bytes.Contains(s.pending.tables[clockTable]["a.test"], []byte(`:2`)) {
		t.Errorf("%d clocks: %q", n, s.pending.tables[clockTable]["a.test"])
	}
	if front := s.pending.order.Front().Value.(item).key; front != site(1).String() {
		t.Errorf("%s would be dropped first", front)
	}
}

// TestSlowDisk: Load ends with its context, and a Load of an entry that the file does not
// have need not wait.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, stateFile(t), t.Output())
		defer s.Close()
		fill(t, s, 1)
		s.turn <- struct{}{} // a commit stalls
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := s.Load(ctx, site(0)); got != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v", got, err)
		}
		s.Save(site(1), text(1), time.Now().Add(time.Hour), "someone")
		want(t, s, 1, text(1))
		want(t, s, 2, nil)
		<-s.turn
		s.Close()
		s = open(t, s.file, t.Output())
		s.turn <- struct{}{}
		want(t, s, 2, nil)
		<-s.turn
		want(t, s, 1, text(1))
	})
}

// TestParts: much is written in several commits, the oldest first, and the end is not
// marked before the last.
func TestParts(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	s := open(t, file, t.Output())
	was, parts := commits(t, s), 3
	bytes := make([]byte, maxCommit/10)
	for i := range parts * 10 {
		s.Save(site(i), bytes, time.Now().Add(time.Hour), "someone")
	}
	s.SaveClocks([]pace.Clock{{Key: "a.test", Gap: 1}})
	if more, err := s.commitPart(t.Context(), true); !more || err != nil {
		t.Fatal(more, err)
	}
	copied := stateFile(t)
	whole, err := os.ReadFile(file)
	mustDo(t, err)
	put(t, copied, whole)
	killed := open(t, copied, t.Output())
	defer killed.Close()
	want(t, killed, 0, bytes)
	want(t, killed, parts*10-1, nil)
	if killed.Since().IsZero() || len(killed.Clocks()) != 1 {
		t.Errorf("since %v, clocks %v", killed.Since(), killed.Clocks())
	}
	mustDo(t, s.commit(t.Context(), false))
	if n := commits(t, s) - was; n != parts {
		t.Errorf("%d commits, want %d", n, parts)
	}
	s.Close()
	s = open(t, file, t.Output())
	defer s.Close()
	for i := range parts * 10 {
		want(t, s, i, bytes)
	}
}

// TestTheFileKeepsSoManyClocks: where more hosts were told of, those that would be
// patient for longest are dropped, from the file and from what Clocks gives.
func TestTheFileKeepsSoManyClocks(t *testing.T) {
	t.Parallel()
	file := stateFile(t)
	const most = 1000
	open := func() *Store {
		s, err := Open(Options{File: file, MaxClocks: most, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		mustDo(t, err)
		return s
	}
	s := open()
	now := time.Now()
	clock := func(i int) pace.Clock {
		c := pace.Clock{Key: fmt.Sprintf("host-%d.test", i), BackOffUntil: now.Add(time.Hour)}
		if i%100 == 0 {
			c.BackOffUntil = now.Add(time.Minute)
		}
		return c
	}
	const total = 2 * most
	for from := 0; from < total; from += most / 2 {
		var some []pace.Clock
		for i := from; i < from+most/2; i++ {
			some = append(some, clock(i))
		}
		s.SaveClocks(some)
		mustDo(t, s.commit(t.Context(), false))
		if s.kept[clockTable] > most+most/clockSlack {
			t.Fatalf("%d clocks in the file", s.kept[clockTable])
		}
	}
	s.Close()
	s = open()
	defer s.Close()
	got, brief := s.Clocks(), 0
	for i := range got {
		if got[i].BackOffUntil.Before(now.Add(time.Hour)) {
			brief++
		}
	}
	if want := (total + 99) / 100; len(got) > most || brief != want {
		t.Errorf("%d clocks, %d of a brief pause; want %d at the most, %d", len(got), brief, most, want)
	}
}
