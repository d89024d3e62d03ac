package requests

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestViaCostsCompression checks that nginx does not compress responses to requests with Via, unless egress.via is
// false.
func TestViaCostsCompression(t *testing.T) {
	t.Parallel()
	nginx := e2e.NeedPeer(t, "nginx")
	name, addr := e2e.NewName("nginx")
	l, err := net.Listen("tcp", addr.String()+":0") // finds a free port
	testkit.Must(t, err)
	l.Close()
	_, port, _ := strings.Cut(l.Addr().String(), ":")
	dir := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "html"), 0o755))
	e2e.WriteFile(t, filepath.Join(dir, "html/page.txt"), strings.Repeat("all the same ", 2000))
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // otherwise its workers may not read the directory
	}
	e2e.WriteFile(t, filepath.Join(dir, "nginx.conf"), user+fmt.Sprintf(`daemon off; pid nginx.pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
	types { text/plain txt; }
	gzip on; gzip_types text/plain;
	server { listen %s:%s; root html; }
}
`, addr, port))
	server := exec.CommandContext(t.Context(), nginx, "-p", dir, "-c", "nginx.conf", "-e", "stderr")
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) } // its workers end with it
	testkit.Must(t, server.Start())
	t.Cleanup(func() { server.Wait() }) // the test's context ends it
	testkit.Eventually(t, "nginx listens", func() bool {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	for via, want := range map[bool]string{true: "", false: "gzip"} {
		p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.via": via}))
		req, err := http.NewRequest(http.MethodGet, "http://"+name+":"+port+"/page.txt", nil)
		testkit.Must(t, err)
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := p.Client(t, false).Do(req)
		testkit.Must(t, err)
		resp.Body.Close()
		if got := resp.Header.Get("Content-Encoding"); got != want {
			t.Errorf("egress.via: %t: Content-Encoding is %q, want %q", via, got, want)
		}
	}
}

// TestTunnelWithoutTLS checks that curl -p, which makes a tunnel also for http, works with any port.
func TestTunnelWithoutTLS(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "tunnel", "User-agent: *\nDisallow: /private\n")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for path, want := range map[string]string{"/page": "hello200", "/private": "403"} {
		cmd := exec.CommandContext(t.Context(), curl, "-sp", "-w", "%{http_code}", o.URL("http", path))
		cmd.Env = p.Env(t)
		out, err := cmd.CombinedOutput()
		if !strings.HasSuffix(string(out), want) || err != nil {
			t.Errorf("%s: %q, %v", path, out, err)
		}
	}
	if n := len(o.Pages("http")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
}

// TestNTLM checks that curl can log in by NTLM, and that another client does not get its pages.
func TestNTLM(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o, other := e2e.NewOrigin(t, "intranet", ""), e2e.NewOrigin(t, "elsewhere", "")
	var mu sync.Mutex
	users := map[string]bool{}           // by connection
	const negotiate, authenticate = 1, 3 // types of messages ([MS-NLMP] 2.2.1)
	entered, leave := make(chan struct{}), make(chan struct{})
	o.Handle("/page", func(w http.ResponseWriter, r *http.Request) {
		login, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Header.Get("Authorization"), "NTLM "))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case len(login) > 8 && login[8] == authenticate:
			users[r.RemoteAddr] = true
		case len(login) > 8 && login[8] == negotiate:
			w.Header().Set("WWW-Authenticate", "NTLM "+base64.StdEncoding.EncodeToString(ntlmChallenge))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "logged in: %t ", users[r.RemoteAddr])
	})
	other.Handle("/", func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	})
	p := e2e.StartProxy(t, e2e.Unpaced)
	cmd := exec.CommandContext(t.Context(), curl, "-s", "--ntlm", "-u", "alice:secret", o.URL("http", "/page"), other.URL("http", "/"), o.URL("http", "/page"))
	cmd.Env = p.Env(t)
	var out e2e.SyncBuffer
	cmd.Stdout = &out
	testkit.Must(t, cmd.Start())
	<-entered // the connection with the login is idle now
	if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page")); string(got.Body) != "logged in: false " {
		t.Errorf("another client gets %q", got.Body)
	}
	close(leave)
	if err := cmd.Wait(); err != nil || out.String() != "logged in: true logged in: true " {
		t.Errorf("curl gets %q, %v", out.String(), err)
	}
}

// ntlmChallenge is the second message of NTLM, without a target ([MS-NLMP] 2.2.1.2).
var ntlmChallenge = slices.Concat([]byte("NTLMSSP\x00\x02\x00\x00\x00"), []byte{0, 0, 0, 0, 48, 0, 0, 0}, // the target's name
	[]byte{0x01, 0x02, 0x08, 0x00}, []byte("12345678"), make([]byte, 8), []byte{0, 0, 0, 0, 48, 0, 0, 0})
