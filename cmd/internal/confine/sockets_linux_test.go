package confine

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/robots/testkit"
)

// Unix sockets outside are not reachable, by no path, except for the shown one.
func TestSocketsInside(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		o := newOutside(t)
		const nobody = "connection refused|no such file"
		want := []expectation{
			{name: "unix", args: []string{o.path}, err: nobody},
			{name: "unix", args: []string{"/proc/self/root" + o.path}, err: nobody},
			{name: "unix", args: []string{o.abstract}, err: nobody},
			{name: "unixgram", args: []string{o.packetPath}, err: nobody},
		}
		dir := ""
		if o.hiddenPath != "" {
			dir = filepath.Dir(filepath.Dir(o.hiddenPath)) // which this process could reach from its working directory
			relative, err := filepath.Rel(dir, o.hiddenPath)
			testkit.Must(t, err)
			want = append(want, expectation{name: "unix", args: []string{o.hiddenPath}, err: nobody}, expectation{name: "unix", args: []string{relative}, err: nobody},
				expectation{name: "unix", args: []string{"/proc/self/cwd/" + relative}, err: nobody})
		}
		expect(t, c, drivenRun{Dir: dir}, want...)
		if n := o.arrived.Load(); n != 0 {
			t.Errorf("%d connections and packets arrived outside", n)
		}
		shown := []string{o.path}
		want = []expectation{{name: "unix", args: []string{o.path}, text: "outside"}, {name: "unixgram", args: []string{o.packetPath}, err: nobody}}
		if o.hiddenPath != "" {
			shown = append(shown, o.hiddenPath)
			want = append(want, expectation{name: "unix", args: []string{o.hiddenPath}, text: "outside"})
		}
		expect(t, c, drivenRun{ShowSocket: shown}, want...)
	})
}

// A Unix socket that was bound to a relative path is hidden as well.
func TestRelativeSocket(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		file, err := ownBinary()
		testkit.Must(t, err)
		dir, err := os.MkdirTemp("/tmp", "confine-relative-")
		testkit.Must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		testkit.Must(t, os.Chmod(dir, 0o777))
		server := exec.Command(file)
		server.Dir, server.SysProcAttr = dir, &syscall.SysProcAttr{Credential: c.cred}
		server.Env = append(os.Environ(), partVariable+"=listen")
		in, err := server.StdinPipe()
		testkit.Must(t, err)
		out, err := server.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, server.Start())
		defer server.Wait()
		defer in.Close()
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		path := filepath.Join(dir, "relative")
		if text, err := connect("unix", path); text != "outside" {
			t.Fatalf("outside, the socket says %q, %v", text, err)
		}
		expect(t, c, drivenRun{}, expectation{name: "unix", args: []string{path}, err: "connection refused"})
	})
}

// A command must not inherit a socket that it can connect to other addresses outside.
func TestInheritedSockets(t *testing.T) {
	self := caller{"self", nil}
	needNamespaces(t, self)
	unixPair := func(kind int) func() (*os.File, error) {
		return func() (*os.File, error) {
			pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { unix.Close(pair[1]) })
			return os.NewFile(uintptr(pair[0]), "pair"), nil
		}
	}
	lone := func(family, kind int) func() (*os.File, error) {
		return func() (*os.File, error) {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
			return os.NewFile(uintptr(fd), "socket"), err
		}
	}
	for _, c := range []struct {
		name    string
		open    func() (*os.File, error)
		allowed bool
	}{
		{"UDP", lone(unix.AF_INET, unix.SOCK_DGRAM), false},
		{"TCP", lone(unix.AF_INET, unix.SOCK_STREAM), false},
		{"TCP over IPv6", lone(unix.AF_INET6, unix.SOCK_STREAM), false},
		{"netlink", lone(unix.AF_NETLINK, unix.SOCK_RAW), false},
		{"unconnected Unix socket", lone(unix.AF_UNIX, unix.SOCK_STREAM), false},
		{"Unix datagrams", unixPair(unix.SOCK_DGRAM), false},
		{"Unix stream", unixPair(unix.SOCK_STREAM), true},
		{"Unix packets", unixPair(unix.SOCK_SEQPACKET), true},
		{"file", func() (*os.File, error) { return os.Open("/etc/passwd") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := driver(t, self, drivenRun{Argv: []string{"/bin/true"}})
			f, err := c.open()
			testkit.Must(t, err)
			defer f.Close()
			cmd.Stdin = f
			out, err := cmd.CombinedOutput()
			if c.allowed != (err == nil) || !c.allowed && !strings.Contains(string(out), "standard input is a socket") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestSocketPaths(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"00000000dd4bd441: 00000003 00000000 00000000 0001 03  1668":                        "",
		"00000000dd4bd441: 00000002 00000000 00010000 0001 01  1668 /run/a b":               "/run/a b",
		"00000000dd4bd441: 00000002 00000000 00010000 0001 01 123456789 /tmp/x":             "/tmp/x",
		"00000000dd4bd441: 00000002 00000000 00010000 0001 01 123456789 @/tmp/.X11-unix/X0": "",
		"00000000dd4bd441: 00000002 00000000 00010000 0001 01 123456789 relative/path":      "relative/path",
	} {
		if got := socketPath(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	env := lookUp([]string{"SSH_AUTH_SOCK=/tmp/ssh-x/agent.1", "DOCKER_HOST=unix:///home/me/docker.sock", "CONTAINER_HOST=tcp://1.2.3.4:1",
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/tmp/dbus-x,guid=1;unix:abstract=/tmp/y"})
	if got := fmt.Sprint(namedSockets(env)); got != "[/tmp/ssh-x/agent.1 /home/me/docker.sock /tmp/dbus-x]" {
		t.Errorf("sockets of the variables: %s", got)
	}
}
