// Package e2e is the kit of the end-to-end tests: origins, a DNS server, a certificate
// authority, the built binary and its processes, and real clients.
//
// Only tests import it. Everything runs on loopback, on ports from 1024 up. A test whose client
// is not installed is skipped, or fails if REQUIRE_PEERS=1.
package e2e

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy/osfile"
	"robotsproxy/robots/testkit"
)

// scratch is the directory that all tests of a process share.
var scratch string

// noRoots returns the name of an empty file of root certificates.
func noRoots() string { return filepath.Join(scratch, "no-roots.pem") }

// Main runs the tests of a package; each TestMain calls only Main.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	testkit.SetParallel()
	dir, err := buildDir()
	if err == nil {
		sweep(dir)
		scratch, err = os.MkdirTemp(dir, "run-")
	}
	if err == nil {
		defer os.RemoveAll(scratch)
		err = os.WriteFile(noRoots(), nil, 0o600)
	}
	if err == nil {
		err = Names.start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer Names.stop()
	return m.Run()
}

// TreeRoot returns the root directory of the module.
var TreeRoot = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	for err == nil && filepath.Dir(dir) != dir {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	panic("e2e: no go.mod above the working directory")
})

// built builds robotsproxy on first use, without cgo, as releases are built. All test processes of a
// user that the same version of Go has built share the file, unless a source is newer, and a lock
// serialises builds.
var built = sync.OnceValues(func() (string, error) {
	changed, err := newestSource(TreeRoot())
	if err != nil {
		return "", err
	}
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := osfile.Lock(lock); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "robotsproxy-"+runtime.Version())
	if file, err := os.Stat(path); err != nil || !file.ModTime().After(changed) {
		began := time.Now()
		build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "robotsproxy/cmd/robotsproxy")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build robotsproxy: %w\n%s", err, out)
		}
		// A source may have changed since.
		if err := os.Chtimes(path, began, began); err != nil {
			return "", err
		}
	}
	// The link keeps this binary when another run replaces the shared file.
	own := filepath.Join(scratch, "robotsproxy")
	return own, os.Link(path, own)
})

// buildDir returns a private directory for the binary of this checkout: in the user's cache, or
// in the temporary directory if the cache is not writable.
func buildDir() (string, error) {
	name := strings.ReplaceAll(TreeRoot(), string(filepath.Separator), "_")
	if cache, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(cache, "robotsproxy-test", name)
		if os.MkdirAll(dir, 0o700) == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("robotsproxy-test-%d", os.Getuid()), name)
	return dir, os.MkdirAll(dir, 0o700)
}

// sweep removes run directories in dir that are older than a day.
func sweep(dir string) {
	// The pattern is well-formed.
	left, _ := filepath.Glob(filepath.Join(dir, "run-*"))
	for _, run := range left {
		if info, err := os.Stat(run); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(run)
		}
	}
}

// newestSource returns when a file or directory of the module has changed last. It opens every
// directory, so that go test does not reuse a cached result for a new binary, which this package does
// not import.
func newestSource(root string) (newest time.Time, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return err
	})
	return newest, err
}

// Binary returns the path of the built robotsproxy.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The ports of FreePort are below Linux's ephemeral range, so that no outgoing connection takes
// a port before the child binds it, and above the ports of redistest.
const firstPort, portBlocks, blockPorts = 22_000, 50, 200

// portBlock listens on the first port of a block until the process exits, so that no other test
// process uses the block. It keeps the listener, which the garbage collector would close otherwise.
var portBlock = sync.OnceValues(func() (net.Listener, error) {
	for i := range portBlocks {
		first := firstPort + (os.Getpid()+i)%portBlocks*blockPorts
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%d test processes have all ports from %d on", portBlocks, firstPort)
})

var nextPort atomic.Uint32

// FreePort returns a port of 127.0.0.1 that no other test process gets. A process reuses a port
// only after it has used its whole block.
func FreePort(t testing.TB) int {
	t.Helper()
	block, err := portBlock()
	if err != nil {
		t.Fatal(err)
	}
	first := block.Addr().(*net.TCPAddr).Port
	for range blockPorts {
		port := first + 1 + int(nextPort.Add(1))%(blockPorts-1)
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

// CleanEnv returns this process's environment plus extra, without variables that name a proxy,
// a CA or the user's state directory.
func CleanEnv(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !steers(name) {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

// steers reports whether the variable could change a client's proxy, the CAs it trusts, or
// robotsproxy's state directory.
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
