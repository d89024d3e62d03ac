package requests

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestOldServers checks that a record says when TLS is legacy, and that a refusal names the cause of a failed
// handshake.
func TestOldServers(t *testing.T) {
	t.Parallel()
	openssl := e2e.NeedPeer(t, "openssl")
	for _, c := range []struct {
		name     string
		cert     []string // for openssl req
		server   []string // for openssl s_server
		settings e2e.Settings
		token    string // of the refusal; "": the page is passed on
		detail   string // in the refusal
		legacy   bool
	}{
		{"the usual", nil, nil, nil, "", "", false},
		{"RSA key exchange", nil, []string{"-tls1_2", "-cipher", "AES256-GCM-SHA384"}, nil, "", "", true},
		{"RSA key exchange and CBC", nil, []string{"-tls1_2", "-cipher", "AES128-SHA256"}, nil, "", "", true},
		{"TLS 1.1", nil, []string{"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}, nil, "tls_protocol_error", "egress.tls_min", false},
		{"TLS 1.1 with egress.tls_min", nil, []string{"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}, e2e.Settings{"egress.tls_min": "1.0"}, "", "", true},
		{"negative serial number", []string{"-set_serial", "-5"}, nil, nil, "tls_certificate_error", "could not be verified", false},
		{"a client certificate", nil, []string{"-Verify", "1", "-tls1_2"}, nil, "tls_alert_received", "client certificate", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, addr := e2e.NewName("old")
			dir := t.TempDir()
			cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
			req := exec.Command(openssl, append([]string{"req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=" + name,
				"-addext", "subjectAltName=DNS:" + name, "-keyout", key, "-out", cert}, c.cert...)...)
			if out, err := req.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			server := exec.CommandContext(t.Context(), openssl, append([]string{"s_server", "-accept", addr.String() + ":0", "-cert", cert, "-key", key, "-www"}, c.server...)...)
			out, err := server.StdoutPipe()
			testkit.Must(t, err)
			testkit.Must(t, server.Start())
			t.Cleanup(func() { server.Wait() }) // the test's context ends it
			port := ""
			for lines := bufio.NewScanner(out); port == "" && lines.Scan(); {
				if at, ok := strings.CutPrefix(lines.Text(), "ACCEPT "); ok {
					port = at[strings.LastIndex(at, ":")+1:]
				}
			}
			go io.Copy(io.Discard, out) // it must not wait for a reader
			settings := e2e.Unpaced.With(e2e.Settings{"mode": "monitor"}).With(c.settings)
			if c.cert == nil {
				settings = settings.With(e2e.Settings{"egress.extra_ca": cert})
			}
			p := e2e.StartProxy(t, settings)
			url := "https://" + name + ":" + port + "/"
			got := e2e.Get(t, p.Client(t, false), url)
			p.End(t)
			records := e2e.RecordsOf(e2e.ReadAudit(t, p.Audit), url)
			if len(records) != 1 || (records[0].TLS == "legacy") != c.legacy {
				t.Errorf("the records are %+v", records)
			}
			if c.token == "" {
				if got.Status != http.StatusOK {
					t.Errorf("%v", got)
				}
				return
			}
			e2e.WantOwn(t, got, http.StatusBadGateway, c.token)
			if !strings.Contains(string(got.Body), c.detail) {
				t.Errorf("%s does not say %q", got.Body, c.detail)
			}
		})
	}
}

// If an origin's certificate is signed by an unknown authority, everything says that the certificate is the origin's, and names
// egress.extra_ca: the refusals of https pages and of http pages whose robots.txt leads to such an origin, check, and the
// summary of run.
func TestUnknownAuthorityOfAnOrigin(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o, plain := e2e.NewOrigin(t, "unknown", ""), e2e.NewOrigin(t, "redirecting", "")
	plain.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, o.URL("https", "/robots.txt"), http.StatusFound)
	})
	settings := e2e.Unpaced.With(e2e.Settings{"egress.extra_ca": nil})
	p := e2e.StartProxy(t, settings)
	page := o.URL("https", "/a")
	got := e2e.Get(t, p.Client(t, false), page)
	e2e.WantOwn(t, got, http.StatusBadGateway, "tls_certificate_error")
	certificate := "the certificate of " + o.Hostport("https") + " is signed by no authority that the proxy trusts (egress.extra_ca): x509: "
	redirected := e2e.Get(t, p.Client(t, false), plain.URL("http", "/a"))
	e2e.WantOwn(t, redirected, http.StatusForbidden, "http_request_denied")
	check := e2e.Command(t, "check", "-c", p.Config, page).Want(t, 2)
	run := e2e.Command(t, e2e.NewSetup(t, settings).RunArgs(curl, "-q", "-s", page)...)
	for what, c := range map[string]struct{ text, want string }{
		"the refusal":               {string(got.Body), "The origin's certificate (not the proxy's CA) is self-signed, or signed by an authority that the proxy does not trust."},
		"the advice of the refusal": {string(got.Body), "with egress.extra_ca."},
		"a redirect of robots.txt":  {string(redirected.Body), certificate},
		"check":                     {check.Stdout, certificate},
		"run":                       {run.Stderr, certificate},
	} {
		if !strings.Contains(c.text, c.want) {
			t.Errorf("%s does not say %q:\n%s", what, c.want, c.text)
		}
	}
	if n := len(o.Arrivals("https")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}
