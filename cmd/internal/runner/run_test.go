package runner

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
)

// TestEmptyFileNames: a flag whose value is empty, as that of an unset variable, is not as good as none.
func TestEmptyFileNames(t *testing.T) {
	for _, name := range []string{"--audit", "--warc", "--report", "--state"} {
		var out, errOut bytes.Buffer
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		status := cli.Execute(t.Context(), Command(), []string{name, "", "--", "true"}, nil, &out, &errOut)
		if status != cli.ExitUsage || !strings.Contains(errOut.String(), name) {
			t.Errorf("%s: status %d, %q", name, status, errOut.String())
		}
	}
}

// TestAnchorFileOfARun: a run writes no checkpoint of its audit into the file with a checkpoint a day of serve's.
func TestAnchorFileOfARun(t *testing.T) {
	cfg := config.Default()
	cfg.StateDir, cfg.Audit.Anchor.File = t.TempDir(), "/elsewhere/anchors"
	_, lock, err := new(runFlags).prepare(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if file := cfg.Audit.Anchor.File; file != "" {
		t.Errorf("the run writes checkpoints to %s", file)
	}
}

// TestWaitForDaemonKnowsTheChildsSignal: a ^C that has ended the child, and that this process
// receives only then, does not cut the proxy short. The next one does.
func TestWaitForDaemonKnowsTheChildsSignal(t *testing.T) {
	for _, c := range []struct {
		name   string
		unseen os.Signal
		sent   int // SIGINTs after the child's end
		cut    bool
	}{
		{"none", nil, 0, false},
		{"one", nil, 1, true},
		{"the child's", syscall.SIGINT, 1, false},
		{"the child's and another", syscall.SIGINT, 2, true},
		{"another than the child's", syscall.SIGQUIT, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				served, caught, cut := make(chan error, 1), make(chan os.Signal, 16), false
				done := make(chan error, 1)
				go func() { done <- waitForDaemon(served, caught, c.unseen, func() { cut = true }) }()
				synctest.Wait()
				for range c.sent {
					caught <- syscall.SIGINT
				}
				synctest.Wait()
				served <- nil
				if err := <-done; cut != c.cut || (err != nil) != c.cut {
					t.Errorf("cut short: %v, %v; want %v", cut, err, c.cut)
				}
			})
		})
	}
}

func TestStateApart(t *testing.T) {
	home := func(name string) string { return map[string]string{"HOME": "/home/me"}[name] }
	for _, c := range []struct{ name, state, redis, want string }{
		{"the usual directory", "", "", ""},
		{"the usual directory by its path", "/home/me/.local/state/robotsproxy", "", ""},
		{"another directory", "/srv/state", "", "/srv/state"},
		{"a fleet", "/srv/state", "redis://localhost", ""},
	} {
		cfg := config.Default()
		cfg.StateDir, cfg.Store.Redis = c.state, c.redis
		if got := stateApart(cfg, home); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
