// Package fleet proves that several replicas behind a load balancer act as one, end to end:
//   - one pace, one concurrency limit and one robots.txt cache for all
//   - the shared store may fail and return; replicas may be replaced one by one
//   - their audits are read together
//   - BenchmarkFleetPace: how late requests are
package fleet

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
