// Package clients proves that the clients people use are made polite without a change, end to end:
//   - curl, wget, Python, Node.js, Scrapy and HTTrack through serve and through run
//   - logins, environment, exit statuses and signals of run
//   - every recipe of docs/clients.md and docs/clients-js.md
package clients

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
