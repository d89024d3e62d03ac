package pacefile

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
)

// open opens n Tables on a new file. They are closed at the end of the test.
func open(t testing.TB, n int) []*Table {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pace")
	var all []*Table
	for range n {
		table, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, table)
	}
	return all
}

func TestStore(t *testing.T) {
	storetest.Store(t, func(t *testing.T, n int) (stores []pace.Store) {
		for _, table := range open(t, n) {
			running(t, table, pace.New(pace.Options{}))
			stores = append(stores, table)
		}
		return stores
	})
}

// running runs a Table until the end of the test.
func running(t *testing.T, table *Table, p *pace.Pacer) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx, p) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pacers returns n Pacers that share a file.
func pacers(t *testing.T, n int) (all []*pace.Pacer) {
	for _, table := range open(t, n) {
		p := pace.New(pace.Options{Store: table})
		running(t, table, p)
		all = append(all, p)
	}
	return all
}

func TestPacers(t *testing.T) { storetest.Pacers(t, synctest.Test, pacers) }

func TestPacersInRealTime(t *testing.T) { storetest.Pacers(t, nil, pacers) }

// BenchmarkRequest measures what the file costs a request: the slot, its use and its return.
func BenchmarkRequest(b *testing.B) {
	table := open(b, 1)[0]
	p := pace.New(pace.Options{Store: table})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx, p) }()
	l := pace.Limits{Key: "a.test", PerSecond: 1e9, Burst: 1 << 30, MaxConcurrent: 1 << 20, MaxWait: 1e9}
	b.ReportAllocs()
	for b.Loop() {
		s, err := p.Wait(b.Context(), "", l)
		if err == nil {
			err = s.Ready(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		s.Sent()
		s.Release()
	}
	stop()
	<-ended
}
