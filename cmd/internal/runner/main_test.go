package runner

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// The test binary plays two more parts.
const (
	asRun     = "ROBOTSPROXY_TEST_AS_RUN"     // it runs a command as `run` does, without a proxy
	asCounter = "ROBOTSPROXY_TEST_AS_COUNTER" // it counts the signals that it receives
)

func TestMain(m *testing.M) {
	if os.Getenv(asCounter) != "" {
		countSignals()
	}
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

// countSignals says for each signal that it has come, and at SIGTERM how many had.
func countSignals() {
	time.AfterFunc(4*testkit.Patience, func() { os.Exit(8) }) // the test has failed
	caught, _ := catchSignals()
	fmt.Println("ready")
	for n := 0; ; n++ {
		if s := <-caught; s == syscall.SIGTERM {
			fmt.Println(n)
			os.Exit(7)
		}
		fmt.Println("caught")
	}
}
