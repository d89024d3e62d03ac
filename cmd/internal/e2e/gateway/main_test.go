// Package gateway proves that traffic leaves a network only through the proxy, end to end, with the
// rules of docs/deploy/nftables:
//   - a router between crawlers and origins, in network namespaces
//   - a user of one machine
//
// The tests need the programs ip and nft, and user namespaces; they do not need root.
package gateway

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
