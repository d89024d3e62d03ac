package robotstxt

import (
	"net/http"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// utf16LE returns an ASCII text as UTF-16 with a byte order mark.
func utf16LE(text string) string {
	var b strings.Builder
	b.WriteString("\xFF\xFE")
	for _, c := range []byte(text) {
		b.Write([]byte{c, 0})
	}
	return b.String()
}

// A robots.txt in a coding that the response does not name counts, and the bytes that the site sent
// are what is hashed and kept.
func TestCodedRobotsTxt(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight() // a fetch is stored once a day
	const rules = "User-agent: *\nDisallow: /private\n"
	p := e2e.StartProxy(t, e2e.Unpaced)
	c := p.Client(t, false)
	for _, coded := range []struct{ name, text, decoded string }{
		{"utf16", utf16LE(rules), "utf-16le"},
		{"gzip", string(e2e.Zipped([]byte(rules))), "gzip"},
		{"both", string(e2e.Zipped([]byte(utf16LE(rules)))), "gzip+utf-16le"},
	} {
		o := e2e.NewOrigin(t, coded.name, coded.text)
		o.Handle("/open", e2e.TextPage("text/plain", "open"))
		refused := e2e.Get(t, c, o.URL("https", "/private/x"))
		e2e.WantOwn(t, refused, http.StatusForbidden, "http_request_denied")
		r := e2e.OnlyRecord(t, p.Audit, o.URL("https", "/private/x"))
		e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
		if r.RobotsDecoded != coded.decoded || r.RobotsSHA256 != e2e.Digest([]byte(coded.text)) {
			t.Errorf("%s: record %+v", coded.name, r)
		}
		if got := e2e.Get(t, c, o.URL("https", "/open")); got.Status != http.StatusOK {
			t.Errorf("%s: %v", coded.name, got)
		}
		if got := e2e.Command(t, "audit", "snapshot", "--state", p.State, r.RobotsSHA256).Want(t, 0).Stdout; got != coded.text {
			t.Errorf("%s: kept %q", coded.name, got)
		}
		got := e2e.Command(t, "audit", "explain", "--state", p.State, r.ID).Want(t, 0).Stdout
		for _, want := range []string{"decoded:        " + coded.decoded + "\n", "  >     2 | Disallow: /private\n", "the same"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not said:\n%s", coded.name, want, got)
			}
		}
	}
}

// What is no robots.txt, and why, is in the refusal and in the record; nothing arrives but the requests
// for the file.
func TestUnusableRobotsTxt(t *testing.T) {
	t.Parallel()
	whole := string(e2e.Zipped([]byte("User-agent: *\nDisallow: /private\n")))
	redirect := func(status int, location string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if location != "" {
				w.Header().Set("Location", location)
			}
			w.WriteHeader(status)
		}
	}
	standard := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.forbidden": "refuse"}))
	google := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.dialect": "google"}))
	for _, c := range []struct {
		name, cause string
		file        http.HandlerFunc
	}{
		{"brokengzip", "the gzip data is incomplete", e2e.TextPage("text/plain", whole[:len(whole)-4])},
		{"nolocation", "a redirect that cannot be followed: status 301 has no Location", redirect(301, "")},
		{"scheme", "a redirect that cannot be followed: the Location has the scheme \"ftp\"", redirect(302, "ftp://a.test/robots.txt")},
		{"notmodified", "a redirect that cannot be followed: status 304 has no URL to follow", redirect(304, "")},
		{"forbidden", "status 403, which robots.forbidden treats as unreachable", redirect(403, "")},
	} {
		o := e2e.NewOrigin(t, c.name, "")
		o.Handle("/robots.txt", c.file)
		o.Handle("/page", e2e.TextPage("text/plain", "hello"))
		url := o.URL("http", "/page")
		refused := e2e.Get(t, standard.Client(t, false), url, "Accept", "text/plain")
		e2e.WantOwn(t, refused, http.StatusForbidden, "http_request_denied")
		if !strings.Contains(string(refused.Body), c.cause) || refused.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %v\n%s", c.name, refused.Header, refused.Body)
		}
		r := e2e.OnlyRecord(t, standard.Audit, url)
		e2e.WantBlocked(t, r, "unreachable", http.StatusForbidden)
		if !strings.HasSuffix(r.Error, c.cause) {
			t.Errorf("%s: error %q", c.name, r.Error)
		}
		if n := len(o.Pages("http")); n != 0 {
			t.Errorf("%s: %d pages arrived", c.name, n)
		}
		if got := e2e.Command(t, "audit", "explain", "--state", standard.State, r.ID).Want(t, 0).Stdout; !strings.Contains(got, ": unreachable") {
			t.Errorf("%s: explained as\n%s", c.name, got)
		}
		if got := e2e.Get(t, google.Client(t, false), url); got.Status != http.StatusOK {
			t.Errorf("%s: under google: %v", c.name, got)
		}
	}
}

// A refusal by a rule that reaches a client only over a joined list says so, and so does its record.
func TestJoinedListIsNamed(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "joined", "User-agent: *\nCrawl-delay: 0.01\n\nUser-agent: BadBot\nDisallow: /\n")
	p := e2e.StartProxy(t, e2e.Unpaced)
	const says = "this group is in the list of agents since line 1: lines such as Crawl-delay between User-agent lines do not end a list (RFC 9309 2.2.4)"
	for agent, joined := range map[string]int{"FooBot/1.0": 1, "BadBot/1.0": 0} {
		url := o.URL("https", "/"+strings.ToLower(agent))
		got := e2e.Get(t, p.Client(t, false), url, "Accept", "text/plain", "User-Agent", agent)
		e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
		if strings.Contains(string(got.Body), says) != (joined > 0) {
			t.Errorf("%s: %s", agent, got.Body)
		}
		if r := e2e.OnlyRecord(t, p.Audit, url); r.JoinedLine != joined || r.Line != 5 {
			t.Errorf("%s: record %+v", agent, r)
		}
	}
	out := e2e.Command(t, "audit", "report", "--state", p.State).Want(t, 0).Stdout
	if !strings.Contains(out, "* (joined, line 1)") {
		t.Errorf("the report does not say so:\n%s", out)
	}
}
