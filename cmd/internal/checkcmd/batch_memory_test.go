//go:build !race

package checkcmd

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// However many lines there are, and however long one is, a batch holds no more
// than a line at its ceiling.
func TestBatchMemory(t *testing.T) {
	testkit.Long(t, "volume")
	const most = 8 * maxCase
	var before, early, late, after runtime.MemStats
	const many = 100_000
	lines := &cases{next: func(i int) string {
		switch i {
		case many / 10:
			runtime.GC()
			runtime.ReadMemStats(&early)
		case many:
			runtime.GC()
			runtime.ReadMemStats(&late)
			return ""
		}
		return smallCase(i)
	}}
	if err := newBatch().run(lines, io.Discard); err != nil {
		t.Fatal(err)
	}
	if late.HeapAlloc > early.HeapAlloc+(1<<20) {
		t.Errorf("%d bytes after a tenth of the lines, %d after all", early.HeapAlloc, late.HeapAlloc)
	}
	part := strings.Repeat("x", 1<<20)
	runtime.ReadMemStats(&before)
	endless := &cases{next: func(i int) string {
		if i == 512 {
			return ""
		}
		return part
	}}
	if err := newBatch().run(endless, io.Discard); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("a line of 512 MiB took %d bytes", took)
	}
}
