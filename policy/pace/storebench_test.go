package pace_test

import (
	"testing"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
)

// BenchmarkWaitShared measures what a Store costs in this package, without the Store's
// own time.
func BenchmarkWaitShared(b *testing.B) {
	p := pace.New(pace.Options{Store: storetest.NewMemory(1).Join()})
	l := pace.Limits{Key: "a.test", PerSecond: 1e9, Burst: 1 << 30, MaxConcurrent: 1 << 20}
	l.MaxWait = 1e9
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
}
