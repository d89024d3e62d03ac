package robotstxt

import (
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// Entries of hosts, with curl through serve: denied hosts get no connection, ignored ones
// no fetch of robots.txt, and the audit names the entry of each request.
func TestHostEntries(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	denied, ours, over := e2e.NewOrigin(t, "denied", ""), e2e.NewOrigin(t, "ours", e2e.Everything), e2e.NewOrigin(t, "over", e2e.Everything)
	for _, o := range []*e2e.Origin{denied, ours, over} {
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
	}
	entries := e2e.Settings{"hosts": []e2e.Entry{
		{"match": strings.ToUpper(denied.Name), "robots": "deny", "reason": "họ không muốn"},
		{"match": ours.Name, "robots": "ignore", "reason": "ticket 7", "until": time.Now().AddDate(0, 0, 1).UTC().Format(time.DateOnly)},
		{"match": over.Name, "robots": "ignore", "reason": "ticket 6", "until": time.Now().AddDate(0, 0, -2).UTC().Format(time.DateOnly)},
	}}
	p := e2e.StartProxy(t, e2e.Unpaced.With(entries))
	for _, c := range []struct {
		o                          *e2e.Origin
		status                     int
		reason, entry, entryReason string
		check                      int
	}{
		{denied, 403, "denied-host", strings.ToUpper(denied.Name), "họ không muốn", 1},
		{ours, 200, "override", ours.Name, "ticket 7", 0},
		{over, 403, "rule", "", "", 1},
	} {
		for _, scheme := range e2e.Schemes {
			url := c.o.URL(scheme, "/a")
			shown, exit := "%{http_code}", 0
			if scheme == "https" && c.o == denied { // exit status of curl if a CONNECT is refused
				shown, exit = "%{http_connect}", 56
			}
			if got := curlThrough(t, curl, p, url, shown, exit); got != strconv.Itoa(c.status) {
				t.Errorf("%s: %s, want %d", url, got, c.status)
			}
			if exit != 0 {
				url = c.o.Hostport(scheme)
			}
			r := e2e.AwaitRecord(t, p.Audit, url)
			if r.Reason != c.reason || r.Entry != c.entry || r.EntryReason != c.entryReason || r.Status != c.status || (r.Decision == "allow") != (c.status == 200) {
				t.Errorf("record of %s: %+v", url, r)
			}
			out := e2e.Command(t, "check", "-c", p.Config, "-A", "FooBot/1.0", "--json", c.o.URL(scheme, "/a")).Want(t, c.check)
			if !strings.Contains(out.Stdout, `"reason":"`+c.reason+`"`) || c.entry != "" && !strings.Contains(out.Stdout, `"entry":"`+c.entry+`","entry_reason":"`+c.entryReason+`"`) {
				t.Errorf("check: %s", out.Stdout)
			}
		}
	}
	if n := denied.Connections(); n != 0 {
		t.Errorf("%d connections were made to who is denied", n)
	}
	for _, scheme := range e2e.Schemes {
		if hits := ours.Arrivals(scheme); len(hits) != 1 || hits[0].Path != "/a" {
			t.Errorf("%s: who is ignored was asked for %+v", scheme, hits)
		}
	}
	got := e2e.Get(t, p.Client(t, false), denied.URL("http", "/robots.txt"))
	e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
	if !strings.Contains(string(got.Body), "\nentry reason: họ không muốn\n") {
		t.Errorf("%s", got.Body)
	}
}

// curlThrough returns curl's output for a request. curl must end with the status exit.
func curlThrough(t *testing.T, curl string, p *e2e.Proxy, url, shown string, exit int) string {
	t.Helper()
	argv := []string{curl, "-q", "-sS", "-x", p.Listen, "--cacert", p.CA, "-o", filepath.Join(t.TempDir(), "body"), "-w", shown, url}
	return e2e.RunPeer(t, argv, e2e.CleanEnv()).Want(t, exit).Stdout
}

// Nothing is sent to a denied host, not even because of a redirect of another host's
// robots.txt.
func TestRedirectToADeniedHost(t *testing.T) {
	t.Parallel()
	denied, o := e2e.NewOrigin(t, "reddenied", ""), e2e.NewOrigin(t, "red", "")
	o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.ToUpper(denied.URL("http", "/robots.txt")), http.StatusFound)
	})
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	for _, mode := range []string{"enforce", "monitor"} {
		want := http.StatusForbidden
		if mode == "monitor" {
			want = http.StatusOK
		}
		p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"mode": mode, "hosts": []e2e.Entry{
			{"match": denied.Name, "robots": "deny", "reason": "x"},
		}}))
		if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/a")); got.Status != want {
			t.Errorf("%s: %v, want %d", mode, got, want)
		}
		if n := denied.Connections(); (n > 0) != (mode == "monitor") {
			t.Errorf("%s: %d connections were made to who is denied", mode, n)
		}
	}
}

// In run, entries count like the rest of the configuration.
func TestRunTellsOfEntries(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	denied, ours := e2e.NewOrigin(t, "rundenied", ""), e2e.NewOrigin(t, "runours", e2e.Everything)
	ours.Handle("/a", e2e.TextPage("text/plain", "a"))
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"hosts": []e2e.Entry{
		{"match": denied.Name, "robots": "deny", "reason": "x"}, {"match": "*", "robots": "ignore", "reason": "x"},
	}}))
	out := e2e.Command(t, h.RunArgs(curl, "-q", "-sS", ours.URL("http", "/a"), denied.URL("http", "/a"))...).Want(t, 0)
	for _, want := range []string{"2 requests: 1 allowed, 1 disallowed", "disallowed  1 at " + denied.Name + ": the operator denies requests to this host"} {
		if !strings.Contains(out.Stderr, want) {
			t.Errorf("no %q in\n%s", want, out.Stderr)
		}
	}
}

// A client that does not identify itself, with a contact, is told what to send. The
// configured From is sent with each request and each fetch of robots.txt.
func TestIdentityIsRequired(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "require", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	strict := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"identity.require": "contact", "identity.product_token": "OwnBot"}))
	named := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"identity.require": "contact", "identity.from": "us@lab.example"}))
	body := filepath.Join(t.TempDir(), "body")
	for _, c := range []struct {
		name   string
		p      *e2e.Proxy
		args   []string
		status string
	}{
		{"curl's own header", strict, nil, "403"},
		{"none", strict, []string{"-A", ""}, "403"},
		{"a browser's", named, []string{"-A", "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"}, "403"},
		{"with a contact", strict, []string{"-A", "FooBot/1.0 (+https://foo.example/bot)"}, "200"},
		{"with From", strict, []string{"-A", "FooBot/1.0", "-H", "From: me@foo.example"}, "200"},
		{"the configuration's From", named, []string{"-A", "FooBot/1.0", "-H", "From: me@foo.example"}, "200"},
	} {
		for _, scheme := range e2e.Schemes {
			argv := append([]string{curl, "-q", "-sS", "-x", c.p.Listen, "--cacert", c.p.CA, "-o", body, "-w", "%{http_code} %header{proxy-status}", o.URL(scheme, "/a?"+strconv.Itoa(len(c.args)))}, c.args...)
			out := e2e.RunPeer(t, argv, e2e.CleanEnv()).Want(t, 0).Stdout
			if status, own, _ := strings.Cut(out, " "); status != c.status || status == "403" && own != `robotsproxy; error=http_request_denied; details="identity"` {
				t.Errorf("%s, %s: %s, want %s", c.name, scheme, out, c.status)
			}
		}
	}
	for _, scheme := range e2e.Schemes {
		var from []string
		for _, h := range o.Arrivals(scheme) {
			if strings.Contains(h.Header.Get("User-Agent"), "curl") || strings.Contains(h.Header.Get("User-Agent"), "Mozilla") {
				t.Errorf("%s: %+v arrived", scheme, h)
			}
			from = append(from, h.Path[:2]+h.Header.Get("From"))
		}
		slices.Sort(from) // the order of arrival depends on when connections were made
		if got, want := strings.Join(from, " "), "/a /ame@foo.example /aus@lab.example /r /rus@lab.example"; got != want {
			t.Errorf("%s: From arrived as %q, want %q", scheme, got, want)
		}
	}
}

// The daily quota of a client: allowed requests count, fetches of robots.txt do not, and
// neither do those of another client.
func TestQuotaOfADay(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	o := e2e.NewOrigin(t, "quota", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"clients": []e2e.Entry{
		{"name": "lab-a", "networks": []string{"127.0.0.1/32"}, "quota": e2e.Entry{"requests_per_day": 2}, "identity": e2e.Entry{"product_token": "LabABot"}},
		{"name": "lab-b", "networks": []string{"127.0.0.2/32"}, "pace": e2e.Entry{"requests_per_second": 50, "asset_burst": 20}},
	}}))
	client := p.Client(t, false)
	for i, c := range []struct {
		url    string
		status int
	}{
		{o.URL("http", "/robots.txt"), 200}, {o.URL("http", "/private"), 403}, {o.URL("http", "/a?1"), 200}, {o.URL("https", "/a?2"), 200},
		{o.URL("http", "/a?3"), 429}, {o.URL("https", "/a?4"), 429}, {o.URL("http", "/robots.txt?"), 429}, {o.URL("http", "/robots.txt"), 200},
	} {
		got := e2e.Get(t, client, c.url)
		if got.Status != c.status {
			t.Errorf("%d: %s: %v, want %d", i, c.url, got, c.status)
		}
		if c.status != http.StatusTooManyRequests {
			continue
		}
		e2e.WantOwn(t, got, c.status, "connection_limit_reached")
		if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after > 24*60*60 {
			t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
		}
		e2e.WantBlocked(t, e2e.OnlyRecord(t, p.Audit, c.url), "quota", c.status)
	}
	if got := e2e.Get(t, e2e.From(t, client, "127.0.0.2"), o.URL("http", "/a?5")); got.Status != http.StatusOK {
		t.Errorf("another client: %v", got)
	}
	if r := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/a?1")); r.Agent != "LabABot" {
		t.Errorf("agent %q", r.Agent)
	}
}

// With pace.per: domain, the names of one domain share a pace: only the first request is
// sent.
func TestOneDomainOnePace(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "domain", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Settings{"pace.per": "domain", "pace.requests_per_second": 0.02, "pace.max_wait": "1s"})
	client := p.Client(t, false)
	want := http.StatusOK
	for _, name := range []string{"one.", "two.", "three.a."} {
		e2e.Names.Point(name+o.Name, o.Ip)
		if got := e2e.Get(t, client, "http://"+name+o.Hostport("http")+"/a"); got.Status != want {
			t.Errorf("%s: %v, want %d", name, got, want)
		}
		want = http.StatusTooManyRequests
	}
	if pages := o.Pages("http"); len(pages) != 1 {
		t.Errorf("%d pages arrived, want 1", len(pages))
	}
}
