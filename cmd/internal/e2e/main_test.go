package e2e

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds every wait of these tests; nothing that works comes near it.
const patience = 30 * time.Second

// scratch is the directory of what all tests share: the binary, the CA.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(mainStatus(m))
}

func mainStatus(m *testing.M) int {
	dir, err := os.MkdirTemp("", "robotsproxy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	if err := names.start(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer names.stop()
	return m.Run()
}

// built builds robotsproxy once, on first use, so that the tests of the
// harness itself stand without it.
var built = sync.OnceValues(func() (string, error) {
	if err := lookAtSources("../../.."); err != nil {
		return "", err
	}
	path := filepath.Join(scratch, "robotsproxy")
	out, err := exec.Command("go", "build", "-o", path, "robotsproxy/cmd/robotsproxy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build robotsproxy: %w\n%s", err, out)
	}
	return path, nil
})

// lookAtSources opens every directory of the module: what the binary is built
// from is no import of this package, and go test would take an old result from
// its cache for a new binary if it did not see us look.
func lookAtSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
}

// robotsproxy gives the path of the built binary.
func robotsproxy(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually polls until cond holds and fails the test when it does not in time.
func eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// within waits for ch and fails the test when nothing comes in time.
func within[T any](t testing.TB, limit time.Duration, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(limit):
		t.Fatalf("not within %v: %s", limit, what)
		panic("unreachable")
	}
}

// nextPort is where freePort looks next: below Linux's ephemeral range, so that
// no outgoing connection takes a port between our look and the child's bind, and
// above the ports of redistest, whose servers other processes of a test run start.
var nextPort atomic.Uint32

// freePort picks a port of 127.0.0.1 that nobody else of this process is given.
func freePort(t testing.TB) int {
	t.Helper()
	for range 10_000 {
		port := 22_000 + (os.Getpid()*37+int(nextPort.Add(1)))%10_000
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		return port
	}
	t.Fatal("no free port")
	return 0
}

// cleanEnv is this process's environment without anything that names a proxy
// or a CA, and without a state directory of the user's, plus what is given.
func cleanEnv(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !steers(name) {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

// steers tells whether the variable would move a client past or through a
// proxy, change what it trusts, or move robotsproxy's own state.
func steers(name string) bool {
	upper := strings.ToUpper(name)
	for _, part := range []string{"PROXY", "SSL_CERT", "CA_BUNDLE", "CA_CERT", "CAINFO", "CA_FILE", "PIP_CERT", "DEFAULT_SSL_ROOTS"} {
		if strings.Contains(upper, part) {
			return true
		}
	}
	switch upper {
	case "XDG_STATE_HOME", "XDG_CONFIG_HOME", "NODE_OPTIONS", "NODE_TLS_REJECT_UNAUTHORIZED", "CURL_HOME", "WGETRC",
		"DENO_CERT", "JAVA_TOOL_OPTIONS", "PHP_INI_SCAN_DIR", "HTTPS_CA_DIR":
		return true
	}
	return false
}
