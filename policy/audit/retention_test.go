package audit

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit/trail"
)

// tidying runs a Log that tidies closed files, each of which takes a second to compress.
// step closes more of them, waits a second, and returns those that exist then.
func tidying(t *testing.T, most int, do func(step func(first ...uint64) []string)) {
	dir := t.TempDir()
	var told bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(Options{File: filepath.Join(dir, "audit.jsonl"), MaxFiles: most, Log: slog.New(slog.NewTextHandler(&told, nil))})
		if err != nil {
			t.Fatal(err)
		}
		l.segment.firstSeq = 100 // behind the segments that do writes
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.retention.run(ctx) }()
		synctest.Wait() // it has found nothing yet
		do(func(first ...uint64) (there []string) {
			for _, n := range first {
				text := strings.Repeat("x", maxCompressed)
				if err := os.WriteFile(trail.SegmentPath(l.opened.File, n), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l.rotated <- struct{}{}
			<-time.After(time.Second)
			synctest.Wait()
			names, err := filepath.Glob(filepath.Join(dir, "audit-*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				there = append(there, strings.TrimPrefix(filepath.Base(name), "audit-00000000000"))
			}
			return there
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if strings.Contains(told.String(), "not compressed or removed") {
		t.Errorf("the log: %s", &told)
	}
}

// TestCompressionTakesItsTime: files that are set aside all at once are compressed one
// after the other, the newest first; another brings none of them forward.
func TestCompressionTakesItsTime(t *testing.T) {
	tidying(t, 4, func(step func(...uint64) []string) {
		for i, want := range [][]string{
			{"1.jsonl", "2.jsonl", "2.jsonl.part", "3.jsonl.gz"},
			{"1.jsonl", "1.jsonl.part", "2.jsonl.gz", "3.jsonl.gz"},
			{"1.jsonl.gz", "2.jsonl.gz", "3.jsonl.gz"},
		} {
			var first []uint64
			if i == 0 {
				first = []uint64{1, 2, 3}
			}
			if got := step(first...); !slices.Equal(got, want) {
				t.Errorf("after %d s: %q, want %q", i+1, got, want)
			}
		}
	})
}

// TestTooManyWhileOneIsCompressed: that one is removed as well, and nothing is left of it.
func TestTooManyWhileOneIsCompressed(t *testing.T) {
	tidying(t, 2, func(step func(...uint64) []string) {
		for i, tt := range []struct {
			first []uint64
			want  []string
		}{
			{[]uint64{1, 2}, []string{"1.jsonl", "1.jsonl.part", "2.jsonl.gz"}},
			{[]uint64{3, 4}, []string{"3.jsonl", "4.jsonl", "4.jsonl.part"}}, // while 1 was compressed
			{nil, []string{"3.jsonl", "3.jsonl.part", "4.jsonl.gz"}},
			{nil, []string{"3.jsonl.gz", "4.jsonl.gz"}},
		} {
			if got := step(tt.first...); !slices.Equal(got, tt.want) {
				t.Errorf("step %d: %q, want %q", i, got, tt.want)
			}
		}
	})
}

// TestAgeWaitsForTheClock: no line is removed by its age before the wall clock has settled.
func TestAgeWaitsForTheClock(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(Options{File: filepath.Join(dir, "audit.jsonl"), MaxAge: day, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		writeAged(t, l, 3*day, []time.Duration{0, 0})
		segments, _, err := l.retention.segments()
		if err != nil || len(segments) != 2 {
			t.Fatal(segments, err)
		}
		for _, s := range segments {
			if err := os.Chtimes(s.Path, time.Time{}, time.Now().Add(-3*day)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.retention.run(ctx) }()
		removed := func() uint64 {
			synctest.Wait()
			return l.Stats().Removed["audit.max_age"]
		}
		<-time.After(settleTime - time.Minute)
		if n := removed(); n > 0 {
			t.Errorf("%d lines are removed", n)
		}
		<-time.After(2 * time.Minute)
		if n := removed(); n == 0 {
			t.Error("no line is removed")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCompressAnyName: a gzip header holds Latin-1 only (RFC 1952 2.3.1), but a file may have any name.
func TestCompressAnyName(t *testing.T) {
	segment := trail.SegmentPath(filepath.Join(t.TempDir(), "журнал.jsonl"), 1)
	if err := os.WriteFile(segment, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := compress(segment, func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(trail.GzipPath(segment)); err != nil {
		t.Error(err)
	}
}
