package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestUsesOfTheLastProcess: what cannot be read of them is said once, and the rest counts.
func TestUsesOfTheLastProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), StateFile)
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	store, err := bolt.Open(bolt.Options{File: file, Log: log})
	testkit.Must(t, err)
	soon := time.Now().Add(time.Hour)
	store.SaveUse("a", []byte(`{"name":"a","width":1000000,"buckets":[{"end":5,"requests":3}],"of a later version":1}`), soon)
	store.SaveUse("b", []byte(`{"name":5}`), soon)
	store.SaveUse("c", []byte(`nothing`), soon)
	store.Close()
	d := &Daemon{log: log}
	if d.usedBefore() != nil {
		t.Error("without a store")
	}
	d.store, err = bolt.Open(bolt.Options{File: file, Log: log})
	testkit.Must(t, err)
	defer d.store.Close()
	if all := d.usedBefore(); len(all) != 1 || all[0].Name != "a" || all[0].Buckets[0].Requests != 3 {
		t.Errorf("%+v", all)
	}
	if n := strings.Count(said.String(), "partly unknown"); n != 1 {
		t.Errorf("said:\n%s", &said)
	}
}
