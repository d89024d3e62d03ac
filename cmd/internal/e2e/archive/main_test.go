// Package archive tests the WARC archive with other programs that read and write the format:
//   - robotsproxy archive reads the files of wget and of warcio without a complaint, and returns the
//     payloads byte by byte
//   - its index names the same records as theirs
package archive

import (
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
