//go:build unix && !linux

package runner

import (
	"golang.org/x/sys/unix"
)

// getTermios is the request that reads a terminal's settings (tcgetattr).
const getTermios = unix.TIOCGETA
