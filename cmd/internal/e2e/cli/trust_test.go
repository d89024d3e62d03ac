package cli

import (
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// TestRunSaysThatTheClientDoesNotTrustTheCA, whether other requests succeeded or not, and does not say
// that the client went past the proxy.
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
