package runner

import (
	"os"
	"syscall"
)

// forwardedSignals are the signals that the child handles: what Go makes of Ctrl+C, Ctrl+Break, and the end of
// the console.
var forwardedSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// A groupWatch tells which signals are sent to all processes of the console: on Windows, each.
type groupWatch struct{}

func newGroupWatch() (g groupWatch) { return g }

func (groupWatch) saw(os.Signal) bool { return true }

func (groupWatch) end() {}

// inGroup is always true.
func inGroup(int) bool { return true }

// IsIdle is always false, so no status line is shown: what the child does with the console is unknown.
func (t *terminal) IsIdle() bool { return false }
