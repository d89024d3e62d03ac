package audit

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/proxy/egress/ftptest"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// A robots.txt that dialects read differently: google gives FooBot-Images its own group,
// and coccoc gives it that of FooBot. They also differ in rules without a slash and in
// escaped bytes.
const differing = "\xef\xbb\xbfUser-agent: foobot\nDisallow: /private\nDisallow: open\nNoindex: /n\n\nUser-agent: *\nDisallow: /other\nDisallow: /%7euser\n"

// TestExplainEachDialect: the re-derived decision equals the recorded one in every
// dialect, for each client.
func TestExplainEachDialect(t *testing.T) {
	testkit.Long(t, "many processes")
	t.Parallel()
	o := e2e.NewOrigin(t, "explained", differing)
	var clients []any
	dialects := robots.Dialects()
	for i, d := range dialects {
		clients = append(clients, map[string]any{
			"name": d.Name, "networks": []string{"127.0.2." + strconv.Itoa(i+1) + "/32"}, "robots": map[string]any{"dialect": d.Name},
		})
	}
	clients = append(clients, map[string]any{
		"name": "named", "networks": []string{"127.0.3.1/32"}, "identity": map[string]any{"product_token": "FooBot"},
	})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"clients": clients, "open": true, "audit.clients": "hash"}))
	paths := []string{"/private", "/open", "/other", "/~user", "/n", "/x?a=%2f"}
	for i := range dialects {
		c := e2e.From(t, p.Client(t, false), "127.0.2."+strconv.Itoa(i+1))
		for _, path := range paths {
			for j, agent := range []string{e2e.FooBot, "FooBot-Images/2", "Bar/1 FooBot/3"} {
				e2e.Get(t, c, o.URL(e2e.Schemes[j%2], path), "User-Agent", agent)
			}
		}
	}
	named := e2e.From(t, p.Client(t, false), "127.0.3.1")
	if got := e2e.Get(t, named, o.URL("http", "/private/named"), "User-Agent", "curl/8"); got.Status != http.StatusForbidden {
		t.Errorf("under a name of the configuration: status %d", got.Status)
	}
	p.End(t)
	seen := map[string]bool{}
	records := e2e.ReadAudit(t, p.Audit)
	for _, r := range records {
		x := p.Explain(t, r, 0)
		seen[x.Record.Dialect+" "+x.Record.Decision] = true
		if named := strings.HasSuffix(r.URL, "/named"); named != slices.ContainsFunc(x.Derived.Notes, func(s string) bool { return strings.Contains(s, "the configuration set the product token FooBot") }) {
			t.Errorf("%s: notes %q", r.URL, x.Derived.Notes)
		}
	}
	if want := len(dialects)*len(paths)*3 + 1; len(records) != want || len(seen) != 2*len(dialects) {
		t.Errorf("%d records, want %d; %v", len(records), want, seen)
	}
}

// TestExplainWhatTheConfigurationDoes: each key of the configuration that decides in
// addition to robots.txt.
func TestExplainWhatTheConfigurationDoes(t *testing.T) {
	t.Parallel()
	slow, calm := e2e.NewOrigin(t, "slow", "User-agent: *\nCrawl-delay: 30\nDisallow: /no\n"), e2e.NewOrigin(t, "calm", "User-agent: *\nCrawl-delay: 0.02\nDisallow: /no\n")
	ours, theirs, shut := e2e.NewOrigin(t, "ours", e2e.Everything), e2e.NewOrigin(t, "theirs", ""), e2e.NewOrigin(t, "shut", e2e.Everything)
	moved, lost := e2e.NewOrigin(t, "moved", ""), e2e.NewOrigin(t, "lost", "")
	moved.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, calm.URL("http", "/robots.txt"), http.StatusMovedPermanently)
	})
	lost.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) })
	files := e2e.StartFTP(t, &ftptest.Server{})
	hosts := e2e.Settings{"hosts": []e2e.Entry{
		{"match": ours.Name, "robots": "ignore", "reason": "ticket 7"},
		{"match": theirs.Name, "robots": "deny", "reason": "asked us"},
		{"match": calm.Name, "pace": map[string]any{"max_concurrent": 1}},
	}}
	ftp := "ftp://" + files.Addr()
	for _, c := range []struct {
		name string
		own  e2e.Settings
		asks []expectation
	}{
		{"clamp", e2e.Settings{"robots.max_crawl_delay": "20ms"}, []expectation{
			{slow.URL("http", "/no?x"), 403, "rule"}, {slow.URL("https", "/clamped"), 404, "no-rule"},
			{moved.URL("http", "/no/moved"), 403, "rule"}, {moved.URL("https", "/moved"), 404, "no-rule"}, {lost.URL("http", "/lost"), 404, "no-file"},
			{ftp + "/private/x", 403, "rule"}, {ftp + "/a.txt", 200, "no-rule"},
		}},
		{"refuse", e2e.Settings{"robots.over_max": "refuse"}, []expectation{
			{slow.URL("http", "/no/refused"), 403, "crawl-delay"}, {slow.URL("https", "/refused"), 403, "crawl-delay"},
			{calm.URL("http", "/no/refused"), 403, "rule"}, {calm.URL("http", "/kept"), 404, "no-rule"},
		}},
		{"honor", e2e.Settings{"robots.over_max": "honor", "robots.max_crawl_delay": "1ms"}, []expectation{{calm.URL("http", "/honored"), 404, "no-rule"}}},
		{"monitor", e2e.Settings{"mode": "monitor", "robots.over_max": "refuse"}, []expectation{
			{calm.URL("http", "/no/watched"), 404, "rule"}, {slow.URL("http", "/watched"), 404, "crawl-delay"},
		}},
		{"entries", hosts, []expectation{
			{ours.URL("http", "/x"), 404, "override"}, {theirs.URL("http", "/x"), 403, "denied-host"}, {calm.URL("http", "/no/entry"), 403, "rule"},
		}},
		{"tunnels", e2e.Settings{"tls.intercept": false}, []expectation{
			{calm.Hostport("https"), 200, "tunnel"}, {shut.Hostport("https"), 403, "tunnel"}, {lost.Hostport("https"), 200, "tunnel"},
		}},
		{"a token for all", e2e.Settings{"identity.product_token": "BarBot", "audit.clients": "drop"}, []expectation{{calm.URL("http", "/no/token"), 403, "rule"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := e2e.StartProxy(t, e2e.Unpaced.With(c.own))
			for _, a := range c.asks {
				if status := a.of(t, p); status != a.status {
					t.Errorf("%s: status %d, want %d", a.url, status, a.status)
				}
				r := e2e.AwaitRecord(t, p.Audit, a.url)
				if r.Reason != a.reason {
					t.Errorf("%s: recorded %s, want %s", a.url, r.Reason, a.reason)
				}
				p.Explain(t, r, 0)
			}
		})
	}
}

// An expectation is a request of a client and its expected result.
type expectation struct {
	url    string
	status int
	reason string
}

func (a *expectation) of(t *testing.T, p *e2e.Proxy) int {
	t.Helper()
	method := http.MethodConnect
	switch scheme, _, _ := strings.Cut(a.url, "://"); scheme {
	case "http", "https":
		return e2e.Get(t, p.Client(t, false), a.url, "User-Agent", e2e.FooBot).Status
	case "ftp": // net/http does not send ftp URLs to a proxy
		method = http.MethodGet
	}
	w := p.Dial(t)
	defer w.Close()
	w.Send(t, method+" "+a.url+" HTTP/1.1", "Host: x", "User-Agent: "+e2e.FooBot)
	return w.Receive(t, method).Status
}

// TestExplainDroppedQuery: a decision that depends on a query string that was not
// recorded cannot be re-derived, and explain says so. Other decisions can.
func TestExplainDroppedQuery(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "queries", "User-agent: *\nDisallow: /*?id=\nDisallow: /no\n")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.query_strings": "drop"}))
	c := p.Client(t, false)
	for path, status := range map[string]int{"/x?id=1": 1, "/no?id=2": 1, "/no/2?a=3": 0, "/y?a=4": 0} {
		e2e.Get(t, c, o.URL("http", path))
		whole, _, _ := strings.Cut(path, "?")
		x := p.Explain(t, e2e.AwaitRecord(t, p.Audit, o.URL("http", whole)), status)
		if said := slices.ContainsFunc(x.Derived.Notes, func(s string) bool { return strings.Contains(s, "audit.query_strings: drop") }); said != (status == 1) {
			t.Errorf("%s: notes %q", path, x.Derived.Notes)
		}
	}
}

// TestExplainOlderCopy: a decision during a site's failure is based on the earlier copy
// of robots.txt, and a decision after it on the new one.
func TestExplainOlderCopy(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	const first, second = "User-agent: *\nDisallow: /old\n", "User-agent: *\nDisallow: /new\n"
	var rules atomic.Pointer[string]
	rules.Store(new(first))
	o := e2e.NewOrigin(t, "older", "")
	o.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=1")
		if text := *rules.Load(); text != "" {
			io.WriteString(w, text)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.min_age": "1s", "robots.max_age": "2s", "robots.unreachable_retry": "1s"}))
	c := p.Client(t, false)
	asked := 0
	ask := func(path string) e2e.Record {
		asked++
		url := o.URL("http", path+"?"+strconv.Itoa(asked))
		e2e.Get(t, c, url)
		return e2e.AwaitRecord(t, p.Audit, url)
	}
	p.Explain(t, ask("/old"), 0)
	rules.Store(new(second))
	testkit.Eventually(t, "the second file rules", func() bool { return ask("/old").Decision == "allow" })
	rules.Store(new(""))
	testkit.Eventually(t, "a copy rules", func() bool { return ask("/new").RobotsStale })
	type basis struct {
		sha   string
		stale bool
		url   string
	}
	var kept []string
	explained := map[basis]bool{}
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		path, _, _ := strings.Cut(r.URL, "?")
		on := basis{r.RobotsSHA256, r.RobotsStale, path}
		if explained[on] { // like an earlier decision
			continue
		}
		explained[on] = true
		x := p.Explain(t, r, 0)
		if !slices.Contains(kept, x.Record.SHA256) {
			kept = append(kept, x.Record.SHA256)
		}
		if x.Fetch.Status != http.StatusOK {
			t.Errorf("%s rests on a fetch with status %d", r.URL, x.Fetch.Status)
		}
	}
	if len(kept) != 2 {
		t.Errorf("they rest on %q", kept)
	}
}
