package runner

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// politeSite starts a site with a Crawl-delay in seconds that counts its pages.
func politeSite(t *testing.T, delay int) (url string, pages *atomic.Int64) {
	t.Helper()
	pages = new(atomic.Int64)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			fmt.Fprintf(w, "User-agent: *\nCrawl-delay: %d\n", delay)
			return
		}
		pages.Add(1)
		io.WriteString(w, "page "+r.URL.Path+"\n")
	}))
	t.Cleanup(site.Close)
	return site.URL, pages
}

// startOnTerminal starts robotsproxy run with flags for a command, on a terminal of its own; keys is the other end
// of that.
func startOnTerminal(t *testing.T, flags []string, command ...string) (cmd *exec.Cmd, keys *os.File) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("state_dir: %s\negress: {allow_private: [127.0.0.0/8]}\n", filepath.Join(dir, "state"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, screen := newPTY(t)
	args := slices.Concat([]string{"run", "-c", config}, flags, []string{"--"}, command)
	cmd = exec.CommandContext(t.Context(), e2e.Binary(t), args...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	screen.Close()
	return cmd, keys
}

// startScript starts a script whose $0 is the site's address, as startOnTerminal does.
func startScript(t *testing.T, site, script string, flags ...string) (cmd *exec.Cmd, keys *os.File) {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	return startOnTerminal(t, flags, "sh", "-c", "curl() { "+curl+" -q -sS \"$@\"; }\n"+script, site)
}

// scriptOutput runs a script and returns what was written on the terminal.
func scriptOutput(t *testing.T, site, script string, flags ...string) string {
	t.Helper()
	cmd, keys := startScript(t, site, script, flags...)
	all, _ := io.ReadAll(keys) // ends with an error where the other end is closed
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%q", err, all)
	}
	return string(all)
}

// At the end the screen is the same as without the line.
func TestStatusOfARun(t *testing.T) {
	testkit.Long(t, "real clock")
	for _, c := range []struct {
		name, script string
		flags        []string
		shown        bool
		want         string // on the screen at the end, before the summary
	}{
		{"a command that waits", `curl "$0/a"; printf 'next: '; curl "$0/b"; echo end`, nil, true, "page /a\nnext: page /b\nend\nrobotsproxy: 2 requests"},
		{"confined", `curl "$0/a"; printf 'next: '; curl "$0/b"; echo end`, []string{"--confine"}, true, "page /a\nnext: page /b\nend\nrobotsproxy: 2 requests"},
		{"never", `curl "$0/a" "$0/b"`, []string{"--status", "never"}, false, "page /a\npage /b\nrobotsproxy: 2 requests"},
		{"quiet", `curl "$0/a" "$0/b"`, []string{"-q"}, false, "page /a\npage /b"},
		{"a command that reads key by key", `stty -icanon -echo; curl "$0/a" "$0/b"; stty sane`, nil, false, "page /a\npage /b\nrobotsproxy: 2 requests"},
		{"a password is asked for", `stty -echo; curl "$0/a" "$0/b"; stty echo`, nil, false, "page /a\npage /b\nrobotsproxy: 2 requests"},
		{"standard error is elsewhere", `exec 2>/dev/null; curl "$0/a" "$0/b"`, nil, true, "page /a\npage /b\nrobotsproxy: 2 requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name == "confined" {
				e2e.NeedConfinement(t)
			}
			delay := 2
			if c.shown {
				delay = 6 // the line comes while more than a second is left
			}
			site, pages := politeSite(t, delay)
			all := scriptOutput(t, site, c.script, c.flags...)
			if pages.Load() != 2 {
				t.Errorf("%d pages arrived", pages.Load())
			}
			line := "robotsproxy: 1 allowed, 0 disallowed, waiting for 127.0.0.1 "
			if shown := strings.Contains(all, line); shown != c.shown {
				t.Errorf("shown: %t, want %t\n%q", shown, c.shown, all)
			}
			if !c.shown && strings.Contains(all, "\x1b") {
				t.Errorf("the cursor was moved: %q", all)
			}
			g := &fakeScreen{t: t, height: 24}
			g.Write([]byte(all))
			if got := g.String(); !strings.HasPrefix(got, c.want) || strings.Contains(got, "waiting for") {
				t.Errorf("on the screen:\n%s", got)
			}
		})
	}
}

// A command that is asked to end may print something: the line is removed by then, and
// run's own output begins on a new line.
func TestStatusOfARunThatIsBrokenOff(t *testing.T) {
	testkit.Long(t, "real clock")
	for _, c := range []struct {
		name, script string
		breakOff     func(cmd *exec.Cmd, keys *os.File) error
		status       int
		want         string // on the screen at the end, before the rest of the summary
	}{
		{"^C", `curl "$0/a" "$0/b"`,
			func(_ *exec.Cmd, keys *os.File) error { _, err := keys.Write([]byte{3}); return err }, 130,
			"page /a\n^C\nrobotsproxy: 2 requests: 1 allowed, "}, // the client gave the other up, or the proxy did: both end
		{"SIGTERM", `trap 'echo one; echo two; exit 1' TERM; curl "$0/a"; curl "$0/b" >/dev/null 2>&1 & wait`,
			func(cmd *exec.Cmd, _ *os.File) error { return cmd.Process.Signal(syscall.SIGTERM) }, 1,
			"page /a\none\ntwo\n\nrobotsproxy: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			site, _ := politeSite(t, 6)
			cmd, keys := startScript(t, site, c.script)
			var all []byte
			told, some := false, make([]byte, 1<<10)
			for {
				n, err := keys.Read(some)
				if all = append(all, some[:n]...); err != nil {
					break // the other end is closed
				}
				if !told && strings.Contains(string(all), "waiting for 127.0.0.1 ") {
					told = true
					if err := c.breakOff(cmd, keys); err != nil {
						t.Fatal(err)
					}
				}
			}
			cmd.Wait()
			g := &fakeScreen{t: t, height: 24}
			g.Write(all)
			if got := g.String(); !strings.HasPrefix(got, c.want) || strings.Contains(got, "waiting for") || e2e.ExitCode(cmd.ProcessState) != c.status {
				t.Errorf("%v; on the screen:\n%s", cmd.ProcessState, got)
			}
		})
	}
}

// Where nobody looks nothing is drawn.
func TestNoStatusInAPipe(t *testing.T) {
	for _, w := range []io.Writer{new(strings.Builder), os.NewFile(^uintptr(0), "none")} {
		if openTerminal(w) != nil {
			t.Errorf("%T is taken for a terminal", w)
		}
	}
	_, screen := newPTY(t)
	for _, dumb := range []string{"dumb", ""} {
		t.Setenv("TERM", dumb)
		if openTerminal(screen) != nil {
			t.Errorf("drawn on with TERM=%s", dumb)
		}
	}
	t.Setenv("TERM", "xterm")
	on := openTerminal(screen)
	if on == nil {
		t.Fatal("a terminal is not known")
	}
	if on.Width() != defaultWidth || !on.Dim() {
		t.Errorf("width %d, dim %t", on.Width(), on.Dim())
	}
	t.Setenv("NO_COLOR", "1")
	if on.Dim() {
		t.Error("dim under NO_COLOR")
	}
	if on.IsIdle() {
		t.Error("free, although it is not our terminal")
	}
}
