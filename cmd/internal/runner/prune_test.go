package runner

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/osfile"
	"robotsproxy/robots/testkit"
)

const day = 24 * time.Hour

// newPruner returns a pruner of an empty directory.
func newPruner(t *testing.T, maxAge time.Duration, maxNumber int) pruner {
	t.Helper()
	return pruner{config.Runs{MaxAge: maxAge, MaxNumber: maxNumber}, filepath.Join(t.TempDir(), "runs"), slog.New(slog.DiscardHandler)}
}

// add makes the directory of a run that ended some time ago, with files. A name that ends in "/" is a directory.
func (p pruner) add(t *testing.T, name string, ago time.Duration, files ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(p.dir, name)
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	for _, file := range files {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
	}
	testkit.Must(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-ago)))
	return dir
}

// left returns the names that are left.
func (p pruner) left(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	testkit.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func lockFile(t *testing.T, name string) {
	t.Helper()
	f, err := osfile.OpenFile(name, os.O_RDWR, 0)
	testkit.Must(t, err)
	testkit.Must(t, osfile.TryLock(f))
	t.Cleanup(func() { f.Close() })
}

// run returns the name of a run that began on a day of January.
func run(day int) string { return fmt.Sprintf("202601%02dT000000Z-7", day) }

func TestPrune(t *testing.T) {
	const audit = "audit.jsonl"
	finished := []string{runLock, audit, audit + ".lock", "snapshots/ab/cd", "proxy.log"}
	for _, c := range []struct {
		name      string
		maxAge    time.Duration
		maxNumber int
		make      func(t *testing.T, p pruner)
		left      []string
	}{
		{"old ones", 90 * day, 0, func(t *testing.T, p pruner) {
			p.add(t, run(1), 91*day, finished...)
			p.add(t, run(2)+".2", 91*day, finished...)
			p.add(t, run(3), 89*day, finished...)
		}, []string{run(3)}},
		{"those that ended first", 0, 2, func(t *testing.T, p pruner) {
			p.add(t, run(1), 1*day, finished...) // it took longer than the others
			p.add(t, run(2), 3*day, finished...)
			p.add(t, run(3), 2*day, finished...)
		}, []string{run(1), run(3)}},
		{"without a limit", 0, 0, func(t *testing.T, p pruner) {
			p.add(t, run(1), 9999*day, finished...)
		}, []string{run(1)}},
		{"one that lasts", day, 1, func(t *testing.T, p pruner) {
			lockFile(t, filepath.Join(p.add(t, run(1), 99*day, finished...), runLock))
			p.add(t, run(2), 99*day, finished...)
		}, []string{run(1)}},
		{"one of an earlier version that lasts", day, 0, func(t *testing.T, p pruner) {
			lockFile(t, filepath.Join(p.add(t, run(1), 99*day, finished[1:]...), audit+".lock"))
			p.add(t, run(2), 99*day, finished[1:]...)
		}, []string{run(1)}},
		{"one that another process makes", 0, 1, func(t *testing.T, p pruner) {
			p.add(t, run(1), time.Minute)
			p.add(t, run(2), time.Second)
			p.add(t, run(3), day)
		}, []string{run(1), run(2)}},
		{"what is no run", time.Second, 0, func(t *testing.T, p pruner) {
			p.add(t, "notes", day)
			p.add(t, run(1)+".old", day)
			p.add(t, "x"+run(1), day)
			testkit.Must(t, os.WriteFile(filepath.Join(p.dir, run(1)), nil, 0o600))
		}, []string{run(1), run(1) + ".old", "notes", "x" + run(1)}},
		{"what a pruner left behind", 0, 0, func(t *testing.T, p pruner) {
			p.add(t, prunedPrefix+run(1), 0, finished[3:]...)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPruner(t, c.maxAge, c.maxNumber)
			c.make(t, p)
			if _, err := p.prune(t.Context(), time.Now()); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(c.left, p.left(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPruneFollowsNoLink: neither a link in the place of a run, nor one within a run, nor one in the place of all runs.
func TestPruneFollowsNoLink(t *testing.T) {
	p, precious := newPruner(t, time.Second, 0), t.TempDir()
	kept := filepath.Join(precious, run(1), "kept")
	testkit.Must(t, os.MkdirAll(filepath.Dir(kept), 0o700))
	testkit.Must(t, os.WriteFile(kept, nil, 0o600))
	dir := p.add(t, run(2), day, runLock)
	testkit.Must(t, os.Symlink(kept, filepath.Join(dir, "audit.jsonl")))
	testkit.Must(t, os.Symlink(filepath.Dir(kept), filepath.Join(dir, "snapshots")))
	testkit.Must(t, os.Symlink(filepath.Dir(kept), filepath.Join(p.dir, run(3))))
	locked := p.add(t, run(4), day)
	testkit.Must(t, os.Symlink(kept, filepath.Join(locked, runLock)))
	for _, dir := range []string{dir, locked} {
		testkit.Must(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-day)))
	}
	all := filepath.Join(t.TempDir(), "runs")
	testkit.Must(t, os.Symlink(precious, all))
	for _, p := range []pruner{p, {p.Runs, all, p.log}} {
		if _, err := p.prune(t.Context(), time.Now().Add(day)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{run(3), run(4)}, p.left(t)); diff != "" {
		t.Error(diff)
	}
}

// TestPruneEndsInTime: a pruner whose time has passed removes nothing, and the next one removes what is left.
func TestPruneEndsInTime(t *testing.T) {
	p := newPruner(t, time.Second, 0)
	p.add(t, run(1), day, runLock)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := p.prune(over, time.Now()); n != 0 || err != nil || len(p.left(t)) != 1 {
		t.Errorf("%d removed, %v", n, err)
	}
	p.start()()
	if left := p.left(t); left != nil {
		t.Errorf("left: %v", left)
	}
}

// TestRunsPruneAtOnce: while some processes prune, others begin, and none of these loses its directory.
func TestRunsPruneAtOnce(t *testing.T) {
	p := newPruner(t, 0, 3)
	for i := range 28 {
		p.add(t, run(1+i), 2*day, runLock, "snapshots/a", "audit.jsonl.lock")
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var lasting []string
	for range 4 {
		all.Go(func() {
			for range 10 {
				if _, err := p.prune(t.Context(), time.Now()); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 10 {
				dir, lock, err := newRunDir(filepath.Dir(p.dir), time.Now(), 7)
				if err != nil {
					t.Error(err)
					continue
				}
				t.Cleanup(func() { lock.Close() })
				mu.Lock()
				lasting = append(lasting, filepath.Base(dir))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if _, err := p.prune(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	slices.Sort(lasting)
	if len(lasting) != 40 || !slices.Equal(lasting, p.left(t)) {
		t.Errorf("%d directories of runs that last:\n%s\nleft:\n%s", len(lasting), strings.Join(lasting, "\n"), strings.Join(p.left(t), "\n"))
	}
}
