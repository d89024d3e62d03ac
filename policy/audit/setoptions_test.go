package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"robotsproxy/policy/audit/trail"
)

// TestUse: of each record it is the Options in force when it is written that count;
// the chain goes on.
func TestUse(t *testing.T) {
	l := open(t, Options{})
	named := func(r *Record) *Record {
		r.Request.Client, r.Request.PathQuery = "lab-a", "/page?q=1"
		return r
	}
	write := func(o Options) string {
		t.Helper()
		l.SetOptions(o)
		if err := errors.Join(l.Write(named(allowed())), l.Write(named(refused()))); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(l.opened.File)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		return strings.Join(lines[max(0, len(lines)-3):], "")
	}
	if got := write(Options{}); strings.Count(got, `"client":"lab-a"`) != 2 || strings.Count(got, "?q=1") != 2 {
		t.Errorf("at first: %s", got)
	}
	if got := write(Options{DropQuery: true, Client: func(string) string { return "X" }}); strings.Contains(got, "?q=1") || strings.Count(got, `"client":"X"`) != 2 {
		t.Errorf("discreet: %s", got)
	}
	if got := write(Options{BlockedOnly: true, Client: Anonymous}); strings.Count(got, `"client":"X"`) != 1 {
		t.Errorf("blocked alone, and nobody's: %s", got)
	}
	close(t, l)
	if got := chained(t, l.opened.File); !slices.Equal(got, []string{"allow", "block", "allow", "block", "block"}) {
		t.Errorf("the chain has %q", got)
	}
}

// TestSetOptionsContinue: a failure refuses, or not, as the Options in force say.
func TestSetOptionsContinue(t *testing.T) {
	l := open(t, Options{})
	defer stop(t, l)()
	if err := l.Write(refused()); err == nil || l.Refusal() == nil {
		t.Fatalf("a full disk: %v, %v", err, l.Refusal())
	}
	l.SetOptions(Options{Continue: true})
	if err := l.Write(refused()); err != nil || l.Refusal() != nil || l.Err() == nil {
		t.Errorf("on_error: continue: %v, %v, health %v", err, l.Refusal(), l.Err())
	}
	l.SetOptions(Options{})
	if l.Refusal() == nil {
		t.Error("on_error: refuse, again: nothing is refused")
	}
}

// TestSetOptionsSizes: a smaller file is full sooner, and fewer are kept at once.
func TestSetOptionsSizes(t *testing.T) {
	l := open(t, Options{})
	fill := func(n int) {
		for range n {
			if err := l.Write(refused()); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(4)
	l.SetOptions(Options{MaxSize: 1})
	fill(4)
	if files, _ := trail.Segments(l.opened.File); len(files) != 5 {
		t.Errorf("%d files", len(files))
	}
	<-l.rotated
	l.SetOptions(Options{MaxFiles: 2})
	if len(l.rotated) != 1 {
		t.Error("nobody looks how many there are")
	}
	if _, err := l.retention.prune(); err != nil {
		t.Fatal(err)
	}
	if files, _ := trail.Segments(l.opened.File); len(files) != 3 {
		t.Errorf("%d files are kept", len(files))
	}
}

// TestSetOptionsSync: from the moment of the change, a refusal waits for the disk.
func TestSetOptionsSync(t *testing.T) {
	l := open(t, Options{Sync: SyncNone})
	for _, c := range []struct {
		how  Sync
		want bool
	}{{SyncNone, false}, {SyncAlways, true}, {SyncNone, false}} {
		l.SetOptions(Options{Sync: c.how})
		if err := l.Write(refused()); err != nil {
			t.Fatal(err)
		}
		if got := l.synced == l.written; got != c.want {
			t.Errorf("%v: on the disk: %v", c.how, got)
		}
	}
}

// TestSetOptionsUnderLoad: under the race detector.
func TestSetOptionsUnderLoad(t *testing.T) {
	l := open(t, Options{})
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				if err := l.Write(refused()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 100 {
		l.SetOptions(Options{MaxSize: int64(1+i) << 10, Sync: Sync(i % 2), DropQuery: i%3 == 0, Client: func(c string) string { return fmt.Sprint(c, i) }})
		l.Refusal()
	}
	writers.Wait()
	close(t, l)
	if got := len(chained(t, l.opened.File)); got != 400 {
		t.Errorf("%d lines", got)
	}
}
