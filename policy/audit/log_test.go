package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

func open(t testing.TB, o Options) *Log {
	t.Helper()
	if o.File == "" {
		o.File = filepath.Join(t.TempDir(), "audit.jsonl")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func close(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// chained reads the whole trail of a file, and fails where its chain does not hold.
// It gives, for each line, its decision or its event.
func chained(t testing.TB, file string) (said []string) {
	t.Helper()
	r, err := trail.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var last trail.Link
	for {
		line, err := r.Next()
		if err == io.EOF {
			return said
		}
		if err != nil {
			t.Fatalf("%s:%d: %v", line.File, line.Number, err)
		}
		l, err := trail.ReadLink(line.Text)
		if err != nil || l.Seq != last.Seq+1 && last.Seq > 0 || l.Prev != last.Hash && last.Seq > 0 {
			t.Fatalf("%s:%d: %v: %d after %d", line.File, line.Number, err, l.Seq, last.Seq)
		}
		last = l
		e, err := trail.Read(line.Text)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, e.Decision+e.Event)
	}
}

func TestRefusalIsInTheFileWhenWriteReturns(t *testing.T) {
	l := open(t, Options{})
	l.Write(allowed())
	if got := chained(t, l.opened.File); got != nil {
		t.Errorf("an allowed request's record was not batched: %q", got)
	}
	if err := l.Write(refused()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(chained(t, l.opened.File), " "); got != "allow block" {
		t.Errorf("not both records, in their order: %q", got)
	}
}

func TestNoRefusalIsLostToASlowDisk(t *testing.T) {
	l := open(t, Options{})
	r := refused()
	r.Request.PathQuery = strings.Repeat("x", 8<<10)
	const writers = maxPending/(8<<10) + 200
	l.io.TryLock() // as a goroutine that waits for the disk does
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			if err := l.Write(r); err != nil {
				t.Error(err)
			}
		})
	}
	for came := int64(0); came < writers; runtime.Gosched() {
		l.mu.Lock()
		came = int64(l.seq) + l.lost
		l.mu.Unlock()
	}
	l.io.Unlock()
	all.Wait()
	if got := len(chained(t, l.opened.File)); got != writers {
		t.Errorf("%d lines of %d refusals that were answered", got, writers)
	}
}

func TestBatchesAreWrittenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		go l.Run(ctx)
		l.Write(allowed())
		<-time.After(batchDelay + time.Millisecond)
		if chained(t, l.opened.File) == nil {
			t.Error("the record is still not written")
		}
		cancel()
		synctest.Wait()
	})
}

// TestAllowedRequestsDoNotQueue: a write does not delay allowed requests; a batch that is due
// waits for the next caller.
func TestAllowedRequestsDoNotQueue(t *testing.T) {
	l := open(t, Options{})
	l.io.TryLock() // another goroutine writes
	for len(l.buf) < 2*batchBytes {
		if err := l.Write(allowed()); err != nil {
			t.Fatal(err)
		}
	}
	l.io.Unlock()
	if err := l.Write(allowed()); err != nil || l.Stats().Waiting > 0 {
		t.Errorf("%d lines are still not written (%v)", l.Stats().Waiting, err)
	}
	close(t, l)
}

func TestIncludeBlocked(t *testing.T) {
	l := open(t, Options{BlockedOnly: true})
	l.Write(allowed())
	l.Write(refused())
	close(t, l)
	if got := strings.Join(chained(t, l.opened.File), " "); got != "block" {
		t.Errorf("got %q", got)
	}
}

func TestChainGoesOnAcrossRestartsAndFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	const each, lives = 300, 4
	for range lives {
		l := open(t, Options{File: file, MaxSize: 64 << 10})
		for range each {
			if err := l.Write(refused()); err != nil {
				t.Fatal(err)
			}
		}
		close(t, l)
	}
	if got := len(chained(t, file)); got != each*lives {
		t.Errorf("%d lines, want %d", got, each*lives)
	}
	files, err := trail.Segments(file)
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil || info.Size() > 64<<10 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Path, info, err)
		}
	}
	if first, err := os.ReadFile(files[0].Path); err != nil || !strings.Contains(string(first), `"seq":1,"prev":"`+strings.Repeat("0", 64)+`"`) {
		t.Errorf("the first line does not begin a chain: %v", err)
	}
}

// tidied compresses all files that were set aside, without a rest.
func tidied(t *testing.T, l *Log) {
	t.Helper()
	for plain := []string{""}; len(plain) > 0; {
		var err error
		if plain, err = l.retention.prune(); err == nil {
			err = compressOne(t.Context(), plain, func(int) error { return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestOldFilesAreCompressedAndRemoved(t *testing.T) {
	l := open(t, Options{MaxSize: 64 << 10, MaxFiles: 3})
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	if err := os.WriteFile(trail.SegmentPath(l.opened.File, 1)+partialExt, nil, 0o600); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	for range 1000 {
		l.Write(refused())
	}
	running.Go(func() { l.Run(ctx) })
	for range 1000 {
		if err := l.Write(refused()); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	running.Wait()
	tidied(t, l)
	files, err := trail.Segments(l.opened.File)
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files[:3] {
		if !f.Gzip {
			t.Errorf("%s is not compressed", f.Path)
		}
	}
	close(t, l)
	before := len(chained(t, l.opened.File)) // which holds across compressed files
	again := open(t, Options{File: l.opened.File})
	again.Write(refused())
	if got := len(chained(t, l.opened.File)); got != before+1 {
		t.Errorf("%d lines, want %d", got, before+1)
	}
	if rest, _ := filepath.Glob(filepath.Join(filepath.Dir(l.opened.File), "*"+partialExt)); rest != nil {
		t.Errorf("left behind: %q", rest)
	}
}

func TestChainGoesOnBehindAFileThatIsCompressed(t *testing.T) {
	l := open(t, Options{MaxSize: 64 << 10})
	for range 200 {
		l.Write(refused())
	}
	l.probe(true)
	tidied(t, l)
	close(t, l)
	if err := os.Remove(l.opened.File); err != nil { // as if the end had come before the new file's first line
		t.Fatal(err)
	}
	before := len(chained(t, l.opened.File))
	cutTree(t, l.opened.File, uint64(before)+1)
	again := open(t, Options{File: l.opened.File})
	again.Write(refused())
	if got := len(chained(t, l.opened.File)); got != before+1 {
		t.Errorf("%d lines, want %d", got, before+1)
	}
}

func TestTornEndIsMovedAwayWithAnEvent(t *testing.T) {
	whole := func(n int) string {
		var b []byte
		var hash trail.Hash
		for i := range n {
			start := len(b)
			b, hash = trail.AppendLink(append(b, `{"decision":"allow"`...), start, uint64(i+1), hash)
		}
		return string(b)
	}
	lines := whole(3)
	changed := strings.Replace(lines, `{"decision":"allow","seq":3`, `{"decision":"block","seq":3`, 1)
	for _, c := range []struct{ name, before, aside, kind, want string }{
		{"whole", lines, "", "", "allow allow allow block"},
		{"empty", "", "", "", "block"},
		{"torn within a line", lines + `{"time":"2026-11`, `{"time":"2026-11`, "torn", "allow allow allow torn block"},
		{"torn within the hash", lines[:len(lines)-9], lines[len(whole(2)) : len(lines)-9], "torn", "allow allow torn block"},
		{"torn at the line feed", lines[:len(lines)-1], lines[len(whole(2)) : len(lines)-1], "torn", "allow allow torn block"},
		{"noughts behind, as after a loss of power", lines + strings.Repeat("\x00", 5000), strings.Repeat("\x00", 5000), "torn", "allow allow allow torn block"},
		{"lines of something else behind", lines + "{}\nhello\n", "{}\nhello\n", "torn", "allow allow allow torn block"},
		{"torn within the first line", `{"time":"20`, `{"time":"20`, "unchained", "unchained block"},
		{"a log without a chain", `{"decision":"allow"}` + "\n", `{"decision":"allow"}` + "\n", "unchained", "unchained block"},
		{"a last line that was changed stays, to be found", changed, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.jsonl")
			if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			l := open(t, Options{File: file})
			if begun, _ := os.ReadFile(file); c.kind != "" && !strings.Contains(string(begun), `"event":"`+c.kind+`"`) {
				t.Errorf("not said at once: %q", begun)
			}
			if err := l.Write(refused()); err != nil {
				t.Fatal(err)
			}
			close(t, l)
			if c.want == "" {
				text, _ := os.ReadFile(file)
				if !strings.HasPrefix(string(text), c.before) || !strings.Contains(string(text[len(c.before):]), `"seq":4`) {
					t.Errorf("got %q", text)
				}
				return
			}
			if got := strings.Join(chained(t, file), " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			isAside(t, file, c.kind, c.aside)
		})
	}
}

// isAside fails unless this was set aside of the file, for that kind of damage; of none, nothing.
func isAside(t *testing.T, file, kind, aside string) {
	t.Helper()
	asides, _ := filepath.Glob(file + ".[tu]*")
	if kind == "" {
		if asides != nil {
			t.Errorf("set aside: %q", asides)
		}
		return
	}
	if len(asides) != 1 || !strings.Contains(asides[0], "."+kind+"-") {
		t.Fatalf("set aside: %q", asides)
	}
	if got, err := os.ReadFile(asides[0]); err != nil || string(got) != aside {
		t.Errorf("set aside: %q, %v; want %q", got, err, aside)
	}
	text, _ := os.ReadFile(file)
	if !strings.Contains(string(text), fmt.Sprintf(`"file":%q,"octets":%d`, filepath.Base(asides[0]), len(aside))) {
		t.Errorf("no line names what was set aside: %s", text)
	}
}

func TestOpenErrorNamesTheFile(t *testing.T) {
	_, err := Open(Options{File: filepath.Join(t.TempDir(), "absent", "audit.jsonl"), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), filepath.Join("absent", "audit.jsonl")) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("opened without a name")
	}
}

func TestManyWritersShareWrites(t *testing.T) {
	for _, s := range []Sync{SyncInterval, SyncNone, SyncAlways} {
		l := open(t, Options{Sync: s})
		writers, each := 16, testkit.Rounds(50)
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range each {
					if err := l.Write(refused()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if got := len(chained(t, l.opened.File)); got != writers*each {
			t.Errorf("%d lines, want %d", got, writers*each)
		}
	}
}

func BenchmarkLogWrite(b *testing.B) {
	for name, o := range map[string]Options{
		"allowed": {}, "refused/none": {Sync: SyncNone}, "refused/interval": {}, "refused/always": {Sync: SyncAlways},
	} {
		b.Run(name, func(b *testing.B) {
			o.MaxSize = 1 << 40
			l := open(b, o)
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			running.Go(func() { l.Run(ctx) })
			r := refused()
			if name == "allowed" {
				r = allowed()
			}
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Write(r)
				}
			})
			rate := float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(rate, "records/s")
			if name == "refused/interval" && b.N >= 20_000 && rate < 20_000 {
				b.Errorf("%.0f records a second, want 20,000", rate)
			}
			cancel()
			running.Wait()
			os.Remove(l.opened.File)
		})
	}
}
