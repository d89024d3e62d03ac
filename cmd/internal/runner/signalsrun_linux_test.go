package runner

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// On a terminal, a command receives both a key and a signal to robotsproxy run once, confined or not.
func TestSignalsOfARun(t *testing.T) {
	t.Parallel()
	testkit.TakesSignal(t, syscall.SIGINT)
	for _, c := range []struct {
		name string
		send func(run *exec.Cmd, keys *os.File) error
	}{
		{"Ctrl-C", func(_ *exec.Cmd, keys *os.File) error { _, err := keys.Write([]byte{3}); return err }},
		{"to run", func(run *exec.Cmd, _ *os.File) error { return run.Process.Signal(syscall.SIGINT) }},
	} {
		for _, flags := range [][]string{nil, {"--confine"}} {
			t.Run(fmt.Sprint(c.name, flags), func(t *testing.T) {
				t.Parallel()
				if flags != nil {
					e2e.NeedConfinement(t)
				}
				run, keys := startOnTerminal(t, flags, "sh", "-c", "stty -echo; "+countingScript(t, ""))
				out := bufio.NewReader(keys)
				expect(t, out, "ready\r")
				awaitProbe(t, run.Process.Pid)
				testkit.Must(t, c.send(run, keys))
				expect(t, out, "caught\r")
				testkit.Must(t, run.Process.Signal(syscall.SIGTERM))
				expect(t, out, "1\r")
				run.Wait()
				if got := run.ProcessState.ExitCode(); got != 7 {
					t.Errorf("status %d, want the command's 7", got)
				}
			})
		}
	}
}

// A run whose command Ctrl-C has ended ends by SIGINT too, because a shell ends a loop only then.
func TestInterruptEndsRun(t *testing.T) {
	t.Parallel()
	testkit.TakesSignal(t, syscall.SIGINT)
	for _, flags := range [][]string{nil, {"--confine"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			if flags != nil {
				e2e.NeedConfinement(t)
			}
			run, keys := startOnTerminal(t, flags, "sh", "-c", "echo ready; exec sleep 1000")
			expect(t, bufio.NewReader(keys), "ready\r")
			awaitProbe(t, run.Process.Pid)
			_, err := keys.Write([]byte{3})
			testkit.Must(t, err)
			run.Wait()
			if by := run.ProcessState.Sys().(syscall.WaitStatus); !by.Signaled() || by.Signal() != syscall.SIGINT {
				t.Errorf("%v, want an end by SIGINT", run.ProcessState)
			}
		})
	}
}
