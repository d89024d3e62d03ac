//go:build unix

package testkit

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Fifo makes a named pipe.
func Fifo(t testing.TB, name string) {
	t.Helper()
	Must(t, syscall.Mkfifo(name, 0o600))
}

// ProcessorTime returns how long this process has used the processors.
func ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// StartGroup starts a command. At the end of the test it ends what the command has left in the background.
func StartGroup(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	Must(t, cmd.Start())
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) })
}
