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

// IsIdle reports whether the program that reads from the terminal reads whole lines with echo, and
// is in our process group.
func (t *terminal) IsIdle() bool {
	const cooked = unix.ICANON | unix.ECHO
	mode, err := unix.IoctlGetTermios(int(t.file.Fd()), getTermios)
	if err != nil || mode.Lflag&cooked != cooked {
		return false
	}
	// It fails on a terminal that is not that of this process.
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
