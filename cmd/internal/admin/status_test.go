package admin

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit/testca"

	"golang.org/x/net/html"

	"robotsproxy/proxy/guide"
)

func TestStatus(t *testing.T) {
	started, reloaded := time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
	until := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	text, _ := testca.New(t, until)
	block, _ := pem.Decode(text)
	der := block.Bytes
	var lastErr, readyErr error
	change := func(o *Options) {
		o.CAPEM = func() []byte { return text }
		o.Ready = func() error { return readyErr }
		o.About = func() About {
			return About{Commit: "c0ffee", Started: started, Config: "/etc/robots.yaml", State: "/var/lib/robots", Audit: "/var/lib/robots/audit.jsonl"}
		}
		o.Reloads = func() (uint64, uint64, time.Time, error) { return 2, 1, reloaded, lastErr }
	}
	f := newFixture(t, change)
	type response struct {
		Version, Commit, Go, Started, Proxy, Dialect string
		Uptime                                       float64 `json:"uptime_s"`
		Config                                       string  `json:"config_file"`
		State                                        string  `json:"state_dir"`
		Audit                                        string  `json:"audit_file"`
		CA                                           caCertificate
		Mode                                         string
		Healthy, Ready                               bool
		Reasons                                      []string
		Reloads                                      reloadStatus
	}
	got := decode[response](t, f.do("GET", "/api/v1/status", ""), 200)
	if got.Version != "v1.2.3" || got.Commit != "c0ffee" || got.Go != runtime.Version() || got.Started != formatTime(started) || got.Uptime < 3600 || got.Proxy != "127.0.0.1:8080" || got.Dialect != "standard" || got.Mode != "enforce" ||
		got.Config != "/etc/robots.yaml" || got.State != "/var/lib/robots" || got.Audit != "/var/lib/robots/audit.jsonl" {
		t.Errorf("%+v", got)
	}
	if got.CA != (caCertificate{"CN=test CA,O=robotsproxy", guide.Fingerprint(der), formatTime(until)}) {
		t.Errorf("%+v", got.CA)
	}
	if !got.Healthy || !got.Ready || got.Reasons == nil || len(got.Reasons) > 0 || got.Reloads.OK != 2 || got.Reloads.Refused != 1 || got.Reloads.LastOK != formatTime(reloaded) || got.Reloads.Errors != nil {
		t.Errorf("%+v", got)
	}
	lastErr, readyErr = errors.New("one\n"+hostileText), errors.New("shutting down")
	got = decode[response](t, f.do("GET", "/api/v1/status", ""), 200)
	if !got.Healthy || got.Ready || !slices.Equal(got.Reasons, []string{"shutting down"}) || got.Reloads.Errors[0] != "one" || got.Reloads.Since != formatTime(reloaded) {
		t.Errorf("%+v", got)
	}
	bare := decode[map[string]any](t, newFixture(t).do("GET", "/api/v1/status", ""), 200)
	for _, name := range []string{"started", "uptime_s", "config_file", "ca", "reloads"} {
		if _, there := bare[name]; there {
			t.Errorf("%s is told, and is not known", name)
		}
	}
	page := textOf(inspectPage(t, f.do("GET", "/about", "").Body.String()))
	for _, want := range []string{"c0ffee", "/etc/robots.yaml", "/var/lib/robots/audit.jsonl", guide.Fingerprint(der), runtime.Version(), "1 h ago", "127.0.0.1:8080"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q on the page", want)
		}
	}
}

// In monitor mode all pages say that nothing is blocked, and follow a reload that ends it. Trouble comes first.
func TestMonitorModeIsShown(t *testing.T) {
	monitor := true
	w := newTestProxy(t, sampleFiles, func(o *Options) { o.Monitor = func() bool { return monitor } })
	w.visit(t, visit{client: "a", agent: "FooBot/1.0", url: "https://shop.example.com/cart", status: 200, monitor: true})
	pages := []string{"/", "/hosts", "/hosts/shop.example.com", "/decisions/1", "/explain", "/about"}
	pill := func(path string) string {
		t.Helper()
		return textOf(findOne(t, w.get(t, path, http.StatusOK), "id", "health"))
	}
	for _, path := range pages {
		if got := pill(path); got != "Monitoring: nothing is blocked" {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got := textOf(w.get(t, "/about", http.StatusOK)); !strings.Contains(got, "Modemonitor") {
		t.Errorf("about: %q", got)
	}
	type response struct{ Mode string }
	status := func() string {
		t.Helper()
		var got response
		check(t, json.NewDecoder(w.do(t, "GET", "/api/v1/status", nil).Body).Decode(&got))
		return got.Mode
	}
	if got := status(); got != "monitor" {
		t.Errorf("status: %q", got)
	}
	for path, id := range map[string]string{"/": "figures", "/hosts/shop.example.com": "host-figures"} {
		doc := w.get(t, path, http.StatusOK)
		if got := textOf(findOne(t, doc, "id", id)); !strings.Contains(got, "Disallowed0") || !strings.Contains(got, "Would be disallowed1") {
			t.Errorf("%s: %q", path, got)
		}
	}
	doc := w.inspectResponse(t, w.do(t, "POST", "/explain", url.Values{"url": {"https://shop.example.com/cart"}}), http.StatusOK)
	if got := textOf(findOne(t, doc, "id", "verdict")); got != "Would be disallowed" {
		t.Errorf("explained: %q", got)
	}
	w.health = func() error { return errors.New("the disk is full") }
	if got := pill("/"); got != "Unhealthy" {
		t.Errorf("unhealthy: %q", got)
	}
	w.health = func() error { return nil }
	monitor = false
	if got := pill("/"); got != "Serving" || status() != "enforce" {
		t.Errorf("after a reload: %q, %s", got, status())
	}
	if got := textOf(findOne(t, w.get(t, "/", http.StatusOK), "id", "figures")); !strings.Contains(got, "Would be disallowed1") {
		t.Errorf("after a reload: %q", got)
	}
}

// After a refused reload, all pages say that the active configuration is not the one in the
// file. Live pages do too.
func TestRefusedReloadIsShown(t *testing.T) {
	since := time.Date(2026, 11, 22, 4, 10, 5, 0, time.UTC)
	var lastErr error
	ok := uint64(0)
	w := newTestProxy(t, sampleFiles, func(o *Options) {
		o.About = func() About { return About{Started: since} }
		o.Reloads = func() (uint64, uint64, time.Time, error) {
			if ok > 0 {
				return ok, 1, since.Add(time.Hour), lastErr
			}
			return 0, 1, time.Time{}, lastErr
		}
	})
	w.visit(t, cartVisit(1))
	pages := []string{"/", "/hosts", "/hosts/shop.example.com", "/decisions/1", "/explain", "/about"}
	for _, c := range []struct {
		err  error
		ok   uint64
		pill string
		says string
	}{
		{nil, 0, "Serving", ""},
		{errors.New("line 3: no number\nline 9: listen: needs a restart"), 0, "Serving; last reload failed", "The last reload failed. The configuration of 2026-11-22 04:10:05 UTC stays active. Why"},
		{errors.New("the file is gone"), 1, "Serving; last reload failed", "The configuration of 2026-11-22 05:10:05 UTC stays active. Why"},
		{nil, 2, "Serving", ""},
	} {
		lastErr, ok = c.err, c.ok
		for _, path := range pages {
			doc := w.get(t, path, http.StatusOK)
			if got := textOf(findOne(t, doc, "id", "refused")); !strings.HasSuffix(got, c.says) || c.says == "" && got != "" {
				t.Errorf("%s, %v: %q", path, c.err, got)
			}
			if got := textOf(findOne(t, doc, "id", "health")); got != c.pill {
				t.Errorf("%s, %v: %q", path, c.err, got)
			}
		}
		state, err := html.Parse(w.do(t, "GET", "/state", nil).Body)
		check(t, err)
		if got := textOf(findOne(t, state, "id", "refused")); !strings.HasSuffix(got, c.says) || textOf(findOne(t, state, "id", "health")) != c.pill {
			t.Errorf("state: %q", got)
		}
		about := textOf(findOne(t, w.get(t, "/about", http.StatusOK), "id", "reload"))
		if c.err != nil && !strings.Contains(about, c.err.Error()) || strings.Contains(about, "Last reloadfailed") != (c.err != nil) {
			t.Errorf("about: %q", about)
		}
	}
}

func TestAboutPageNamesTheSigningKey(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.About = func() About {
			return About{Signing: []Signing{{Agent: "https://bot.example/keys", KeyID: "key-of-all"}, {Client: "lab-a", Agent: "https://bot.example/lab", KeyID: "key-of-lab"}}}
		}
	})
	about := f.do("GET", "/about", "").Body.String()
	for _, want := range []string{"Signing key", "key-of-all", "https://bot.example/keys", "Signing key of client lab-a", "key-of-lab", "https://bot.example/lab"} {
		if !strings.Contains(about, want) {
			t.Errorf("About lacks %q", want)
		}
	}
}
