package daemon

import (
	"testing"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 1: 400, 5 << 20: 400, 8 << 20: 250, 20 << 20: 100, 32 << 20: 75, 1 << 30: 75, 1 << 40: 75,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d MiB kept: %d, want %d", live>>20, got, want)
		}
	}
}
