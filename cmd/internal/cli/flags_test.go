package cli

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestEmptyConfigFlags: a flag whose value is empty, as that of an unset variable, is not as good as none.
func TestEmptyConfigFlags(t *testing.T) {
	for _, name := range []string{"-c", "--config", "--state"} {
		var f ConfigFlags
		cmd := &cobra.Command{}
		f.Add(cmd)
		if err := cmd.ParseFlags([]string{name, ""}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Load(); err == nil {
			t.Errorf("%s with an empty value is ignored", name)
		} else if status, _ := ExitStatus(err); status != ExitUsage {
			t.Errorf("%s: %v, want a usage error", name, err)
		}
	}
}
