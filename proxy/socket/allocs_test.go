//go:build !race

package socket

import "testing"

func TestAllocations(t *testing.T) {
	needsDirect(t)
	if n := testing.AllocsPerRun(1000, thereAndBack(t)); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
