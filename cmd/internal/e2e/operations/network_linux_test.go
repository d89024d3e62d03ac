package operations

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// insideVariable is set in a test process that runs in separate namespaces.
const insideVariable = "ROBOTSPROXY_TEST_INSIDE"

// inside runs the calling test again as root in a process with separate user, network and mount
// namespaces. It returns true there, and false after that process has ended.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	testkit.Long(t, "real peers")
	for _, peer := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(peer); err != nil {
			testkit.Missing(t, peer)
		}
	}
	e2e.Binary(t) // built now, so that the process inside finds it
	const prepare = `ip link set lo up && mount -t tmpfs tmpfs /run && exec "$0" "$@"`
	cmd := exec.Command("sh", "-c", prepare, os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	size := 1
	if os.Getuid() == 0 {
		size = crawlerUID + 1
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: size}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: size}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig depends on the thread
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Skipf("this machine gives no namespaces: %v", err)
	}
	t.Logf("inside:\n%s", out)
	if err != nil {
		t.Fail()
	}
	return false
}

// sh runs commands.
func sh(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", script, err, out)
	}
}

// applyRules loads a file of docs/deploy/nftables with other values in its definitions.
func applyRules(t *testing.T, file string, definitions map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e2e.TreeRoot(), "docs/deploy/nftables", file))
	testkit.Must(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if rest, ok := strings.CutPrefix(line, "define "); ok {
			name, _, _ := strings.Cut(rest, " ")
			lines[i] = fmt.Sprintf("define %s = %s", name, definitions[name])
			delete(definitions, name)
		}
	}
	if len(definitions) > 0 {
		t.Fatalf("%s does not define %v", file, definitions)
	}
	own := filepath.Join(t.TempDir(), file)
	e2e.WriteFile(t, own, strings.Join(lines, "\n"))
	sh(t, "nft -f "+own)
}

// A place is where sockets are created: it prepares a thread that is used for nothing
// else.
type place func() error

// host returns a network namespace of ip netns as a place.
func host(name string) place {
	return func() error {
		ns, err := os.Open("/run/netns/" + name)
		if err != nil {
			return err
		}
		defer ns.Close()
		return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	}
}

// user returns a user of this machine as a place.
func user(uid int) place {
	return func() error { return unix.Setfsuid(uid) }
}

// in calls f at a place.
func in[T any](at place, f func() (T, error)) (got T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = at(); err == nil {
			got, err = f()
		}
	}()
	<-done
	return got, err
}

func dial(at place, network, addr string) (net.Conn, error) {
	return in(at, func() (net.Conn, error) { return net.DialTimeout(network, addr, testkit.Patience) })
}

func listen(t *testing.T, at place, addr string) net.Listener {
	t.Helper()
	l, err := in(at, func() (net.Listener, error) { return net.Listen("tcp", addr) })
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// client returns an HTTP client without a proxy that connects to addr. It trusts the proxy's CA.
func client(t *testing.T, p *e2e.Proxy, at place, addr string, h2 bool) *http.Client {
	tr := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: e2e.CertPool(t, p.CA)},
		ForceAttemptHTTP2: h2,
		DialContext: func(_ context.Context, network, named string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(named)
			if err != nil {
				return nil, err
			}
			return dial(at, network, net.JoinHostPort(addr, port))
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testkit.Patience}
}

// A sink records what arrives at addresses where nothing may arrive.
type sink struct {
	mu      sync.Mutex
	arrived []string
}

func (s *sink) add(what string, from net.Addr, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = append(s.arrived, fmt.Sprintf("%s from %v to %s", what, from, addr))
}

// all returns what has arrived so far.
func (s *sink) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrived)
}

// listen listens on an address, for TCP and UDP.
func (s *sink) listen(t *testing.T, at place, addr string) {
	t.Helper()
	l := listen(t, at, addr)
	p, err := in(at, func() (net.PacketConn, error) { return net.ListenPacket("udp", addr) })
	testkit.Must(t, err)
	t.Cleanup(func() { p.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			s.add("a connection", c.RemoteAddr(), addr)
			c.Close()
		}
	}()
	go func() {
		b := make([]byte, 100)
		for _, from, err := p.ReadFrom(b); err == nil; _, from, err = p.ReadFrom(b) {
			s.add("a packet", from, addr)
		}
	}()
}
