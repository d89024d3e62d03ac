package audit

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// audit.include and audit.query_strings decide what is written.
func TestAuditOptions(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "options", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.include": "blocked", "audit.query_strings": "drop"}))
	client := p.Client(t, false)
	for _, scheme := range e2e.Schemes {
		e2e.Get(t, client, o.URL(scheme, "/a?secret=1"))
		got := e2e.Get(t, client, o.URL(scheme, "/private?secret=2"))
		e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
		e2e.WantBlocked(t, e2e.OnlyRecord(t, p.Audit, o.URL(scheme, "/private")), "rule", http.StatusForbidden)
	}
	p.End(t)
	if records := e2e.ReadAudit(t, p.Audit); len(records) != 2 {
		t.Errorf("%d records, want the 2 refusals: %+v", len(records), records)
	}
}

// With audit.file "-", records go to standard output and the log does not.
func TestAuditOnStandardOutput(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "stdout", "User-agent: *\nDisallow: /private\n")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.file": "-"}))
	e2e.Get(t, p.Client(t, false), o.URL("http", "/private"))
	p.End(t)
	if e2e.Exists(p.Audit) {
		t.Errorf("%s was written", p.Audit)
	}
	for line := range strings.Lines(p.Stderr.String()) {
		var r e2e.Record
		if json.Unmarshal([]byte(line), &r) == nil && r.URL == o.URL("http", "/private") && r.Reason == "rule" {
			return
		}
	}
	t.Errorf("no record among the output:\n%s", p.Stderr)
}

// If the audit cannot be written, every request is refused, or none if the configuration
// says so. /dev/full accepts no byte; the shell connects standard output to it.
func TestAuditCannotBeWritten(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no /dev/full")
	}
	o := e2e.NewOrigin(t, "auditfull", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	full := func(s e2e.Settings) *e2e.Proxy {
		p := e2e.Launch(t, e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"audit.file": "-"}).With(s)), "sh", "-c", `exec "$0" "$@" > /dev/full`)
		testkit.Eventually(t, "it listens", func() bool { return strings.Contains(p.Stderr.String(), "proxy started") })
		p.WantCode = 1 // records are lost
		t.Cleanup(func() { p.End(t) })
		return p
	}
	p := full(nil)
	client := p.Client(t, false)
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/private")), http.StatusServiceUnavailable, "proxy_internal_error")
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/a")), http.StatusServiceUnavailable, "proxy_internal_error")
	if n := len(o.Pages("http")); n != 0 {
		t.Errorf("%d pages arrived after the audit had failed", n)
	}
	p = full(e2e.Settings{"audit.on_error": "continue"})
	client = p.Client(t, false)
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/private")), http.StatusForbidden, "http_request_denied")
	if got := e2e.Get(t, client, o.URL("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("on_error: continue: %v", got)
	}
}

// identity decides how the proxy identifies itself, and which rules it applies.
func TestIdentity(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "identity", "User-agent: OwnBot\nDisallow: /private\n\nUser-agent: *\nDisallow: /\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"identity.product_token": "OwnBot", "identity.user_agent": "OwnBot/3.0 (+https://own.test/bot)"}))
	for _, scheme := range e2e.Schemes {
		client := p.Client(t, scheme == "https")
		if got := e2e.Get(t, client, o.URL(scheme, "/a"), "User-Agent", "Mozilla/5.0 (X11)"); got.Status != http.StatusOK {
			t.Errorf("%s: %v", scheme, got)
		}
		e2e.WantOwn(t, e2e.Get(t, client, o.URL(scheme, "/private")), http.StatusForbidden, "http_request_denied")
		for _, h := range o.Arrivals(scheme) {
			if got := h.Header.Get("User-Agent"); got != "OwnBot/3.0 (+https://own.test/bot)" {
				t.Errorf("%s %s arrived with User-Agent %q", scheme, h.Path, got)
			}
		}
		if r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, "/a")); r.Agent != "OwnBot" || r.Group != "ownbot" {
			t.Errorf("%s: agent %q, group %q", scheme, r.Agent, r.Group)
		}
	}
}

// The User-Agent of the first client is also sent with robots.txt, and each client is
// judged by its own group of the one file.
func TestEachClientHasItsOwnGroup(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "groups", "User-agent: OneBot\nDisallow: /one\n\nUser-agent: TwoBot\nDisallow: /two\n\nUser-agent: *\nDisallow: /\n")
	for _, path := range []string{"/one", "/two"} {
		o.Handle(path, e2e.TextPage("text/plain", path))
	}
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, true)
	for _, c := range []struct {
		agent, path string
		status      int
	}{
		{"OneBot/1.0", "/one", 403}, {"OneBot/1.0", "/two", 200}, {"Mozilla/5.0 (compatible; TwoBot/2.0)", "/one", 200},
		{"Mozilla/5.0 (compatible; TwoBot/2.0)", "/two", 403}, {"OneBotany/1.0", "/two", 403}, {"", "/one", 403},
	} {
		if got := e2e.Get(t, client, o.URL("https", c.path), "User-Agent", c.agent); got.Status != c.status {
			t.Errorf("%q for %s: %d, want %d", c.agent, c.path, got.Status, c.status)
		}
	}
	e2e.WantPolite(t, o, "https", 2, 0)
	if got := o.Arrivals("https")[0].Header.Get("User-Agent"); !strings.HasPrefix(got, "robotsproxy/") {
		t.Errorf("robots.txt was fetched as %q", got)
	}
}
