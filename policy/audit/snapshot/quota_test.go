package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// incompressible is a robots.txt of n bytes that no compression makes smaller.
func incompressible(n, seed int) string {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	text := make([]byte, n)
	random.Read(text)
	return string(text)
}

// space is what the files of a directory take on the disk, as the ledger counts it.
func space(t testing.TB, dir string) (total int64) {
	t.Helper()
	for name, size := range tree(t, dir) {
		if !strings.HasPrefix(name, indexName) {
			size = onDisk(size)
		}
		total += size
	}
	return total
}

// TestCeilingHoldsWithinADay: hosts with a different large file each cannot take more
// than MaxSize, although nothing of the last day may be removed. What is kept stays,
// and hosts whose file is kept go on.
func TestCeilingHoldsWithinADay(t *testing.T) {
	s := open(t, Options{MaxSize: 1 << 20, NoSync: true})
	known, err := 0, error(nil)
	for n := range 20 {
		err = s.Save(answer("a.test", incompressible(robots.MaxBytes, n), n), "192.0.2.1")
		switch {
		case err == nil && n == known:
			known++
		case !errors.Is(err, audit.ErrNoSpace):
			t.Fatalf("file %d: %v", n, err)
		}
		if got := space(t, s.o.Dir); got > 1<<20 || got != s.Stats().Bytes {
			t.Fatalf("%d bytes after %d files, %d are counted", got, n+1, s.Stats().Bytes)
		}
	}
	if known == 0 {
		t.Fatal("nothing was kept")
	}
	if err := s.Prune(time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for n := range known {
		fetchedAnew := answer("a.test", incompressible(robots.MaxBytes, n), 100+n)
		if err := s.Save(fetchedAnew, "192.0.2.1"); err != nil {
			t.Errorf("a host whose file is kept: %v", err)
		}
		if _, err := Read(s.o.Dir, fetchedAnew.SHA256); err != nil {
			t.Errorf("evidence of today is gone: %v", err)
		}
	}
	if got := s.Stats(); got.Refused != uint64(20-known) || got.SaveFailed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestCeilingHoldsTogether: space is taken before anything is written.
func TestCeilingHoldsTogether(t *testing.T) {
	s := open(t, Options{MaxSize: 1 << 20, NoSync: true})
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			a := answer("a.test", incompressible(100_000, n), n)
			if err := s.Save(a, fmt.Sprint("client", n%8)); err != nil && !errors.Is(err, audit.ErrNoSpace) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := space(t, s.o.Dir); got > 1<<20 || got != s.Stats().Bytes {
		t.Errorf("%d bytes, %d are counted", got, s.Stats().Bytes)
	}
	if s.quota.reserved != 0 {
		t.Errorf("%d bytes are still being written", s.quota.reserved)
	}
}

// fill has client bring different files of some 50 blocks until it is refused, and
// says how many were kept.
func fill(t *testing.T, s *Store, client string) (kept int) {
	t.Helper()
	for n := range 1000 {
		host := fmt.Sprint(client, s.Stats().Saved) // no two are alike
		err := s.Save(answer(host, host+incompressible(200_000, n), n), client)
		if errors.Is(err, audit.ErrNoSpace) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("never refused")
	return 0
}

// TestGreedyClientIsRefusedFirst: a client that has used its share leaves space for
// others.
func TestGreedyClientIsRefusedFirst(t *testing.T) {
	const most = 8 << 20
	s := open(t, Options{MaxSize: most, NoSync: true})
	first := fill(t, s, "greedy")
	if used := s.Stats().Bytes; used > most/5*4 || used < most/10*7 {
		t.Errorf("a lone client has filled %d bytes of %d", used, most)
	}
	for n := range 50 {
		keep(t, s, answer("honest.test", fmt.Sprint("honest", n), n))
	}
	if second := fill(t, s, "another"); second == 0 || second > first/2 {
		t.Errorf("after %d files of one client, another has kept %d", first, second)
	}
	keep(t, s, answer("honest.test", "still", 99))
	if n := fill(t, s, "greedy"); n != 0 {
		t.Errorf("the first has kept %d files more", n)
	}
}

// TestShareIsOfANetwork: all addresses of an IPv6 /56 are one client.
func TestShareIsOfANetwork(t *testing.T) {
	s := open(t, Options{MaxSize: 1 << 20, NoSync: true})
	var err error
	for n := 0; err == nil && n < 100; n++ {
		err = s.Save(answer("a.test", incompressible(50_000, n), n), fmt.Sprintf("2001:db8:0:%x::1", n))
	}
	if !errors.Is(err, audit.ErrNoSpace) || s.Stats().Bytes > 1<<20/5*4 {
		t.Errorf("%v after %d bytes", err, s.Stats().Bytes)
	}
	if err := s.Save(answer("a.test", "other", 1), "2001:db8:0:100::1"); err != nil {
		t.Errorf("another network: %v", err)
	}
}

// TestOldFilesMakeRoom: near the ceiling, Run removes what is too old to be spared, and
// shares count what was added lately alone.
func TestOldFilesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{MaxSize: 4 << 20, NoSync: true})
		wait := serve(t, s)
		oldest := answer("a.test", "oldest", 1)
		keep(t, s, oldest)
		<-time.After(time.Hour)
		fill(t, s, "someone")
		wait()
		if n := fill(t, s, "someone"); n != 0 {
			t.Errorf("%d files more within the day", n)
		}
		<-time.After(2*day + time.Hour)
		if n := fill(t, s, "someone"); n == 0 {
			t.Error("nothing is kept two days later")
		}
		wait()
		if _, err := Read(s.o.Dir, oldest.SHA256); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the oldest is there: %v", err)
		}
		if n := fill(t, s, "another"); n == 0 {
			t.Error("nothing is kept after old files went")
		}
		if got := space(t, s.o.Dir); got > 4<<20 {
			t.Errorf("%d bytes", got)
		}
	})
}

// A told is a log that a test reads while it is written.
type told struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *told) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *told) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestFullFolderIsTold: the log reports it at once, also after a search for files to remove found too
// little, and later how many were refused since.
func TestFullFolderIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(told)
		s := open(t, Options{MaxSize: 1 << 20, NoSync: true})
		s.o.Log = slog.New(slog.NewTextHandler(said, nil))
		wait := serve(t, s)
		for n := 0; !s.quota.nearlyFull(); n++ {
			testkit.Must(t, s.Save(answer("some.test", incompressible(100_000, n), n), fmt.Sprint("client", n)))
		}
		wait()
		fill(t, s, "someone")
		wait()
		for range 5 {
			fill(t, s, "someone")
		}
		wait()
		if n := strings.Count(said.String(), "snapshot folder full"); n != 1 || !strings.Contains(said.String(), "refused=1\n") {
			t.Errorf("said: %s", said.String())
		}
		<-time.After(fullRetry)
		wait()
		if !strings.Contains(said.String(), "refused=5\n") {
			t.Errorf("said later: %s", said.String())
		}
	})
}

// TestFullDirectoryTakenAway: the space of a directory that was removed is free at once, not after a day.
func TestFullDirectoryTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{MaxSize: 1 << 20, NoSync: true})
		wait := serve(t, s)
		kept := fill(t, s, "someone")
		wait()
		testkit.Must(t, os.RemoveAll(s.o.Dir))
		testkit.Must(t, s.Flush())
		wait()
		if used := s.Stats().Bytes; used != 0 {
			t.Errorf("%d bytes count, though all were removed", used)
		}
		if n := fill(t, s, "another"); n < kept {
			t.Errorf("%d files are kept anew, %d were before", n, kept)
		}
	})
}

// serve runs Run until the test ends. It returns a function that waits until Run is idle.
func serve(t *testing.T, s *Store) (wait func()) {
	ended := make(chan error)
	ctx := t.Context()
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return synctest.Wait
}

// TestNoRoomForALine: a host whose file is kept goes on without its line, and one
// without a file is refused.
func TestNoRoomForALine(t *testing.T) {
	s := open(t, Options{NoSync: true})
	keep(t, s, answer("a.test", text, 1))
	s.quota.setMax(s.Stats().Bytes)
	for range 2 {
		keep(t, s, answer("a.test", text, 2))
	}
	if n := len(index(t, s.o.Dir, "")); n != 1 || s.Stats().Unindexed != 1 {
		t.Errorf("%d lines, %+v", n, s.Stats())
	}
	none := &fetch.Result{URL: "http://d.test/robots.txt", Status: 404, Fetched: time.Now()}
	if err := s.Save(none, "someone"); !errors.Is(err, audit.ErrNoSpace) {
		t.Errorf("an answer that leaves no trace: %v", err)
	}
	s.quota.setMax(0)
	keep(t, s, none)
}

// TestSpaceOfAFile: what is taken for a file before it is written is enough for it.
func TestSpaceOfAFile(t *testing.T) {
	s := open(t, Options{NoSync: true})
	for _, n := range []int{0, 1, 4000, blockSize, 65_535, 65_536, 200_000, robots.MaxBytes} {
		for _, text := range []string{incompressible(n, 1), strings.Repeat("a", n)} {
			size, err := s.disk.writeFile(answer("a.test", text, 1), time.Now())
			if err != nil || size > maxOnDisk(n) {
				t.Errorf("%d bytes of %d, taken %d: %v", size, n, maxOnDisk(n), err)
			}
		}
	}
}

// TestRestartCounts: what is there counts before anything is kept.
func TestRestartCounts(t *testing.T) {
	s := open(t, Options{MaxSize: 1 << 20, NoSync: true})
	fill(t, s, "someone")
	before := s.Stats().Bytes
	s = open(t, Options{Dir: s.o.Dir, MaxSize: before, NoSync: true})
	if got := s.Stats().Bytes; got != before {
		t.Errorf("%d bytes are counted of %d", got, before)
	}
	if err := s.Save(answer("b.test", "new", 1), "another"); !errors.Is(err, audit.ErrNoSpace) {
		t.Error(err)
	}
}

// TestFailedWriteTakesNoSpace: neither of all nor of the client's.
func TestFailedWriteTakesNoSpace(t *testing.T) {
	s := open(t, Options{MaxSize: 1 << 20, NoSync: true})
	a := answer("a.test", text, 1)
	if err := os.WriteFile(s.o.Dir+"/"+a.SHA256[:2], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(a, "someone"); err == nil {
		t.Fatal("kept where nothing can be")
	}
	if l := &s.quota; l.total != 0 || l.reserved != 0 || l.today["someone"] != 0 {
		t.Errorf("%+v", l.today)
	}
}

// TestSharesAreBounded: clients beyond the number that is remembered have one share.
func TestSharesAreBounded(t *testing.T) {
	l := quota{max: 1 << 40}
	now := time.Now()
	for n := range 2 * maxShares {
		if err := l.reserve(fmt.Sprint("client", n), 1, fileWeight, now); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.today) > maxShares+1 || l.today[""] != maxShares {
		t.Errorf("%d shares, %d bytes of others", len(l.today), l.today[""])
	}
	l.startDay(now.Add(day))
	if len(l.today) != 0 || len(l.yesterday) != maxShares+1 {
		t.Errorf("the next day: %d, %d", len(l.today), len(l.yesterday))
	}
	l.startDay(now.Add(2 * day))
	if l.startDay(now.Add(4 * day)); len(l.yesterday) != 0 {
		t.Errorf("after a quiet day: %d", len(l.yesterday))
	}
}

// TestShareOutlivesMidnight: what began before midnight and is counted after it does not forget what clients have added.
func TestShareOutlivesMidnight(t *testing.T) {
	q := quota{max: 1 << 40}
	midnight := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{midnight.Add(-time.Hour), midnight, midnight.Add(-1), midnight.Add(1)} {
		testkit.Must(t, q.reserve("someone", 1, fileWeight, now))
	}
	if q.today["someone"] != 3 || q.yesterday["someone"] != 1 {
		t.Errorf("today %v, yesterday %v", q.today, q.yesterday)
	}
}
