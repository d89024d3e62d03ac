package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check asks the origin itself, by the configuration's way out.
func TestCheckAgainstAnOrigin(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "check", "User-agent: CheckBot\nDisallow: /private\n\nUser-agent: *\nDisallow: /\n")
	h := newHouse(t, settings{})
	dead := "http://" + deadEnd(t) + "/a"
	for _, scheme := range schemes {
		allowed, denied := o.url(scheme, "/a"), o.url(scheme, "/private")
		command(t, "check", "-c", h.config, "-A", "CheckBot/1.0", allowed).want(t, 0)
		out := command(t, "check", "-c", h.config, "-A", "CheckBot/1.0", allowed, denied).want(t, 1)
		for _, want := range []string{denied, "/private", "2", "checkbot"} {
			if !strings.Contains(strings.ToLower(out.stdout), want) {
				t.Errorf("the answer does not name %q:\n%s", want, out.stdout)
			}
		}
		command(t, "check", "-c", h.config, "-A", "Another/1.0", allowed).want(t, 1)
		command(t, "check", "-c", h.config, allowed, dead).want(t, 2)
	}
	if n := len(o.pages("http")) + len(o.pages("https")); n != 0 {
		t.Errorf("check asked for %d pages", n)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	p := startProxy(t, settings{})
	command(t, "health", "--admin", p.admin).want(t, 0)
	command(t, "health", "-c", p.config).want(t, 0)
	p.end(t)
	command(t, "health", "--admin", p.admin).want(t, 1)
}

// The CA is made on first run, for this state directory alone, and lets nobody read its key.
func TestCAOnFirstRun(t *testing.T) {
	t.Parallel()
	p := startProxy(t, settings{})
	text, err := os.ReadFile(p.ca)
	if err != nil {
		t.Fatal(err)
	}
	block, more := pem.Decode(text)
	if block == nil || len(strings.TrimSpace(string(more))) != 0 {
		t.Fatalf("%s is not one PEM block", p.ca)
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
	for file, want := range map[string]fs.FileMode{p.state: 0o700, filepath.Join(filepath.Dir(p.ca), "ca.key"): 0o600, p.audit: 0o600} {
		info, err := os.Stat(file)
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", file, info.Mode().Perm(), want)
		}
	}
	p.end(t)
	again := launch(t, p.house)
	again.awaitReady(t)
	if now, err := os.ReadFile(p.ca); err != nil || string(now) != string(text) {
		t.Errorf("the CA is another after a second start: %v", err)
	}
	again.end(t)
}

// intercept: false: hosts alone are known, and a wholly forbidden one is refused.
func TestTunnelsNotOpened(t *testing.T) {
	t.Parallel()
	open := newOrigin(t, "unopened", "User-agent: *\nDisallow: /private\n")
	closed := newOrigin(t, "whole", "User-agent: *\nDisallow: /\n")
	for _, o := range []*origin{open, closed} {
		o.handle("/private", textPage("text/plain", "unseen"))
	}
	p := startProxy(t, outOfTheWay.with(settings{"tls.intercept": false}))
	w := p.dial(t)
	w.send(t, "CONNECT "+closed.hostport("https")+" HTTP/1.1", "Host: "+closed.hostport("https"))
	wantOwn(t, w.receive(t, "CONNECT"), 403, "http_request_denied")
	client := p.client(t, false)
	trustOrigins(t, client)
	if got := get(t, client, open.url("https", "/private")); got.Status != 200 || string(got.Body) != "unseen" {
		t.Errorf("through a tunnel that is not opened: %v", got)
	}
	client.CloseIdleConnections()
	eventually(t, patience, "the tunnel's record", func() bool {
		for _, r := range readAudit(t, p.audit) {
			if r.Reason == "tunnel" && r.Decision == "allow" && r.Method == "CONNECT" && strings.Contains(r.Host+r.URL, open.Name) {
				return true
			}
		}
		return false
	})
	if n := len(closed.pages("https")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}
