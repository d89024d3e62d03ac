package archive

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/osfile"
	"robotsproxy/robots/testkit"
)

// Waiting for the disk does not wait for an exchange that is being written, however large it is.
func TestSyncWaitsForNoExchange(t *testing.T) {
	t.Parallel()
	a, err := Open(Options{Dir: t.TempDir(), Index: noIndex{}, Prefix: "x", MaxFile: 1 << 30, MaxBody: 1 << 30, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	w := <-a.files.large
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _, err := a.files.append(w, a.options(), func(io.Writer) error {
			close(begun)
			<-end
			return nil
		}, func(string) {})
		if err != nil {
			t.Error(err)
		}
	}()
	testkit.Within(t, "an exchange is being written", begun)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		if err := a.sync(); err != nil {
			t.Error(err)
		}
		a.clean(time.Time{})
	}()
	testkit.Within(t, "the disk has the rest", looked)
	close(end)
	testkit.Within(t, "the exchange is written", ended)
	testkit.Must(t, a.Close())
}

type noIndex struct{}

func (noIndex) Find(Digest) (of Original, ok bool) { return of, false }
func (noIndex) Add(map[Digest]Original) error      { return nil }
func (noIndex) Remove(string) error                { return nil }

// A client that ends many large bodies at once has one of the files for them at a time, and others do not wait.
func TestTurns(t *testing.T) {
	t.Parallel()
	a, err := Open(Options{Dir: t.TempDir(), Index: noIndex{}, Prefix: "x", MaxFile: 1 << 30, MaxBody: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	send := func(client string) {
		r, err := http.NewRequest(http.MethodGet, "http://a.example/", nil)
		testkit.Must(t, err)
		x := a.Begin(Source{Client: client}).Respond(r, &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(nil)}, netip.Addr{}, 0)
		x.Read(make([]byte, 2*maxInMemory), io.EOF)
		if _, err := x.End(nil); err != nil {
			t.Error(err)
		}
	}
	end := a.files.turns.take("greedy") // as if one of its bodies was being written
	var greedy sync.WaitGroup
	for range 2 * maxLarge {
		greedy.Go(func() { send("greedy") })
	}
	testkit.Eventually(t, "all bodies of the client wait", func() bool {
		a.files.turns.mu.Lock()
		defer a.files.turns.mu.Unlock()
		return a.files.turns.clients["greedy"].users == 1+2*maxLarge
	})
	other := make(chan struct{})
	go func() {
		defer close(other)
		send("other")
	}()
	testkit.Within(t, "the body of another client is written", other)
	if n := len(a.files.large); n != maxLarge {
		t.Errorf("%d files are free, want %d", n, maxLarge)
	}
	end()
	greedy.Wait()
	if len(a.files.turns.clients) > 0 {
		t.Errorf("turns are left: %v", a.files.turns.clients)
	}
	testkit.Must(t, a.Close())
}

// A file that an earlier Archive has completed in the same millisecond is not replaced.
func TestNamesAreNew(t *testing.T) {
	t.Parallel()
	f, now := newFiles(t.TempDir(), "test", new(osfile.Watch), nil), time.Now()
	first := f.newName("x", ".warc", now)
	testkit.Must(t, os.WriteFile(filepath.Join(f.dir, first), nil, 0o600))
	f.serial.Store(0) // as after a restart
	if second := f.newName("x", ".warc", now); second == first {
		t.Errorf("both files are %s", first)
	}
}

// mapIndex is an Index in memory, for one goroutine.
type mapIndex map[Digest]Original

func (m mapIndex) Find(d Digest) (Original, bool) {
	of, ok := m[d]
	return of, ok
}

func (m mapIndex) Add(all map[Digest]Original) error {
	maps.Copy(m, all)
	return nil
}

func (m mapIndex) Remove(file string) error {
	maps.DeleteFunc(m, func(_ Digest, of Original) bool { return of.File == file })
	return nil
}

// TestRemovedBeforeItIsStored: no payload of a file that somebody has removed is found, also if the disk was waited for
// meanwhile. Else later payloads like it would be archived nowhere.
func TestRemovedBeforeItIsStored(t *testing.T) {
	p := payloads{stored: mapIndex{}}
	gone, there := Digest{1}, Digest{2}
	p.add(gone, Original{File: "gone.warc"})
	p.add(there, Original{File: "there.warc"})
	taken := p.take()
	testkit.Must(t, p.remove("gone.warc"))
	for _, when := range []string{"before", "after"} {
		if _, ok := p.find(gone); ok {
			t.Errorf("%s the commit: the payload of the removed file is found", when)
		}
		if _, ok := p.find(there); !ok {
			t.Errorf("%s the commit: the payload of the other file is not found", when)
		}
		testkit.Must(t, p.store(taken))
	}
}

// TestPayloadIsKnownBeforeItsFileCanBeGone: until the payload of an exchange is in the index, no other exchange finds
// that somebody has removed the file. Else the index would refer to the removed file for good.
func TestPayloadIsKnownBeforeItsFileCanBeGone(t *testing.T) {
	t.Parallel()
	a, err := Open(Options{Dir: t.TempDir(), Index: noIndex{}, Prefix: "x", MaxFile: 1 << 30, MaxBody: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	var told string
	name, _, err := a.files.append(&a.files.small, a.options(), func(io.Writer) error { return nil }, func(name string) {
		if told = name; a.files.small.mu.TryLock() {
			t.Error("another exchange can look for the file")
			a.files.small.mu.Unlock()
		}
	})
	testkit.Must(t, err)
	if told != name {
		t.Errorf("the payload is in %q, want %q", told, name)
	}
	failed := errors.New("full")
	_, _, err = a.files.append(&a.files.small, a.options(), func(io.Writer) error { return failed }, func(string) { t.Error("a payload that was not written is known") })
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	testkit.Must(t, a.Close())
}

// TestArchiveThatHangs checks that a write that does not return counts as failed, until it returns.
func TestArchiveThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Dir: t.TempDir(), Index: noIndex{}, Prefix: "x", MaxFile: 1 << 30, MaxBody: 1 << 30, Log: slog.New(slog.DiscardHandler)}
		a, err := Open(o)
		testkit.Must(t, err)
		write := a.disk.Begin(osfile.MaxWrite)
		time.Sleep(osfile.MaxWrite - time.Millisecond)
		testkit.Must(t, a.Refusal())
		time.Sleep(time.Millisecond)
		if err := a.Refusal(); !errors.Is(err, ErrUnwritable) || !errors.Is(err, osfile.ErrHangs) {
			t.Errorf("got %v", err)
		}
		o.Continue = true
		a.SetOptions(o)
		if a.Refusal() != nil || a.Err() == nil {
			t.Errorf("on_error: continue: %v, health %v", a.Refusal(), a.Err())
		}
		write.End()
		testkit.Must(t, a.Err())
		testkit.Must(t, a.Close())
	})
}

// TestWritesAreWatched checks that each operation that can hang is known while it runs.
func TestWritesAreWatched(t *testing.T) {
	a, err := Open(Options{Dir: t.TempDir(), Index: noIndex{}, Prefix: "x", MaxFile: 1 << 30, MaxBody: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	defer a.Close()
	reader, writer, err := os.Pipe()
	testkit.Must(t, err)
	defer reader.Close()
	body := spool{spools: a.spools, client: "c", max: 1 << 30}
	body.file, body.space, err = a.spools.create("c", 1<<30)
	testkit.Must(t, err)
	temporary := body.file
	body.file = writer // nobody reads
	ended := make(chan error)
	go func() {
		_, err := body.Write(make([]byte, 1<<20))
		ended <- err
	}()
	testkit.Eventually(t, "the write counts as failed", func() bool { return a.Err() != nil })
	reader.Close()
	<-ended
	testkit.Must(t, a.Err())
	testkit.Must(t, writer.Close())
	body.file = temporary
	testkit.Must(t, body.close())
}
