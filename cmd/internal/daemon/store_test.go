package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

// TestLastRequestIsSaved: a fetch that is sent while all goroutines end, after saveState has ended, still delays the next
// request of the next process.
func TestLastRequestIsSaved(t *testing.T) {
	file := filepath.Join(t.TempDir(), StateFile)
	open := func() *bolt.Store {
		t.Helper()
		store, err := bolt.Open(bolt.Options{File: file, Log: slog.New(slog.DiscardHandler)})
		testkit.Must(t, err)
		return store
	}
	d := &Daemon{store: open()}
	d.Pacer = newPacer(d.store, nil)
	ended, end := context.WithCancel(t.Context())
	end()
	testkit.Must(t, d.saveState(ended))
	slot, err := d.Pacer.Wait(t.Context(), "", pace.Limits{Key: "a.test", PerSecond: 1, Burst: 1, MaxConcurrent: 1})
	testkit.Must(t, err)
	slot.Sent()
	slot.Release()
	testkit.Must(t, d.close())
	next := open()
	defer next.Close()
	if all := next.Clocks(); len(all) != 1 || all[0].Key != "a.test" {
		t.Errorf("the next process knows %v", all)
	}
}
