package requests

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// With egress.parent: env, requests go through the proxies that the environment names, but for the hosts in no_proxy. It takes
// effect with a reload; until then the variables are not used.
func TestParentOfTheEnvironment(t *testing.T) {
	t.Parallel()
	behind, direct := e2e.NewOrigin(t, "behind", "User-agent: *\nDisallow: /private\n"), e2e.NewOrigin(t, "direct", "")
	for _, o := range []*e2e.Origin{behind, direct} {
		o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	}
	forHTTP, forHTTPS := newParent(t, "http", behind), newParent(t, "socks5", behind)
	settings := e2e.Unpaced.With(e2e.Settings{"log.level": "debug"})
	p := e2e.StartProxyBy(t, settings, "env", "http_proxy="+forHTTP.url.String(), "HTTPS_PROXY="+forHTTPS.url.String(), "no_proxy="+direct.Name)
	client := p.Client(t, false)
	all := func(scheme string) {
		t.Helper()
		for _, o := range []*e2e.Origin{behind, direct} {
			if got := e2e.Get(t, client, o.URL(scheme, "/page")); got.Status != 200 || string(got.Body) != "a page" {
				t.Errorf("%s: %d %s", o.URL(scheme, "/page"), got.Status, got.Body)
			}
		}
	}
	all("http")
	if asked := append(forHTTP.log(), forHTTPS.log()...); len(asked) > 0 {
		t.Errorf("without egress.parent, a proxy got %q", asked)
	}
	p.Rewrite(t, settings.With(e2e.Settings{"egress.parent": "env"}))
	p.Signal(t, syscall.SIGHUP)
	testkit.Eventually(t, "the configuration is reloaded", func() bool { return strings.Contains(p.Stderr.String(), "configuration reloaded") })
	all("http")
	all("https")
	if got := e2e.Get(t, client, behind.URL("https", "/private")); got.Status != http.StatusForbidden {
		t.Errorf("a disallowed page: %d", got.Status)
	}
	if got, want := forHTTP.log(), []string{"GET " + behind.URL("http", "/page")}; !slices.Equal(got, want) { // its robots.txt is known
		t.Errorf("the proxy for http got %q, want %q", got, want)
	}
	if got, want := forHTTPS.log(), []string{"CONNECT " + behind.Hostport("https")}; !slices.Equal(got, want) {
		t.Errorf("the proxy for https got %q, want %q", got, want)
	}
	wantNoPassword(t, p)
}

// Without a variable, egress.parent: env means no upstream proxy, and the log says so once.
func TestNoParentInTheEnvironment(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "direct", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.parent": "env"}))
	if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page")); got.Status != 200 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if n := strings.Count(p.Stderr.String(), "no upstream proxy in the environment, connecting to origins directly"); n != 1 {
		t.Errorf("%d lines say that there is none:\n%s", n, p.Stderr)
	}
}
