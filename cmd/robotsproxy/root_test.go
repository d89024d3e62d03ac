package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command can be tried as its help shows, and cobra finds no fault with it.
func TestEveryCommandHasAnExample(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		builtin := cmd.Name() == "help" || strings.HasPrefix(cmd.CommandPath(), "robotsproxy completion")
		if !builtin && (cmd.Short == "" || !strings.Contains(cmd.Example, cmd.CommandPath())) {
			t.Errorf("%s: no help, or an example of something else", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand())
}
