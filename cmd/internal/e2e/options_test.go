package e2e

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// audit.include and audit.query_strings say what is written.
func TestAuditOptions(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "options", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"audit.include": "blocked", "audit.query_strings": "drop"}))
	client := p.client(t, false)
	for _, scheme := range schemes {
		get(t, client, o.url(scheme, "/a?secret=1"))
		got := get(t, client, o.url(scheme, "/private?secret=2"))
		wantOwn(t, got, http.StatusForbidden, "http_request_denied")
		wantBlocked(t, onlyRecord(t, p.audit, o.url(scheme, "/private")), "rule", http.StatusForbidden)
	}
	p.end(t)
	if records := readAudit(t, p.audit); len(records) != 2 {
		t.Errorf("%d records, want the 2 refusals: %+v", len(records), records)
	}
}

// audit.file "-" is standard output, which the log leaves alone.
func TestAuditOnStandardOutput(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "stdout", "User-agent: *\nDisallow: /private\n")
	p := startProxy(t, outOfTheWay.with(settings{"audit.file": "-"}))
	get(t, p.client(t, false), o.url("http", "/private"))
	p.end(t)
	if exists(p.audit) {
		t.Errorf("%s was written", p.audit)
	}
	for line := range strings.Lines(p.stderr.String()) {
		var r record
		if json.Unmarshal([]byte(line), &r) == nil && r.URL == o.url("http", "/private") && r.Reason == "rule" {
			return
		}
	}
	t.Errorf("no record among the output:\n%s", p.stderr)
}

// An audit that cannot be written stops everything, or, where the
// configuration says so, nothing. /dev/full takes no octet.
func TestAuditCannotBeWritten(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no /dev/full")
	}
	o := newOrigin(t, "auditfull", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"audit.file": "/dev/full"}))
	p.wantCode = 1 // records are lost
	client := p.client(t, false)
	wantOwn(t, get(t, client, o.url("http", "/private")), http.StatusServiceUnavailable, "proxy_internal_error")
	wantOwn(t, get(t, client, o.url("http", "/a")), http.StatusServiceUnavailable, "proxy_internal_error")
	if n := len(o.pages("http")); n != 0 {
		t.Errorf("%d pages arrived after the audit had failed", n)
	}
	p = startProxy(t, outOfTheWay.with(settings{"audit.file": "/dev/full", "audit.on_error": "continue"}))
	p.wantCode = 1
	client = p.client(t, false)
	wantOwn(t, get(t, client, o.url("http", "/private")), http.StatusForbidden, "http_request_denied")
	if got := get(t, client, o.url("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("on_error: continue: %v", got)
	}
}

// identity: who the proxy says it is, and whose rules it reads.
func TestIdentity(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "identity", "User-agent: OwnBot\nDisallow: /private\n\nUser-agent: *\nDisallow: /\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"identity.product_token": "OwnBot", "identity.user_agent": "OwnBot/3.0 (+https://own.test/bot)"}))
	for _, scheme := range schemes {
		client := p.client(t, scheme == "https")
		if got := get(t, client, o.url(scheme, "/a"), "User-Agent", "Mozilla/5.0 (X11)"); got.Status != http.StatusOK {
			t.Errorf("%s: %v", scheme, got)
		}
		wantOwn(t, get(t, client, o.url(scheme, "/private")), http.StatusForbidden, "http_request_denied")
		for _, h := range o.arrivals(scheme) {
			if got := h.Header.Get("User-Agent"); got != "OwnBot/3.0 (+https://own.test/bot)" {
				t.Errorf("%s %s arrived with User-Agent %q", scheme, h.Path, got)
			}
		}
		if r := awaitRecord(t, p.audit, o.url(scheme, "/a")); r.Agent != "OwnBot" || r.Group != "ownbot" {
			t.Errorf("%s: agent %q, group %q", scheme, r.Agent, r.Group)
		}
	}
}

// The header of the client that asks first goes with robots.txt too, and each
// client is judged by its own group of the one file.
func TestEachClientHasItsOwnGroup(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "groups", "User-agent: OneBot\nDisallow: /one\n\nUser-agent: TwoBot\nDisallow: /two\n\nUser-agent: *\nDisallow: /\n")
	for _, path := range []string{"/one", "/two"} {
		o.handle(path, textPage("text/plain", path))
	}
	p := startProxy(t, outOfTheWay)
	client := p.client(t, true)
	for _, c := range []struct {
		agent, path string
		status      int
	}{
		{"OneBot/1.0", "/one", 403}, {"OneBot/1.0", "/two", 200}, {"Mozilla/5.0 (compatible; TwoBot/2.0)", "/one", 200},
		{"Mozilla/5.0 (compatible; TwoBot/2.0)", "/two", 403}, {"OneBotany/1.0", "/two", 403}, {"", "/one", 403},
	} {
		if got := get(t, client, o.url("https", c.path), "User-Agent", c.agent); got.Status != c.status {
			t.Errorf("%q for %s: %d, want %d", c.agent, c.path, got.Status, c.status)
		}
	}
	wantPolite(t, o, "https", 2, 0)
	if got := o.arrivals("https")[0].Header.Get("User-Agent"); !strings.HasPrefix(got, "robotsproxy/") {
		t.Errorf("robots.txt was fetched as %q", got)
	}
}
