package operations

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// The pages show the state of the running proxy. Tests in cmd/internal/admin check their
// appearance and their behaviour in a browser.
func TestDashboardOfARunningProxy(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "dash", "User-agent: *\nDisallow: /private\n")
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, false)
	for _, path := range []string{"/page", "/private/<script>alert(1)</script>"} {
		e2e.Get(t, client, o.URL("http", path), "User-Agent", "FooBot/1.0 <script>")
	}
	base := "http://" + p.Admin
	page := func(method, path, form string, status int, parts ...string) e2e.Result {
		t.Helper()
		got := e2e.Do(t, e2e.Operator(t), method, base+path, strings.NewReader(form), "Content-Type", "application/x-www-form-urlencoded", "Origin", base)
		if got.Status != status {
			t.Fatalf("%s %s: %d, want %d\n%s", method, path, got.Status, status, got.Body)
		}
		for _, part := range parts {
			if !strings.Contains(string(got.Body), part) {
				t.Errorf("%s %s has no %q:\n%s", method, path, part, got.Body)
			}
		}
		if strings.Contains(string(got.Body), "<script>") || strings.Contains(string(got.Body), "</script>alert") {
			t.Errorf("%s has a stranger's script", path)
		}
		return got
	}
	testkit.Eventually(t, "the records of both requests, of the fetch and of the start are shown", func() bool {
		return strings.Count(string(page("GET", "/", "", http.StatusOK).Body), "data-record=") == 4
	})
	page("GET", "/", "", http.StatusOK, o.Name, "/private", "Disallowed", "Allowed")
	page("GET", "/hosts", "", http.StatusOK, "/hosts/"+o.Name)
	host := "/hosts/" + o.Name
	page("GET", host, "", http.StatusOK, "Disallow: /private", "disallowed 1", `id="L2" class="rule block"`)
	page("GET", "/decisions/3", "", http.StatusOK, "robots_sha256")
	ask := url.Values{"url": {o.URL("http", "/private/x")}, "agent": {"FooBot/1.0"}}
	page("POST", "/explain", ask.Encode(), http.StatusOK, "Disallowed", "/private (line 2)")
	page("GET", "/about", "", http.StatusOK, p.Listen, "/api/v1/decisions/stream")

	fetches := o.Fetches("http")
	form := url.Values{"origin": {"http://" + o.Hostport("http")}, "do": {"refetch"}}
	if got := page("POST", host, form.Encode(), http.StatusSeeOther); got.Header.Get("Location") != host+"?done=refetch" || o.Fetches("http") != fetches+1 {
		t.Errorf("%q after %d fetches", got.Header.Get("Location"), o.Fetches("http")-fetches)
	}
	form.Set("do", "purge")
	page("POST", host, form.Encode(), http.StatusSeeOther)
	e2e.Get(t, client, o.URL("http", "/page"))
	if n := o.Fetches("http"); n != fetches+2 {
		t.Errorf("%d fetches after it was forgotten", n-fetches)
	}
	got := e2e.Do(t, e2e.Operator(t), "POST", base+host, strings.NewReader(form.Encode()), "Content-Type", "application/x-www-form-urlencoded", "Origin", "http://evil.test", "Sec-Fetch-Site", "cross-site")
	if got.Status != http.StatusForbidden {
		t.Errorf("a page of another origin's: %s", fmt.Sprint(got))
	}
}
