package runner

import (
	"os"
	"syscall"
)

// forwardedSignals are the signals that the child handles: what Go makes of Ctrl+C, Ctrl+Break, and the end of
// the console.
var forwardedSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// fromTerminal is always true: Windows sends these events to every process of the console.
func fromTerminal(os.Signal) bool { return true }

// IsIdle is always false, so no status line is shown: what the child does with the console is unknown.
func (t *terminal) IsIdle() bool { return false }
