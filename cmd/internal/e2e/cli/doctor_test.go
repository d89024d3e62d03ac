package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A found is a line of doctor --json.
type found struct {
	Check, Status, Detail string
	Hint                  string `json:"what_to_do"`
}

// doctor returns the findings of doctor by check. env is added to a clean environment.
func doctor(t testing.TB, env []string, args ...string) map[string]found {
	t.Helper()
	cmd := e2e.Prepare(t, append([]string{"doctor", "--json"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	out := e2e.Finish(t, cmd)
	all, failed := readFound(t, out.Stdout)
	out.Want(t, failed)
	return all
}

// readFound parses the output of doctor --json and checks its exit status.
func readFound(t testing.TB, lines string) (all map[string]found, failed int) {
	t.Helper()
	all = map[string]found{}
	for line := range strings.Lines(lines) {
		var f found
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if f.Status == "fail" {
			failed = 1
		}
		if (f.Status == "ok" || f.Status == "skip") != (f.Hint == "") {
			t.Errorf("%s has what to do: %s", f.Status, line)
		}
		all[f.Check] = f
	}
	return all, failed
}

func wantFound(t testing.TB, all map[string]found, status string, checks ...string) {
	t.Helper()
	for _, check := range checks {
		if f := all[check]; f.Status != status {
			t.Errorf("%s: %+v, want %s", check, f, status)
		}
	}
}

// Real clients, each with and without the variable by which it trusts a CA. The proxy
// variables in the environment must not matter.
func TestDoctorRunsClients(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Settings{})
	for _, c := range []struct {
		client, variable string
		need             func(t testing.TB)
	}{
		{"system", "SSL_CERT_FILE", func(testing.TB) {}},
		{"curl", "CURL_CA_BUNDLE", func(t testing.TB) { e2e.NeedPeer(t, "curl") }},
		{"git", "GIT_SSL_CAINFO", func(t testing.TB) { e2e.NeedPeer(t, "git") }},
		{"urllib", "SSL_CERT_FILE", func(t testing.TB) { e2e.NeedPeer(t, "python3") }},
		{"requests", "REQUESTS_CA_BUNDLE", func(t testing.TB) { e2e.NeedPython("requests")(t) }},
		{"node", "NODE_EXTRA_CA_CERTS", func(t testing.TB) { e2e.NeedPeer(t, "node") }},
	} {
		t.Run(c.client, func(t *testing.T) {
			t.Parallel()
			c.need(t)
			env := []string{"http_proxy=http://" + p.Listen, "https_proxy=http://" + p.Listen}
			if path := pythonFor(c.client); path != "" {
				env = append(env, "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))
			}
			all := doctor(t, env, "-c", p.Config, "--client", c.client)
			wantFound(t, all, "fail", c.client)
			if !strings.Contains(all[c.client].Hint, p.CA) && !strings.Contains(all[c.client].Hint, "ca install") {
				t.Errorf("what to do: %s", all[c.client].Hint)
			}
			all = doctor(t, append(env, c.variable+"="+p.CA), "-c", p.Config, "--client", c.client)
			wantFound(t, all, "ok", "configuration", "state", "audit", "proxy", "health", "CA", "clock", "HTTP", "HTTPS", "variables", c.client)
		})
	}
}

// pythonFor returns the interpreter for a Python client, or "" for other clients.
func pythonFor(client string) string {
	if client != "requests" {
		return ""
	}
	return filepath.Dir(e2e.PythonWith(client))
}

// A client that verifies nothing is reported: it would trust everybody.
func TestDoctorFindsWhoVerifiesNothing(t *testing.T) {
	t.Parallel()
	e2e.NeedPeer(t, "git")
	p := e2e.StartProxy(t, e2e.Unpaced)
	all := doctor(t, []string{"GIT_SSL_NO_VERIFY=1"}, "-c", p.Config, "--client", "git")
	wantFound(t, all, "warn", "git")
}

// TestDoctorOfClientsThatAreJustThere: a client that nobody has prepared fails nothing, if another one
// trusts the CA.
func TestDoctorOfClientsThatAreJustThere(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	p := e2e.StartProxy(t, e2e.Unpaced)
	bin := t.TempDir()
	testkit.Must(t, os.Symlink(curl, filepath.Join(bin, "curl")))
	// As Node does, it takes a script, then the URL.
	node := "#!/bin/sh\nCURL_CA_BUNDLE=" + e2e.TrustedFile(t) + " exec curl -q -s --noproxy '*' \"$3\"\n"
	testkit.Must(t, testkit.WriteProgram(filepath.Join(bin, "node"), []byte(node)))
	proxy := "http://" + p.Listen
	env := []string{"PATH=" + bin, "http_proxy=" + proxy, "https_proxy=" + proxy, "SSL_CERT_FILE=" + p.CA, "CURL_CA_BUNDLE=" + p.CA}
	for _, c := range []struct {
		name, status string
		env, args    []string
	}{
		{"just there", "warn", nil, nil},
		{"named", "fail", nil, []string{"--client", "curl,node"}},
		{"prepared for another CA", "fail", []string{"NODE_EXTRA_CA_CERTS=" + e2e.TrustedFile(t)}, nil},
		{"nobody trusts the CA", "fail", []string{"SSL_CERT_FILE=", "CURL_CA_BUNDLE="}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := doctor(t, slices.Concat(env, c.env), append(c.args, "-c", p.Config)...)
			wantFound(t, all, c.status, "node")
			for name, f := range all {
				if f.Status == "fail" && c.status == "warn" {
					t.Errorf("%s fails: %+v", name, f)
				}
			}
			if !strings.Contains(all["node"].Detail, "does not trust the CA") || !strings.Contains(all["node"].Hint, "NODE_EXTRA_CA_CERTS=") {
				t.Errorf("%+v", all["node"])
			}
		})
	}
}

func TestDoctorJava(t *testing.T) {
	t.Parallel()
	testkit.Long(t, "real peers")
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("java is not on this machine")
	}
	const quick = "JDK_JAVA_OPTIONS=" + e2e.QuickJava
	p := e2e.StartProxy(t, e2e.Unpaced)
	all := doctor(t, []string{quick}, "-c", p.Config, "--client", "java")
	if strings.Contains(all["java"].Detail, "no compiler") {
		t.Skip(all["java"].Detail)
	}
	wantFound(t, all, "fail", "java")
	if !strings.Contains(all["java"].Detail, "does not trust the CA") {
		t.Errorf("%+v", all["java"])
	}
	// Nobody asked for it. It is beside a client that trusts the CA.
	alone := t.TempDir()
	testkit.Must(t, os.Symlink(java, filepath.Join(alone, "java")))
	trusted := []string{quick, "PATH=" + alone, "SSL_CERT_FILE=" + p.CA}
	wantFound(t, doctor(t, trusted, "-c", p.Config), "warn", "java")
	wantFound(t, doctor(t, append(trusted, "JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=127.0.0.1"), "-c", p.Config), "fail", "java")
	// Within a run the variables are set, including the one by which Java uses the proxy for
	// loopback.
	within := e2e.Prepare(t, p.RunArgs(e2e.Binary(t), "doctor", "--json", "--client", "java")...)
	within.Env = append(within.Env, quick)
	out := e2e.Finish(t, within).Want(t, 0)
	if !strings.Contains(out.Stdout, `{"check":"java","status":"ok"`) {
		t.Errorf("within a run:\n%s", out.Stdout)
	}
	// The advice that does not change Java's own store is a shell command.
	_, hint, _ := strings.Cut(all["java"].Hint, ":\n")
	cmd := exec.Command("sh", "-c", hint+"\n"+`exec "$1" doctor --json --client java -c "$2"`, "sh", e2e.Binary(t), p.Config)
	cmd.Env = e2e.CleanEnv(quick)
	all, _ = readFound(t, e2e.Finish(t, cmd).Stdout)
	wantFound(t, all, "ok", "java")
}

// Within a run, doctor checks the run, whatever its flags say, and no other proxy's CA.
func TestDoctorWithinARun(t *testing.T) {
	t.Parallel()
	e2e.NeedPeer(t, "curl")
	h := e2e.NewSetup(t, e2e.Settings{})
	for _, c := range []struct{ name, args string }{
		{"told nothing", ""},
		{"told of the proxy", `--proxy "$http_proxy"`},
		{"told of the configuration", `-c "$2"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := e2e.Command(t, h.RunArgs("sh", "-c", `"$1" doctor --json --client system,curl `+c.args, "sh", e2e.Binary(t), h.Config)...).Want(t, 0)
			all, _ := readFound(t, out.Stdout)
			wantFound(t, all, "ok", "configuration", "state", "audit", "proxy", "CA", "clock", "HTTP", "HTTPS", "variables", "system", "curl")
			wantFound(t, all, "skip", "health")
			for _, f := range all {
				if f.Status == "warn" {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// After a rotation the running proxy still has the old CA, and doctor reports it.
func TestDoctorAfterARotation(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Unpaced)
	wantFound(t, doctor(t, nil, "-c", p.Config, "--client", "none"), "ok", "CA", "HTTPS")
	if strings.Contains(p.Stderr.String(), "level=WARN") {
		t.Errorf("doctor itself looks like a client that does not trust the CA:\n%s", p.Stderr)
	}
	e2e.Command(t, "ca", "rotate", "-c", p.Config).Want(t, 0)
	all := doctor(t, nil, "-c", p.Config, "--client", "none")
	wantFound(t, all, "fail", "HTTPS")
	if !strings.Contains(all["HTTPS"].Hint, "kill -HUP") {
		t.Errorf("what to do: %s", all["HTTPS"].Hint)
	}
	p.End(t)
	again := e2e.Launch(t, p.Setup)
	again.AwaitReady(t)
	wantFound(t, doctor(t, nil, "-c", p.Config, "--client", "none"), "ok", "CA", "HTTPS")
	again.End(t)
}

// inOwnTrust runs a command in a mount namespace in which it may change the system's trust store.
// To save time, the store has only one CA of the distribution, and no hooks run after a change.
const inOwnTrust = `set -e
copy=$1; shift
cp -a /etc/ssl/certs "$copy"
grep -m 1 "^[^#!]" /etc/ca-certificates.conf > "$copy.conf"
mount --bind "$copy.conf" /etc/ca-certificates.conf
mount -t tmpfs tmpfs /etc/ca-certificates/update.d
mount -t tmpfs tmpfs /usr/local/share/ca-certificates
mount --bind "$copy" /etc/ssl/certs
set +e
exec "$@"
`

// This uses the system's real command.
func TestInstallInTheSystemForReal(t *testing.T) {
	testkit.Long(t, "real peers")
	t.Parallel()
	for _, file := range []string{"/usr/sbin/update-ca-certificates", "/usr/local/share/ca-certificates", "/etc/ssl/certs/ca-certificates.crt"} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("not a Debian with its ca-certificates: %v", err)
		}
	}
	apart := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c"}
	if out, err := exec.Command(apart[0], append(apart[1:], "mount -t tmpfs tmpfs /usr/local/share/ca-certificates")...).CombinedOutput(); err != nil {
		t.Skipf("no mount namespace can be made (not root, or in a container): %v: %s", err, out)
	}
	p := e2e.StartProxy(t, e2e.Settings{})
	script := `
bin=$1 config=$2
"$bin" ca install -c "$config" && "$bin" ca install -c "$config"
"$bin" doctor -c "$config" --client system; echo "trusted: $?"
"$bin" ca rotate -c "$config" >/dev/null && "$bin" ca install -c "$config" && "$bin" ca uninstall --previous -c "$config"
ls /usr/local/share/ca-certificates | grep -c '^robotsproxy-'
"$bin" ca uninstall -c "$config"
ls /usr/local/share/ca-certificates | grep -c '^robotsproxy-'
"$bin" doctor -c "$config" --client system | grep system
`
	argv := append(apart, inOwnTrust, "sh", filepath.Join(t.TempDir(), "certs"), "sh", "-c", script, "sh", e2e.Binary(t), p.Config)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = e2e.CleanEnv("HOME="+p.Dir, "LC_ALL=C")
	text, err := cmd.CombinedOutput()
	out := string(text)
	for _, want := range []string{
		"ok    system   is installed, in /usr/local/share/ca-certificates/robotsproxy-", "ok    system   is already installed, in /usr/local/share/",
		"ok    system         trusts the CA\ntrusted: 0\n", "ok    system   is uninstalled\n1\n", "ok    system   is uninstalled\n",
		"ok    system   was not installed\n0\n", "FAIL  system         does not trust the CA: ",
	} {
		before, after, found := strings.Cut(out, want)
		if !found {
			t.Errorf("%v: no %q in order in\n%s", err, want, text)
			break
		}
		_, out = before, after
	}
	if names, _ := filepath.Glob("/usr/local/share/ca-certificates/robotsproxy-*"); len(names) > 0 {
		t.Errorf("the machine's own store has %s", names)
	}
}
