package operations

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// nobody is the user of the image.
const nobody = 65532

// A cell is a container without an engine: a read-only root with a volume in it, a
// separate network, and an unprivileged user.
type cell struct {
	root  string
	image dockerfile // the last stage
}

// newCell moves the test's goroutine into a new cell. Its thread ends with it, so the
// test must be a subtest. Only its own calls and its child processes are inside. Other
// mounts are below their place.
func newCell(t *testing.T, image dockerfile, root, volume string, mounts map[string]string) *cell {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		t.Skipf("this machine gives no namespaces: %v", err)
	}
	mount := func(from, to string, flags uintptr) {
		if err := unix.Mount(from, to, "", flags, ""); err != nil {
			t.Fatalf("mount %s: %v", to, err)
		}
	}
	mount("", "/", unix.MS_REC|unix.MS_PRIVATE)
	mount(root, root, unix.MS_BIND)
	mount(volume, filepath.Join(root, "var/lib/robotsproxy"), unix.MS_BIND)
	for to, from := range mounts {
		to = filepath.Join(root, to)
		if err := os.MkdirAll(to, 0o755); err != nil { // as an engine creates it
			t.Fatal(err)
		}
		mount(from, to, unix.MS_BIND)
	}
	mount("", root, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatalf("loopback up: %v", err)
	}
	return &cell{root, image}
}

// command returns a command that runs inside.
func (c *cell) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// run starts the image as an engine would, waits until its HEALTHCHECK succeeds, calls
// the function, and stops the image.
func (c *cell) run(t *testing.T, do func()) {
	t.Helper()
	log := &e2e.SyncBuffer{}
	argv := append(execForm(t, c.image.only(t, "ENTRYPOINT")), execForm(t, c.image.only(t, "CMD"))...)
	cmd := c.command(argv...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", log)
		}
	})
	_, check, _ := strings.Cut(c.image.only(t, "HEALTHCHECK"), " CMD ")
	testkit.Eventually(t, "HEALTHCHECK finds it well", func() bool { return c.command(execForm(t, check)...).Run() == nil })
	do()
	if stop := c.image.only(t, "STOPSIGNAL"); stop != "SIGTERM" {
		t.Errorf("STOPSIGNAL %s", stop)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after STOPSIGNAL: %v", err)
	}
	for _, bad := range []string{"WARN", "ERROR", "read-only file system"} {
		if strings.Contains(log.String(), bad) {
			t.Errorf("the log has %s", bad)
		}
	}
}

// The image of the Dockerfile, whose lines are run one by one. Only CI builds its binary,
// which takes minutes without a build cache. Otherwise the image contains the binary of all
// tests.
func TestImage(t *testing.T) {
	testkit.Long(t, "many processes")
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give a process another root and user")
	}
	stages := readDockerfile(t).stages()
	if len(stages) != 2 || stages[1].only(t, "FROM") != "scratch" {
		t.Fatal("the Dockerfile has not a build stage and one from scratch")
	}
	image := stages[1]
	if got, want := image.only(t, "USER"), fmt.Sprintf("%d:%d", nobody, nobody); got != want {
		t.Errorf("USER %s, want %s", got, want)
	}
	built := e2e.Binary(t)
	if os.Getenv("REQUIRE_PEERS") == "1" {
		built = ""
	}
	root := copyStage(t, image, buildStage(t, stages[0], "v9.8.7", "0123abc", built))

	t.Run("as it is", func(t *testing.T) {
		volume := filepath.Join(root, "var/lib/robotsproxy") // as an engine fills a new volume from the image
		wantOwned(t, volume, fs.ModeDir|0o700)
		c := newCell(t, image, root, volume, nil)
		out := e2e.Finish(t, c.command("/robotsproxy", "version")).Want(t, 0)
		if built == "" && (!strings.HasPrefix(out.Stdout, "robotsproxy v9.8.7 (") || !strings.Contains(out.Stdout, "commit 0123abc)")) {
			t.Errorf("version: %s", out.Stdout)
		}
		c.run(t, func() {
			if got := c.get(t, "http://127.0.0.1:9000/"); got != http.StatusForbidden {
				t.Errorf("an address of the container itself: %d", got)
			}
			pem := e2e.Finish(t, c.command("/robotsproxy", "ca", "show", "--pem", "-c", "/etc/robotsproxy/config.yaml")).Want(t, 0).Stdout
			if text := e2e.ReadText(t, filepath.Join(volume, "ca.pem")); pem != text {
				t.Errorf("ca show --pem gives\n%s, not what is in the state:\n%s", pem, text)
			}
		})
		wantOwned(t, filepath.Join(volume, "ca.key"), 0o600)
		if records := e2e.ReadAudit(t, filepath.Join(volume, "audit.jsonl")); len(records) != 1 || records[0].Reason != "address" {
			t.Errorf("audit: %+v", records)
		}
	})

	t.Run("in a pod", func(t *testing.T) { podded(t, image, root) })
}

// podded runs the image as Kubernetes does: with a volume and a Secret for an fsGroup,
// and with the configuration of the manifests, except for the store, which does not exist
// here.
func podded(t *testing.T, image dockerfile, root string) {
	volume, etc := t.TempDir(), t.TempDir()
	if err := os.Chown(volume, 0, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(volume, fs.ModeSetgid|0o775); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(etc, "config.yaml")
	text, _, _ := strings.Cut(configMap(t), "store:")
	e2e.WriteFile(t, config, text+"egress: {allow_private: [127.0.0.0/8]}\n")
	ca := t.TempDir()
	e2e.Command(t, "ca", "show", "--state", ca).Want(t, 0)
	key := filepath.Join(ca, "ca.key")
	if err := os.Chown(key, 0, nobody); err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]fs.FileMode{config: 0o644, etc: 0o755, ca: 0o755, key: 0o440} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	c := newCell(t, image, root, volume, map[string]string{"etc/robotsproxy": etc, "etc/robotsproxy-ca": ca})
	l, err := net.Listen("tcp", "127.0.0.1:9000") // on this thread, so inside
	if err != nil {
		t.Fatal(err)
	}
	site := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "User-agent: *\nDisallow: /private\n") })}
	go site.Serve(l)
	t.Cleanup(func() { site.Close() })
	c.run(t, func() {
		for target, want := range map[string]int{"http://127.0.0.1:9000/": http.StatusOK, "http://127.0.0.1:9000/private": http.StatusForbidden} {
			if got := c.get(t, target); got != want {
				t.Errorf("%s: %d, want %d", target, got, want)
			}
		}
	})
	state := filepath.Join(volume, "state")
	wantOwned(t, state, fs.ModeDir|fs.ModeSetgid|0o700)
	if records := e2e.ReadAudit(t, filepath.Join(state, "audit.jsonl")); len(records) != 2 {
		t.Errorf("audit: %+v", records)
	}
}

// get requests an address from inside, on this thread.
func (c *cell) get(t *testing.T, target string) (status int) {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+c.image.only(t, "EXPOSE"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nUser-Agent: ImageBot/1.0\r\n\r\n", target)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// wantOwned checks the mode and the owner of a file.
func wantOwned(t testing.TB, file string, mode fs.FileMode) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; info.Mode() != mode || owner != nobody {
		t.Errorf("%s: mode %v of user %d, want %v of %d", filepath.Base(file), info.Mode(), owner, mode, nobody)
	}
}
