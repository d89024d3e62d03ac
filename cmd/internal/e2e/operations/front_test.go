package operations

import (
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// ownCertificate writes a certificate for the proxy's own port. It returns its files and
// that of its CA.
func ownCertificate(t *testing.T) (cert, key, ca string) {
	t.Helper()
	authority, err := e2e.NewAuthority("the proxy's own")
	if err != nil {
		t.Fatal(err)
	}
	leaf := authority.Leaf(t, "localhost", time.Now().Add(time.Hour))
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, ca = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	e2e.Put(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}))
	e2e.Put(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	e2e.Put(t, ca, authority.PEM)
	return cert, key, ca
}

// The proxy itself speaks TLS: listen_tls.
func TestListenTLS(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	cert, key, ca := ownCertificate(t)
	o := e2e.NewOrigin(t, "behind-tls", "User-agent: *\nDisallow: /private\n")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"listen_tls.cert": cert, "listen_tls.key": key}))
	for _, scheme := range []string{"http", "https"} {
		for path, want := range map[string]string{"/page": "200 hello", "/private": "403 "} {
			out := e2e.RunPeer(t, []string{curl, "-s", "-x", strings.Replace("https://"+p.Listen, "127.0.0.1", "localhost", 1), "--proxy-cacert", ca, "--cacert", p.CA,
				"-w", "\n%{http_code}", o.URL(scheme, path)}, nil)
			body, status := out.Stdout[:strings.LastIndexByte(out.Stdout, '\n')], out.Stdout[strings.LastIndexByte(out.Stdout, '\n')+1:]
			if got := status + " " + body; out.Code != 0 || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, exit %d, %s; want %q", o.URL(scheme, path), got, out.Code, out.Stderr, want)
			}
		}
		if n := len(o.Pages(scheme)); n != 1 {
			t.Errorf("%d pages by %s, want 1", n, scheme)
		}
	}
	if out := e2e.RunPeer(t, []string{curl, "-s", "-x", "http://" + p.Listen, o.URL("http", "/page")}, nil); out.Code == 0 && strings.Contains(out.Stdout, "hello") {
		t.Errorf("in the clear: %q", out.Stdout)
	}
}

// Errors in listen_tls are reported before the proxy listens.
func TestListenTLSFiles(t *testing.T) {
	t.Parallel()
	cert, key, _ := ownCertificate(t)
	h := e2e.NewSetup(t, e2e.Settings{"listen_tls.cert": cert})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config), 1, h.Config, "listen_tls.cert", "listen_tls.key is missing")
	h = e2e.NewSetup(t, e2e.Settings{"listen_tls.cert": filepath.Join(h.Dir, "none.pem"), "listen_tls.key": key})
	for _, args := range [][]string{{"serve"}, {"config", "check"}} {
		e2e.WantOneLine(t, e2e.Command(t, append(args, "-c", h.Config)...), 1, "listen_tls", "none.pem", "no such file")
	}
	_, other, _ := ownCertificate(t)
	h = e2e.NewSetup(t, e2e.Settings{"listen_tls.cert": cert, "listen_tls.key": other})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config), 1, "listen_tls", "does not match")
}
