package redis

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
)

// benchAsk is a request for a usual slot: one per second, and a low concurrency.
func benchAsk(key string) pace.SlotRequest {
	return pace.SlotRequest{
		Key:           key,
		Limiters:      []pace.Limiter{{Limit: limiter.Limit{PerSecond: 1, Burst: 1, Gap: time.Second}}},
		MaxConcurrent: 4, MaxWait: time.Minute, Window: time.Second / 64,
	}
}

func benchFleet(b *testing.B) *replica {
	s := redistest.Start(b)
	settled(b, s.URL())
	r := run(b, s.URL(), 1)
	together(b, r)
	return r
}

// BenchmarkReserve measures what a slot adds to one request, without other load.
func BenchmarkReserve(b *testing.B) {
	r := benchFleet(b)
	var took []time.Duration
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		began := time.Now()
		turn, err := r.Reserve(b.Context(), benchAsk("host"+strconv.Itoa(i%100_000)+".test"))
		took = append(took, time.Since(began))
		if err != nil {
			b.Fatal(err)
		}
		r.Report(pace.Report{Key: "x", Lease: turn.Lease})
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkReserveParallel measures how many slots per second one replica gets from a
// server on the same machine, each with its report.
func BenchmarkReserveParallel(b *testing.B) {
	r := benchFleet(b)
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			turn, err := r.Reserve(b.Context(), benchAsk("host"+strconv.FormatInt(n.Add(1)%100_000, 10)+".test"))
			if err != nil {
				b.Error(err)
				return
			}
			r.Report(pace.Report{Key: "x", Lease: turn.Lease})
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reservations/s")
	if d := r.Stats().Dropped; d > 0 {
		b.ReportMetric(float64(d), "dropped")
	}
}
