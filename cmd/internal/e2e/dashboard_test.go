package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The pages are made of what the running proxy knows; what they look like, and what a
// browser makes of them, is tested in proxy/admin.
func TestDashboardOfARunningProxy(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "dash", "User-agent: *\nDisallow: /private\n")
	o.handle("/page", textPage("text/plain", "page"))
	p := startProxy(t, outOfTheWay)
	client := p.client(t, false)
	for _, path := range []string{"/page", "/private/<script>alert(1)</script>"} {
		get(t, client, o.url("http", path), "User-Agent", "FooBot/1.0 <script>")
	}
	base := "http://" + p.admin
	page := func(method, path, form string, status int, parts ...string) result {
		t.Helper()
		got := do(t, operator(t), method, base+path, strings.NewReader(form), "Content-Type", "application/x-www-form-urlencoded", "Origin", base)
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
	eventually(t, patience, "the records of both requests and of the fetch are shown", func() bool {
		return strings.Count(string(page("GET", "/", "", http.StatusOK).Body), "data-record=") == 3
	})
	page("GET", "/", "", http.StatusOK, o.Name, "/private", "Blocked", "Allowed")
	page("GET", "/hosts", "", http.StatusOK, "/hosts/"+o.Name)
	host := "/hosts/" + o.Name
	page("GET", host, "", http.StatusOK, "Disallow: /private", "blocked 1", `id="L2" class="rule block"`)
	page("GET", "/decisions/2", "", http.StatusOK, "robots_sha256")
	ask := url.Values{"url": {o.url("http", "/private/x")}, "agent": {"FooBot/1.0"}}
	page("POST", "/explain", ask.Encode(), http.StatusOK, "Blocked", "/private (line 2)")
	page("GET", "/about", "", http.StatusOK, p.listen, "/api/v1/decisions/stream")

	fetches := o.fetches("http")
	form := url.Values{"origin": {"http://" + o.hostport("http")}, "do": {"refetch"}}
	if got := page("POST", host, form.Encode(), http.StatusSeeOther); got.Header.Get("Location") != host+"?done=refetch" || o.fetches("http") != fetches+1 {
		t.Errorf("%q after %d fetches", got.Header.Get("Location"), o.fetches("http")-fetches)
	}
	form.Set("do", "purge")
	page("POST", host, form.Encode(), http.StatusSeeOther)
	get(t, client, o.url("http", "/page"))
	if n := o.fetches("http"); n != fetches+2 {
		t.Errorf("%d fetches after it was forgotten", n-fetches)
	}
	got := do(t, operator(t), "POST", base+host, strings.NewReader(form.Encode()), "Content-Type", "application/x-www-form-urlencoded", "Origin", "http://evil.test", "Sec-Fetch-Site", "cross-site")
	if got.Status != http.StatusForbidden {
		t.Errorf("a page of another origin's: %s", fmt.Sprint(got))
	}
}
