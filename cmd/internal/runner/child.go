package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"robotsproxy/cmd/internal/cli"
)

// The statuses of a child that could not be started, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// passedOn are the signals that are the child's business.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// catchSignals takes the signals for the child from now on. Those that our
// parent had us ignore (nohup) stay so, for the child too.
func catchSignals() (caught <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range passedOn {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	// Nobody may be reading standard error any more when the summary is due; that
	// must not become our exit status in place of the child's. Notify, not Ignore:
	// what is ignored the child would inherit.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return c, func() {
		signal.Stop(c)
		signal.Stop(broken)
	}
}

// findCommand looks argv[0] up as a shell does.
func findCommand(argv []string) (*exec.Cmd, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	if cmd.Err != nil {
		return nil, notStarted(argv[0], cmd.Err)
	}
	return cmd, nil
}

// notStarted gives why a command did not start the status a shell would.
func notStarted(name string, err error) error {
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	} else if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return &cli.StatusError{Status: status, Err: fmt.Errorf("%q: %w", name, err)}
}

// A childEnd is how a child has ended.
type childEnd struct {
	status    int  // its own, or 128 and the number of the signal that ended it
	brokenOff bool // a signal ended it, or asked it to end
}

// runChild starts cmd, hands it the signals caught, and waits for its end. Before one
// that asks it to end is handed on, asked is called; where the child has had it from
// the terminal, as soon as we have.
func runChild(cmd *exec.Cmd, caught <-chan os.Signal, asked func()) (end childEnd, err error) {
	if err := cmd.Start(); err != nil {
		return childEnd{}, notStarted(cmd.Args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
				return childEnd{}, fmt.Errorf("wait for %q: %w", cmd.Args[0], err)
			}
			end.status = statusOf(cmd.ProcessState)
			end.brokenOff = end.brokenOff || cmd.ProcessState.ExitCode() < 0
			return end, nil
		case s := <-caught:
			if asksToEnd(s) {
				end.brokenOff = true
				asked()
			}
			if !fromTerminal(s) {
				cmd.Process.Signal(s) // fails only where the child has ended: then that is what comes next
			}
		}
	}
}

// asksToEnd says whether a program that does nothing about s ends by it, and is meant to.
func asksToEnd(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

func statusOf(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return cli.ExitSignal + int(ws.Signal())
	}
	return state.ExitCode()
}

// fromTerminal says whether the child has the signal already: a terminal sends
// what its keys and its size cause to the whole foreground group, the child's
// and ours. Who sends us one of these by hand while we are in the foreground
// sends it to us alone; SIGTERM is passed on in any case.
func fromTerminal(s os.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH:
		return inForeground()
	default:
		return false
	}
}

// inForeground says whether we are in the foreground group of our terminal, if we have one.
func inForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
