package trail

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// longTrail writes a trail of lines of 700 bytes.
func longTrail(b testing.TB, lines uint64) (path string, size int64) {
	path = filepath.Join(b.TempDir(), "audit.jsonl")
	members := `"user_agent":"` + strings.Repeat("x", 700-230) + `"`
	var text bytes.Buffer
	var prev Hash
	for seq := uint64(1); seq <= lines; seq++ {
		line, hash := seal(seq, prev, members)
		text.Write(line)
		prev = hash
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	return path, int64(text.Len())
}

// BenchmarkBegan: what has to be read and allocated does not depend on the size of the segment.
func BenchmarkBegan(b *testing.B) {
	path, _ := longTrail(b, 5_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Began(Segment{Path: path}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerify: a million lines of 700 bytes have to take less than 10 s.
func BenchmarkVerify(b *testing.B) {
	const lines = 50_000
	path, size := longTrail(b, lines)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if res, err := verify(b, path, Anchor{}); err != nil || res.Lines != lines {
			b.Fatal(res, err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/lines*1e6, "s/million-lines")
}
