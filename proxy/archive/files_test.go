package archive

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

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
		_, _, err := a.files.append(w, func(io.Writer, bool) error {
			close(begun)
			<-end
			return nil
		})
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
		x := a.Begin(Source{Client: client}).Respond(r, &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(nil)})
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
	f, now := newFiles(t.TempDir(), "test", nil), time.Now()
	first := f.newName("x", ".warc", now)
	testkit.Must(t, os.WriteFile(filepath.Join(f.dir, first), nil, 0o600))
	f.serial.Store(0) // as after a restart
	if second := f.newName("x", ".warc", now); second == first {
		t.Errorf("both files are %s", first)
	}
}
