package daemon

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/robots/testkit"
)

func TestHealth(t *testing.T) {
	for _, c := range []struct {
		name, answer     string
		status, exit     int
		wantOut, wantErr string
	}{
		{"well", "ok\n", 200, 0, "ok\n", ""},
		{"well, with a warning", "ok\nwarning: little space\n", 200, 0, "ok\nwarning: little space\n", ""},
		{"not well", "the audit cannot be written\n", 503, 1, "the audit cannot be written\n", "503"},
		{"a redirect is no answer", "", 302, 1, "", "302"},
		{"another server's escapes", "\x1b[2Jok", 200, 0, `\x1b[2Jok` + "\n", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "GET" || r.URL.Path != "/healthz" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.WriteHeader(c.status)
			io.WriteString(w, c.answer)
		}))
		var out, errOut strings.Builder
		exit := cli.Execute(t.Context(), HealthCommand(), []string{"--admin", server.Listener.Addr().String()}, nil, &out, &errOut)
		if exit != c.exit || out.String() != c.wantOut || !strings.Contains(errOut.String(), c.wantErr) {
			t.Errorf("%s: %d, %q, %q", c.name, exit, out.String(), errOut.String())
		}
		server.Close()
		if exit := cli.Execute(t.Context(), HealthCommand(), []string{"--admin", server.Listener.Addr().String()}, nil, &out, &errOut); exit != 1 || !strings.Contains(errOut.String(), "nothing listens at "+server.Listener.Addr().String()+": start robotsproxy serve") {
			t.Errorf("%s: %d from a server that is gone: %s", c.name, exit, errOut.String())
		}
	}
}

// TestHealthOfNoAddress: --admin with an empty value does not mean the configured address.
func TestHealthOfNoAddress(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "robotsproxy.yaml")
	testkit.Must(t, os.WriteFile(file, []byte("admin: {listen: \""+server.Listener.Addr().String()+"\"}\n"), 0o600))
	var out, errOut bytes.Buffer
	exit := cli.Execute(t.Context(), HealthCommand(), []string{"-c", file, "--admin", ""}, nil, &out, &errOut)
	if exit != cli.ExitUsage || !strings.Contains(errOut.String(), "--admin: empty address") {
		t.Errorf("status %d, %q, %q", exit, out.String(), errOut.String())
	}
}
