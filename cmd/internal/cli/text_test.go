package cli

import (
	"strings"
	"testing"
)

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		strings.Repeat("x", MaxWords):                  strings.Repeat("x", MaxWords),
		strings.Repeat("x", MaxWords+1):                strings.Repeat("x", MaxWords) + "...",
		strings.Repeat("x", MaxWords-1) + "üü":         strings.Repeat("x", MaxWords-1) + "...",
		strings.Repeat("\xbf", MaxWords+100):           strings.Repeat("\xbf", MaxWords-4) + "...",
		strings.Repeat("x", MaxWords-2) + "\U0001f600": strings.Repeat("x", MaxWords-2) + "...",
	} {
		if got := Clip(in); got != want {
			t.Errorf("%q", got)
		}
	}
}
