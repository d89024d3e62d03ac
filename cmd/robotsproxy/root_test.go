package main

import (
	"errors"
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

func TestReport(t *testing.T) {
	var b strings.Builder
	report(&b, errors.New("one\ntwo \x1b[2J \u202e \"ü\"\r"))
	if want := "robotsproxy: one\nrobotsproxy: two \\x1b[2J \\u202e \"ü\"\\r\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
