package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/robots/testkit"
)

// An outside is what a confined command must not reach: sockets of all kinds that count what arrives.
type outside struct {
	tcp, udp         string // addresses
	path, packetPath string // of Unix sockets
	hiddenPath       string // of one below /run; "": this user may not make one
	abstract         string
	arrived          atomic.Int64 // connections and packets
}

// newOutside opens the sockets until the test ends.
func newOutside(t *testing.T) *outside {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "confine-outside-") // short, for the name of a socket
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o777))
	o := &outside{path: filepath.Join(dir, "stream socket"), packetPath: filepath.Join(dir, "packet"), abstract: "@" + filepath.Base(dir)}
	o.tcp, o.udp = o.listen(t, "tcp", "127.0.0.1:0"), o.listenPacket(t, "udp", "127.0.0.1:0")
	o.listen(t, "unix", o.path)
	o.listen(t, "unix", o.abstract)
	o.listenPacket(t, "unixgram", o.packetPath)
	for _, path := range []string{o.path, o.packetPath} {
		testkit.Must(t, os.Chmod(path, 0o777))
	}
	if below, err := os.MkdirTemp("/run", "confine-outside-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(below) })
		testkit.Must(t, os.Chmod(below, 0o755))
		o.hiddenPath = filepath.Join(below, "socket")
		o.listen(t, "unix", o.hiddenPath)
		testkit.Must(t, os.Chmod(o.hiddenPath, 0o777))
	}
	return o
}

func (o *outside) listen(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.arrived.Add(1)
			c.Write([]byte("outside"))
			c.Close()
		}
	}()
	return l.Addr().String()
}

func (o *outside) listenPacket(t *testing.T, network, address string) string {
	t.Helper()
	p, err := net.ListenPacket(network, address)
	testkit.Must(t, err)
	t.Cleanup(func() { p.Close() })
	go func() {
		for {
			if _, _, err := p.ReadFrom(make([]byte, 100)); err != nil {
				return
			}
			o.arrived.Add(1)
		}
	}()
	return p.LocalAddr().String()
}

// An expectation is what has to become of an attempt.
type expectation struct {
	name string
	args []string
	err  string // part of the error; "": it succeeds
	text string // the result, if it succeeds; "": any
}

// expect has a confined command make attempts, and checks what becomes of them.
func expect(t *testing.T, c caller, r drivenRun, want ...expectation) {
	t.Helper()
	var all []attempt
	for _, w := range want {
		all = append(all, attempt{w.name, w.args})
	}
	found := attempts(t, c, r, all...)
	for _, w := range want {
		key := strings.Join(append([]string{w.name}, w.args...), " ")
		got, ok := found[key]
		switch {
		case !ok:
			t.Errorf("%s: no outcome", key)
		case w.err == "" && got.Err != "":
			t.Errorf("%s: %s", key, got.Err)
		case w.err != "" && (got.Err == "" || !containsAny(got.Err, w.err)):
			t.Errorf("%s: %q, %q; want the error %q", key, got.Text, got.Err, w.err)
		case w.err == "" && w.text != "" && got.Text != w.text:
			t.Errorf("%s: %q, want %q", key, got.Text, w.text)
		}
	}
}

// containsAny reports whether text contains one of the parts of "a|b".
func containsAny(text, parts string) bool {
	for part := range strings.SplitSeq(parts, "|") {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// Every TCP connection but those to loopback goes to the transparent listener, with its original
// destination. Other packets are not sent.
func TestNetworkInside(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		o := newOutside(t)
		_, port, _ := net.SplitHostPort(o.tcp)
		const notPermitted = "operation not permitted"
		expect(t, c, drivenRun{},
			expectation{name: "tcp", args: []string{"192.0.2.1:80"}, text: "192.0.2.1"},
			expectation{name: "tcp", args: []string{"[2001:db8::1]:25"}, text: "2001:db8::1"},
			expectation{name: "tcp", args: []string{"www.example:443"}, text: "www.example"},
			expectation{name: "tcp", args: []string{"WWW.Example:443"}, text: "www.example"},
			expectation{name: "tcp", args: []string{"proxy"}, text: "the proxy"},
			expectation{name: "tcp", args: []string{"127.0.0.1:" + port}, err: "connection refused"},
			expectation{name: "tcp", args: []string{"[::1]:" + port}, err: "connection refused"},
			expectation{name: "tcp", args: []string{"localhost:" + port}, err: "connection refused"},
			expectation{name: "udp", args: []string{o.udp}}, // to its own loopback, where nobody is
			expectation{name: "udp", args: []string{"192.0.2.1:443"}, err: notPermitted},
			expectation{name: "udp", args: []string{"[2001:db8::1]:443"}, err: notPermitted},
			expectation{name: "udp", args: []string{"255.255.255.255:9"}, err: notPermitted + "|permission denied"},
			expectation{name: "udp", args: []string{"224.0.0.251:5353"}, err: notPermitted},
			expectation{name: "socket", args: []string{"raw"}, err: notPermitted},
			expectation{name: "socket", args: []string{"raw6"}, err: notPermitted},
			expectation{name: "socket", args: []string{"ping"}, err: "permission denied"},
			expectation{name: "socket", args: []string{"packet"}, err: "address family not supported"},
			expectation{name: "socket", args: []string{"vsock"}, err: "address family not supported"},
			expectation{name: "socket", args: []string{"bluetooth"}, err: "address family not supported"},
			expectation{name: "socket", args: []string{"alg"}, err: "address family not supported"},
			expectation{name: "socket", args: []string{"netlink"}},
		)
		if n := o.arrived.Load(); n != 0 {
			t.Errorf("%d connections and packets arrived outside", n)
		}
	})
}

// The resolver inside answers each name, whichever server is asked.
func TestNamesInside(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		expect(t, c, drivenRun{},
			expectation{name: "lookup", args: []string{"a.example"}, text: "198.18.1.0"},
			expectation{name: "lookup", args: []string{"b.example"}, text: "198.18.1.1"},
			expectation{name: "lookup", args: []string{"localhost"}, text: "127.0.0.1"},
			expectation{name: "ask", args: []string{"udp", "192.0.2.53:53", "b.example"}, text: "198.18.1.1"},
			expectation{name: "ask", args: []string{"tcp", "192.0.2.53:53", "b.example"}, text: "198.18.1.1"},
			expectation{name: "ask", args: []string{"udp", "[2001:db8::35]:53", "a.example"}, text: "198.18.1.0"},
			expectation{name: "reverse", args: []string{"198.18.1.1"}, text: "b.example."},
			expectation{name: "resolver-connections", args: []string{"192.0.2.53:53"}},
		)
	})
}

// Each of many open connections leads where its client wants, though all end at one address and port.
func TestManyConnections(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		expect(t, c, drivenRun{}, expectation{name: "many", args: []string{strconv.Itoa(testkit.Rounds(4000))}})
	})
}

// A command cannot leave its namespaces, nor undo what they hide.
func TestNoWayOut(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		o := newOutside(t)
		const notPermitted = "operation not permitted"
		self := strconv.Itoa(os.Getpid())
		want := []expectation{
			{name: "read", args: []string{"/proc/PARENT/ns/net"}, err: "permission denied"},
			{name: "read", args: []string{"/proc/1/ns/net"}, err: "permission denied"},
			{name: "read", args: []string{"/proc/PARENT/root" + o.path}, err: "permission denied"},
			{name: "read", args: []string{"/proc/PARENT/environ"}, err: "permission denied"},
			{name: "setns", args: []string{"/proc/self/ns/net"}, err: notPermitted},
			{name: "setns-pid", args: []string{"PARENT"}, err: notPermitted},
			{name: "setns-pid", args: []string{self}, err: notPermitted},
			{name: "ptrace", args: []string{"PARENT"}, err: notPermitted},
			{name: "ptrace", args: []string{self}, err: notPermitted},
			{name: "getfd", args: []string{"PARENT"}, err: notPermitted},
			{name: "ioctl", args: []string{"TIOCSTI"}, err: notPermitted},
			{name: "ioctl", args: []string{"TIOCSTI+"}, err: notPermitted},
			{name: "ioctl", args: []string{"TIOCLINUX"}, err: notPermitted},
			{name: "uring", err: "function not implemented"},
			{name: "request-key", err: "function not implemented"},
			{name: "unshare", args: []string{"net"}, err: notPermitted},
			{name: "umount", args: []string{"/run"}, err: notPermitted},
			{name: "flush", err: notPermitted},
			{name: "capabilities", text: map[bool]string{true: "00000000000004fb", false: "0000000000000000"}[c.name == "root"]},
			{name: "descriptor", args: []string{"7"}, err: "bad file descriptor|socket operation on non-socket"},
		}
		nested := "operation not permitted" // root lacks CAP_SETFCAP to map itself
		if c.name != "root" {
			nested = "inside: invalid argument|inside: device or resource busy|inside: dial tcp 192.0.2.1:80: connect: network is unreachable"
		}
		for _, args := range [][]string{{"umount", "/run"}, {"umount", o.path}, {"overlay", filepath.Dir(o.path)}, {"rename", o.path}, {"tcp", "192.0.2.1:80"}} {
			want = append(want, expectation{name: "nested", args: args, err: nested})
		}
		if c.name == "root" {
			want = append(want, expectation{name: "write", args: []string{"/proc/sys/vm/overcommit_memory"}, err: "read-only"},
				expectation{name: "write", args: []string{"/proc/sysrq-trigger"}, err: "read-only|no such file"},
				expectation{name: "write", args: []string{"/sys/kernel/mm/transparent_hugepage/enabled"}, err: "read-only|no such file"},
				expectation{name: "write", args: []string{"/etc/passwd"}, err: "read-only"})
		}
		expect(t, c, drivenRun{}, want...)
		if n := o.arrived.Load(); n != 0 {
			t.Errorf("%d connections and packets arrived outside", n)
		}
	})
}

// --allow-local reaches a service outside by TCP, on both loopback addresses.
func TestAllowLocal(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		o := newOutside(t)
		_, text, _ := net.SplitHostPort(o.tcp)
		port, err := strconv.ParseUint(text, 10, 16)
		testkit.Must(t, err)
		gone := testkit.DeadEnd(t, "127.0.0.1")
		expect(t, c, drivenRun{AllowLocal: []uint16{uint16(port), netip.MustParseAddrPort(gone).Port()}},
			expectation{name: "tcp", args: []string{"127.0.0.1:" + text}, text: "outside"},
			expectation{name: "tcp", args: []string{"localhost:" + text}, text: "outside"},
			expectation{name: "tcp", args: []string{"[::1]:" + text}, text: "outside"},
			expectation{name: "tcp", args: []string{gone}, err: "reset"},
		)
	})
}

// The command trusts what it is told to trust, and keeps its user, whose files it writes.
func TestFilesInside(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		dir := t.TempDir()
		testkit.Must(t, os.Chmod(filepath.Dir(dir), 0o777)) // the test's own as well
		testkit.Must(t, os.Chmod(dir, 0o777))
		written := filepath.Join(dir, "written")
		policy := `{"CACertificates":["Y2E="]}`
		private := "/run/user/" + c.name
		expect(t, c, drivenRun{},
			expectation{name: "read", args: []string{"/etc/ssl/certs/ca-certificates.crt"}, text: "bundle\n"},
			expectation{name: "read", args: []string{"/etc/ssl/cert.pem"}, text: "bundle\n"},
			expectation{name: "read", args: []string{"/etc/chromium/policies/managed/robotsproxy.json"}, text: policy},
			expectation{name: "read", args: []string{"/etc/opt/chrome/policies/managed/robotsproxy.json"}, text: policy},
			expectation{name: "read", args: []string{firefoxPolicies}, text: `{"policies":{"Certificates":{"Install":["/run/robotsproxy/ca.der"]}}}`},
			expectation{name: "read", args: []string{InsideDir + "/" + caName}, text: "ca"},
			expectation{name: "read", args: []string{"/etc/resolv.conf"}, text: "nameserver 198.18.0.53\n"},
			expectation{name: "read", args: []string{"/etc/passwd"}},
			expectation{name: "read", args: []string{InsideDir + "/" + javaName}, text: "java\n"},
			expectation{name: "write", args: []string{InsideDir + "/" + javaName}, err: "read-only"},
			expectation{name: "create", args: []string{written}},
			expectation{name: "create", args: []string{private + "/file"}},
		)
		info, err := os.Stat(written)
		testkit.Must(t, err)
		if uid := info.Sys().(*syscall.Stat_t).Uid; c.cred != nil && uid != c.cred.Uid {
			t.Errorf("the file belongs to %d, want %d", uid, c.cred.Uid)
		}
		if _, err := os.Stat(private); err == nil {
			t.Errorf("%s is there outside", private)
		}
		for _, store := range javaStores {
			if real, err := filepath.EvalSymlinks(store); err == nil {
				expect(t, c, drivenRun{}, expectation{name: "read", args: []string{real}, text: "java\n"})
			}
		}
	})
}

// The policies of Firefox that are there already stay.
func TestFirefoxPolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``: `{"policies":{"Certificates":{"Install":["/run/robotsproxy/ca.der"]}}}`,
		`{"policies":{"Certificates":{"ImportEnterpriseRoots":true,"Install":["/a.pem"]},"DisableTelemetry":true}}`: `{"policies":{"Certificates":{"ImportEnterpriseRoots":true,"Install":["/a.pem","/run/robotsproxy/ca.der"]},"DisableTelemetry":true}}`,
		`{"policies":{"Certificates":7}}`: `{"policies":{"Certificates":{"Install":["/run/robotsproxy/ca.der"]}}}`,
		`{"policies":7}`:                  `{"policies":{"Certificates":{"Install":["/run/robotsproxy/ca.der"]}}}`,
	} {
		file := filepath.Join(t.TempDir(), "policies.json")
		testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		if got, err := addFirefoxPolicy(file); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

// Where /etc has mounts of its own, as in a container, the files are covered one by one.
func TestEtcWithMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root := caller{"root", nil}
	needNamespaces(t, root)
	cmd := driver(t, root, drivenRun{Argv: []string{"/bin/cat", "/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/hostname"}})
	cmd.Args = []string{"sh", "-c", `mount --make-rprivate / && mount --bind /etc/hostname /etc/hostname && exec "$0"`, cmd.Path}
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.HasPrefix(string(out), "nameserver 198.18.0.53\nbundle\n") {
		t.Errorf("%s", out)
	}
}

// --user runs the command as another user, without privileges.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root := caller{"root", nil}
	expect(t, root, drivenRun{User: "nobody"},
		expectation{name: "capabilities", text: "0000000000000000"},
		expectation{name: "ids", text: "65534 65534 [65534]"},
		expectation{name: "read", args: []string{"/etc/shadow"}, err: "permission denied"},
		expectation{name: "read", args: []string{InsideDir + "/" + javaName}, text: "java\n"},
		expectation{name: "tcp", args: []string{"www.example:443"}, text: "www.example"},
	)
}

// Where namespaces are not permitted, the start fails and says why. The command does not run.
func TestNotPermitted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	run := drivenRun{Argv: []string{"/bin/sh", "-c", "echo ran >" + file}}
	self := caller{"self", nil}
	for _, c := range []struct {
		name, want string
		change     func(cmd *exec.Cmd)
	}{
		{"max_user_namespaces", "the sysctl user.max_user_namespaces is 0", func(cmd *exec.Cmd) {
			cmd.Args = []string{"sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$0"`, cmd.Path}
			cmd.Path = "/bin/sh"
			own := func(id int) []syscall.SysProcIDMap {
				return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
			}
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = own(os.Getuid()), own(os.Getgid())
		}},
		{"seccomp", "a seccomp filter forbids it", func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, partVariable+"=filtered")
		}},
	} {
		check := func(t *testing.T, who caller) {
			needNamespaces(t, who)
			cmd := driver(t, who, run)
			c.change(cmd)
			out, err := cmd.CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), "confinement is not possible here: ") || !strings.Contains(string(out), c.want) {
				t.Errorf("%v: %s; want status 1 and %q", err, out, c.want)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("the command has run")
			}
		}
		t.Run(c.name, func(t *testing.T) {
			if c.name == "seccomp" {
				forEachCaller(t, check)
			} else { // of a namespace that has no other user
				check(t, self)
			}
		})
	}
}

// A command that cannot be executed is reported with the error of the system.
func TestNotExecutable(t *testing.T) {
	self := caller{"self", nil}
	needNamespaces(t, self)
	for path, want := range map[string]string{"/nonexistent/command": "exec /nonexistent/command: no such file or directory", "/etc/passwd": "exec /etc/passwd: permission denied"} {
		out, err := driver(t, self, drivenRun{Argv: []string{path}}).CombinedOutput()
		if err == nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %v, %s; want %s", path, err, out, want)
		}
	}
}

// The start of a stage by anybody else does nothing.
func TestStageAlone(t *testing.T) {
	file, err := ownBinary()
	testkit.Must(t, err)
	out, err := exec.Command(file, stageArgument).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "only robotsproxy run may start this") {
		t.Errorf("%v: %s", err, out)
	}
}

// A failure of the stage keeps what a caller has to know.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("plain"), fmt.Errorf("step: %w", unix.EPERM)} {
		text, jsonErr := json.Marshal(failureOf(err))
		testkit.Must(t, jsonErr)
		var f *failure
		testkit.Must(t, json.Unmarshal(text, &f))
		var got error
		if f != nil {
			got = f
		}
		if fmt.Sprint(got) != fmt.Sprint(err) || errors.Is(got, unix.EPERM) != errors.Is(err, unix.EPERM) {
			t.Errorf("%v, want %v", got, err)
		}
	}
}
