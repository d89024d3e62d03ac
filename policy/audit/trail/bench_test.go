package trail

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkVerify: a million lines of 700 bytes have to take less than 10 s.
func BenchmarkVerify(b *testing.B) {
	const lines, size = 50_000, 700
	path := filepath.Join(b.TempDir(), "audit.jsonl")
	members := `"user_agent":"` + strings.Repeat("x", size-230) + `"`
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
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if res, err := verify(b, path, Anchor{}); err != nil || res.Lines != lines {
			b.Fatal(res, err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/lines*1e6, "s/million-lines")
}
