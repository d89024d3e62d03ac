package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ownCertificate writes a certificate for the proxy's own port, and gives its
// files and that of the authority behind it.
func ownCertificate(t *testing.T) (cert, key, ca string) {
	t.Helper()
	authority, err := newAuthority("the proxy's own")
	if err != nil {
		t.Fatal(err)
	}
	leaf := authority.leaf(t, "localhost", time.Now().Add(time.Hour))
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, ca = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	put(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}))
	put(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	put(t, ca, authority.pem)
	return cert, key, ca
}

// The proxy itself speaks TLS: listen_tls.
func TestListenTLS(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	cert, key, ca := ownCertificate(t)
	o := newOrigin(t, "behind-tls", "User-agent: *\nDisallow: /private\n")
	o.handle("/page", textPage("text/plain", "hello"))
	p := startProxy(t, outOfTheWay.with(settings{"listen_tls.cert": cert, "listen_tls.key": key}))
	for _, scheme := range []string{"http", "https"} {
		for path, want := range map[string]string{"/page": "200 hello", "/private": "403 "} {
			out := runPeer(t, []string{curl, "-s", "-x", strings.Replace("https://"+p.listen, "127.0.0.1", "localhost", 1), "--proxy-cacert", ca, "--cacert", p.ca,
				"-w", "\n%{http_code}", o.url(scheme, path)}, nil)
			body, status := out.stdout[:strings.LastIndexByte(out.stdout, '\n')], out.stdout[strings.LastIndexByte(out.stdout, '\n')+1:]
			if got := status + " " + body; out.code != 0 || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, exit %d, %s; want %q", o.url(scheme, path), got, out.code, out.stderr, want)
			}
		}
		if n := len(o.pages(scheme)); n != 1 {
			t.Errorf("%d pages by %s, want 1", n, scheme)
		}
	}
	if out := runPeer(t, []string{curl, "-s", "-x", "http://" + p.listen, o.url("http", "/page")}, nil); out.code == 0 && strings.Contains(out.stdout, "hello") {
		t.Errorf("in the clear: %q", out.stdout)
	}
}

// What is wrong with listen_tls is said before anything listens.
func TestListenTLSFiles(t *testing.T) {
	t.Parallel()
	cert, key, _ := ownCertificate(t)
	h := newHouse(t, settings{"listen_tls.cert": cert})
	wantOneLine(t, command(t, "serve", "-c", h.config), 1, h.config, "listen_tls.cert", "listen_tls.key is missing")
	h = newHouse(t, settings{"listen_tls.cert": filepath.Join(h.dir, "none.pem"), "listen_tls.key": key})
	for _, args := range [][]string{{"serve"}, {"config", "check"}} {
		wantOneLine(t, command(t, append(args, "-c", h.config)...), 1, "listen_tls", "none.pem", "no such file")
	}
	_, other, _ := ownCertificate(t)
	h = newHouse(t, settings{"listen_tls.cert": cert, "listen_tls.key": other})
	wantOneLine(t, command(t, "serve", "-c", h.config), 1, "listen_tls", "does not match")
}
