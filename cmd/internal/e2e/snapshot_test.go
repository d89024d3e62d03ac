package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestExplainWhatWasDecided: what decisions rested on is kept while serve runs, to the
// octet, and each decision comes out the same when it is made again from that.
func TestExplainWhatWasDecided(t *testing.T) {
	const rules = "# kept to the octet \x1b[2J\r\nUser-agent: FooBot\r\nCrawl-delay: 0.01\r\nDisallow: /private\r\n\r\nUser-agent: *\r\nDisallow: /\r\n"
	ruled, none, fails := newOrigin(t, "ruled", rules), newOrigin(t, "none", ""), newOrigin(t, "fails", "")
	none.handle("/robots.txt", http.NotFound)
	fails.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	dead, _ := newName("dead")
	p := startProxy(t, outOfTheWay)
	c := p.client(t, false)
	const foo = "FooBot/1.0 (+https://foo.test)"
	asked := []struct {
		url, agent string
		status     int
		says       string // the explanation
	}{
		{ruled.url("http", "/private/a"), foo, 403, "Disallow: /private (line 4)"},
		{ruled.url("https", "/private?x=%41"), foo, 403, "  >     4 | Disallow: /private"},
		{ruled.url("https", "/open"), foo, 404, "no rule of the group matches"},
		{ruled.url("http", "/open"), "Other/1.0", 403, "Disallow: / (line 7)"},
		{ruled.url("http", "/robots.txt"), foo, 200, "/robots.txt itself may always be fetched"},
		{none.url("http", "/x"), foo, 404, "status 404 says that there is no robots.txt"},
		{fails.url("http", "/x"), foo, 403, "on no file: the answer had status 503"},
		{"http://" + dead + "/x", foo, 502, "on no file: there was no whole answer"},
	}
	var sha string
	for _, a := range asked {
		if r := get(t, c, a.url, "User-Agent", a.agent); r.Status != a.status {
			t.Fatalf("%s: status %d, want %d", a.url, r.Status, a.status)
		}
		r := awaitRecord(t, p.audit, a.url)
		got := command(t, "audit", "explain", "--state", p.state, r.ID).want(t, 0).stdout
		if !strings.Contains(got, a.says) {
			t.Errorf("%s: %q is not said:\n%s", a.url, a.says, got)
		}
		if same := strings.Contains(got, "the same"); same != (r.RobotsSHA256 != "") {
			t.Errorf("%s: made again: %v:\n%s", a.url, same, got)
		}
		if strings.ContainsRune(got, '\x1b') {
			t.Errorf("%s: an origin's octets are printed: %q", a.url, got)
		}
		if r.RobotsSHA256 != "" {
			sha = r.RobotsSHA256
		}
	}
	if got := command(t, "audit", "snapshot", "--state", p.state, sha).want(t, 0).stdout; got != rules {
		t.Errorf("kept: %q, want %q", got, rules)
	}
	list := command(t, "audit", "snapshot", "--state", p.state, "--list").want(t, 0).stdout
	if n := strings.Count(list, "\n"); n != 5 { // two origins of one host
		t.Errorf("%d fetches are listed:\n%s", n, list)
	}
}
