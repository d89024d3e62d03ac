package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"robotsproxy/robots/testkit"

	"go.etcd.io/bbolt"
)

// Settings are configuration values by dotted key ("pace.burst"); nil removes a key.
type Settings map[string]any

// Unpaced is a pace so fast that requests do not wait.
var Unpaced = Settings{
	"pace.requests_per_second": 100_000, "pace.burst": 1000, "pace.max_concurrent": 100, "pace.max_queue": 5000,
}

// With returns a copy of s in which the values of other win.
func (s Settings) With(other Settings) Settings {
	both := maps.Clone(s)
	maps.Copy(both, other)
	return both
}

// YAML renders the settings as a configuration file; JSON scalars and lists are valid YAML.
func (s Settings) YAML(t testing.TB) string {
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

// A Setup is a state directory and a configuration file for the tests' origins, without a process.
type Setup struct {
	Dir, State, Config string

	// Path of the CA file.
	CA            string
	Listen, Admin string
}

// NewSetup writes a configuration with its own state directory and ports.
func NewSetup(t testing.TB, own Settings) *Setup {
	t.Helper()
	dir := t.TempDir()
	h := &Setup{
		Dir: dir, State: filepath.Join(dir, "state"), Config: filepath.Join(dir, "config.yaml"),
		Listen: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), Admin: fmt.Sprintf("127.0.0.1:%d", FreePort(t)),
	}
	all := Settings{
		"listen": h.Listen, "state_dir": h.State, "admin.listen": h.Admin,
		"egress.allow_private": []string{"127.0.0.0/8"},
		"egress.resolver":      Names.addr(),
		"egress.extra_ca":      TrustedFile(t),
	}.With(own)
	h.State = all["state_dir"].(string)
	h.CA = filepath.Join(h.State, "ca.pem")
	if file, given := all["tls.ca_cert"].(string); given {
		h.CA = file
	}
	WriteFile(t, h.Config, all.YAML(t))
	return h
}

// WriteFile writes a file that only its owner may read.
func WriteFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A Proxy is a running `robotsproxy serve`.
type Proxy struct {
	*Setup

	// Path of the audit file.
	Audit  string
	Cmd    *exec.Cmd
	Stderr *SyncBuffer

	// Closed after Code is set.
	Exited chan struct{}
	Code   int

	// The expected exit status after SIGTERM.
	WantCode int
}

// StartProxy runs serve until the test ends and checks that it exits cleanly.
func StartProxy(t testing.TB, own Settings) *Proxy {
	t.Helper()
	return StartProxyBy(t, own)
}

// StartProxyBy is StartProxy with serve started by another command.
func StartProxyBy(t testing.TB, own Settings, by ...string) *Proxy {
	t.Helper()
	return StartSetup(t, NewSetup(t, own), by...)
}

// StartSetup is StartProxyBy for a Setup.
func StartSetup(t testing.TB, h *Setup, by ...string) *Proxy {
	t.Helper()
	p := Launch(t, h, by...)
	p.AwaitReady(t)
	t.Cleanup(func() { p.End(t) })
	return p
}

// Launch starts serve, optionally through another command, and does not wait.
func Launch(t testing.TB, h *Setup, by ...string) *Proxy {
	t.Helper()
	p := &Proxy{Setup: h, Audit: filepath.Join(h.State, "audit.jsonl"), Stderr: &SyncBuffer{}, Exited: make(chan struct{})}
	argv := append(by, Binary(t), "serve", "-c", h.Config)
	p.Cmd = exec.Command(argv[0], argv[1:]...)
	p.Cmd.Env = ownEnv(h.Dir)
	p.Cmd.Dir = h.Dir
	p.Cmd.Stdout, p.Cmd.Stderr = p.Stderr, p.Stderr
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.Cmd.Wait()
		p.Code = ExitCode(p.Cmd.ProcessState)
		close(p.Exited)
	}()
	t.Cleanup(func() {
		p.Cmd.Process.Kill()
		<-p.Exited
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", p.Stderr)
		}
	})
	return p
}

// AwaitReady polls /readyz.
func (p *Proxy) AwaitReady(t testing.TB) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}
	testkit.Eventually(t, "/readyz answers 200", func() bool {
		select {
		case <-p.Exited:
			t.Fatalf("serve ended with status %d:\n%s", p.Code, p.Stderr)
		default:
		}
		resp, err := client.Get("http://" + p.Admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// Signal sends the process a signal.
func (p *Proxy) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// End sends SIGTERM unless the proxy has already exited, and checks its exit status and log.
func (p *Proxy) End(t testing.TB) {
	select {
	case <-p.Exited:
	default:
		p.Signal(t, syscall.SIGTERM)
		testkit.Within(t, "serve ends after SIGTERM", p.Exited)
		if p.Code != p.WantCode {
			t.Errorf("serve ended with status %d, want %d", p.Code, p.WantCode)
		}
	}
	for _, bad := range []string{"panic:", "DATA RACE", "goroutine "} {
		if strings.Contains(p.Stderr.String(), bad) {
			t.Errorf("the proxy's log has %q:\n%s", bad, p.Stderr)
		}
	}
}

// ExitCode returns the exit status as a shell shows it: 128+n for signal n.
func ExitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// An Outcome is the result of a command.
type Outcome struct {
	args           []string
	Code           int
	Stdout, Stderr string
}

// Command runs robotsproxy to completion.
func Command(t testing.TB, args ...string) Outcome {
	t.Helper()
	return Finish(t, Prepare(t, args...))
}

// Prepare returns a robotsproxy command that does not use the user's own state.
func Prepare(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	home := t.TempDir()
	cmd := exec.Command(Binary(t), args...)
	cmd.Env = ownEnv(home)
	return cmd
}

// ownEnv returns the environment of a robotsproxy command: without the user's own state, and
// without the system's roots, whose parsing would take most of the time of a start.
func ownEnv(home string) []string {
	return CleanEnv("XDG_STATE_HOME="+filepath.Join(home, "xdg"), "HOME="+home, "SSL_CERT_FILE="+noRoots(), "SSL_CERT_DIR="+noRoots()+".d")
}

// Finish runs a command to completion. Some peers need many seconds to start on a busy machine.
func Finish(t testing.TB, cmd *exec.Cmd) Outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	select {
	case <-done:
	case <-time.After(4 * testkit.Patience):
		cmd.Process.Kill()
		<-done
		t.Fatalf("%s has not ended by itself:\n%s%s", strings.Join(cmd.Args, " "), &stdout, &stderr)
	}
	return Outcome{cmd.Args, ExitCode(cmd.ProcessState), stdout.String(), stderr.String()}
}

// Want checks the exit status.
func (o Outcome) Want(t testing.TB, code int) Outcome {
	t.Helper()
	if o.Code != code {
		t.Fatalf("%s: status %d, want %d\nstdout:\n%s\nstderr:\n%s", strings.Join(o.args, " "), o.Code, code, o.Stdout, o.Stderr)
	}
	return o
}

// A SyncBuffer is a bytes.Buffer that is safe for concurrent use.
type SyncBuffer struct {
	// Guards b.
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *SyncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *SyncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Answered waits until the proxy answers on its port.
func (p *Proxy) Answered(t testing.TB) *Proxy {
	t.Helper()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for deadline := time.Now().Add(testkit.Patience); time.Now().Before(deadline); <-tick.C {
		c, err := net.Dial("tcp", p.Listen)
		if err != nil {
			continue
		}
		defer c.Close()
		if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+p.Listen+"\r\nConnection: close\r\n\r\n"); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("nothing answers on its port")
	return nil
}

// StateDB returns the path of the state file.
func (p *Proxy) StateDB() string { return filepath.Join(p.State, "state.db") }

// Again starts serve again with the state and configuration of p, which must have exited.
func (p *Proxy) Again(t testing.TB) *Proxy {
	t.Helper()
	next := Launch(t, p.Setup)
	next.AwaitReady(t)
	next.CA = p.CA
	t.Cleanup(func() { next.End(t) })
	return next
}

// AwaitState waits until state.db has the key. No interface reports that, so it reads copies of the file.
func AwaitState(t testing.TB, p *Proxy, bucket, key string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy.db")
	testkit.Eventually(t, "state.db has "+key, func() bool {
		data, err := os.ReadFile(p.StateDB())
		if err != nil || len(data) == 0 {
			return false
		}
		WriteFile(t, copied, string(data))
		db, err := bbolt.Open(copied, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			// The copy was made during a write.
			return false
		}
		defer db.Close()
		kept := false
		if err := db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			kept = b != nil && b.Get([]byte(key)) != nil
			return nil
		}); err != nil {
			t.Error(err)
		}
		return kept
	})
}

// Kill ends the proxy with SIGKILL.
func (p *Proxy) Kill(t *testing.T) {
	p.Signal(t, syscall.SIGKILL)
	testkit.Within(t, "serve ends", p.Exited)
}

// EndAgain restarts the proxy with SIGTERM.
func (p *Proxy) EndAgain(t *testing.T) *Proxy {
	p.End(t)
	return p.Again(t)
}

// KillAgain kills the proxy and starts it again.
func (p *Proxy) KillAgain(t *testing.T) *Proxy {
	p.Kill(t)
	return p.Again(t)
}

// FailStart runs serve while its port is in use.
func (p *Proxy) FailStart(t *testing.T) {
	taken, err := net.Listen("tcp", p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if out := Command(t, "serve", "-c", p.Config).Want(t, 1); !strings.Contains(out.Stderr, "address already in use") {
		t.Errorf("it says %q", out.Stderr)
	}
}

// Rewrite replaces the configuration file atomically.
func (s *Setup) Rewrite(t testing.TB, own Settings) {
	t.Helper()
	all := Settings{
		"listen": s.Listen, "state_dir": s.State, "admin.listen": s.Admin,
		"egress.allow_private": []string{"127.0.0.0/8"},
		"egress.resolver":      Names.addr(),
		"egress.extra_ca":      TrustedFile(t),
	}.With(own)
	WriteFile(t, s.Config+".new", all.YAML(t))
	if err := os.Rename(s.Config+".new", s.Config); err != nil {
		t.Fatal(err)
	}
}

// RunArgs returns the arguments of `robotsproxy run` for a command line.
func (s *Setup) RunArgs(argv ...string) []string {
	return append([]string{"run", "-c", s.Config, "--"}, argv...)
}

// RunAudit returns the audit file of the only run in the state directory.
func (s *Setup) RunAudit(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.State, "runs", "*", "audit.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("audit files of runs: %v, %v; want one", files, err)
	}
	return files[0]
}

// WantOneLine checks that a command failed with one line on stderr that contains the names.
func WantOneLine(t *testing.T, out Outcome, code int, names ...string) {
	t.Helper()
	out.Want(t, code)
	text := strings.TrimSuffix(out.Stderr, "\n")
	if text == "" || strings.Contains(text, "\n") {
		t.Errorf("want one line on stderr:\n%s", out.Stderr)
	}
	for _, name := range names {
		if !strings.Contains(text, name) {
			t.Errorf("the error does not name %q: %s", name, text)
		}
	}
	if out.Stdout != "" {
		t.Errorf("stdout has %q", out.Stdout)
	}
}
