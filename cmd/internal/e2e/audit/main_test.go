// Package audit proves that what the proxy records is reliable, end to end. The audit trail:
//   - no refusal is lost by a kill, a full disk or a removed directory
//   - records contain no secrets, and nobody can flush or forge them
//   - it can be read, verified, summarised and explained while it is written
//   - the kept robots.txt files have a maximum size
//
// The WARC archive (archive*_test.go), with other programs that read and write the format:
//   - robotsproxy archive reads the files of wget and of warcio without a complaint, and returns the
//     payloads byte by byte
//   - its index names the same records as theirs
//   - warcio reads what the proxy archives without a warning, and the payloads are those that wget
//     archives of the same site
//   - after SIGKILL in the middle of a crawl, and after reloads, the archive has each response that a client has received
//   - a full disk, hostile origins and hostile clients leave no incomplete record, and large bodies take no memory
package audit

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
