package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/robots/testkit"
)

// newPTY returns both ends of a new pseudo-terminal.
func newPTY(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { keys.Close() })
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	return keys, screen
}

// groupOf returns the names of the processes of a group.
func groupOf(t *testing.T, group int) (names []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	testkit.Must(t, err)
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), "(")
		name, rest, _ := strings.Cut(rest, ") ")
		var state string
		var parent, of int
		_, err = fmt.Sscan(rest, &state, &parent, &of)
		testkit.Must(t, err)
		if of == group && state != "Z" {
			names = append(names, name)
		}
	}
	return names
}

// awaitProbe waits until the probe of a group runs.
func awaitProbe(t *testing.T, group int) {
	t.Helper()
	testkit.Eventually(t, "the probe runs", func() bool { return slices.Contains(groupOf(t, group), "cat") })
}

// countingScript runs a command that counts signals, by means of another one: "" for none.
func countingScript(t *testing.T, by string) string {
	t.Helper()
	self, err := os.Executable()
	testkit.Must(t, err)
	return fmt.Sprintf("export %s=1; exec %s '%s'", asCounter, by, self)
}

// Whoever sends a signal, and to whom: the command gets it once.
func TestChildReceivesASignalOnce(t *testing.T) {
	t.Parallel()
	key := func(c byte) func(int, *os.File) error {
		return func(_ int, keys *os.File) error { _, err := keys.Write([]byte{c}); return err }
	}
	toRun := func(run int, _ *os.File) error { return syscall.Kill(run, syscall.SIGINT) }
	toGroup := func(run int, _ *os.File) error { return syscall.Kill(-run, syscall.SIGINT) }
	for _, c := range []struct {
		name       string
		onTerminal bool
		by         string // what starts the command
		send       func(run int, keys *os.File) error
	}{
		{"Ctrl-C", true, "", key(3)},
		{`Ctrl-\`, true, "", key(28)},
		{"to run in the foreground", true, "", toRun},
		{"to the group in the foreground", true, "", toGroup},
		{"to run without a terminal", false, "", toRun},
		{"to the group without a terminal", false, "", toGroup},
		{"to the group, but the command is in another", false, "setsid", toGroup},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testkit.TakesSignal(t, syscall.SIGINT)
			testkit.TakesSignal(t, syscall.SIGQUIT)
			var keys, screen *os.File
			if c.onTerminal {
				keys, screen = newPTY(t)
			}
			cmd, out := childInSession(t, countingScript(t, c.by), screen)
			for range 2 { // the second has a probe of its own
				awaitProbe(t, cmd.Process.Pid)
				testkit.Must(t, c.send(cmd.Process.Pid, keys))
				expect(t, out, "caught")
			}
			testkit.Must(t, cmd.Process.Signal(syscall.SIGTERM)) // run passes it on after all before
			expect(t, out, "2")
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != 7 {
				t.Errorf("status %d, want the child's 7", got)
			}
		})
	}
}

// No process is left over, though the command has inherited what it could.
func TestProbeEndsWithRun(t *testing.T) {
	t.Parallel()
	cmd, _ := childInSession(t, "echo ready; exec sleep 1000", nil)
	group := cmd.Process.Pid
	t.Cleanup(func() { syscall.Kill(-group, syscall.SIGKILL) })
	awaitProbe(t, group)
	testkit.Must(t, cmd.Process.Kill())
	cmd.Wait()
	testkit.Eventually(t, "only the command runs", func() bool { return slices.Equal(groupOf(t, group), []string{"sleep"}) })
}
