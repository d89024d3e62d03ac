package e2e

import (
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An entry of hosts, as a configuration has it.
type entry = map[string]any

const everything = "User-agent: *\nDisallow: /\n"

// The entries of hosts, by curl through serve: who is denied is not even
// connected to, who is ignored is not asked, and each use is in the audit.
func TestHostEntries(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	denied, ours, over := newOrigin(t, "denied", ""), newOrigin(t, "ours", everything), newOrigin(t, "over", everything)
	for _, o := range []*origin{denied, ours, over} {
		o.handle("/a", textPage("text/plain", "a"))
	}
	entries := settings{"hosts": []entry{
		{"match": strings.ToUpper(denied.Name), "robots": "deny", "reason": "họ không muốn"},
		{"match": ours.Name, "robots": "ignore", "reason": "ticket 7", "until": time.Now().AddDate(0, 0, 1).UTC().Format(time.DateOnly)},
		{"match": over.Name, "robots": "ignore", "reason": "ticket 6", "until": time.Now().AddDate(0, 0, -2).UTC().Format(time.DateOnly)},
	}}
	p := startProxy(t, outOfTheWay.with(entries))
	for _, c := range []struct {
		o                          *origin
		status                     int
		reason, entry, entryReason string
		check                      int
	}{
		{denied, 403, "denied-host", strings.ToUpper(denied.Name), "họ không muốn", 1},
		{ours, 200, "override", ours.Name, "ticket 7", 0},
		{over, 403, "rule", "", "", 1},
	} {
		for _, scheme := range schemes {
			url := c.o.url(scheme, "/a")
			shown, exit := "%{http_code}", 0
			if scheme == "https" && c.o == denied { // curl's, for a CONNECT that was refused
				shown, exit = "%{http_connect}", 56
			}
			argv := []string{curl, "-q", "-sS", "-x", p.listen, "--cacert", p.ca, "-o", filepath.Join(t.TempDir(), "body"), "-w", shown, url}
			if out := runPeer(t, argv, cleanEnv()).want(t, exit); out.stdout != itoa(c.status) {
				t.Errorf("%s: %s, want %d", url, out.stdout, c.status)
			}
			if exit != 0 {
				url = c.o.hostport(scheme)
			}
			r := awaitRecord(t, p.audit, url)
			if r.Reason != c.reason || r.Entry != c.entry || r.EntryReason != c.entryReason || r.Status != c.status || (r.Decision == "allow") != (c.status == 200) {
				t.Errorf("record of %s: %+v", url, r)
			}
			out := command(t, "check", "-c", p.config, "-A", "FooBot/1.0", "--json", c.o.url(scheme, "/a")).want(t, c.check)
			if !strings.Contains(out.stdout, `"reason":"`+c.reason+`"`) || c.entry != "" && !strings.Contains(out.stdout, `"entry":"`+c.entry+`","entry_reason":"`+c.entryReason+`"`) {
				t.Errorf("check: %s", out.stdout)
			}
		}
	}
	if n := denied.connections(); n != 0 {
		t.Errorf("%d connections were made to who is denied", n)
	}
	for _, scheme := range schemes {
		if hits := ours.arrivals(scheme); len(hits) != 1 || hits[0].Path != "/a" {
			t.Errorf("%s: who is ignored was asked for %+v", scheme, hits)
		}
	}
	got := get(t, p.client(t, false), denied.url("http", "/robots.txt"))
	wantOwn(t, got, http.StatusForbidden, "http_request_denied")
	if !strings.Contains(string(got.Body), "\nreason:      họ không muốn\n") {
		t.Errorf("%s", got.Body)
	}
}

// Nothing goes to a host that is denied: not even where another's robots.txt leads.
func TestRedirectToADeniedHost(t *testing.T) {
	t.Parallel()
	denied, o := newOrigin(t, "reddenied", ""), newOrigin(t, "red", "")
	o.handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.ToUpper(denied.url("http", "/robots.txt")), http.StatusFound)
	})
	o.handle("/a", textPage("text/plain", "a"))
	for _, mode := range []string{"enforce", "monitor"} {
		want := http.StatusForbidden
		if mode == "monitor" {
			want = http.StatusOK
		}
		p := startProxy(t, outOfTheWay.with(settings{"mode": mode, "hosts": []entry{
			{"match": denied.Name, "robots": "deny", "reason": "x"},
		}}))
		if got := get(t, p.client(t, false), o.url("http", "/a")); got.Status != want {
			t.Errorf("%s: %v, want %d", mode, got, want)
		}
		if n := denied.connections(); (n > 0) != (mode == "monitor") {
			t.Errorf("%s: %d connections were made to who is denied", mode, n)
		}
	}
}

// run counts what entries do as all else.
func TestRunTellsOfEntries(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	denied, ours := newOrigin(t, "rundenied", ""), newOrigin(t, "runours", everything)
	ours.handle("/a", textPage("text/plain", "a"))
	h := newHouse(t, outOfTheWay.with(settings{"hosts": []entry{
		{"match": denied.Name, "robots": "deny", "reason": "x"}, {"match": "*", "robots": "ignore", "reason": "x"},
	}}))
	out := command(t, h.runArgs(curl, "-q", "-sS", ours.url("http", "/a"), denied.url("http", "/a"))...).want(t, 0)
	for _, want := range []string{"2 requests, 1 allowed, 1 blocked", "blocked 1  at " + denied.Name + "  by denied-host"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("no %q in\n%s", want, out.stderr)
		}
	}
}

// Who does not say who it is, and how to reach it, is told what to send; From of
// the configuration goes with each request and each fetch of robots.txt.
func TestIdentityIsRequired(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "require", "")
	o.handle("/a", textPage("text/plain", "a"))
	strict := startProxy(t, outOfTheWay.with(settings{"identity.require": "contact", "identity.product_token": "OwnBot"}))
	named := startProxy(t, outOfTheWay.with(settings{"identity.require": "contact", "identity.from": "us@lab.example"}))
	body := filepath.Join(t.TempDir(), "body")
	for _, c := range []struct {
		name   string
		p      *proxy
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
		for _, scheme := range schemes {
			argv := append([]string{curl, "-q", "-sS", "-x", c.p.listen, "--cacert", c.p.ca, "-o", body, "-w", "%{http_code} %header{proxy-status}", o.url(scheme, "/a?"+itoa(len(c.args)))}, c.args...)
			out := runPeer(t, argv, cleanEnv()).want(t, 0).stdout
			if status, own, _ := strings.Cut(out, " "); status != c.status || status == "403" && own != `robotsproxy; error=http_request_denied; details="identity"` {
				t.Errorf("%s, %s: %s, want %s", c.name, scheme, out, c.status)
			}
		}
	}
	for _, scheme := range schemes {
		var from []string
		for _, h := range o.arrivals(scheme) {
			if strings.Contains(h.Header.Get("User-Agent"), "curl") || strings.Contains(h.Header.Get("User-Agent"), "Mozilla") {
				t.Errorf("%s: %+v arrived", scheme, h)
			}
			from = append(from, h.Path[:2]+h.Header.Get("From"))
		}
		slices.Sort(from) // when they arrived is when their connections were made
		if got, want := strings.Join(from, " "), "/a /ame@foo.example /aus@lab.example /r /rus@lab.example"; got != want {
			t.Errorf("%s: From arrived as %q, want %q", scheme, got, want)
		}
	}
}

// A client's day: what is allowed is counted, robots.txt is not, and another
// client is not either.
func TestQuotaOfADay(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "quota", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(settings{"clients": []entry{
		{"name": "lab-a", "networks": []string{"127.0.0.1/32"}, "quota": entry{"requests_per_day": 2}, "identity": entry{"product_token": "LabABot"}},
		{"name": "lab-b", "networks": []string{"127.0.0.2/32"}, "pace": entry{"requests_per_second": 50, "asset_burst": 20}},
	}}))
	client := p.client(t, false)
	for i, c := range []struct {
		url    string
		status int
	}{
		{o.url("http", "/robots.txt"), 200}, {o.url("http", "/private"), 403}, {o.url("http", "/a?1"), 200}, {o.url("https", "/a?2"), 200},
		{o.url("http", "/a?3"), 429}, {o.url("https", "/a?4"), 429}, {o.url("http", "/robots.txt?"), 429}, {o.url("http", "/robots.txt"), 200},
	} {
		got := get(t, client, c.url)
		if got.Status != c.status {
			t.Errorf("%d: %s: %v, want %d", i, c.url, got, c.status)
		}
		if c.status != http.StatusTooManyRequests {
			continue
		}
		wantOwn(t, got, c.status, "connection_limit_reached")
		if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after > 24*60*60 {
			t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
		}
		wantBlocked(t, onlyRecord(t, p.audit, c.url), "quota", c.status)
	}
	if got := get(t, from(t, client, "127.0.0.2"), o.url("http", "/a?5")); got.Status != http.StatusOK {
		t.Errorf("another client: %v", got)
	}
	if r := awaitRecord(t, p.audit, o.url("http", "/a?1")); r.Agent != "LabABot" {
		t.Errorf("agent %q", r.Agent)
	}
}

// A hundred names of one domain are one neighbour: the pace is theirs together.
func TestOneDomainOnePace(t *testing.T) {
	o := newOrigin(t, "domain", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, settings{"pace.per": "domain"})
	client := p.client(t, false)
	for _, name := range []string{"one.", "two.", "three.a."} {
		names.point(name+o.Name, o.ip)
		if got := get(t, client, "http://"+name+o.hostport("http")+"/a"); got.Status != http.StatusOK {
			t.Errorf("%s: %v", name, got)
		}
	}
	if pages := o.pages("http"); len(pages) != 3 {
		t.Errorf("%d pages arrived", len(pages))
	}
	wantGaps(t, o.pages("http"), time.Second)
}
