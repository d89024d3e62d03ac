package audit

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

// stop has all writing to l's file fail, until it is undone.
func stop(t *testing.T, l *Log) (undo func()) {
	t.Helper()
	reading, err := os.Open(l.opened.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reading.Close() })
	swap := func(f *os.File) *os.File {
		testkit.Must(t, l.lock())
		defer l.unlock()
		was := l.segment.file
		l.segment.file = f
		return was
	}
	was := swap(reading)
	return func() { swap(was) }
}

func TestUnwritableRefusesUntilAProbeSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		go l.Run(ctx)
		undo := stop(t, l)
		if err := l.Write(refused()); !errors.Is(err, ErrUnwritable) {
			t.Fatalf("a refusal whose record was not written: %v", err)
		}
		if err := l.Refusal(); !errors.Is(err, ErrUnwritable) {
			t.Errorf("what follows is not refused: %v", err)
		}
		undo()
		<-time.After(probeDelay + 2*batchDelay)
		if err := l.Refusal(); err != nil {
			t.Errorf("still refusing after a probe could write: %v", err)
		}
		if got := chained(t, l.opened.File); !slices.Equal(got, []string{"block"}) {
			t.Errorf("got %q", got)
		}
		cancel()
		synctest.Wait()
	})
}

func TestLineThatIsNotWrittenIsAnErrorWhateverTheProbeSays(t *testing.T) {
	for _, full := range []bool{false, true} {
		l := open(t, Options{})
		undo := stop(t, l)
		l.Write(refused())
		if full {
			l.buf = append(l.buf, make([]byte, maxPending+1)...)
		}
		seq, _, err := l.add(refused())
		if (err != nil) != full {
			t.Fatal(err)
		}
		if !full && l.commit(seq) == nil {
			t.Error("a line that waits for the probe counts as written")
		}
		undo()
	}
}

func TestOnErrorContinue(t *testing.T) {
	l := open(t, Options{Continue: true})
	undo := stop(t, l)
	if err := l.Write(refused()); err != nil || l.Refusal() != nil {
		t.Errorf("refuses although it may go on: %v", err)
	}
	if l.Err() == nil {
		t.Error("health does not hear of it")
	}
	undo()
}

func TestWhatIsLostIsCounted(t *testing.T) {
	l := open(t, Options{Continue: true})
	undo := stop(t, l)
	r := refused()
	const size = 8 << 10
	r.Request.PathQuery = strings.Repeat("x", size)
	const written = 2 * maxPending / size
	for range written {
		l.Write(r)
	}
	if held := len(l.buf) + len(l.writing); held > 2*(maxPending+2*size) {
		t.Errorf("%d bytes are kept", held)
	}
	undo()
	l.probe(false)
	l.Write(refused())
	close(t, l)
	said := chained(t, l.opened.File)
	i := slices.Index(said, "lost")
	if i != len(said)-2 {
		t.Fatalf("the loss is line %d of %d", i+1, len(said))
	}
	text, _ := os.ReadFile(l.opened.File)
	lines := bytes.Split(text, []byte("\n"))
	if want := []byte(`"count":` + strconv.Itoa(written-i) + `,`); !bytes.Contains(lines[i], want) {
		t.Errorf("%s in %s", want, lines[i])
	}
	if cap(l.buf)+cap(l.writing) > 16*batchBytes {
		t.Errorf("%d bytes are still held", cap(l.buf)+cap(l.writing))
	}
}

func TestFileTakenAwayIsBegunAnew(t *testing.T) {
	for name, c := range map[string]struct {
		away func(file string) error
		want string
	}{
		"removed":  {os.Remove, "block replaced"},
		"moved":    {func(file string) error { return os.Rename(file, file+".old") }, "block replaced"},
		"replaced": {func(file string) error { os.Remove(file); return os.WriteFile(file, []byte("other\n"), 0o600) }, "block replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, Options{})
			l.Write(refused())
			if err := c.away(l.opened.File); err != nil {
				t.Fatal(err)
			}
			if err := l.Write(refused()); err != nil {
				t.Fatal(err)
			}
			l.Write(allowed())
			close(t, l)
			if got := strings.Join(chained(t, l.opened.File), " "); got != "block replaced allow" {
				t.Errorf("got %q", got)
			}
			others, _ := filepath.Glob(l.opened.File + ".replaced-*")
			if name == "replaced" && len(others) != 1 {
				t.Errorf("what stood in its place is gone: %q", others)
			}
			again := open(t, Options{File: l.opened.File})
			again.Write(refused())
			if got := strings.Join(chained(t, l.opened.File), " "); got != "block replaced allow block" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// What logrotate's copytruncate does, or another program that writes into the file.
func TestFileChangedUnderTheLogIsMovedAway(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"emptied":   func(file string) error { return os.Truncate(file, 0) },
		"shortened": func(file string) error { return os.Truncate(file, 100) },
		"written to": func(file string) error {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("{}\n")
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, Options{})
			l.Write(refused())
			if err := change(l.opened.File); err != nil {
				t.Fatal(err)
			}
			was, _ := os.ReadFile(l.opened.File)
			if err := l.Write(refused()); err != nil {
				t.Fatal(err)
			}
			l.Write(refused())
			close(t, l)
			if got := strings.Join(chained(t, l.opened.File), " "); got != "block replaced block" {
				t.Errorf("got %q", got)
			}
			asides, _ := filepath.Glob(l.opened.File + ".replaced-*")
			if len(asides) != 1 {
				t.Fatalf("set aside: %q", asides)
			}
			if got, err := os.ReadFile(asides[0]); err != nil || !bytes.Equal(got, was) {
				t.Errorf("set aside: %q, %v", got, err)
			}
			if text, _ := os.ReadFile(l.opened.File); !bytes.Contains(text, []byte(`"file":"`+filepath.Base(asides[0])+`"`)) {
				t.Errorf("no line names what was set aside: %s", text)
			}
		})
	}
}

// However short the failure is, it is logged.
func TestShortTroubleIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		l := open(t, Options{})
		l.opened.Log = slog.New(slog.NewTextHandler(&told, nil))
		ctx, cancel := context.WithCancel(context.Background())
		undo := stop(t, l)
		l.Write(refused())
		undo()
		go l.Run(ctx)
		<-time.After(2 * batchDelay)
		cancel()
		synctest.Wait()
		if said := told.String(); !strings.Contains(said, "audit write failed") || !strings.Contains(said, "audit written again") {
			t.Errorf("said: %s", said)
		}
	})
}

func TestDirectoryTakenAwayRefusesUntilItIsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := open(t, Options{File: filepath.Join(dir, "audit.jsonl")})
	l.Write(refused())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	l.probe(true)
	if err := l.Err(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a request it is not noticed: %v", err)
	}
	if err := l.Write(refused()); !errors.Is(err, ErrUnwritable) {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.probe(true)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(chained(t, l.opened.File), " "); got != "block replaced" {
		t.Errorf("got %q", got)
	}
	if _, err := Open(Options{File: l.opened.File, Log: l.opened.Log}); !errors.Is(err, ErrInUse) {
		t.Errorf("the lock was not taken anew: %v", err)
	}
}

// TestProbeThatEndsLate: a probe that waits for the disk does not hide a failure that comes meanwhile.
func TestProbeThatEndsLate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	l := open(t, Options{File: filepath.Join(dir, "audit.jsonl")})
	testkit.Must(t, l.Write(allowed()))
	l.probe(true)
	testkit.Must(t, l.Write(allowed()))
	idle := func() bool {
		free := l.io.TryLock()
		if free {
			l.io.Unlock()
		}
		return free
	}
	var both sync.WaitGroup
	l.segment.mu.Lock() // the disk is slow
	both.Go(func() { l.probe(true) })
	testkit.Eventually(t, "the line is written", func() bool { return l.written.Load() == 2 && idle() })
	testkit.Must(t, os.RemoveAll(dir))
	both.Go(func() { l.Write(refused()) })
	testkit.Eventually(t, "the refusal is being written", func() bool { return !idle() })
	l.segment.mu.Unlock()
	both.Wait()
	if err := l.Err(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
