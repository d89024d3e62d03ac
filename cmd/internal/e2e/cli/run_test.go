package cli

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

func TestRunPassesTheStatusOn(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Unpaced)
	notRunnable := filepath.Join(t.TempDir(), "plain")
	e2e.WriteFile(t, notRunnable, "no program\n")
	for _, c := range []struct {
		name string
		argv []string
		code int
	}{
		{"success", []string{"true"}, 0},
		{"own status", []string{"sh", "-c", "exit 3"}, 3},
		{"killed by SIGTERM", []string{"sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM)},
		{"killed by SIGKILL", []string{"sh", "-c", "kill -KILL $$"}, 128 + int(syscall.SIGKILL)},
		{"not found on PATH", []string{"no-such-command-of-anybody"}, 127},
		{"not found as a path", []string{filepath.Join(h.Dir, "nowhere")}, 127},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := e2e.Command(t, h.RunArgs(c.argv...)...).Want(t, c.code)
			if out.Stdout != "" {
				t.Errorf("stdout has %q", out.Stdout)
			}
			if c.code == 127 && !strings.Contains(out.Stderr, c.argv[0]) {
				t.Errorf("stderr does not name the command: %s", out.Stderr)
			}
		})
	}
}

// The child's input, output and arguments pass unchanged.
func TestRunLeavesTheStreamsAlone(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Unpaced)
	body := e2e.RandomBytes(300_000)
	cmd := e2e.Prepare(t, h.RunArgs("cat")...)
	cmd.Stdin = bytes.NewReader(body)
	if out := e2e.Finish(t, cmd).Want(t, 0); out.Stdout != string(body) {
		t.Errorf("stdin came back as %d bytes, want %d", len(out.Stdout), len(body))
	}
	out := e2e.Command(t, h.RunArgs("sh", "-c", `printf '%s|' "$@"; printf 'to stderr\n' >&2`, "sh", "a b", "--help", "-c", "")...).Want(t, 0)
	if want := "a b|--help|-c||"; out.Stdout != want {
		t.Errorf("arguments %q, want %q", out.Stdout, want)
	}
	if !strings.Contains(out.Stderr, "to stderr\n") {
		t.Errorf("stderr lacks the child's own line:\n%s", out.Stderr)
	}
}

// The variables that clients read replace inherited ones.
func TestRunSetsTheEnvironment(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Unpaced)
	cmd := e2e.Prepare(t, h.RunArgs("env")...)
	cmd.Env = append(cmd.Env, "NO_PROXY=*", "no_proxy=*", "http_proxy=http://127.0.0.1:1", "SSL_CERT_DIR=/nowhere",
		"CURL_CA_BUNDLE=/nowhere", "E2E_HARMLESS=kept")
	out := e2e.Finish(t, cmd).Want(t, 0)
	env := map[string]string{}
	for line := range strings.Lines(out.Stdout) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[name] = value
	}
	address := env["http_proxy"]
	if !strings.HasPrefix(address, "http://127.0.0.1:") || address == "http://127.0.0.1:1" || strings.Contains(address, h.Listen) {
		t.Errorf("http_proxy=%s, want a free loopback port of the run's own", address)
	}
	for _, name := range []string{"https_proxy", "ftp_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY"} {
		if env[name] != address {
			t.Errorf("%s=%s, want %s", name, env[name], address)
		}
	}
	for _, name := range []string{"NO_PROXY", "no_proxy", "SSL_CERT_DIR"} {
		if env[name] != "" {
			t.Errorf("%s=%s, want it cleared", name, env[name])
		}
	}
	for _, name := range []string{"NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY"} {
		if env[name] != "1" {
			t.Errorf("%s=%q, want 1", name, env[name])
		}
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "DENO_CERT",
		"GIT_SSL_CAINFO", "PERL_LWP_SSL_CA_FILE", "MOJO_CA_FILE", "WGETRC", "PHP_INI_SCAN_DIR", "JAVA_TOOL_OPTIONS", "ROBOTSPROXY_RUN"} {
		if env[name] == "" || env[name] == "/nowhere" {
			t.Errorf("%s=%q", name, env[name])
		}
	}
	if env["E2E_HARMLESS"] != "kept" {
		t.Error("the rest of the environment is not the parent's")
	}
}

// Peers find the proxy and the CA only by the environment of run, whatever the inherited
// environment says.
func TestPeersThroughRun(t *testing.T) {
	t.Parallel()
	for _, who := range e2e.Peers {
		t.Run(who.Name, func(t *testing.T) {
			t.Parallel()
			argv := who.Need(t)
			o := e2e.NewOrigin(t, "run-"+who.Name, e2e.SlowRobots)
			body := e2e.RandomBytes(1 << 10)
			o.Handle("/a", e2e.SizedPage(body))
			h := e2e.NewSetup(t, e2e.Settings{})
			wrapped := append([]string{e2e.Binary(t), "run", "-c", h.Config, "--"}, argv...)
			env := e2e.CleanEnv("NO_PROXY=*", "no_proxy=*", "CURL_CA_BUNDLE=/nowhere", "REQUESTS_CA_BUNDLE=/nowhere")
			for i, got := range who.Fetch(t, wrapped, env, []string{o.URL("http", "/a"), o.URL("https", "/a")}) {
				if got.Status != http.StatusOK || !bytes.Equal(got.Body, body) {
					t.Errorf("%s: %v", e2e.Schemes[i], got)
				}
			}
			for _, scheme := range e2e.Schemes {
				e2e.WantPolite(t, o, scheme, 1, 0)
			}
		})
	}
}

func TestRunSumsUp(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "summary", e2e.SlowRobots)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	h := e2e.NewSetup(t, e2e.Unpaced)
	file := filepath.Join(h.Dir, "elsewhere.jsonl")
	out := e2e.Command(t, "run", "-c", h.Config, "--audit", file, "-A", "SumBot/1.0", "--",
		curl, "-q", "-sS", o.URL("https", "/a"), o.URL("https", "/private/1"), o.URL("https", "/private/2")).Want(t, 0)
	if !strings.HasPrefix(out.Stdout, "a") {
		t.Errorf("stdout begins %q", out.Stdout)
	}
	for _, want := range []string{o.Name, "/private/", file, "1", "2"} {
		if !strings.Contains(out.Stderr, want) {
			t.Errorf("the summary does not name %q:\n%s", want, out.Stderr)
		}
	}
	records := e2e.ReadAudit(t, file)
	if len(records) != 3 {
		t.Errorf("%d records, want 3", len(records))
	}
	for _, r := range records {
		if r.Agent != "SumBot" {
			t.Errorf("agent %q of %s, want what -A says", r.Agent, r.URL)
		}
	}
	for _, hit := range o.Arrivals("https") {
		if got := hit.Header.Get("User-Agent"); got != "SumBot/1.0" {
			t.Errorf("%s arrived with User-Agent %q", hit.Path, got)
		}
	}
}

// A client that sends many requests at once loses none of them: they wait as long as the
// client stays.
func TestRunLosesNoRequestOfAParallelClient(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "parallel", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	const n, rate = 100, 50
	h := e2e.NewSetup(t, e2e.Settings{"pace.requests_per_second": rate})
	began := time.Now()
	out := e2e.Command(t, h.RunArgs(curl, "-q", "-sS", "--parallel", "--parallel-immediate", "--parallel-max", strconv.Itoa(n),
		"-o", filepath.Join(t.TempDir(), "#1"), "-w", "%{http_code}\n", o.URL("http", "/page?[1-"+strconv.Itoa(n)+"]"))...).Want(t, 0)
	if got := strings.Count(out.Stdout, "200\n"); got != n {
		t.Errorf("%d of %d requests were answered with 200:\n%s%s", got, n, out.Stdout, out.Stderr)
	}
	if took := time.Since(began); took < (n-1)*time.Second/rate {
		t.Errorf("the requests took %v", took)
	}
	e2e.WantPolite(t, o, "http", n, time.Second/rate)
}

// A run refuses no request because of a long wait, as serve would.
func TestRunWaitsAsLongAsTheClientStays(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "patient", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	for _, c := range []struct {
		maxWait string
		refused int
		status  int // exit status of curl
	}{
		{"auto", 0, 28}, // curl gives up before the second page's turn
		{"1s", 9, 0},
	} {
		t.Run(c.maxWait, func(t *testing.T) {
			t.Parallel()
			h := e2e.NewSetup(t, e2e.Settings{"pace.requests_per_second": 0.02, "pace.max_wait": c.maxWait})
			out := e2e.Command(t, h.RunArgs(curl, "-q", "-sS", "--parallel", "--parallel-immediate", "--parallel-max", "10", "--max-time", "3",
				"-o", filepath.Join(t.TempDir(), "#1"), "-w", "%{http_code}\n", o.URL("http", "/page?[1-10]"))...).Want(t, c.status)
			if got := strings.Count(out.Stdout, "429\n"); got != c.refused {
				t.Errorf("%d requests were refused, want %d:\n%s%s", got, c.refused, out.Stdout, out.Stderr)
			}
		})
	}
}

// The summary says what failed, and which setting refused the requests of a parallel client.
func TestRunSaysWhyRequestsWereNotAllowed(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "whynot", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	for _, c := range []struct {
		name string
		urls []string
		want []string
		mode any
	}{
		{"connection refused", []string{"http://" + testkit.DeadEnd(t, "127.0.0.1") + "/"},
			[]string{"1 request: 0 allowed, 0 disallowed, 1 failed,", "failed  1 at 127.0.0.1: connection refused"}, nil},
		{"a rule", []string{o.URL("http", "/private/1")}, []string{"disallowed  1 at " + o.Name + " by Disallow: /private/ (line 2)"}, nil},
		{"a rule in monitor mode", []string{o.URL("http", "/private/2")}, []string{"disallowed  1 at " + o.Name, "robotsproxy: mode: monitor: the proxy sent 1 of the requests"}, "monitor"},
		{"a forbidden port in monitor mode", []string{"http://" + o.Name + ":22/"}, []string{"disallowed  1 at " + o.Name, "robotsproxy: mode: monitor: the proxy sent 0 of the requests"}, "monitor"},
		{"a full queue", []string{o.URL("http", "/page?[1-20]")},
			[]string{" deferred,", " at " + o.Name + ": pace.max_queue (3) requests were waiting; send at most 3 at once to avoid this"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := e2e.NewSetup(t, e2e.Settings{"pace.requests_per_second": 10, "pace.max_queue": 3, "mode": c.mode})
			out := e2e.Command(t, h.RunArgs(append([]string{curl, "-q", "-sS", "--parallel", "--parallel-immediate"}, c.urls...)...)...).Want(t, 0)
			for _, want := range c.want {
				if !strings.Contains(out.Stderr, want) {
					t.Errorf("the summary does not have %q:\n%s", want, out.Stderr)
				}
			}
		})
	}
}

// SIGINT and SIGTERM go to the child, and its exit status is that of run.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	checkSignals(t, e2e.NewSetup(t, e2e.Unpaced).RunArgs())
}

// checkSignals checks which signals a command receives that is appended to the arguments of run.
func checkSignals(t *testing.T, run []string) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			testkit.TakesSignal(t, s)
			ready := filepath.Join(t.TempDir(), "ready")
			// The shell waits in a builtin, so that the trap runs at once. The process
			// that it waits for may miss the signal if it was just forked. Therefore that
			// process ends by itself, and does not hold the output that Wait waits for.
			script := `trap ': > "$1.heard"; kill $!; exit 7' TERM INT HUP; sleep 60 >/dev/null 2>&1 & : > "$1"; wait; exit 9`
			cmd := e2e.Prepare(t, append(run[:len(run):len(run)], "sh", "-c", script, "sh", ready)...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				cmd.Wait()
			}()
			t.Cleanup(func() { cmd.Process.Kill() })
			testkit.Eventually(t, "the child runs", func() bool { return e2e.Exists(ready) })
			// A shell may miss a signal that arrives when it begins to wait, so send it again. After the command has ended, a
			// signal would break off run.
			testkit.Eventually(t, "run ends", func() bool {
				if !e2e.Exists(ready + ".heard") {
					// It fails only if the process has ended.
					cmd.Process.Signal(s)
				}
				select {
				case <-ended:
					return true
				case <-time.After(200 * time.Millisecond):
					return false
				}
			})
			if code := e2e.ExitCode(cmd.ProcessState); code != 7 {
				t.Errorf("status %d, want the child's 7\n%s", code, &stderr)
			}
		})
	}
}

// Two runs and a serve share a state directory: one CA, three audits.
func TestRunsBesideServe(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "beside", "User-agent: *\nDisallow: /private\n")
	release := make(chan struct{})
	o.Handle("/held", e2e.HeldPage("text/plain", "first ", "second", release))
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	before, err := os.ReadFile(p.CA)
	if err != nil {
		t.Fatal(err)
	}
	var runs sync.WaitGroup
	for i := range 2 {
		cmd := exec.Command(e2e.Binary(t), p.RunArgs(curl, "-q", "-sS", o.URL("https", "/held?"+strconv.Itoa(i)))...)
		cmd.Env = e2e.CleanEnv()
		runs.Go(func() {
			if out := e2e.Finish(t, cmd); out.Code != 0 || out.Stdout != "first second" {
				t.Errorf("run: status %d, %q\n%s", out.Code, out.Stdout, out.Stderr)
			}
		})
	}
	testkit.Eventually(t, "both runs' requests are at the origin", func() bool { return len(o.Pages("https")) == 2 })
	if got := e2e.Get(t, p.Client(t, true), o.URL("https", "/a")); got.Status != http.StatusOK {
		t.Errorf("serve beside two runs: %v", got)
	}
	close(release)
	runs.Wait()
	after, err := os.ReadFile(p.CA)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the CA changed under the runs: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(p.State, "runs", "*", "audit.jsonl"))
	if err != nil || len(files) != 2 {
		t.Fatalf("audit files of runs: %v, %v; want two", files, err)
	}
	for _, file := range files {
		if n := len(e2e.ReadAudit(t, file)); n != 1 {
			t.Errorf("%s has %d records, want 1", file, n)
		}
	}
	e2e.AwaitRecord(t, p.Audit, o.URL("https", "/a"))
	if n := len(e2e.ReadAudit(t, p.Audit)); n != 1 {
		t.Errorf("serve's audit has %d records, want its own 1", n)
	}
}
