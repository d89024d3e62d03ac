//go:build linux && !race

package operations

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// latencies are counted in steps of ten microseconds up to ten seconds. The last step has
// all longer ones.
type latencies [1_000_001]atomic.Uint32

func (l *latencies) add(d time.Duration) {
	l[min(d/(10*time.Microsecond), time.Duration(len(l)-1))].Add(1)
}

// quantile returns the latency, in microseconds, that the fraction q of all requests does
// not exceed.
func (l *latencies) quantile(q float64) float64 {
	var all, seen float64
	for i := range l {
		all += float64(l[i].Load())
	}
	for i := range l {
		if seen += float64(l[i].Load()); seen >= q*all {
			return float64(10 * (i + 1))
		}
	}
	return 0
}

// A drip sends requests at a rate, whatever happens to earlier ones.
type drip struct {
	conns []e2e.Connection
	rate  int
	begin time.Time
	next  func() []byte
	took  *latencies // since a request was due, not since it could be sent
}

// second sends the requests of the nth second.
func (d *drip) second(t testing.TB, n int) {
	var all sync.WaitGroup
	for k := range d.conns {
		all.Go(func() {
			wait := time.NewTimer(0)
			defer wait.Stop()
			for i := n*d.rate + k; i < (n+1)*d.rate; i += len(d.conns) {
				due := d.begin.Add(time.Duration(i) * time.Second / time.Duration(d.rate))
				wait.Reset(time.Until(due))
				<-wait.C
				if err := e2e.AskOnce(d.conns[k:k+1], d.next); err != nil {
					t.Error(err)
					return
				}
				d.took.add(time.Since(due))
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// 5,000 requests a second to 10,000 hosts, or half of that, one second per iteration:
// -benchtime 1200x takes twenty minutes. No request is lost, and the memory does not grow
// at the end.
func BenchmarkSoak(b *testing.B) {
	for _, rate := range []int{5000, 2500} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) { soak(b, rate) })
	}
}

func soak(b *testing.B, rate int) {
	const hosts, clients = 10_000, 100 // the clients divide the rate
	e2e.NeedFiles(b, 5000)
	s := e2e.NewSites(b, hosts, mixed)
	p := growing(b)
	conns := p.Connections(b, clients)
	e2e.AskAll(b, conns, hosts/clients, s.InTurn())
	s.WantEach(b, 1)
	pages := s.Pages.Load()
	var rss []float64 // MiB, after each second
	d := &drip{conns: conns, rate: rate, next: s.InTurn(), took: new(latencies)}
	since := p.Cost(b)
	d.begin = since.At
	for b.Loop() {
		d.second(b, len(rss))
		rss = append(rss, float64(p.Memory(b, "VmRSS"))/(1<<20))
	}
	asked := len(rss) * rate
	p.Report(b, since, asked)
	quarter := func(n int) float64 { return rss[(len(rss)*n+3)/4-1] }
	b.ReportMetric(quarter(1), "rss25%-MiB")
	b.ReportMetric(quarter(2), "rss50%-MiB")
	b.ReportMetric(quarter(3), "rss75%-MiB")
	b.ReportMetric(d.took.quantile(0.5), "p50-us")
	b.ReportMetric(d.took.quantile(0.99), "p99-us")
	s.WantEach(b, 1)
	if got := s.Pages.Load() - pages; got != int64(asked) {
		b.Errorf("%d pages were asked of the sites, want %d", got, asked)
	}
	// The garbage collector itself varies by a few MiB.
	if end, most := quarter(4), 1.05*quarter(3)+8; end > most {
		b.Errorf("%.1f MiB at the end, more than %.1f after three quarters and 5 %% and 8 MiB", end, quarter(3))
	}
}
