package cli

import (
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
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
