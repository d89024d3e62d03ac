package cli

import (
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// check fetches robots.txt from the origin, with the egress of the configuration.
func TestCheckAgainstAnOrigin(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "check", "User-agent: CheckBot\nDisallow: /private\n\nUser-agent: *\nDisallow: /\n")
	h := e2e.NewSetup(t, e2e.Settings{})
	dead := "http://" + e2e.DeadEnd(t) + "/a"
	for _, scheme := range e2e.Schemes {
		allowed, denied := o.URL(scheme, "/a"), o.URL(scheme, "/private")
		e2e.Command(t, "check", "-c", h.Config, "-A", "CheckBot/1.0", allowed).Want(t, 0)
		out := e2e.Command(t, "check", "-c", h.Config, "-A", "CheckBot/1.0", allowed, denied).Want(t, 1)
		for _, want := range []string{denied, "/private", "2", "checkbot"} {
			if !strings.Contains(strings.ToLower(out.Stdout), want) {
				t.Errorf("the answer does not name %q:\n%s", want, out.Stdout)
			}
		}
		e2e.Command(t, "check", "-c", h.Config, "-A", "Another/1.0", allowed).Want(t, 1)
		e2e.Command(t, "check", "-c", h.Config, allowed, dead).Want(t, 2)
	}
	if n := len(o.Pages("http")) + len(o.Pages("https")); n != 0 {
		t.Errorf("check asked for %d pages", n)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Settings{})
	e2e.Command(t, "health", "--admin", p.Admin).Want(t, 0)
	e2e.Command(t, "health", "-c", p.Config).Want(t, 0)
	p.End(t)
	e2e.Command(t, "health", "--admin", p.Admin).Want(t, 1)
}

// The first run creates the CA, for this state directory only, and nobody else can read its
// key.
func TestCAOnFirstRun(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Settings{})
	if got := strings.TrimSuffix(e2e.Command(t, "ca", "path", "-c", p.Config).Want(t, 0).Stdout, "\n"); got != p.CA {
		t.Errorf("ca path: %q, want %q", got, p.CA)
	}
	text, err := os.ReadFile(p.CA)
	if err != nil {
		t.Fatal(err)
	}
	block, more := pem.Decode(text)
	if block == nil || len(strings.TrimSpace(string(more))) != 0 {
		t.Fatalf("%s is not one PEM block", p.CA)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !cert.IsCA || cert.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("CA %v, key %v", cert.IsCA, cert.PublicKeyAlgorithm)
	}
	if host, err := os.Hostname(); err == nil && !strings.Contains(cert.Subject.String(), host) {
		t.Errorf("subject %q does not name this host, %q", cert.Subject, host)
	}
	if err := cert.CheckSignatureFrom(cert); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]fs.FileMode{p.State: 0o700, filepath.Join(filepath.Dir(p.CA), "ca.key"): 0o600, p.Audit: 0o600} {
		info, err := os.Stat(file)
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", file, info.Mode().Perm(), want)
		}
	}
	p.End(t)
	again := e2e.Launch(t, p.Setup)
	again.AwaitReady(t)
	if now, err := os.ReadFile(p.CA); err != nil || string(now) != string(text) {
		t.Errorf("the CA is another after a second start: %v", err)
	}
	again.End(t)
}

// With intercept: false only hosts are known, and a host that is wholly disallowed is
// refused.
func TestTunnelsNotOpened(t *testing.T) {
	t.Parallel()
	open := e2e.NewOrigin(t, "unopened", "User-agent: *\nDisallow: /private\n")
	closed := e2e.NewOrigin(t, "whole", "User-agent: *\nDisallow: /\n")
	for _, o := range []*e2e.Origin{open, closed} {
		o.Handle("/private", e2e.TextPage("text/plain", "unseen"))
	}
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"tls.intercept": false}))
	w := p.Dial(t)
	w.Send(t, "CONNECT "+closed.Hostport("https")+" HTTP/1.1", "Host: "+closed.Hostport("https"))
	e2e.WantOwn(t, w.Receive(t, "CONNECT"), 403, "http_request_denied")
	client := p.Client(t, false)
	e2e.TrustOrigins(t, client)
	if got := e2e.Get(t, client, open.URL("https", "/private")); got.Status != 200 || string(got.Body) != "unseen" {
		t.Errorf("through a tunnel that is not opened: %v", got)
	}
	client.CloseIdleConnections()
	testkit.Eventually(t, "the tunnel's record", func() bool {
		for _, r := range e2e.ReadAudit(t, p.Audit) {
			if r.Reason == "tunnel" && r.Decision == "allow" && r.Method == "CONNECT" && strings.Contains(r.Host+r.URL, open.Name) {
				return true
			}
		}
		return false
	})
	if n := len(closed.Pages("https")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}
