package runner

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// tunnels is a proxy for CONNECT alone, which knows where its origins are.
func tunnels(t *testing.T, to map[string]string) (address string) {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := to[r.Host]
		if r.Method != http.MethodConnect || target == "" {
			w.Header().Set("Proxy-Status", "robotsproxy; error=http_request_denied")
			w.WriteHeader(http.StatusForbidden)
			return
		}
		out, err := net.Dial("tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		w.WriteHeader(http.StatusOK)
		in, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.Copy(out, buffered)
			out.Close()
		}()
		io.Copy(in, out)
		in.Close()
		<-done
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}

// TestPreload: a fetch of Node's own goes through the proxy, in every
// version of Node that has one, and one that fails says why.
func TestPreload(t *testing.T) {
	testkit.Long(t, "real peers")
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
	plain, secure := httptest.NewServer(page), httptest.NewTLSServer(page)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	proxy := tunnels(t, map[string]string{
		"example.com:80": plain.Listener.Addr().String(), "example.com:443": secure.Listener.Addr().String(),
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	none := write(t, nil, t.TempDir(), "none.pem")
	dir := t.TempDir()
	if _, err := writeRunFiles(dir, dir, proxy, ca, getenvFrom(map[string]string{"SSL_CERT_FILE": none})); err != nil {
		t.Fatal(err)
	}
	const script = `(async () => {
		for (const url of ["https://example.com/a", "http://example.com/b", "https://example.com:444/c"])
			try { console.log(await (await fetch(url)).text()) } catch (e) { console.log(String(e), e.cause.message) }
		console.log(fetch.name, fetch.length)
	})()`
	cmd := exec.CommandContext(t.Context(), node, "-e", script)
	cmd.Env = childEnv([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, proxy, filesIn(dir), nil)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(string(out), "\n")
	if err != nil || len(lines) != 5 || lines[0] != "/a" || lines[1] != "/b" || !strings.HasPrefix(lines[2], "TypeError: fetch failed ") || lines[3] != "fetch 1" {
		t.Errorf("%v\n%s", err, out)
	}
}

// A program without fetch, or with a proxy that is none, runs as ever.
func TestPreloadIsSilent(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	file := write(t, nodePreload, t.TempDir(), "preload.cjs")
	for name, env := range map[string]string{"no proxy": "X=", "no URL": "https_proxy=nonsense"} {
		cmd := exec.CommandContext(t.Context(), node, "--require", file, "-e", `console.log("ran")`)
		cmd.Env = []string{env}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ran\n" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
