package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/policy/stops"
	"robotsproxy/robots/testkit"
)

// stoppable returns a Daemon with stops alone, whose store runs until close.
func stoppable(t *testing.T, file string, log *slog.Logger) (d *Daemon, end func()) {
	t.Helper()
	store, err := bolt.Open(bolt.Options{File: file, Log: log})
	testkit.Must(t, err)
	d = &Daemon{store: store, log: log}
	d.restoreStops()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	return d, func() {
		t.Helper()
		cancel()
		testkit.Must(t, <-ended)
		store.Close()
	}
}

func paused(t *testing.T, d *Daemon, host string) bool {
	t.Helper()
	_, ok := d.stops.Of(stops.Paused, host, "")
	return ok
}

// TestStopsAreStored: the disk has a pause, and its end, when syncStops returns. What the table has no more is removed.
func TestStopsAreStored(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), StateFile), slog.New(slog.DiscardHandler)
	d, end := stoppable(t, file, log)
	for _, host := range []string{"a.test", "b.test"} {
		_, err := d.stops.Put(stops.Stop{Kind: stops.Paused, Host: host, Reason: "x"})
		testkit.Must(t, err)
	}
	testkit.Must(t, d.syncStops(t.Context()))
	d.stops.End(stops.Key{Kind: stops.Paused, Host: "a.test"}, "")
	testkit.Must(t, d.syncStops(t.Context()))
	testkit.Must(t, d.syncStops(t.Context()))
	end()
	d, end = stoppable(t, file, log)
	if paused(t, d, "a.test") || !paused(t, d, "b.test") || paused(t, d, "c.test") || len(d.savedStops.keys) != 2 {
		t.Errorf("the next process has %+v", d.stops.All())
	}
	// The table forgets the end of a pause.
	d.stops = stops.New()
	_, err := d.stops.Put(stops.Stop{Kind: stops.Paused, Host: "c.test", Reason: "x"})
	testkit.Must(t, err)
	d.savedStops.last = 0
	testkit.Must(t, d.syncStops(t.Context()))
	end()
	d, end = stoppable(t, file, log)
	defer end()
	if !paused(t, d, "c.test") || len(d.savedStops.keys) != 1 {
		t.Errorf("%v are stored", d.savedStops.keys)
	}
}

// TestUnreadableStop: what is no stop, as of a later version, is dropped with a line in the log.
func TestUnreadableStop(t *testing.T) {
	var said bytes.Buffer
	file, log := filepath.Join(t.TempDir(), StateFile), slog.New(slog.NewTextHandler(&said, nil))
	d, end := stoppable(t, file, log)
	d.store.SaveStops(map[string][]byte{"later||": []byte(`{"kind":"later"}`), "paused|a.test|": []byte("{")})
	end()
	d, end = stoppable(t, file, log)
	if d.stops.Any() || strings.Count(said.String(), "stop of the last process not understood") != 2 {
		t.Errorf("%+v\n%s", d.stops.All(), &said)
	}
	_, err := d.stops.Put(stops.Stop{Kind: stops.Paused, Host: "a.test", Reason: "x"})
	testkit.Must(t, err)
	testkit.Must(t, d.syncStops(t.Context()))
	end()
	d, end = stoppable(t, file, log)
	defer end()
	if !paused(t, d, "a.test") || len(d.savedStops.keys) != 1 {
		t.Errorf("%v are stored", d.savedStops.keys)
	}
}

// TestStopsOutlastDamage: if state.db proves damaged while the proxy runs, the new one gets all pauses again.
func TestStopsOutlastDamage(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), StateFile), slog.New(slog.DiscardHandler)
	d, end := stoppable(t, file, log)
	_, err := d.stops.Put(stops.Stop{Kind: stops.Paused, Host: "a.test", Reason: "x"})
	testkit.Must(t, err)
	testkit.Must(t, d.syncStops(t.Context()))
	// As after damage.
	d.savedStops.damaged--
	testkit.Must(t, d.saveStops())
	end()
	testkit.Must(t, os.Remove(file))
	d.savedStops.damaged--
	d.store, err = bolt.Open(bolt.Options{File: file, Log: log})
	testkit.Must(t, err)
	testkit.Must(t, d.saveStops())
	d.store.Close()
	d, end = stoppable(t, file, log)
	defer end()
	if !paused(t, d, "a.test") {
		t.Error("the pause is lost")
	}
}

// TestNoStore: without state.db, stops end with the process.
func TestNoStore(t *testing.T) {
	d := &Daemon{}
	d.restoreStops()
	_, err := d.stops.Put(stops.Stop{Kind: stops.Paused, Host: "a.test", Reason: "x"})
	testkit.Must(t, err)
	testkit.Must(t, d.syncStops(t.Context()))
}

// TestDiskThatTakesNoStops: the operator learns that a pause is not stored.
func TestDiskThatTakesNoStops(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), StateFile), slog.New(slog.DiscardHandler)
	store, err := bolt.Open(bolt.Options{File: file, Log: log})
	testkit.Must(t, err)
	defer store.Close()
	d := &Daemon{store: store, log: log}
	d.restoreStops()
	_, err = d.stops.Put(stops.Stop{Kind: stops.Paused, Host: "a.test", Reason: "x"})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.syncStops(ctx); err == nil {
		t.Error("it is said to be stored")
	}
}
