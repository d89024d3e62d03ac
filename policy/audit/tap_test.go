package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/policy"
)

// TestTapIsShownTheFile: the tap gets exactly the lines of the file, with its events, and
// with numbers that continue over a restart.
func TestTapIsShownTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	var shown strings.Builder
	var next uint64 = 1
	o := Options{File: file, DropQuery: true, Client: Anonymous, Tap: func(seq uint64, line []byte) {
		if seq != next {
			t.Errorf("line %d is shown as %d", next, seq)
		}
		next++
		shown.Write(line)
	}}
	for range 2 {
		l := open(t, o)
		for i := range 5 {
			r := &Record{Decision: policy.Decision{Verdict: policy.Verdict(i % 2)}}
			r.Request.Client, r.Target = "192.0.2.1", "/x?secret"
			if err := l.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		close(t, l)
		torn, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = torn.WriteString(`{"torn`)
		}
		if err != nil {
			t.Fatal(err)
		}
		torn.Close()
	}
	l := open(t, o) // reports what it has set aside
	close(t, l)
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if shown.String() != string(written) || strings.Contains(shown.String(), "secret") || next != 13 {
		t.Errorf("%d lines shown:\n%swritten:\n%s", next-1, shown.String(), written)
	}
}
