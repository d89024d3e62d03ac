package confine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"robotsproxy/proxy/socket"
	"robotsproxy/robots/testkit"
)

// The test binary plays three parts: the tests, the process that confines a command (as root or as
// nobody), and the command. This variable says which.
const partVariable = "CONFINE_TEST_PART"

func TestMain(m *testing.M) {
	Stage()
	switch os.Getenv(partVariable) {
	case "":
		testkit.SetParallel()
		status := m.Run()
		if file, err := ownBinary(); err == nil {
			os.RemoveAll(filepath.Dir(file))
		}
		os.Exit(status)
	case "driver":
		os.Exit(drive())
	case "command":
		os.Exit(command())
	case "listen":
		if err := sayOutside("relative"); err != nil {
			panic(err)
		}
	case "filtered":
		if err := forbidNamespaces(); err != nil {
			panic(err)
		}
		os.Setenv(partVariable, "driver")
		panic(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
}

// sayOutside answers the connections to a Unix socket until standard input ends.
func sayOutside(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "outside")
			c.Close()
		}
	}()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A drivenRun is what the driver has to do.
type drivenRun struct {
	Argv       []string // of the command; nil: the attempts
	Attempts   []attempt
	AllowLocal []uint16
	ShowSocket []string
	User       string
	Dir        string // working directory
}

// An attempt is one thing that the command tries.
type attempt struct {
	Name string
	Args []string
}

// An outcome is what became of an attempt.
type outcome struct {
	Err  string
	Text string
}

const runVariable = "CONFINE_TEST_RUN"

// A caller is a user that the tests run the driver as.
type caller struct {
	name string
	cred *syscall.Credential
}

// callers returns the users that can run the driver here: root and nobody, or this user.
func callers(t *testing.T) []caller {
	t.Helper()
	if os.Geteuid() != 0 {
		return []caller{{"user", nil}}
	}
	nobody, err := user.Lookup("nobody")
	testkit.Must(t, err)
	a, err := accountOf(nobody)
	testkit.Must(t, err)
	return []caller{{"root", nil}, {"nobody", &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}}}
}

// forEachCaller runs a test as each of callers.
func forEachCaller(t *testing.T, test func(t *testing.T, c caller)) {
	for _, c := range callers(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// ownBinary returns a copy of the test binary that every user may execute.
var ownBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "confine-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "confine.test")
	return file, testkit.WriteProgram(file, self)
})

// driver returns the process that does a drivenRun.
func driver(t *testing.T, c caller, r drivenRun) *exec.Cmd {
	t.Helper()
	file, err := ownBinary()
	testkit.Must(t, err)
	text, err := json.Marshal(r)
	testkit.Must(t, err)
	cmd := exec.CommandContext(t.Context(), file)
	cmd.Env = append(os.Environ(), partVariable+"=driver", runVariable+"="+string(text), "XDG_RUNTIME_DIR=/run/user/"+c.name, "HOME=/nonexistent", "GORACE=atexit_sleep_ms=0")
	cmd.Dir = "/"
	if r.Dir != "" {
		cmd.Dir = r.Dir
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred}
	inherited, err := net.Dial("udp", "127.0.0.1:9")
	testkit.Must(t, err)
	t.Cleanup(func() { inherited.Close() })
	f, err := inherited.(*net.UDPConn).File()
	testkit.Must(t, err)
	t.Cleanup(func() { f.Close() })
	cmd.ExtraFiles = []*os.File{f, f, f, f, f} // descriptors 3 to 7
	return cmd
}

// confinable has, by the name of a caller, a func() (output []byte, err error) that confines a command once.
var confinable sync.Map

// needNamespaces skips a test where a command cannot be confined.
func needNamespaces(t *testing.T, c caller) {
	t.Helper()
	try, _ := confinable.LoadOrStore(c.name, sync.OnceValues(driver(t, c, drivenRun{Argv: []string{"/bin/true"}}).CombinedOutput))
	out, err := try.(func() ([]byte, error))()
	if strings.Contains(string(out), "confinement is not possible here") {
		t.Skipf("%s", out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// attempts has a confined command try things, and returns what became of each.
func attempts(t *testing.T, c caller, r drivenRun, all ...attempt) map[string]outcome {
	t.Helper()
	needNamespaces(t, c)
	r.Attempts = all
	cmd := driver(t, c, r)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var found map[string]outcome
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v in %s%s", err, out, &stderr)
	}
	return found
}

// drive confines a command, answers its connections, and returns its status.
func drive() int {
	var r drivenRun
	if err := json.Unmarshal([]byte(os.Getenv(runVariable)), &r); err != nil {
		panic(err)
	}
	status, err := driveRun(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

func driveRun(r drivenRun) (status int, err error) {
	part := "none"
	if r.Argv == nil {
		part = "command"
		r.Argv = []string{os.Args[0]}
	}
	child := exec.Command(r.Argv[0], r.Argv[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	o := Options{Command: child, AllowLocal: r.AllowLocal, ShowSocket: r.ShowSocket}
	if r.User != "" {
		if o.User, err = user.Lookup(r.User); err != nil {
			return 0, err
		}
	}
	c, err := Start(o)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()
	for _, l := range []net.Listener{c.Transparent(), c.Proxy()} {
		go answer(c, l)
	}
	dir, err := os.MkdirTemp("", "confine-run-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	os.Setenv(partVariable, part)
	env := append(os.Environ(), "CONFINE_TEST_PROXY="+c.Proxy().Addr().String())
	if _, err := c.Run(dir, Trust{Bundle: []byte("bundle\n"), Java: []byte("java\n"), CA: []byte("ca")}, env); err != nil {
		return 0, err
	}
	err = c.Command().Wait()
	stop()
	if err := <-served; err != nil {
		return 0, err
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// answer tells each client of a listener whom it is connected to.
func answer(c *Confinement, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		text := "the proxy"
		if l != c.Proxy() {
			to, err := socket.New(conn).(*socket.Conn).OriginalDestination()
			if err != nil {
				panic(err)
			}
			name, release := c.NameOf(to.Addr())
			defer release()
			text = cmp.Or(name, to.Addr().String())
		}
		io.WriteString(conn, text)
		conn.Close()
	}
}

// command makes the attempts and prints what became of them.
func command() int {
	var r drivenRun
	if err := json.Unmarshal([]byte(os.Getenv(runVariable)), &r); err != nil {
		panic(err)
	}
	found := map[string]outcome{}
	for _, a := range r.Attempts {
		key := strings.Join(append([]string{a.Name}, a.Args...), " ")
		text, err := attemptable[a.Name](a.Args)
		o := outcome{Text: text}
		if err != nil {
			o.Err = err.Error()
		}
		found[key] = o
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		return 1
	}
	return 0
}
