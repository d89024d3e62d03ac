package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/robots/testkit"
)

// Go as a client, by the trap that all clients are sent to: one certificate that it is
// told to trust, and one that it is not.
func TestTrap(t *testing.T) {
	d := doctorFor(t, "http://127.0.0.1:1")
	for _, trusts := range []bool{true, false} {
		s, err := newTestServer(d.authority)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		if trusts {
			roots.AddCert(d.ca)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
		resp, err := client.Get("https://" + s.Addr().String() + "/")
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != trusts || s.gotRequest.Load() != trusts || !s.connected.Load() {
			t.Errorf("trusts %t: %v, connected %t, asked %t", trusts, err, s.connected.Load(), s.gotRequest.Load())
		}
		client.CloseIdleConnections()
		s.close()
	}
}

// A client is judged by what reaches the server.
func TestDoctorTries(t *testing.T) {
	d := doctorFor(t, "http://127.0.0.1:1")
	untrusted, forget, err := newUntrustedCA()
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("there is no /bin/sh on this machine")
	}
	shell := func(script string) client {
		return client{name: "fake", command: "/bin/sh", hint: "export FAKE={ca}", vars: []string{"FAKE"},
			args: func(url, _ string) []string { return []string{"-c", script, "sh", url} }}
	}
	for _, c := range []struct {
		name, script string
		want         cli.Status
		says, hint   string
	}{
		{"it does not start", "echo broken >&2; exit 1", cli.StatusFail, "could not be tested: broken", "run it by hand"},
		{"its library is missing", "exit 77", cli.StatusSkip, "fake is not installed", ""},
	} {
		found := checkClient(t.Context(), d, shell(c.script), untrusted)
		if found.Status != c.want || found.Detail != c.says || !strings.HasPrefix(found.Hint, c.hint) {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
	if got := trustHint(d, shell("")); got != "export FAKE=ca.pem" {
		t.Errorf("hint: %q", got)
	}
	for file, want := range map[string]string{
		"/etc/ssl/certs/ca-certificates.crt": "FAKE names /etc/ssl/certs/ca-certificates.crt, which contains the system's roots:\nrobotsproxy ca install\nor\nexport FAKE=ca.pem",
		"/own/roots.pem":                     "FAKE names /own/roots.pem, which does not contain the CA: add it there, or\nexport FAKE=ca.pem",
	} {
		d.getenv = func(string) string { return file }
		if got := trustHint(d, shell("")); got != want {
			t.Errorf("hint, where a variable names %s: %q", file, got)
		}
	}
	d.flags.clients = []string{"fake"}
	if found := checkClient(t.Context(), d, shell("exit 77"), untrusted); found.Status != cli.StatusFail {
		t.Errorf("missing, and asked for: %+v", found)
	}
}

// TestDoctorClientThatHangs: a client that connects and does not go on has not rejected the certificate.
func TestDoctorClientThatHangs(t *testing.T) {
	t.Parallel()
	testkit.Long(t, "waits for a client to hang")
	if _, err := exec.LookPath("bash"); err != nil {
		testkit.Missing(t, "bash")
	}
	untrusted, forget, err := newUntrustedCA()
	testkit.Must(t, err)
	defer forget()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	hangs := client{name: "fake", command: "bash", args: func(url, _ string) []string {
		return []string{"-c", "exec 3<>/dev/tcp/127.0.0.1/$1; exec sleep 60", "bash", strings.Trim(url[strings.LastIndexByte(url, ':'):], ":/")}
	}}
	if found := checkClient(ctx, doctorFor(t, "http://127.0.0.1:1"), hangs, untrusted); found.Status != cli.StatusFail || found.Detail != "could not be tested: did not end within 30s" {
		t.Errorf("%+v", found)
	}
}

// The hint names each variable with the complete path of the file, and each command is on a
// separate line.
func TestDoctorMends(t *testing.T) {
	d := doctorFor(t, "http://127.0.0.1:1")
	for _, c := range testedClients {
		got := trustHint(d, c)
		if strings.ContainsAny(got, "{}") || len(c.vars) > 0 && !strings.Contains(got, "export "+c.vars[0]+"=ca.pem") {
			t.Errorf("%s: %s", c.name, got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			is := slices.ContainsFunc([]string{"robotsproxy ", "export ", "keytool "}, func(c string) bool { return strings.HasPrefix(line, c) })
			has := strings.Contains(line, "robotsproxy ca") || strings.Contains(line, "=ca.pem")
			if is == strings.HasPrefix(line, "or") || has && !is || is && strings.ContainsAny(line, ";,") {
				t.Errorf("%s: %q is neither a command nor none", c.name, line)
			}
		}
	}
}

func TestDirectEnv(t *testing.T) {
	got := directEnv([]string{"http_proxy=a", "HTTPS_PROXY=b", "ALL_PROXY=c", "no_proxy=d", "NODE_USE_ENV_PROXY=1", "SSL_CERT_FILE=e", "proxy=f"})
	want := []string{"NODE_USE_ENV_PROXY=1", "SSL_CERT_FILE=e", "proxy=f", "no_proxy=*", "NO_PROXY=*", "GIT_TERMINAL_PROMPT=0", "PYTHONSAFEPATH=1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
