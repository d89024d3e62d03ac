package e2e

import (
	"fmt"
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
