package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A path in another form that servers read is refused by the rule for the plain one, by
// each way that requests come; refusal, record, explanation and check say which form.
func TestReadingsOfAPath(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "readings", "User-agent: *\nDisallow: /private/\n")
	o.handle("/web/2020/https://example.org/", textPage("text/plain", "page"))
	p := startProxy(t, outOfTheWay)
	forms := map[string]string{
		"/private/x": "", "/a/../private/x": "dots-removed", "//private/x": "slashes-merged",
		"/a//../private/x": "slashes-merged+dots-removed", "/private%2Fx": "slashes-decoded",
		"/%5cprivate/x": "slashes-decoded+slashes-merged", "/a/..;/private/x": "parameters-stripped+dots-removed",
	}
	for _, scheme := range schemes {
		for _, h2 := range []bool{false, true} {
			client := p.client(t, h2)
			for path, form := range forms {
				url := o.url(scheme, path) + fmt.Sprintf("?%v", h2)
				got := get(t, client, url)
				wantOwn(t, got, http.StatusForbidden, "http_request_denied")
				if form != "" && !strings.Contains(string(got.Body), "("+form+")") {
					t.Errorf("%s: the form is not said:\n%s", url, got.Body)
				}
				r := onlyRecord(t, p.audit, url)
				wantBlocked(t, r, "rule", http.StatusForbidden)
				if r.Reading != form || r.Rule != "/private/" {
					t.Errorf("%s: reading %q, rule %q", url, r.Reading, r.Rule)
				}
				if scheme == "http" && !h2 {
					p.explain(t, r, 0)
				}
			}
			if got := get(t, client, o.url(scheme, "/web/2020/https://example.org/")); got.Status != http.StatusOK {
				t.Errorf("no rule speaks against it: %v", got)
			}
		}
		if n := len(o.pages(scheme)); n != 2 {
			t.Errorf("%s: %d pages arrived, want 2", scheme, n)
		}
	}
	out := command(t, "check", "-c", p.config, o.url("http", "//private/x")).want(t, 1).stdout
	if !strings.Contains(out, "read as:        /private/x (slashes-merged)\n") {
		t.Errorf("check does not say how the path was read:\n%s", out)
	}
}

// A URL over limits.url is refused, and a verdict that would take too long; the next
// requests to the host are served as ever.
func TestURLsThatCostTooMuch(t *testing.T) {
	t.Parallel()
	var hostile strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&hostile, "User-agent: *\nUser-agent: a%d\nDisallow: /*a*a*a*a*%d\n", i, i)
	}
	o := newOrigin(t, "toomuch", hostile.String())
	o.handle("/b", textPage("text/plain", "page"))
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		for _, h2 := range []bool{false, true} {
			client := p.client(t, h2)
			got := get(t, client, o.url(scheme, "/"+strings.Repeat("a", 8<<10)))
			wantOwn(t, got, http.StatusRequestURITooLong, "http_request_error")
			got = get(t, client, o.url(scheme, "/"+strings.Repeat("a", 8000)))
			wantOwn(t, got, http.StatusForbidden, "http_request_denied")
			if got := get(t, client, o.url(scheme, "/b")); got.Status != http.StatusOK {
				t.Errorf("an ordinary URL: %v", got)
			}
		}
	}
	p.end(t)
	var reasons []string
	for _, r := range readAudit(t, p.audit) {
		reasons = append(reasons, r.Reason)
		if r.Reason == "malformed" && (len(r.URL) > 2<<10 || r.Host == "" || r.Status != http.StatusRequestURITooLong) {
			t.Errorf("record of a URL that is too long: status %d, host %q, %d bytes of the URL", r.Status, r.Host, len(r.URL))
		}
	}
	slices.Sort(reasons)
	if got := strings.Join(slices.Compact(reasons), " "); got != "malformed no-rule too-complex" || len(reasons) != 12 {
		t.Errorf("%d records, for the reasons %s", len(reasons), got)
	}
}
