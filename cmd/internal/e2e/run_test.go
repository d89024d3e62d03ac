package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runArgs are the arguments of `robotsproxy run` for a command line.
func (h *house) runArgs(argv ...string) []string {
	return append([]string{"run", "-c", h.config, "--"}, argv...)
}

func TestRunPassesTheStatusOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t, outOfTheWay)
	notRunnable := filepath.Join(t.TempDir(), "plain")
	writeFile(t, notRunnable, "no program\n")
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
		{"not found as a path", []string{filepath.Join(h.dir, "nowhere")}, 127},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := command(t, h.runArgs(c.argv...)...).want(t, c.code)
			if out.stdout != "" {
				t.Errorf("stdout has %q", out.stdout)
			}
			if c.code == 127 && !strings.Contains(out.stderr, c.argv[0]) {
				t.Errorf("stderr does not name the command: %s", out.stderr)
			}
		})
	}
}

// What the child reads and writes is its own, to the octet; so are its arguments.
func TestRunLeavesTheStreamsAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, outOfTheWay)
	body := octets(300_000)
	cmd := prepare(t, h.runArgs("cat")...)
	cmd.Stdin = bytes.NewReader(body)
	if out := finish(t, cmd).want(t, 0); out.stdout != string(body) {
		t.Errorf("stdin came back as %d octets, want %d", len(out.stdout), len(body))
	}
	out := command(t, h.runArgs("sh", "-c", `printf '%s|' "$@"; printf 'to stderr\n' >&2`, "sh", "a b", "--help", "-c", "")...).want(t, 0)
	if want := "a b|--help|-c||"; out.stdout != want {
		t.Errorf("arguments %q, want %q", out.stdout, want)
	}
	if !strings.Contains(out.stderr, "to stderr\n") {
		t.Errorf("stderr lacks the child's own line:\n%s", out.stderr)
	}
}

// The variables that clients read, over whatever was inherited.
func TestRunSetsTheEnvironment(t *testing.T) {
	t.Parallel()
	h := newHouse(t, outOfTheWay)
	cmd := prepare(t, h.runArgs("env")...)
	cmd.Env = append(cmd.Env, "NO_PROXY=*", "no_proxy=*", "http_proxy=http://127.0.0.1:1", "SSL_CERT_DIR=/nowhere",
		"CURL_CA_BUNDLE=/nowhere", "E2E_HARMLESS=kept")
	out := finish(t, cmd).want(t, 0)
	env := map[string]string{}
	for line := range strings.Lines(out.stdout) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[name] = value
	}
	address := env["http_proxy"]
	if !strings.HasPrefix(address, "http://127.0.0.1:") || address == "http://127.0.0.1:1" || strings.Contains(address, h.listen) {
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

// Peers that find proxy and CA by the environment of `run` alone, whatever the parent's says.
func TestPeersThroughRun(t *testing.T) {
	t.Parallel()
	for _, who := range peers {
		t.Run(who.name, func(t *testing.T) {
			argv := who.need(t)
			o := newOrigin(t, "run-"+who.name, slowRobots)
			body := octets(1 << 10)
			o.handle("/a", sizedPage(body))
			for _, scheme := range schemes {
				h := newHouse(t, settings{})
				wrapped := append([]string{robotsproxy(t), "run", "-c", h.config, "--"}, argv...)
				env := cleanEnv("NO_PROXY=*", "no_proxy=*", "CURL_CA_BUNDLE=/nowhere", "REQUESTS_CA_BUNDLE=/nowhere")
				for i, got := range who.fetch(t, wrapped, env, []string{o.url(scheme, "/a")}) {
					if got.Status != http.StatusOK || !bytes.Equal(got.Body, body) {
						t.Errorf("%s %d: %v", scheme, i, got)
					}
				}
				wantPolite(t, o, scheme, 1, 0)
			}
		})
	}
}

func TestRunSumsUp(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "summary", slowRobots)
	o.handle("/a", textPage("text/plain", "a"))
	h := newHouse(t, outOfTheWay)
	file := filepath.Join(h.dir, "elsewhere.jsonl")
	out := command(t, "run", "-c", h.config, "--audit", file, "-A", "SumBot/1.0", "--",
		curl, "-q", "-sS", o.url("https", "/a"), o.url("https", "/private/1"), o.url("https", "/private/2")).want(t, 0)
	if !strings.HasPrefix(out.stdout, "a") {
		t.Errorf("stdout begins %q", out.stdout)
	}
	for _, want := range []string{o.Name, "/private/", file, "1", "2"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("the summary does not name %q:\n%s", want, out.stderr)
		}
	}
	records := readAudit(t, file)
	if len(records) != 3 {
		t.Errorf("%d records, want 3", len(records))
	}
	for _, r := range records {
		if r.Agent != "SumBot" {
			t.Errorf("agent %q of %s, want what -A says", r.Agent, r.URL)
		}
	}
	for _, hit := range o.arrivals("https") {
		if got := hit.Header.Get("User-Agent"); got != "SumBot/1.0" {
			t.Errorf("%s arrived with User-Agent %q", hit.Path, got)
		}
	}
}

// SIGINT and SIGTERM are the child's: what it makes of them is the status.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t, outOfTheWay)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			ready := filepath.Join(t.TempDir(), "ready")
			// The shell waits in a builtin, so that the trap runs at once.
			// What it waits for may miss its kill where it has only just been forked: so
			// it ends by itself, and does not hold the output that Wait waits for.
			script := `trap 'kill $!; exit 7' TERM INT HUP; sleep 60 >/dev/null 2>&1 & : > "$1"; wait; exit 9`
			cmd := prepare(t, h.runArgs("sh", "-c", script, "sh", ready)...)
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
			eventually(t, patience, "the child runs", func() bool { return exists(ready) })
			// A shell may sleep through a signal that comes as it begins to wait: knock again.
			eventually(t, patience, "run ends", func() bool {
				cmd.Process.Signal(s) // fails only where it has ended
				select {
				case <-ended:
					return true
				case <-time.After(200 * time.Millisecond):
					return false
				}
			})
			if code := exitCode(cmd.ProcessState); code != 7 {
				t.Errorf("status %d, want the child's 7\n%s", code, &stderr)
			}
		})
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Two runs and a serve on one state directory: one CA, three audits.
func TestRunsBesideServe(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "beside", "User-agent: *\nDisallow: /private\n")
	release := make(chan struct{})
	o.handle("/held", heldPage("text/plain", "first ", "second", release))
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	before, err := os.ReadFile(p.ca)
	if err != nil {
		t.Fatal(err)
	}
	var runs sync.WaitGroup
	for i := range 2 {
		cmd := exec.Command(robotsproxy(t), p.runArgs(curl, "-q", "-sS", o.url("https", "/held?"+itoa(i)))...)
		cmd.Env = cleanEnv()
		runs.Go(func() {
			if out := finish(t, cmd); out.code != 0 || out.stdout != "first second" {
				t.Errorf("run: status %d, %q\n%s", out.code, out.stdout, out.stderr)
			}
		})
	}
	eventually(t, patience, "both runs' requests are at the origin", func() bool { return len(o.pages("https")) == 2 })
	if got := get(t, p.client(t, true), o.url("https", "/a")); got.Status != http.StatusOK {
		t.Errorf("serve beside two runs: %v", got)
	}
	close(release)
	runs.Wait()
	after, err := os.ReadFile(p.ca)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the CA changed under the runs: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(p.state, "runs", "*", "audit.jsonl"))
	if err != nil || len(files) != 2 {
		t.Fatalf("audit files of runs: %v, %v; want two", files, err)
	}
	for _, file := range files {
		if n := len(readAudit(t, file)); n != 1 {
			t.Errorf("%s has %d records, want 1", file, n)
		}
	}
	awaitRecord(t, p.audit, o.url("https", "/a"))
	if n := len(readAudit(t, p.audit)); n != 1 {
		t.Errorf("serve's audit has %d records, want its own 1", n)
	}
}
