//go:build linux && !race

package hostile

import (
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/policy/pace"
)

// Limits of BenchmarkHostile. The aims on an idle machine are 1 s, 2 s and 600 MiB. The limits are
// higher because machines run other work as well.
const (
	mostKnownP99   = 4 * time.Second // for the honest client's requests to known hosts
	mostUnknownP99 = 8 * time.Second // to hosts that no client has requested before
	mostPeak       = 800 << 20       // of the process, in bytes
)

// BenchmarkHostile makes the attacks larger and measures their effect on the honest client and
// on the proxy's memory. An iteration is a whole attack.
func BenchmarkHostile(b *testing.B) {
	for _, c := range attacks {
		if c.load == 0 {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			e2e.NeedFiles(b, 10_000)
			for b.Loop() {
				a := newArena(b, c.settings, c.load)
				c.run(b, a)
				a.honest.answered(b, a.asked)
				peak := a.Memory(b, "VmHWM")
				a.wantNoHarm(b)
				known, unknown := p99(a.honest.latency[0]), p99(a.honest.latency[1])
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(known.Milliseconds()), "known-p99-ms")
				b.ReportMetric(float64(unknown.Milliseconds()), "unknown-p99-ms")
				b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
				if known > mostKnownP99 || unknown > mostUnknownP99 || peak > mostPeak {
					b.Errorf("the honest client waited %v for known hosts and %v for others (99 %%), and the proxy took %d MiB; want at most %v, %v, %d MiB",
						known, unknown, peak>>20, mostKnownP99, mostUnknownP99, mostPeak>>20)
				}
			}
		})
	}
}

// p99 returns the 99th percentile of the durations.
func p99(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)*99/100]
}

// BenchmarkHostileFullTable is a benchmark because it is large; it measures nothing else. The table
// of hosts is full of hosts with a back-off of an hour, as one client can cause in three minutes.
// New hosts still work, and a host with a shorter back-off keeps that.
func BenchmarkHostileFullTable(b *testing.B) {
	const remembered, fresh = 1 << 18, 10
	patient := e2e.NewOrigin(b, "patient", "")
	clocks := make([]pace.Clock, 0, remembered+1)
	for i := range remembered {
		clocks = append(clocks, pace.Clock{Key: fmt.Sprintf("trap-%d.test", i), BackOffUntil: time.Now().Add(time.Hour)})
	}
	clocks[remembered/2] = pace.Clock{Key: patient.Name, BackOffUntil: time.Now().Add(30 * time.Minute)}
	state := b.TempDir()
	store, err := bolt.Open(bolt.Options{File: filepath.Join(state, "state.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	store.SaveClocks(clocks)
	store.Close()

	p := e2e.StartProxy(b, e2e.Settings{"state_dir": state})
	client := p.Client(b, false)
	for i := range fresh {
		o := e2e.NewOrigin(b, "fresh", "")
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
		if got := e2e.Get(b, client, o.URL("http", "/a")); got.Status != http.StatusOK {
			b.Errorf("new host %d: %v\n%s", i, got, got.Body)
		}
	}
	e2e.WantOwn(b, e2e.Get(b, client, patient.URL("http", "/a")), http.StatusTooManyRequests, "connection_limit_reached")
	if n := len(patient.Pages("http")); n != 0 {
		b.Errorf("%d requests arrived at the host that is to be left alone", n)
	}
}
