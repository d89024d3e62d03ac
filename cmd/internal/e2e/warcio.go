package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// A WARCRecord is a record as warcio reads it.
type WARCRecord struct {
	// Without its directory.
	File string

	// In the file.
	Offset, Length int64
	Type, ID, URL  string

	// WARC-Concurrent-To.
	Concurrent []string

	// WARC-Refers-To.
	Refers string

	// WARC-Truncated.
	Truncated string

	// WARC-Payload-Digest.
	Digest string

	// Of a response.
	Status int

	// Of the payload as stored.
	Bytes int64

	// Of these bytes, computed by the script.
	SHA256 string
}

// NeedWarcio returns the command line of the script that uses the npm package warcio.
var NeedWarcio = NeedModule("warcio", Script("warcio.cjs"))

// ReadWARC reads all records of WARC files with warcio, which must not warn.
func ReadWARC(t testing.TB, files ...string) (records []WARCRecord) {
	t.Helper()
	for line := range strings.Lines(runWarcio(t, "read", "", files...)) {
		var r WARCRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("warcio: %v\n%s", err, line)
		}
		records = append(records, r)
	}
	return records
}

// IndexWARC returns warcio's CDXJ index of WARC files, not sorted. warcio must not warn.
func IndexWARC(t testing.TB, files ...string) string {
	t.Helper()
	return runWarcio(t, "index", "", files...)
}

// WriteWARC writes records to a WARC file with warcio. Their keys are the options of
// WARCRecord.create, and body.
func WriteWARC(t testing.TB, file string, records []map[string]any) {
	t.Helper()
	text, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	runWarcio(t, "write", string(text), file)
}

// runWarcio runs the script and returns its output.
func runWarcio(t testing.TB, action, input string, files ...string) string {
	t.Helper()
	argv := append(append(NeedWarcio(t), action), files...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = bytes.NewReader([]byte(input))
	out := Finish(t, cmd).Want(t, 0)
	if out.Stderr != "" {
		t.Errorf("warcio warns: %s", out.Stderr)
	}
	return out.Stdout
}
