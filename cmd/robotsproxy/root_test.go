package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"robotsproxy/robots/testkit"
)

// Every command can be tried as its help shows, and cobra finds no fault with it.
func TestEveryCommandHasAnExample(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		builtin := cmd.Name() == "help" || strings.HasPrefix(cmd.CommandPath(), "robotsproxy completion")
		if !builtin && (cmd.Short == "" || !strings.Contains(cmd.Example, cmd.CommandPath())) {
			t.Errorf("%s: no help, or an example of something else", cmd.CommandPath())
		}
		if comment := testkit.ShellComment(cmd.Example); comment != "" {
			t.Errorf("%s: the example has the comment %q, which zsh takes as arguments", cmd.CommandPath(), comment)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand())
}
