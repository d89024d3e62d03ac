package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// settings are configuration values by dotted key ("pace.burst"); nil takes a key out.
type settings map[string]any

// outOfTheWay is a pace that no test waits for.
var outOfTheWay = settings{
	"pace.requests_per_second": 100_000, "pace.burst": 1000, "pace.max_concurrent": 100, "pace.max_queue": 5000,
}

// with is a copy of s where the other's values win.
func (s settings) with(other settings) settings {
	both := maps.Clone(s)
	maps.Copy(both, other)
	return both
}

// yaml writes the settings as a configuration file; JSON scalars and lists are YAML.
func (s settings) yaml(t testing.TB) string {
	t.Helper()
	var text strings.Builder
	section := ""
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if s[key] == nil {
			continue
		}
		value, err := json.Marshal(s[key])
		if err != nil {
			t.Fatal(err)
		}
		head, name, nested := strings.Cut(key, ".")
		if !nested {
			fmt.Fprintf(&text, "%s: %s\n", key, value)
			continue
		}
		if head != section {
			fmt.Fprintf(&text, "%s:\n", head)
			section = head
		}
		fmt.Fprintf(&text, "  %s: %s\n", name, value)
	}
	return text.String()
}

// A house is a state directory and a configuration file that fit the tests'
// origins, without a process.
type house struct {
	dir, state, config string
	listen, admin      string
}

// newHouse writes a configuration for a serve of its own.
func newHouse(t testing.TB, own settings) *house {
	t.Helper()
	dir := t.TempDir()
	h := &house{
		dir: dir, state: filepath.Join(dir, "state"), config: filepath.Join(dir, "config.yaml"),
		listen: fmt.Sprintf("127.0.0.1:%d", freePort(t)), admin: fmt.Sprintf("127.0.0.1:%d", freePort(t)),
	}
	all := settings{
		"listen": h.listen, "state_dir": h.state, "admin.listen": h.admin,
		"egress.allow_private": []string{"127.0.0.0/8"},
		"egress.resolver":      names.addr(),
		"egress.extra_ca":      trustedFile(t),
	}.with(own)
	writeFile(t, h.config, all.yaml(t))
	return h
}

func writeFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A proxy is a running `robotsproxy serve`.
type proxy struct {
	*house
	audit    string // the file
	ca       string // the file, as `robotsproxy ca path` names it
	cmd      *exec.Cmd
	stderr   *syncBuffer
	exited   chan struct{} // closed when the process has ended and code is set
	code     int
	wantCode int // that it ends with after SIGTERM
}

// startProxy runs serve until the test ends, and holds it to a clean end.
func startProxy(t testing.TB, own settings) *proxy {
	t.Helper()
	return startBy(t, own)
}

// startBy is startProxy for a serve that a command runs.
func startBy(t testing.TB, own settings, by ...string) *proxy {
	t.Helper()
	p := launch(t, newHouse(t, own), by...)
	p.awaitReady(t)
	p.ca = strings.TrimSuffix(command(t, "ca", "path", "-c", p.config).want(t, 0).stdout, "\n")
	t.Cleanup(func() { p.end(t) })
	return p
}

// launch starts serve, by a command that runs it if one is given, and waits
// for nothing.
func launch(t testing.TB, h *house, by ...string) *proxy {
	t.Helper()
	p := &proxy{house: h, audit: filepath.Join(h.state, "audit.jsonl"), stderr: &syncBuffer{}, exited: make(chan struct{})}
	argv := append(by, robotsproxy(t), "serve", "-c", h.config)
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = cleanEnv("XDG_STATE_HOME="+filepath.Join(h.dir, "xdg"), "HOME="+h.dir)
	p.cmd.Dir = h.dir
	p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		p.code = exitCode(p.cmd.ProcessState)
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", p.stderr)
		}
	})
	return p
}

// awaitReady polls /readyz.
func (p *proxy) awaitReady(t testing.TB) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	eventually(t, patience, "/readyz answers 200", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("serve ended with status %d:\n%s", p.code, p.stderr)
		default:
		}
		resp, err := client.Get("http://" + p.admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// signal sends the process a signal.
func (p *proxy) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// end stops the proxy as an operator would; a test that ended it itself has nothing more to show here.
func (p *proxy) end(t testing.TB) {
	select {
	case <-p.exited:
	default:
		p.signal(t, syscall.SIGTERM)
		within(t, patience, "serve ends after SIGTERM", p.exited)
		if p.code != p.wantCode {
			t.Errorf("serve ended with status %d, want %d", p.code, p.wantCode)
		}
	}
	for _, bad := range []string{"panic:", "DATA RACE", "goroutine "} {
		if strings.Contains(p.stderr.String(), bad) {
			t.Errorf("the proxy's log has %q:\n%s", bad, p.stderr)
		}
	}
}

// exitCode is the status as a shell tells it: 128+n for a signal.
func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// An outcome is what a command that ended left behind.
type outcome struct {
	args           []string
	code           int
	stdout, stderr string
}

// command runs robotsproxy to its end.
func command(t testing.TB, args ...string) outcome {
	t.Helper()
	return finish(t, prepare(t, args...))
}

// prepare is a robotsproxy command that does not touch the user's own state.
func prepare(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	home := t.TempDir()
	cmd := exec.Command(robotsproxy(t), args...)
	cmd.Env = cleanEnv("XDG_STATE_HOME="+filepath.Join(home, "xdg"), "HOME="+home)
	return cmd
}

// finish runs a command within the tests' patience.
func finish(t testing.TB, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	within(t, 2*patience, strings.Join(cmd.Args, " ")+" ends", done)
	return outcome{cmd.Args, exitCode(cmd.ProcessState), stdout.String(), stderr.String()}
}

// want holds the command to an exit status.
func (o outcome) want(t testing.TB, code int) outcome {
	t.Helper()
	if o.code != code {
		t.Fatalf("%s: status %d, want %d\nstdout:\n%s\nstderr:\n%s", strings.Join(o.args, " "), o.code, code, o.stdout, o.stderr)
	}
	return o
}

// A syncBuffer is a bytes.Buffer that a process may write while a test reads.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
