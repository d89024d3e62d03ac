package runner

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// asRun makes the test binary run a command as `run` does, without a proxy.
const asRun = "ROBOTSPROXY_TEST_AS_RUN"

func TestMain(m *testing.M) {
	if script := os.Getenv(asRun); script != "" {
		os.Exit(runScript(script))
	}
	e2e.Main(m)
}

func runScript(script string) int {
	caught, release := catchSignals()
	defer release()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	end, err := runChild(plainChild(cmd), caught, func() {})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return end.status
}
