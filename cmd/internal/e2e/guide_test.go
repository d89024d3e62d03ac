package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A user who knows the proxy's address alone: the page leads to the CA, and the CA to HTTPS.
func TestGuideLeadsAUserThrough(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "guide", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"identity.from": "ops@example.org"}))
	at := "http://" + p.listen
	page := runPeer(t, []string{curl, "-q", "-sS", at + "/"}, cleanEnv()).want(t, 0).stdout
	for _, want := range []string{"this is a proxy", at + "/ca.pem", at + "/proxy.pac", "ops@example.org"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not name %q:\n%s", want, page)
		}
	}
	shown := command(t, "ca", "show", "-c", p.config).want(t, 0).stdout
	if _, after, _ := strings.Cut(page, "sha256:"); !strings.Contains(shown, strings.Fields(after)[0]) {
		t.Errorf("another fingerprint than that of ca show:\n%s\n%s", page, shown)
	}
	ca := filepath.Join(t.TempDir(), "robotsproxy-ca.pem")
	runPeer(t, []string{curl, "-q", "-sS", "-o", ca, at + "/ca.pem"}, cleanEnv()).want(t, 0)
	through := []string{curl, "-q", "-sS", "-x", at, "--cacert", ca}
	if got := runPeer(t, append(through, o.url("https", "/a")), cleanEnv()).want(t, 0).stdout; got != "a" {
		t.Errorf("through the proxy: %q", got)
	}
	// By the proxy itself it is the same page, and no request to anybody.
	if got := runPeer(t, append(through, at+"/"), cleanEnv()).want(t, 0).stdout; got != page {
		t.Errorf("through the proxy the page is\n%s", got)
	}
	script := runPeer(t, []string{curl, "-q", "-sS", at + "/proxy.pac"}, cleanEnv()).want(t, 0).stdout
	if !strings.Contains(script, `return "PROXY `+p.listen+`";`) {
		t.Errorf("proxy.pac:\n%s", script)
	}
	if n := len(o.pages("https")) + len(o.pages("http")); n != 1 {
		t.Errorf("%d pages arrived", n)
	}
	awaitRecord(t, p.audit, o.url("https", "/a"))
	if n := len(readAudit(t, p.audit)); n != 1 {
		t.Errorf("%d records, want that of the one request that went out", n)
	}
}

// The page is for who has no password yet, and it takes one to go on.
func TestGuideBeforeTheLogin(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "guide-login", "")
	p := startProxy(t, outOfTheWay.with(settings{"clients": []any{
		map[string]any{"name": "lab-a", "networks": []string{"192.0.2.0/24"}}}}))
	w := p.dial(t)
	w.send(t, "GET /ca.der HTTP/1.1", "Host: "+p.listen)
	if got := w.receive(t, http.MethodGet); got.Status != http.StatusOK || len(got.Body) == 0 {
		t.Errorf("ca.der: %v", got)
	}
	w.send(t, "GET "+o.url("http", "/")+" HTTP/1.1", "Host: x")
	if got := w.receive(t, http.MethodGet); got.Status != http.StatusForbidden {
		t.Errorf("a stranger's request: %v", got)
	}
	if n := len(o.arrivals("http")); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// A proxy that speaks TLS says so in its script.
func TestGuideOverTLS(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	cert, key, _ := ownCertificate(t)
	p := startProxy(t, settings{"listen_tls.cert": cert, "listen_tls.key": key, "tls.intercept": false})
	at := "https://" + p.listen
	script := runPeer(t, []string{curl, "-q", "-sS", "-k", at + "/proxy.pac"}, cleanEnv()).want(t, 0).stdout
	if !strings.Contains(script, `return "HTTPS `+p.listen+`";`) {
		t.Errorf("proxy.pac:\n%s", script)
	}
	page := runPeer(t, []string{curl, "-q", "-sS", "-k", at + "/"}, cleanEnv()).want(t, 0).stdout
	if !strings.Contains(page, "unopened") || !strings.Contains(page, at) {
		t.Errorf("the page:\n%s", page)
	}
}

// What a Host can do to the page: nothing.
func TestGuideAndHostileHosts(t *testing.T) {
	t.Parallel()
	p := startProxy(t, settings{})
	for _, host := range []string{"<script>", "a\"b", "a'b:1", "$(x):80", "a!b:80", "evil.test:80", "a;b", "%0d%0aX:1", "[::1", "\x80:1", "[2001:db8::1]:1"} {
		for _, path := range []string{"/", "/proxy.pac"} {
			w := p.dial(t)
			w.send(t, "GET "+path+" HTTP/1.1", "Host: "+host, "Accept: text/html")
			got := w.receive(t, http.MethodGet)
			shown := strings.Contains(string(got.Body), host)
			if good := host == "[2001:db8::1]:1"; shown != good || good != (got.Status == http.StatusOK) {
				t.Errorf("Host %q at %s: %v", host, path, got)
			}
		}
	}
}

// A run's child finds the page too; --report is of its requests.
func TestGuideAndReportOfARun(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "report", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	h := newHouse(t, outOfTheWay)
	file, kept := filepath.Join(h.dir, "run.json"), filepath.Join(h.dir, "kept.jsonl")
	for range 2 { // the second goes on with the audit of the first
		argv := []string{"run", "-c", h.config, "-q", "--audit", kept, "--report", file, "--", "sh", "-c",
			`env -u http_proxy "$0" -q -sS --noproxy '*' "$http_proxy/proxy.pac"; "$0" -q -sS "$1" "$2"; exit 3`, curl, o.url("https", "/a"), o.url("https", "/private")}
		out := command(t, argv...).want(t, 3)
		if !strings.Contains(out.stdout, "FindProxyForURL") || out.stderr != "" {
			t.Errorf("%q\n%s", out.stdout, out.stderr)
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
