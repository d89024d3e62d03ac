// Package operations proves that operators can do their work, end to end:
//   - configuration reload, shutdown, drain, state over restarts
//   - metrics, dashboard, admin API and the page at the proxy's own address
//   - listening with TLS
//   - the image, the unit and the files of docs/deploy
//   - with the rules of docs/deploy/nftables, traffic leaves a network or a user only through the proxy
//   - run names the programs that connect to another machine without the proxy
//   - several replicas behind a load balancer act as one, in pace, concurrency and robots.txt cache (fleet*_test.go);
//     the shared store may fail and return, replicas may be replaced one by one, and their audits are read together
//   - what the proxy needs under load (load*_test.go): memory when idle and with many large robots.txt files, and
//     benchmarks of start, growth, volume, HTTP/2 and hours of use
package operations

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
