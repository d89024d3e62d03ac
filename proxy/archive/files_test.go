package archive

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// Waiting for the disk does not wait for an exchange that is being written, however large it is.
func TestSyncWaitsForNoExchange(t *testing.T) {
	t.Parallel()
	a, err := Open(Options{Dir: t.TempDir(), Index: noIndex{}, Prefix: "x", MaxFile: 1 << 30, MaxBody: 1 << 30, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	w := <-a.large
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _, err := a.append(w, func(io.Writer, bool) error {
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
