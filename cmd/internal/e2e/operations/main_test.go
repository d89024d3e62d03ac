// Package operations proves that operators can do their work, end to end:
//   - configuration reload, shutdown, drain, state over restarts
//   - metrics, dashboard, admin API and the page at the proxy's own address
//   - listening with TLS
//   - the image, the unit and the files of docs/deploy
//   - with the rules of docs/deploy/nftables, traffic leaves a network or a user only through the proxy
package operations

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
