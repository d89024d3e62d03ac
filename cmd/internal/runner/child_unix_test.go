//go:build unix

package runner

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/robots/testkit"
)

func TestRunChildStatus(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         int
	}{
		{"success", "exit 0", 0},
		{"its own", "exit 3", 3},
		{"128+n for a signal", "kill -TERM $$", 143},
		{"128+n for SIGKILL", "kill -KILL $$", 137},
	} {
		got, err := runChild(plainChild(exec.Command("/bin/sh", "-c", c.script)), nil, nil)
		if want := (childResult{status: c.want, interrupted: c.want > cli.ExitSignal}); got != want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, want)
		}
	}
}

func TestNotStarted(t *testing.T) {
	dir := t.TempDir()
	plain, script := filepath.Join(dir, "plain"), filepath.Join(dir, "script")
	for file, mode := range map[string]os.FileMode{plain: 0o600, script: 0o700} {
		if err := os.WriteFile(file, []byte("no program\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, command string
		want          int
	}{
		{"not on PATH", "no-such-command-of-anybody", exitNotFound},
		{"no such file", filepath.Join(dir, "none"), exitNotFound},
		{"a part of the path is a file", filepath.Join(plain, "none"), exitNotExecutable},
		{"not executable", plain, exitNotExecutable},
		{"no program", script, exitNotExecutable},
		{"a directory", dir, exitNotExecutable},
	} {
		cmd, err := findCommand([]string{c.command})
		if err == nil {
			_, err = runChild(plainChild(cmd), nil, nil)
		}
		if e, ok := errors.AsType[*cli.StatusError](err); !ok || e.Status != c.want {
			t.Errorf("%s: %v, want status %d", c.name, err, c.want)
		} else if !strings.HasPrefix(e.Error(), `"`+c.command+`": `) || strings.Count(e.Error(), c.command) != 1 {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// childInSession runs script behind runChild in a process of its own, which
// leads a session; with terminal that is its controlling one.
func childInSession(t *testing.T, script string, terminal *os.File) (cmd *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asRun+"="+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if terminal != nil {
		cmd.Stdin, cmd.SysProcAttr.Setctty = terminal, true
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, pipe.(*os.File).SetReadDeadline(time.Now().Add(4*testkit.Patience))) // a signal may be lost
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out = bufio.NewReader(pipe)
	expect(t, out, "ready")
	return cmd, out
}

func expect(t *testing.T, out *bufio.Reader, want string) {
	t.Helper()
	line, err := out.ReadString('\n')
	if line != want+"\n" {
		t.Fatalf("%q, %v; want %q", line, err, want)
	}
}

// Without a terminal nobody else tells the child.
func TestRunChildPassesSignalsOn(t *testing.T) {
	t.Parallel()
	// The sleeps are short, as a shell may sleep through a signal that comes when it begins to wait: then its
	// trap runs after the sleep.
	const script = `trap 'echo caught; exit 7' INT TERM HUP QUIT USR1 USR2 WINCH; echo ready; while :; do sleep 0.1; done`
	for _, s := range forwardedSignals {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			testkit.TakesSignal(t, s)
			cmd, out := childInSession(t, script, nil)
			testkit.Must(t, cmd.Process.Signal(s))
			expect(t, out, "caught")
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != 7 {
				t.Errorf("status %d, want 7", got)
			}
		})
	}
}

// The probe tells a signal to the group from one to this process, and a signal that comes twice counts as one.
func TestGroupWatch(t *testing.T) {
	t.Parallel()
	testkit.TakesSignal(t, syscall.SIGINT)
	testkit.TakesSignal(t, syscall.SIGQUIT)
	g := newGroupWatch()
	defer func() { g.end() }()
	for _, c := range []struct {
		name   string
		before func()
		signal syscall.Signal
		want   bool
	}{
		{"to this process alone", func() {}, syscall.SIGINT, false},
		{"to the group", func() { g.probe.cmd.Process.Signal(syscall.SIGINT) }, syscall.SIGINT, true},
		{"again, at once", func() { g.lastAt = time.Now().Add(time.Hour) }, syscall.SIGINT, true},
		{"another", func() {}, syscall.SIGTERM, false},
		{"again, later", func() { g.lastAt = time.Now().Add(-probeWait) }, syscall.SIGINT, false},
		{"to a group whose probe is stopped", func() { g.probe.cmd.Process.Signal(syscall.SIGSTOP) }, syscall.SIGINT, false},
		{"the probe was killed", func() { g.probe.cmd.Process.Kill() }, syscall.SIGINT, false},
		{"there is no probe", func() { g.probe.end(); g.probe = nil }, syscall.SIGINT, false},
		{"to the group, later", func() { g.probe.cmd.Process.Signal(syscall.SIGQUIT) }, syscall.SIGQUIT, true},
	} {
		c.before()
		if got := g.saw(c.signal); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// What the parent has us ignore (nohup) the child ignores too.
func TestRunChildLeavesIgnoredSignalsIgnored(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `trap '' HUP; exec "$0"`, self)
	cmd.Env = append(os.Environ(), asRun+"=kill -HUP $PPID; kill -HUP $$; exit 5")
	if cmd.Run(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("status %d, want 5", cmd.ProcessState.ExitCode())
	}
}
