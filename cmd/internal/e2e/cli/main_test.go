// Package cli tests the commands other than serve, the clients that people use, and the documentation, end to end:
//   - run and serve make curl, wget, Python, Node.js, Scrapy and HTTrack polite, unmodified
//   - logins, environment, exit statuses and signals of run
//   - every recipe of docs/clients.md and docs/clients-js.md
//   - wrong configurations and missing files end with one clear line
//   - check agrees with the vectors of robots/testdata
//   - doctor finds what prevents a client from using the proxy
//   - ca and health
//   - the commands in README.md and docs/ are run as written, or are marked as not run; their links lead
//     somewhere, and no page exceeds its maximum length
package cli

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
