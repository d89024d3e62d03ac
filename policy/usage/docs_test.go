package usage_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"robotsproxy/policy/usage"
)

// docs/usage-preferences.md has the table of mappings.
func TestDocsHaveTheMappings(t *testing.T) {
	text, err := os.ReadFile("../../docs/usage-preferences.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, m := range usage.Mappings {
		fmt.Fprintf(&table, "| %s | `%s` | `%s` | %s | %s |\n", m.Field, m.Term, m.Category, m.Preference, m.Source)
	}
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("docs/usage-preferences.md lacks the table\n%s", table.String())
	}
}
