package testkit

import (
	"os/exec"
	"testing"
	"time"
)

// Fifo skips the test: on Windows, named pipes are no files.
func Fifo(t testing.TB, _ string) { t.Skip("Windows has no FIFOs") }

// ProcessorTime skips the test.
func ProcessorTime(t testing.TB) time.Duration {
	t.Skip("the processor time is not measured on Windows")
	return 0
}

// StartGroup skips the test: what a command has started cannot be found.
func StartGroup(t testing.TB, _ *exec.Cmd) { t.Skip("Windows has no process groups") }
