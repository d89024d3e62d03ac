package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The garbage collector trades memory for speed. What a proxy keeps is small,
// and to collect it often is where much of its time would go; with thousands of
// tunnels open it is not small, and garbage of four times its size would be the
// larger part of the process.
const (
	gcMost  = 400      // percent of what is kept that may gather as garbage
	gcLeast = 75       // the same, at least
	gcSpare = 20 << 20 // octets of garbage, between the two: under load some three cycles a second, of 5 ms
)

// tuneGC sets the collector, now and after each of its cycles, unless the
// environment's GOGC does.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		tune(0)
	}
}

// tune runs in the runtime's own goroutine for clean-ups, once a cycle: what it
// leaves behind is collected in the next one.
func tune(before int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := gcPercent(live[0].Value.Uint64())
	if percent != before {
		debug.SetGCPercent(percent)
	}
	runtime.AddCleanup(new([64]byte), tune, percent)
}

// gcPercent is how much may gather while so many octets are kept.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcMost
	}
	return int(min(max(gcSpare*100/live, gcLeast), gcMost))
}
