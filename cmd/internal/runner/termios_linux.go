package runner

import (
	"golang.org/x/sys/unix"
)

// getTermios asks a terminal how it is set (tcgetattr).
const getTermios = unix.TCGETS
