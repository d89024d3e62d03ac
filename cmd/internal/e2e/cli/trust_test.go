package cli

import (
	"html"
	"os/exec"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestRunSaysThatTheClientDoesNotTrustTheCA: run says so whether other requests succeeded or not, and
// does not say that the client bypassed the proxy.
func TestRunSaysThatTheClientDoesNotTrustTheCA(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "distrust", e2e.Forbidding)
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	h := e2e.NewSetup(t, e2e.Unpaced)
	untrusting := curl + ` -q -sS --cacert "` + e2e.TrustedFile(t) + `" ` + o.URL("https", "/page")
	for name, script := range map[string]string{
		"nothing else": untrusting,
		"an HTTP page": curl + " -q -s " + o.URL("http", "/page") + "; " + untrusting + "; " + untrusting,
	} {
		t.Run(name, func(t *testing.T) {
			got := e2e.Command(t, "run", "-c", h.Config, "--", "sh", "-c", script).Want(t, 60)
			host := strings.TrimPrefix(o.URL("https", ""), "https://") // with its port, which is not 443
			if n := strings.Count(got.Stderr, "robotsproxy: curl connected to "+host+" through the proxy but did not trust the proxy's certificate\n"); n != 1 {
				t.Errorf("said %d times: %s", n, got.Stderr)
			}
			if !strings.Contains(got.Stderr, "--cacert") || strings.Contains(got.Stderr, "--noproxy") {
				t.Errorf("the wrong hint: %s", got.Stderr)
			}
		})
	}
}

// TestRunSaysThatATunnelWasNotUsed: wget with GnuTLS finishes the handshake before it looks at the
// certificate, and then closes the connection. A host that got a request over HTTPS is not named.
func TestRunSaysThatATunnelWasNotUsed(t *testing.T) {
	t.Parallel()
	wget := e2e.NeedPeer(t, "wget")
	o := e2e.NewOrigin(t, "unused", e2e.Forbidding)
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	h := e2e.NewSetup(t, e2e.Unpaced)
	trusting := wget + " -q -t 1 -O - " + o.URL("https", "/page")
	untrusting := trusting + ` --ca-certificate="` + e2e.TrustedFile(t) + `"`
	run := func(script string) string {
		return e2e.Command(t, "run", "-c", h.Config, "--", "sh", "-c", script).Want(t, 0).Stderr
	}
	said := "robotsproxy: wget opened a tunnel to " + o.Hostport("https") + " through the proxy and closed it without a request, perhaps because"
	if got := run(untrusting + "; " + untrusting + "; true"); strings.Count(got, said) != 1 || !strings.Contains(got, "--ca-certificate") || strings.Contains(got, "no-proxy") {
		t.Errorf("%s", got)
	}
	if n := len(o.Arrivals("https")); n != 0 {
		t.Errorf("the origin got %d requests", n)
	}
	if got := run(untrusting + "; " + trusting); strings.Contains(got, "without a request") || !strings.Contains(got, "1 allowed") {
		t.Errorf("after a request that succeeded: %s", got)
	}
}

// TestChromiumTrustsTheInstalledCA: a Chromium without a certificate database trusts the CA after ca
// install --browsers, and no longer after ca uninstall.
func TestChromiumTrustsTheInstalledCA(t *testing.T) {
	t.Parallel()
	e2e.NeedPeer(t, "certutil")
	chromium := e2e.NeedPeer(t, "chromium")
	o := e2e.NewOrigin(t, "browsed", e2e.Forbidding)
	o.Handle("/page", e2e.TextPage("text/html", "<title>Welcome</title>"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	env := e2e.CleanEnv("HOME=" + t.TempDir())
	ca := func(verb, flag string) e2e.Outcome {
		cmd := e2e.Prepare(t, "ca", verb, flag, "--no-system", "-c", p.Config)
		cmd.Env = append(cmd.Env, env...)
		return e2e.Finish(t, cmd).Want(t, 0)
	}
	browse := func() string {
		cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--no-first-run", "--disable-background-networking",
			"--user-data-dir="+t.TempDir(), "--proxy-server=http://"+p.Listen, "--dump-dom", o.URL("https", "/page"))
		cmd.Env = env
		return e2e.Finish(t, cmd).Stdout
	}
	if said := ca("install", "--browsers").Stdout; !strings.Contains(said, "ok    browser  is installed, in ") || !strings.Contains(said, "/.pki/nssdb (new)\n") {
		t.Errorf("%s", said)
	}
	if got := browse(); !strings.Contains(got, "<title>Welcome</title>") {
		t.Errorf("with the CA installed: %s", got)
	}
	ca("uninstall", "--firefox") // the name of the flag in earlier versions
	if got := browse(); strings.Contains(got, "<title>Welcome</title>") {
		t.Error("the CA is uninstalled, and Chromium trusts it")
	}
	cmd := e2e.Prepare(t, "ca", "install", "--browsers", "--no-system", "-c", p.Config)
	cmd.Env = append(cmd.Env, "PATH="+t.TempDir())
	if got := e2e.Finish(t, cmd).Want(t, 1); !strings.Contains(got.Stdout, "install the package libnss3-tools") {
		t.Errorf("without certutil: %s", got.Stdout)
	}
}

// TestServeSaysThatAClientDoesNotTrustTheCA: the log of serve has one warning, however often the client tries, and the
// dashboard counts. wget with GnuTLS sends no alert.
func TestServeSaysThatAClientDoesNotTrustTheCA(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		peer       []string
		untrusting string // an argument
		warning    string
	}{
		{[]string{"curl", "-q", "-sS"}, "--cacert=" + e2e.TrustedFile(t), "does not trust the proxy's CA"},
		{[]string{"wget", "-q", "-t", "1", "-O", "-"}, "--ca-certificate=" + e2e.TrustedFile(t), "perhaps because it does not trust the proxy's CA"},
	} {
		t.Run(c.peer[0], func(t *testing.T) {
			t.Parallel()
			c.peer[0] = e2e.NeedPeer(t, c.peer[0])
			o := e2e.NewOrigin(t, "distrusted", e2e.Forbidding)
			o.Handle("/page", e2e.TextPage("text/plain", "page"))
			p := e2e.StartProxy(t, e2e.Unpaced)
			visit := func(args ...string) e2e.Outcome {
				return e2e.RunPeer(t, append(append(c.peer, args...), o.URL("https", "/page")), p.Env(t))
			}
			if got := visit().Want(t, 0); got.Stdout != "page" || strings.Contains(p.Stderr.String(), "level=WARN") {
				t.Errorf("a client that trusts the CA: %q, log:\n%s", got.Stdout, p.Stderr)
			}
			arrived := len(o.Arrivals("https"))
			for range 3 {
				if visit(strings.Split(c.untrusting, "=")...).Code == 0 {
					t.Fatal("it trusts the CA")
				}
			}
			var page string
			testkit.Eventually(t, "the dashboard counts three connections", func() bool {
				page = string(e2e.Get(t, e2e.Operator(t), "http://"+p.Admin+"/").Body)
				return strings.Contains(page, "(3 connections")
			})
			if !strings.Contains(html.UnescapeString(page), c.warning) {
				t.Errorf("the dashboard does not say %q:\n%s", c.warning, page)
			}
			if n := len(o.Arrivals("https")); n != arrived {
				t.Errorf("the origin got %d requests", n-arrived)
			}
			log := p.Stderr.String()
			if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, c.warning) ||
				!strings.Contains(log, " client=127.0.0.1 host="+o.Hostport("https")+" ") || !strings.Contains(log, "robotsproxy ca path") {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}
