package robotstxt

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"

	"robotsproxy/cmd/internal/e2e"
)

// A path in another form that servers treat as the same is refused by the rule for the
// plain form, however the request arrives. The refusal, the record, the explanation and
// check name the form.
func TestReadingsOfAPath(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "readings", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/web/2020/https://example.org/", e2e.TextPage("text/plain", "page"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	forms := map[string]string{
		"/private/x": "", "/a/../private/x": "dots-removed", "//private/x": "slashes-merged",
		"/a//../private/x": "slashes-merged+dots-removed", "/private%2Fx": "slashes-decoded",
		"/%5cprivate/x": "slashes-decoded+slashes-merged", "/a/..;/private/x": "parameters-stripped+dots-removed",
	}
	for _, scheme := range e2e.Schemes {
		for _, h2 := range []bool{false, true} {
			client := p.Client(t, h2)
			for path, form := range forms {
				url := o.URL(scheme, path) + fmt.Sprintf("?%v", h2)
				got := e2e.Get(t, client, url)
				e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
				if form != "" && !strings.Contains(string(got.Body), "("+form+")") {
					t.Errorf("%s: the form is not said:\n%s", url, got.Body)
				}
				r := e2e.OnlyRecord(t, p.Audit, url)
				e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
				if r.Reading != form || r.Rule != "/private/" {
					t.Errorf("%s: reading %q, rule %q", url, r.Reading, r.Rule)
				}
				if scheme == "http" && !h2 {
					p.Explain(t, r, 0)
				}
			}
			if got := e2e.Get(t, client, o.URL(scheme, "/web/2020/https://example.org/")); got.Status != http.StatusOK {
				t.Errorf("no rule speaks against it: %v", got)
			}
		}
		if n := len(o.Pages(scheme)); n != 2 {
			t.Errorf("%s: %d pages arrived, want 2", scheme, n)
		}
	}
	out := e2e.Command(t, "check", "-c", p.Config, o.URL("http", "//private/x")).Want(t, 1).Stdout
	if !strings.Contains(out, "read as:        /private/x (slashes-merged)\n") {
		t.Errorf("check does not say how the path was read:\n%s", out)
	}
}

// A URL over limits.url is refused, and so is a match that would take too long. Later
// requests to the host are unaffected.
func TestURLsThatCostTooMuch(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "toomuch", testkit.ComplexFile())
	o.Handle("/b", e2e.TextPage("text/plain", "page"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		for _, h2 := range []bool{false, true} {
			client := p.Client(t, h2)
			got := e2e.Get(t, client, o.URL(scheme, "/"+strings.Repeat("a", 8<<10)))
			e2e.WantOwn(t, got, http.StatusRequestURITooLong, "http_request_error")
			got = e2e.Get(t, client, o.URL(scheme, "/"+strings.Repeat("a", 8000)))
			e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
			if got := e2e.Get(t, client, o.URL(scheme, "/b")); got.Status != http.StatusOK {
				t.Errorf("an ordinary URL: %v", got)
			}
		}
	}
	p.End(t)
	var reasons []string
	for _, r := range e2e.ReadAudit(t, p.Audit) {
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
