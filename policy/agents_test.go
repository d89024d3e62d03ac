package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots"
)

func TestAgentsAreBounded(t *testing.T) {
	var a agentCache
	for i := range 2*maxAgents + 1 {
		header := fmt.Sprintf("Bot%c/%d", 'A'+i%26, i)
		if got, want := a.parse(header).tokens, robots.ProductTokens(header); !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", header, got, want)
		}
	}
	known := 0
	a.known.Range(func(_, _ any) bool { known++; return true })
	if known > maxAgents {
		t.Errorf("%d are remembered", known)
	}
}

func TestCutWordIsNoToken(t *testing.T) {
	header := strings.Repeat("x ", maxHeader/2-3) + "GoodBotEvil/1.0"
	if got := new(agentCache).parse(header).tokens; slices.ContainsFunc(got, func(token string) bool { return strings.HasPrefix(token, "Good") }) {
		t.Errorf("%q", got)
	}
}
