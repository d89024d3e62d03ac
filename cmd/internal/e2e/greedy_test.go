package e2e

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/policy/pace"
)

// TestAFullTableHasRoomForNewHosts: as many hosts as the proxy remembers have asked to be
// left alone for an hour, as one client's trap makes them in three minutes. New hosts are
// asked all the same, and a host that asked for less is left alone as it asked.
func TestAFullTableHasRoomForNewHosts(t *testing.T) {
	t.Parallel()
	const remembered, fresh = 1 << 18, 10
	patient := newOrigin(t, "patient", "")
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

	p := startProxy(t, settings{"state_dir": state})
	client := p.client(t, false)
	for i := range fresh {
		o := newOrigin(t, "fresh", "")
		o.handle("/a", textPage("text/plain", "a"))
		if got := get(t, client, o.url("http", "/a")); got.Status != http.StatusOK {
			t.Errorf("new host %d: %v\n%s", i, got, got.Body)
		}
	}
	wantOwn(t, get(t, client, patient.url("http", "/a")), http.StatusTooManyRequests, "connection_limit_reached")
	if n := len(patient.pages("http")); n != 0 {
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
		begin func(t *testing.T, p *proxy, o *origin)
	}{
		{"readers", func(t *testing.T, p *proxy, o *origin) {
			w := p.dial(t)
			w.send(t, "GET "+o.url("http", "/endless")+" HTTP/1.1", "Host: x")
		}},
		{"uploads", func(t *testing.T, p *proxy, o *origin) {
			w := p.dial(t)
			w.send(t, "POST "+o.url("http", "/upload")+" HTTP/1.1", "Host: x", "Content-Length: 1000000")
			go func() {
				for _, err := w.Write([]byte("x")); err == nil; _, err = w.Write([]byte("x")) {
					<-time.After(100 * time.Millisecond)
				}
			}()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, "hogged", "")
			o.handle("/endless", func(w http.ResponseWriter, r *http.Request) {
				for part := octets(64 << 10); r.Context().Err() == nil; {
					if _, err := w.Write(part); err != nil {
						return
					}
				}
			})
			o.handle("/upload", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
			o.handle("/a", textPage("text/plain", "a"))
			p := startProxy(t, outOfTheWay.with(settings{"pace.max_concurrent": 2, "pace.max_wait": "40s"}))
			for range 2 {
				c.begin(t, p, o)
			}
			p.awaitMetric(t, underWay, 2)
			other := from(t, p.client(t, false), "127.0.3.5")
			for i := range pages {
				if got := get(t, other, o.url("http", "/a?"+itoa(i))); got.Status != http.StatusOK {
					t.Fatalf("page %d of another client: %v\n%s", i, got, got.Body)
				}
			}
			if n := len(o.pages("http")); n != pages+2 {
				t.Errorf("%d requests arrived, want %d", n, pages+2)
			}
		})
	}
}
