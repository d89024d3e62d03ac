package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/proxy/egress/ftptest"
)

// An explained is what audit explain --json says, as far as tests ask.
type explained struct {
	Record struct {
		Reason   string `json:"reason"`
		Decision string `json:"decision"`
		Dialect  string `json:"dialect"`
		SHA256   string `json:"robots_sha256"`
	} `json:"record"`
	Place struct {
		Hash bool `json:"hash_holds"`
	} `json:"place"`
	Snapshot string `json:"snapshot"`
	Fetch    *struct {
		URL    string `json:"url"`
		Status int    `json:"status"`
	} `json:"fetch"`
	Derived *struct {
		Same    bool `json:"same"`
		Differs []struct {
			Member string `json:"member"`
		} `json:"differs"`
		Notes []string `json:"notes"`
	} `json:"rederived"`
}

// explain has a record explained, and the decision made again where it rests on a file.
func (p *proxy) explain(t *testing.T, r record, status int) explained {
	t.Helper()
	got := command(t, "audit", "explain", "-c", p.config, "--json", r.ID).want(t, status).stdout
	var x explained
	if err := json.Unmarshal([]byte(got), &x); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if !x.Place.Hash || x.Record.Reason != r.Reason {
		t.Errorf("%s: %s", r.URL, got)
	}
	switch {
	case r.RobotsSHA256 == "" && x.Derived != nil:
		t.Errorf("%s: made again from no file: %s", r.URL, got)
	case r.RobotsSHA256 != "" && (x.Derived == nil || x.Snapshot != "there" || x.Fetch == nil || x.Derived.Same != (status == 0)):
		t.Errorf("%s: %s", r.URL, got)
	}
	return x
}

const fooBot = "FooBot/1.0 (+https://foo.test)"

// Where dialects differ: google takes FooBot-Images for itself alone, coccoc for FooBot;
// that a rule without a slash is one; what an octet escaped is equal to.
const differing = "\xef\xbb\xbfUser-agent: foobot\nDisallow: /private\nDisallow: open\nNoindex: /n\n\nUser-agent: *\nDisallow: /other\nDisallow: /%7euser\n"

// TestExplainEachDialect: what each way to read robots.txt comes to is what comes out
// again, for each client's own.
func TestExplainEachDialect(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "explained", differing)
	var clients []any
	dialects := strings.Fields("standard rfc9309 google google-2022 google-2019 coccoc")
	for i, name := range dialects {
		clients = append(clients, map[string]any{
			"name": name, "networks": []string{"127.0.2." + itoa(i+1) + "/32"}, "robots": map[string]any{"dialect": name},
		})
	}
	clients = append(clients, map[string]any{
		"name": "named", "networks": []string{"127.0.3.1/32"}, "identity": map[string]any{"product_token": "FooBot"},
	})
	p := startProxy(t, outOfTheWay.with(settings{"clients": clients, "open": true, "audit.clients": "hash"}))
	paths := []string{"/private", "/open", "/other", "/~user", "/n", "/x?a=%2f"}
	for i := range dialects {
		c := from(t, p.client(t, false), "127.0.2."+itoa(i+1))
		for _, path := range paths {
			for j, agent := range []string{fooBot, "FooBot-Images/2", "Bar/1 FooBot/3"} {
				get(t, c, o.url(schemes[j%2], path), "User-Agent", agent)
			}
		}
	}
	named := from(t, p.client(t, false), "127.0.3.1")
	if got := get(t, named, o.url("http", "/private/named"), "User-Agent", "curl/8"); got.Status != http.StatusForbidden {
		t.Errorf("under a name of the configuration: status %d", got.Status)
	}
	p.end(t)
	seen := map[string]bool{}
	records := readAudit(t, p.audit)
	for _, r := range records {
		x := p.explain(t, r, 0)
		seen[x.Record.Dialect+" "+x.Record.Decision] = true
		if named := strings.HasSuffix(r.URL, "/named"); named != slices.ContainsFunc(x.Derived.Notes, func(s string) bool { return strings.Contains(s, "taken for FooBot by the configuration") }) {
			t.Errorf("%s: notes %q", r.URL, x.Derived.Notes)
		}
	}
	if want := len(dialects)*len(paths)*3 + 1; len(records) != want || len(seen) != 2*len(dialects) {
		t.Errorf("%d records, want %d; %v", len(records), want, seen)
	}
}

// TestExplainWhatTheConfigurationDoes: each way in which the configuration has its say
// beside robots.txt.
func TestExplainWhatTheConfigurationDoes(t *testing.T) {
	t.Parallel()
	slow, calm := newOrigin(t, "slow", "User-agent: *\nCrawl-delay: 30\nDisallow: /no\n"), newOrigin(t, "calm", "User-agent: *\nCrawl-delay: 0.02\nDisallow: /no\n")
	ours, theirs, shut := newOrigin(t, "ours", everything), newOrigin(t, "theirs", ""), newOrigin(t, "shut", everything)
	moved, lost := newOrigin(t, "moved", ""), newOrigin(t, "lost", "")
	moved.handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, calm.url("http", "/robots.txt"), http.StatusMovedPermanently)
	})
	lost.handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) })
	files := startFTP(t, &ftptest.Server{})
	hosts := settings{"hosts": []entry{
		{"match": ours.Name, "robots": "ignore", "reason": "ticket 7"},
		{"match": theirs.Name, "robots": "deny", "reason": "asked us"},
		{"match": calm.Name, "pace": map[string]any{"max_concurrent": 1}},
	}}
	ftp := "ftp://" + files.Addr()
	for _, c := range []struct {
		name string
		own  settings
		asks []wish
	}{
		{"clamp", settings{"robots.max_crawl_delay": "20ms"}, []wish{
			{slow.url("http", "/no?x"), 403, "rule"}, {slow.url("https", "/clamped"), 404, "no-rule"},
			{moved.url("http", "/no/moved"), 403, "rule"}, {moved.url("https", "/moved"), 404, "no-rule"}, {lost.url("http", "/lost"), 404, "no-file"},
			{ftp + "/private/x", 403, "rule"}, {ftp + "/a.txt", 200, "no-rule"},
		}},
		{"refuse", settings{"robots.over_max": "refuse"}, []wish{
			{slow.url("http", "/no/refused"), 403, "crawl-delay"}, {slow.url("https", "/refused"), 403, "crawl-delay"},
			{calm.url("http", "/no/refused"), 403, "rule"}, {calm.url("http", "/kept"), 404, "no-rule"},
		}},
		{"honor", settings{"robots.over_max": "honor", "robots.max_crawl_delay": "1ms"}, []wish{{calm.url("http", "/honored"), 404, "no-rule"}}},
		{"monitor", settings{"mode": "monitor", "robots.over_max": "refuse"}, []wish{
			{calm.url("http", "/no/watched"), 404, "rule"}, {slow.url("http", "/watched"), 404, "crawl-delay"},
		}},
		{"entries", hosts, []wish{
			{ours.url("http", "/x"), 404, "override"}, {theirs.url("http", "/x"), 403, "denied-host"}, {calm.url("http", "/no/entry"), 403, "rule"},
		}},
		{"tunnels", settings{"tls.intercept": false}, []wish{
			{calm.hostport("https"), 200, "tunnel"}, {shut.hostport("https"), 403, "tunnel"}, {lost.hostport("https"), 200, "tunnel"},
		}},
		{"a token for all", settings{"identity.product_token": "BarBot", "audit.clients": "drop"}, []wish{{calm.url("http", "/no/token"), 403, "rule"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, outOfTheWay.with(c.own))
			for _, a := range c.asks {
				if status := a.of(t, p); status != a.status {
					t.Errorf("%s: status %d, want %d", a.url, status, a.status)
				}
				r := awaitRecord(t, p.audit, a.url)
				if r.Reason != a.reason {
					t.Errorf("%s: recorded %s, want %s", a.url, r.Reason, a.reason)
				}
				p.explain(t, r, 0)
			}
		})
	}
}

// A wish is what a client asks for, and what comes of it.
type wish struct {
	url    string
	status int
	reason string
}

func (a *wish) of(t *testing.T, p *proxy) int {
	t.Helper()
	method := http.MethodConnect
	switch scheme, _, _ := strings.Cut(a.url, "://"); scheme {
	case "http", "https":
		return get(t, p.client(t, false), a.url, "User-Agent", fooBot).Status
	case "ftp": // which net/http does not ask a proxy for
		method = http.MethodGet
	}
	w := p.dial(t)
	defer w.Close()
	w.send(t, method+" "+a.url+" HTTP/1.1", "Host: x", "User-Agent: "+fooBot)
	return w.receive(t, method).Status
}

// TestExplainDroppedQuery: what depends on a query that is not recorded cannot be made
// again, and that is said; the rest can.
func TestExplainDroppedQuery(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "queries", "User-agent: *\nDisallow: /*?id=\nDisallow: /no\n")
	p := startProxy(t, outOfTheWay.with(settings{"audit.query_strings": "drop"}))
	c := p.client(t, false)
	for path, status := range map[string]int{"/x?id=1": 1, "/no?id=2": 1, "/no/2?a=3": 0, "/y?a=4": 0} {
		get(t, c, o.url("http", path))
		whole, _, _ := strings.Cut(path, "?")
		x := p.explain(t, awaitRecord(t, p.audit, o.url("http", whole)), status)
		if said := slices.ContainsFunc(x.Derived.Notes, func(s string) bool { return strings.Contains(s, "audit.query_strings: drop") }); said != (status == 1) {
			t.Errorf("%s: notes %q", path, x.Derived.Notes)
		}
	}
}

// TestExplainOlderCopy: a decision by a copy from before a site failed rests on that
// copy, and one by the next file on the next.
func TestExplainOlderCopy(t *testing.T) {
	t.Parallel()
	const first, second = "User-agent: *\nDisallow: /old\n", "User-agent: *\nDisallow: /new\n"
	var rules atomic.Pointer[string]
	rules.Store(new(first))
	o := newOrigin(t, "older", "")
	o.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=1")
		if text := *rules.Load(); text != "" {
			io.WriteString(w, text)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	p := startProxy(t, outOfTheWay.with(settings{"robots.min_age": "1s", "robots.max_age": "2s", "robots.unreachable_retry": "1s"}))
	c := p.client(t, false)
	asked := 0
	ask := func(path string) record {
		asked++
		url := o.url("http", path+"?"+itoa(asked))
		get(t, c, url)
		return awaitRecord(t, p.audit, url)
	}
	p.explain(t, ask("/old"), 0)
	rules.Store(new(second))
	eventually(t, patience, "the second file rules", func() bool { return ask("/old").Decision == "allow" })
	rules.Store(new(""))
	eventually(t, patience, "a copy rules", func() bool { return ask("/new").RobotsStale })
	var kept []string
	for _, r := range readAudit(t, p.audit) {
		x := p.explain(t, r, 0)
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
