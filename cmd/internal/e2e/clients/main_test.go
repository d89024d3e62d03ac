// Package clients proves that the proxy makes unmodified clients polite, end to end:
//   - curl, wget, Python, Node.js, Scrapy and HTTrack through serve and through run
//   - logins, environment, exit statuses and signals of run
//   - every recipe of docs/clients.md and docs/clients-js.md
package clients

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
