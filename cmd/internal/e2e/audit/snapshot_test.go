package audit

import (
	"net/http"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestExplainWhatWasDecided: the robots.txt files that decisions are based on are stored
// unchanged while serve runs, and each decision can be re-derived from them.
func TestExplainWhatWasDecided(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight() // a fetch is stored once a day
	const rules = "# kept to the octet \x1b[2J\r\nUser-agent: FooBot\r\nCrawl-delay: 0.01\r\nDisallow: /private\r\n\r\nUser-agent: *\r\nDisallow: /\r\n"
	ruled, none, fails := e2e.NewOrigin(t, "ruled", rules), e2e.NewOrigin(t, "none", ""), e2e.NewOrigin(t, "fails", "")
	none.Handle("/robots.txt", http.NotFound)
	fails.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	dead, _ := e2e.NewName("dead")
	p := e2e.StartProxy(t, e2e.Unpaced)
	c := p.Client(t, false)
	const foo = "FooBot/1.0 (+https://foo.test)"
	asked := []struct {
		url, agent string
		status     int
		says       string // text in the explanation
	}{
		{ruled.URL("http", "/private/a"), foo, 403, "Disallow: /private (line 4)"},
		{ruled.URL("https", "/private?x=%41"), foo, 403, "  >     4 | Disallow: /private"},
		{ruled.URL("https", "/open"), foo, 404, "No rule of the site's robots.txt matches"},
		{ruled.URL("http", "/open"), "Other/1.0", 403, "Disallow: / (line 7)"},
		{ruled.URL("http", "/robots.txt"), foo, 200, "/robots.txt itself may always be fetched"},
		{none.URL("http", "/x"), foo, 404, "Status 404 means that there is no robots.txt"},
		{fails.URL("http", "/x"), foo, 403, "outcome:        status 503: unreachable"},
		{"http://" + dead + "/x", foo, 502, "outcome:        no connection"},
	}
	var sha string
	for _, a := range asked {
		if r := e2e.Get(t, c, a.url, "User-Agent", a.agent); r.Status != a.status {
			t.Fatalf("%s: status %d, want %d", a.url, r.Status, a.status)
		}
		r := e2e.AwaitRecord(t, p.Audit, a.url)
		got := e2e.Command(t, "audit", "explain", "--state", p.State, r.ID).Want(t, 0).Stdout
		if !strings.Contains(got, a.says) {
			t.Errorf("%s: %q is not said:\n%s", a.url, a.says, got)
		}
		if same := strings.Contains(got, "the same"); same != (r.RobotsSHA256 != "") {
			t.Errorf("%s: made again: %v:\n%s", a.url, same, got)
		}
		if strings.ContainsRune(got, '\x1b') {
			t.Errorf("%s: an origin's bytes are printed: %q", a.url, got)
		}
		if r.RobotsSHA256 != "" {
			sha = r.RobotsSHA256
		}
	}
	if got := e2e.Command(t, "audit", "snapshot", "--state", p.State, sha).Want(t, 0).Stdout; got != rules {
		t.Errorf("kept: %q, want %q", got, rules)
	}
	list := e2e.Command(t, "audit", "snapshot", "--state", p.State, "--list").Want(t, 0).Stdout
	if n := strings.Count(list, "\n"); n != 5 { // two origins of one host
		t.Errorf("%d fetches are listed:\n%s", n, list)
	}
}
