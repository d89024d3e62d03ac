//go:build unix

package runner

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwardedSignals are the signals that the child handles.
var forwardedSignals = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// inForeground reports whether this process is in the foreground group of a terminal, which must be its own.
func inForeground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// IsIdle reports whether the program that reads from the terminal reads whole lines with echo, and
// is in our process group.
func (t *terminal) IsIdle() bool {
	mode, err := unix.IoctlGetTermios(int(t.file.Fd()), getTermios)
	const cooked = unix.ICANON | unix.ECHO
	return err == nil && mode.Lflag&cooked == cooked && inForeground(t.file)
}
