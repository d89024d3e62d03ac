package operations

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A user who knows only the proxy's address: the page leads to the CA, and with the CA HTTPS
// works.
func TestGuideLeadsAUserThrough(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "guide", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"identity.from": "ops@example.org"}))
	at := "http://" + p.Listen
	page := e2e.RunPeer(t, []string{curl, "-q", "-sS", at + "/"}, e2e.CleanEnv()).Want(t, 0).Stdout
	for _, want := range []string{"this is a proxy", at + "/ca.pem", at + "/proxy.pac", "ops@example.org"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not name %q:\n%s", want, page)
		}
	}
	shown := e2e.Command(t, "ca", "show", "-c", p.Config).Want(t, 0).Stdout
	if _, after, _ := strings.Cut(page, "sha256:"); !strings.Contains(shown, strings.Fields(after)[0]) {
		t.Errorf("another fingerprint than that of ca show:\n%s\n%s", page, shown)
	}
	ca := filepath.Join(t.TempDir(), "robotsproxy-ca.pem")
	e2e.RunPeer(t, []string{curl, "-q", "-sS", "-o", ca, at + "/ca.pem"}, e2e.CleanEnv()).Want(t, 0)
	through := []string{curl, "-q", "-sS", "-x", at, "--cacert", ca}
	if got := e2e.RunPeer(t, append(through, o.URL("https", "/a")), e2e.CleanEnv()).Want(t, 0).Stdout; got != "a" {
		t.Errorf("through the proxy: %q", got)
	}
	// Requested through the proxy it is the same page, and no request is sent.
	if got := e2e.RunPeer(t, append(through, at+"/"), e2e.CleanEnv()).Want(t, 0).Stdout; got != page {
		t.Errorf("through the proxy the page is\n%s", got)
	}
	script := e2e.RunPeer(t, []string{curl, "-q", "-sS", at + "/proxy.pac"}, e2e.CleanEnv()).Want(t, 0).Stdout
	if !strings.Contains(script, `return "PROXY `+p.Listen+`";`) {
		t.Errorf("proxy.pac:\n%s", script)
	}
	if n := len(o.Pages("https")) + len(o.Pages("http")); n != 1 {
		t.Errorf("%d pages arrived", n)
	}
	e2e.AwaitRecord(t, p.Audit, o.URL("https", "/a"))
	if n := len(e2e.ReadAudit(t, p.Audit)); n != 1 {
		t.Errorf("%d records, want that of the one request that went out", n)
	}
}

// The page needs no password, but other requests do.
func TestGuideBeforeTheLogin(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "guide-login", "")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"clients": []any{
		map[string]any{"name": "lab-a", "networks": []string{"192.0.2.0/24"}}}}))
	w := p.Dial(t)
	w.Send(t, "GET /ca.der HTTP/1.1", "Host: "+p.Listen)
	if got := w.Receive(t, http.MethodGet); got.Status != http.StatusOK || len(got.Body) == 0 {
		t.Errorf("ca.der: %v", got)
	}
	w.Send(t, "GET "+o.URL("http", "/")+" HTTP/1.1", "Host: x")
	if got := w.Receive(t, http.MethodGet); got.Status != http.StatusForbidden {
		t.Errorf("a stranger's request: %v", got)
	}
	if n := len(o.Arrivals("http")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// The script of a proxy that speaks TLS says so.
func TestGuideOverTLS(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	cert, key, _ := ownCertificate(t)
	p := e2e.StartProxy(t, e2e.Settings{"listen_tls.cert": cert, "listen_tls.key": key, "tls.intercept": false})
	at := "https://" + p.Listen
	script := e2e.RunPeer(t, []string{curl, "-q", "-sS", "-k", at + "/proxy.pac"}, e2e.CleanEnv()).Want(t, 0).Stdout
	if !strings.Contains(script, `return "HTTPS `+p.Listen+`";`) {
		t.Errorf("proxy.pac:\n%s", script)
	}
	page := e2e.RunPeer(t, []string{curl, "-q", "-sS", "-k", at + "/"}, e2e.CleanEnv()).Want(t, 0).Stdout
	if !strings.Contains(page, "passed through") || !strings.Contains(page, at) {
		t.Errorf("the page:\n%s", page)
	}
}

// The Host header cannot change the page.
func TestGuideAndHostileHosts(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Settings{})
	for _, host := range []string{"<script>", "a\"b", "a'b:1", "$(x):80", "a!b:80", "evil.test:80", "a;b", "%0d%0aX:1", "[::1", "\x80:1", "[2001:db8::1]:1"} {
		for _, path := range []string{"/", "/proxy.pac"} {
			w := p.Dial(t)
			w.Send(t, "GET "+path+" HTTP/1.1", "Host: "+host, "Accept: text/html")
			got := w.Receive(t, http.MethodGet)
			shown := strings.Contains(string(got.Body), host)
			if good := host == "[2001:db8::1]:1"; shown != good || good != (got.Status == http.StatusOK) {
				t.Errorf("Host %q at %s: %v", host, path, got)
			}
		}
	}
}

// The child of a run finds the page too. --report covers its requests.
func TestGuideAndReportOfARun(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "report", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	h := e2e.NewSetup(t, e2e.Unpaced)
	file, kept := filepath.Join(h.Dir, "run.json"), filepath.Join(h.Dir, "kept.jsonl")
	for range 2 { // the second run continues the audit of the first
		argv := []string{"run", "-c", h.Config, "-q", "--audit", kept, "--report", file, "--", "sh", "-c",
			`env -u http_proxy "$0" -q -sS --noproxy '*' "$http_proxy/proxy.pac"; "$0" -q -sS "$1" "$2"; exit 3`, curl, o.URL("https", "/a"), o.URL("https", "/private")}
		out := e2e.Command(t, argv...).Want(t, 3)
		if !strings.Contains(out.Stdout, "FindProxyForURL") || out.Stderr != "" {
			t.Errorf("%q\n%s", out.Stdout, out.Stderr)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Totals struct{ Requests, Allowed, Blocked int }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if got := report.Totals; got.Requests != 2 || got.Allowed != 1 || got.Blocked != 1 {
		t.Errorf("%+v, want the requests of the second run alone", got)
	}
}

// The log of the start leads to the help page and to the CA, unless no client needs the CA.
func TestTheStartNamesTheHelpPage(t *testing.T) {
	t.Parallel()
	cert, key, _ := ownCertificate(t)
	for _, c := range []struct {
		name     string
		settings e2e.Settings
		scheme   string
		ca       bool
	}{
		{"as it comes", nil, "http", true},
		{"listen_tls", e2e.Settings{"listen_tls.cert": cert, "listen_tls.key": key}, "https", true},
		{"without interception", e2e.Settings{"tls.intercept": false}, "http", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := e2e.StartProxy(t, e2e.Settings{"log.format": "json"}.With(c.settings))
			var line struct{ Listen, Help, CA, Admin, Audit string }
			text, found := "", false
			testkit.Eventually(t, "the start is logged", func() bool {
				for text = range strings.Lines(p.Stderr.String()) {
					if found = strings.Contains(text, `"proxy started"`); found {
						break
					}
				}
				return found
			})
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			ca := ""
			if c.ca {
				ca = p.CA
			}
			if line.Help != c.scheme+"://"+p.Listen+"/" || line.CA != ca || line.Admin != "http://"+p.Admin+"/" || line.Audit != p.Audit {
				t.Errorf("%s", text)
			}
		})
	}
}
