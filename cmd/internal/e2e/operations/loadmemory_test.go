//go:build linux && !race

package operations

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// mostMemory is the maximum memory of the process, in bytes, under the load of
// TestManyLargeRobots.
const mostMemory = 450 << 20

// TestManyLargeRobots: 8 connections request 512 hosts whose robots.txt has the maximum
// size. Only the cache stays in memory, without any budget taking effect.
func TestManyLargeRobots(t *testing.T) {
	testkit.Long(t, "volume")
	const hosts, connections = 512, 8
	s := e2e.NewSites(t, hosts, func(int) int { return 500 << 10 })
	p := growing(t)
	e2e.AskAll(t, p.Connections(t, connections), hosts/connections, s.InTurn())
	s.WantEach(t, 1)
	peak := p.Usage(t).Peak
	t.Logf("the process took %d MiB", peak>>20)
	if peak > mostMemory {
		t.Errorf("the process took %d MiB, want at most %d", peak>>20, mostMemory>>20)
	}
}
