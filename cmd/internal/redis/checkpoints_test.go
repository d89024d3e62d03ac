package redis

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/redis/redistest"
)

// TestCheckpointsAreShared: each replica reads the notes of all in their order, also those that were there before it.
func TestCheckpointsAreShared(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	one, two := run(t, url, 2), run(t, url, 2)
	together(t, one, two)
	if notes, next, err := two.Checkpoints(t.Context(), ""); notes != nil || err != nil {
		t.Errorf("%q, %s, %v", notes, next, err)
	}
	const n = newsRead + 10
	for i := range n {
		if err := one.ShareCheckpoint(t.Context(), fmt.Appendf(nil, "note %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.ShareCheckpoint(t.Context(), bytes.Repeat([]byte("x"), maxCheckpoint+1)); err == nil || !strings.Contains(err.Error(), "cannot be shared") {
		t.Errorf("a long note: %v", err)
	}
	var all [][]byte
	for last := ""; ; {
		notes, next, err := two.Checkpoints(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		if len(notes) == 0 {
			break
		}
		all, last = append(all, notes...), next
	}
	for i, note := range all {
		if want := fmt.Sprintf("note %d", i); string(note) != want {
			t.Fatalf("%q, want %q", note, want)
		}
	}
	if len(all) != n {
		t.Errorf("%d notes, want %d", len(all), n)
	}
}
