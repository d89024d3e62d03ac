package hostile

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/policy/pace"
)

// TestAFullTableHasRoomForNewHosts: as many hosts as the proxy remembers have asked to be
// left alone for an hour, as one client's trap makes them in three minutes. New hosts are
// asked all the same, and a host that asked for less is left alone as it asked.
func TestAFullTableHasRoomForNewHosts(t *testing.T) {
	t.Parallel()
	const remembered, fresh = 1 << 18, 10
	patient := e2e.NewOrigin(t, "patient", "")
	clocks := make([]pace.Clock, 0, remembered+1)
	for i := range remembered {
		clocks = append(clocks, pace.Clock{Key: fmt.Sprintf("trap-%d.test", i), PausedUntil: time.Now().Add(time.Hour)})
	}
	clocks[remembered/2] = pace.Clock{Key: patient.Name, PausedUntil: time.Now().Add(30 * time.Minute)}
	state := t.TempDir()
	store, err := bolt.Open(bolt.Options{File: filepath.Join(state, "state.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	store.SaveClocks(clocks)
	store.Close()

	p := e2e.StartProxy(t, e2e.Settings{"state_dir": state})
	client := p.Client(t, false)
	for i := range fresh {
		o := e2e.NewOrigin(t, "fresh", "")
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
		if got := e2e.Get(t, client, o.URL("http", "/a")); got.Status != http.StatusOK {
			t.Errorf("new host %d: %v\n%s", i, got, got.Body)
		}
	}
	e2e.WantOwn(t, e2e.Get(t, client, patient.URL("http", "/a")), http.StatusTooManyRequests, "connection_limit_reached")
	if n := len(patient.Pages("http")); n != 0 {
		t.Errorf("%d requests arrived at the host that is to be left alone", n)
	}
}

// TestTwoSlowTransfersOfOneClient take all the places of a host. Another client gets all
// of its answers, whether the first is slow to read or to send.
func TestTwoSlowTransfersOfOneClient(t *testing.T) {
	t.Parallel()
	const pages = 20
	for _, c := range []struct {
		name  string
		begin func(t *testing.T, p *e2e.Proxy, o *e2e.Origin)
	}{
		{"readers", func(t *testing.T, p *e2e.Proxy, o *e2e.Origin) {
			w := p.Dial(t)
			w.Send(t, "GET "+o.URL("http", "/endless")+" HTTP/1.1", "Host: x")
		}},
		{"uploads", func(t *testing.T, p *e2e.Proxy, o *e2e.Origin) {
			w := p.Dial(t)
			w.Send(t, "POST "+o.URL("http", "/upload")+" HTTP/1.1", "Host: x", "Content-Length: 1000000")
			go func() {
				for _, err := w.Write([]byte("x")); err == nil; _, err = w.Write([]byte("x")) {
					<-time.After(100 * time.Millisecond)
				}
			}()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "hogged", "")
			o.Handle("/endless", func(w http.ResponseWriter, r *http.Request) {
				for part := e2e.Octets(64 << 10); r.Context().Err() == nil; {
					if _, err := w.Write(part); err != nil {
						return
					}
				}
			})
			o.Handle("/upload", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 2, "pace.max_wait": "40s"}))
			for range 2 {
				c.begin(t, p, o)
			}
			p.AwaitMetric(t, e2e.UnderWay, 2)
			other := e2e.From(t, p.Client(t, false), "127.0.3.5")
			for i := range pages {
				if got := e2e.Get(t, other, o.URL("http", "/a?"+strconv.Itoa(i))); got.Status != http.StatusOK {
					t.Fatalf("page %d of another client: %v\n%s", i, got, got.Body)
				}
			}
			if n := len(o.Pages("http")); n != pages+2 {
				t.Errorf("%d requests arrived, want %d", n, pages+2)
			}
		})
	}
}
