package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/robots/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(waitingTests{m}, map[string]func(){"robotsproxy": main})
}

// waitingTests runs tests that wait beside each other.
type waitingTests struct{ *testing.M }

func (w waitingTests) Run() int {
	testkit.SetParallel()
	return w.M.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exec-status": execStatus},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_STATE_HOME", e.WorkDir+"/state")
			e.Setenv("HOME", e.WorkDir+"/home")
			for _, name := range []string{"http_proxy", "https_proxy", "WGETRC"} {
				e.Setenv(name, "")
			}
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each command of a -race run takes a second to end
			if bin, err := exec.LookPath("robotsproxy"); err == nil {
				e.Setenv("BIN", bin) // for a PATH that leads nowhere
			}
			roots := e.WorkDir + "/roots.pem" // none: the machine's many take their time
			e.Setenv("SSL_CERT_FILE", roots)
			e.Setenv("SSL_CERT_DIR", roots+".d")
			return os.WriteFile(roots, nil, 0o600)
		},
	})
}

// execStatus runs a command that must end with a status, and must say why if the status
// is robotsproxy's own.
func execStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exec-status STATUS COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != want {
		ts.Fatalf("%v, want exit status %d", err, want)
	}
	if text := ts.ReadFile("stderr"); want <= cli.ExitUsage && !strings.HasPrefix(text, "robotsproxy: ") {
		ts.Fatalf("standard error is not a line of ours: %s", text)
	}
}
