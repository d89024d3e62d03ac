package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"robotsproxy/cmd/internal/cli"
)

// Exit statuses for a child that could not be started, like those of shells.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// catchSignals receives the signals for the child from now on. A signal that the parent made this
// process ignore (nohup) stays ignored, for the child too.
func catchSignals() (caught <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range forwardedSignals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	// Nobody may read standard error any more when the summary is printed. SIGPIPE must not replace the
	// child's exit status. Use Notify, not Ignore: the child would inherit an ignored signal.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return c, func() {
		signal.Stop(c)
		signal.Stop(broken)
	}
}

// findCommand looks argv[0] up like a shell.
func findCommand(argv []string) (*exec.Cmd, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	if cmd.Err != nil {
		return nil, startError(argv[0], cmd.Err)
	}
	return cmd, nil
}

// startError returns the error of a command that did not start, with the status of a shell.
func startError(name string, err error) error {
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	// An *exec.Error and an *fs.PathError name the command too.
	return &cli.StatusError{Status: status, Err: fmt.Errorf("%q: %w", name, cmp.Or(errors.Unwrap(err), err))}
}

// A child is a command that runs behind the proxy.
type child struct {
	// name is the command as the user has given it.
	name string
	cmd  *exec.Cmd

	// start starts cmd.
	start func() error
}

// plainChild returns a child in the namespaces of this process.
func plainChild(cmd *exec.Cmd) child {
	return child{cmd.Args[0], cmd, func() error {
		if err := cmd.Start(); err != nil {
			return startError(cmd.Args[0], err)
		}
		return nil
	}}
}

// A childResult is how a child has ended.
type childResult struct {
	// status is the child's own exit status, or 128 plus the number of the signal that ended it.
	status int

	// interrupted says that a signal ended the child or asked it to end.
	interrupted bool

	// unseen ended the child and was sent to this process too, which has not received it yet; nil: there is none.
	unseen os.Signal

	// direct has the connections of the child without the proxy; nil: nobody watched it.
	direct *directConns
}

// runChild starts a child, forwards to it the caught signals that it has not received itself as a member of our
// process group, and waits for its end. It calls interrupted as soon as it receives a termination signal.
func runChild(c child, caught <-chan os.Signal, interrupted func()) (end childResult, err error) {
	if err := c.start(); err != nil {
		return childResult{}, err
	}
	cmd := c.cmd
	// The watch begins after the child, so that a signal that was sent before is forwarded.
	group := newGroupWatch()
	defer group.end()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
				return childResult{}, fmt.Errorf("wait for %q: %w", c.name, err)
			}
			end.status = statusOf(cmd.ProcessState)
			if by := syscall.Signal(end.status - cli.ExitSignal); !end.interrupted && isTermination(by) && group.saw(by) {
				end.unseen = by
			}
			end.interrupted = end.interrupted || cmd.ProcessState.ExitCode() < 0
			return end, nil
		case s := <-caught:
			if isTermination(s) {
				end.interrupted = true
				interrupted()
			}
			if !group.saw(s) || !inGroup(cmd.Process.Pid) {
				// Signal fails only if the child has ended.
				cmd.Process.Signal(s)
			}
		}
	}
}

// isTermination reports whether s is a request to end and ends a program that does not handle it.
func isTermination(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

// statusOf returns the exit status as a shell reports it.
func statusOf(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return cli.ExitSignal + int(ws.Signal())
	}
	return state.ExitCode()
}
