//go:build !race

package pace_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

// TestReplicasShareHotHosts: see shareHotHosts.
func TestReplicasShareHotHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { shareHotHosts(t, 50, testkit.Rounds(100)) })
}

// BenchmarkThousandReplicasMillionHosts runs shareHotHosts with a thousand replicas, each
// of which requests a thousand hosts.
func BenchmarkThousandReplicasMillionHosts(b *testing.B) {
	for b.Loop() {
		// synctest.Test needs a *testing.T
		ok := testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "replicas", F: func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shareHotHosts(t, 1000, 1000) })
		}}})
		if !ok {
			b.Fatal("failed")
		}
	}
}

// shareHotHosts: all replicas have more requests for a few hosts than these permit, and
// each replica gets its share. Each replica also requests other hosts, half of which
// another replica requests at the same moment.
func shareHotHosts(t *testing.T, replicas, each int) {
	const (
		hot       = 10
		gap, step = time.Second, 5 * time.Second
	)
	end := time.Duration(each) * step
	f := newFleet(t, replicas)
	hosts, hots := make([]lastSent, replicas*each), make([]lastSent, hot)
	named := func(kind string, n int) pace.Limits {
		l := limits(gap)
		l.Key = fmt.Sprintf("%s-%d.test", kind, n)
		return l
	}
	var shares [hot][]int
	var wg sync.WaitGroup
	for host := range hot {
		shares[host] = make([]int, replicas)
	}
	for i := range replicas {
		for host := range hot {
			wg.Go(func() {
				l := named("hot", host)
				for time.Since(f.began) < end {
					f.visit(i, l, &hots[host])
					shares[host][i]++
				}
			})
		}
		wg.Go(func() {
			for k := range each {
				f.visit(i, named("host", i*each+k), &hosts[i*each+k])
				if k%2 == 0 {
					f.visit(i, named("host", (i^1)*each+k), &hosts[(i^1)*each+k])
				}
				pass(step - time.Since(f.began)%step)
			}
		})
	}
	wg.Wait()
	for host, of := range shares {
		sum := 0
		for _, n := range of {
			sum += n
		}
		if least, most := slices.Min(of), slices.Max(of); most-least > 2 || sum < int(end/gap*9/10) {
			t.Errorf("hot host %d: %d sent, a replica had %d to %d of them", host, sum, least, most)
		}
	}
	if p := f.memory.Leases(); p != 0 {
		t.Errorf("left behind: %d places", p)
	}
}

// A lastSent is the time of the last request to a host, in nanoseconds since fleet.began,
// plus 1.
type lastSent struct{ at atomic.Int64 }

// visit sends one request and checks the gap to the host's last request.
func (f *fleet) visit(from int, l pace.Limits, last *lastSent) {
	s, err := f.replicas[from].Wait(f.t.Context(), "", l)
	if err == nil {
		err = s.Ready(f.t.Context())
	}
	if err != nil {
		f.t.Errorf("replica %d: %v", from, err)
		return
	}
	s.Sent()
	now := 1 + int64(time.Since(f.began))
	before := last.at.Swap(now)
	s.Release()
	if d := time.Duration(now - before); before != 0 && d < time.Second {
		f.t.Errorf("%s: sent %v after the one before", l.Key, d)
	}
}
