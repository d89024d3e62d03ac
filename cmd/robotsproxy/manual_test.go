package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/manual"
	"robotsproxy/robots/testkit"
)

// The page in the repository describes the commands.
func TestCommandReference(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cli.md")
	testkit.Must(t, err)
	if diff := cmp.Diff(string(page), string(manual.Markdown(rootCommand()))); diff != "" {
		t.Error("docs/cli.md (-) is not what go run ./cmd/robotsproxy docs cli prints (+):\n", diff)
	}
}

// Each command has a man page that man's own formatter reads without a warning.
func TestManPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out, errOut bytes.Buffer
	if status := cli.Execute(context.Background(), rootCommand(), []string{"docs", "man", dir}, nil, &out, &errOut); status != 0 {
		t.Fatalf("status %d: %s", status, errOut.String())
	}
	pages, err := filepath.Glob(filepath.Join(dir, "robotsproxy*.1"))
	testkit.Must(t, err)
	for _, want := range []string{"robotsproxy.1", "robotsproxy-serve.1", "robotsproxy-audit-verify.1", "robotsproxy-docs-man.1"} {
		text, err := os.ReadFile(filepath.Join(dir, want))
		testkit.Must(t, err)
		for _, heading := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS"} {
			if !strings.Contains(string(text), ".SH \""+heading+"\"\n") {
				t.Errorf("%s has no section %s", want, heading)
			}
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		testkit.Missing(t, "groff")
	}
	warnings, err := exec.Command(groff, append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...).CombinedOutput()
	if err != nil || len(warnings) > 0 {
		t.Errorf("groff: %v\n%s", err, warnings)
	}
}
