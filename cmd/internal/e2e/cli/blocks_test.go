package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// runElsewhere are the pages whose blocks other packages run.
var runElsewhere = []string{
	"docs/clients.md", "docs/clients-js.md", // TestRecipes, with an origin that each recipe can reach
	"docs/deploy/README.md", // cmd/internal/e2e/operations, as a packager
}

// A block of commands is run by a test (run), is a file (file=NAME), or is marked as not run (norun).
func TestEveryBlockIsMarked(t *testing.T) {
	t.Parallel()
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			if !slices.Contains([]string{"sh", "bash", "shell"}, b.language) {
				if b.marked("run") || b.marked("norun") {
					t.Errorf("%s:%d: only a block of sh can be run or not run, got %s", p.name, b.line, b.language)
				}
				continue
			}
			marks := 0
			for _, is := range []bool{b.marked("run"), b.marked("norun"), b.value("file") != ""} {
				if is {
					marks++
				}
			}
			if b.language != "sh" || marks != 1 {
				t.Errorf("%s:%d: a block of commands must begin with ```sh run, ```sh norun or ```sh file=NAME", p.name, b.line)
			}
		}
	}
}

// Commands to paste have no comments: an interactive zsh takes the words after # as arguments.
func TestNoCommentInABlock(t *testing.T) {
	t.Parallel()
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			text := ""
			switch {
			case b.language == "sh" && b.value("file") == "":
				text = b.text
			case b.language == "console":
				for line := range strings.Lines(b.text) {
					if command, is := strings.CutPrefix(strings.TrimLeft(line, " "), "$ "); is {
						text += command
					}
				}
			}
			if comment := testkit.ShellComment(text); comment != "" {
				t.Errorf("%s:%d: a block to paste has the comment %q: put it into the text", p.name, b.line, comment)
			}
		}
	}
}

// reasonRow is a row of the table in docs/development.md: a page, the beginning of blocks in it, and
// the reason why no test runs them.
var reasonRow = regexp.MustCompile("(?m)^\\| (\\S+) \\| `([^`]+)` \\| (.+) \\|$")

// Each block that no test runs has a reason in docs/development.md, and no page gives it.
func TestEveryUnrunBlockHasAReason(t *testing.T) {
	t.Parallel()
	_, table, found := strings.Cut(readPage(t, "docs/development.md").text, "\n## Blocks that no test runs\n")
	if !found {
		t.Fatal("docs/development.md has no section about blocks that no test runs")
	}
	rows := reasonRow.FindAllStringSubmatch(table, -1)
	used := map[string]bool{}
	for _, p := range readPages(t) {
		if p.name != "docs/development.md" && p.name != "docs/CONTRIBUTING.md" && strings.Contains(strings.Join(strings.Fields(p.text), " "), "no test runs") {
			t.Errorf("%s speaks of a test: give the reason in docs/development.md", p.name)
		}
		for _, b := range p.blocks {
			if !b.marked("norun") {
				continue
			}
			reasons := 0
			for _, row := range rows {
				if row[1] == p.name && strings.HasPrefix(b.text, row[2]) {
					reasons++
					used[row[0]] = true
				}
			}
			if reasons != 1 {
				t.Errorf("%s:%d: docs/development.md has %d reasons why no test runs the block, want 1", p.name, b.line, reasons)
			}
		}
	}
	for _, row := range rows {
		if !used[row[0]] {
			t.Errorf("docs/development.md: %s has no block that no test runs and that begins with %q", row[1], row[2])
		}
	}
}

// The commands of each page succeed in their order, in a separate directory for each
// page.
func TestBlocksRun(t *testing.T) {
	t.Parallel()
	for _, p := range readPages(t) {
		if slices.Contains(runElsewhere, p.name) || !slices.ContainsFunc(p.blocks, func(b block) bool { return b.marked("run") }) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			runPage(t, p)
		})
	}
}

func runPage(t *testing.T, p page) {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	testkit.Must(t, os.Symlink(e2e.Binary(t), filepath.Join(home, "robotsproxy")))
	real := addresses(t)
	for _, b := range p.blocks {
		if name := b.value("file"); name != "" {
			e2e.WriteFile(t, filepath.Join(dir, name), real.Replace(b.text))
		}
	}
	env := e2e.CleanEnv("HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "PATH="+home+":"+os.Getenv("PATH"))
	for _, b := range p.blocks {
		if !b.marked("run") {
			continue
		}
		for _, peer := range strings.FieldsFunc(b.value("needs"), func(r rune) bool { return r == ',' }) {
			e2e.NeedPeer(t, peer)
		}
		if out, code := runBlock(t, b, dir, env, real); code != 0 {
			t.Fatalf("%s:%d: status %d:\n%s\n%s", p.name, b.line, code, b.text, out)
		}
	}
}

// addresses replaces the addresses in the documentation by those of the test: example.com is an
// origin, and the ports of sites and of the proxy are free ones.
func addresses(t *testing.T) *strings.Replacer {
	t.Helper()
	o := e2e.NewOrigin(t, "document", "User-agent: *\nDisallow: /private\n")
	for _, path := range []string{"/", "/private", "/private/"} {
		o.Handle(path, e2e.TextPage("text/html", "<!doctype html><title>Welcome</title>"))
	}
	pairs := []string{"https://example.com", o.URL("https", ""), "http://example.com", o.URL("http", "")}
	for _, port := range []string{"8000", "8080", "8081"} {
		pairs = append(pairs, port, strconv.Itoa(e2e.FreePort(t)))
	}
	return strings.NewReplacer(pairs...)
}

// runBlock runs the commands of a block and ends their background processes. The output goes to a
// file, because a background process would keep a pipe open.
func runBlock(t *testing.T, b block, dir string, env []string, real *strings.Replacer) (out string, code int) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "output")
	testkit.Must(t, err)
	defer f.Close()
	cmd := exec.Command("sh", "-euc", real.Replace(b.text))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, f, f
	testkit.StartGroup(t, cmd) // background processes run until the page ends
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	testkit.Within(t, "the end of the block", done)
	return e2e.ReadText(t, f.Name()), cmd.ProcessState.ExitCode()
}
