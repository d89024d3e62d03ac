package requests

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// routed are three origins, each with the only upstream proxy that is for it, and one that is reached directly.
type routed struct {
	all, socks, plain, direct          *e2e.Origin
	ofAll, ofSocks, ofPlain            *parent
	settings                           e2e.Settings
	socksEntry, plainEntry, directHost e2e.Entry
}

func newRouted(t *testing.T) *routed {
	t.Helper()
	const robots = "User-agent: *\nDisallow: /private\n"
	r := &routed{
		all: e2e.NewOrigin(t, "all", robots), socks: e2e.NewOrigin(t, "socks", robots), plain: e2e.NewOrigin(t, "plain", robots),
		direct: e2e.NewOrigin(t, "direct", robots),
	}
	for _, o := range r.origins() {
		o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	}
	r.ofAll, r.ofSocks, r.ofPlain = newParent(t, "http", r.origins()...), newParent(t, "socks5", r.origins()...), newParent(t, "http", r.origins()...)
	r.socksEntry = e2e.Entry{"match": r.socks.Name, "parent": r.ofSocks.url.String()}
	r.plainEntry = e2e.Entry{"match": r.plain.Name, "parent": r.ofPlain.url.String()}
	r.directHost = e2e.Entry{"match": r.direct.Name, "parent": "direct"}
	r.settings = e2e.Unpaced.With(e2e.Settings{"egress.parent": r.ofAll.url.String(), "log.level": "debug",
		"hosts": []e2e.Entry{r.socksEntry, r.plainEntry, r.directHost}})
	return r
}

func (r *routed) origins() []*e2e.Origin { return []*e2e.Origin{r.all, r.socks, r.plain, r.direct} }

// asked returns what an upstream proxy is asked for one page of an origin and its robots.txt, over HTTP and HTTPS.
func asked(p *parent, o *e2e.Origin) []string {
	want := []string{"CONNECT " + o.Hostport("http"), "CONNECT " + o.Hostport("https")}
	if p.url.Scheme == "http" {
		want = []string{"CONNECT " + o.Hostport("https"), "GET " + o.URL("http", "/page"), "GET " + o.URL("http", "/robots.txt")}
	}
	slices.Sort(want)
	return want
}

// With hosts[].parent, each host is reached through its own upstream proxy, or through none: its pages and its robots.txt, by the
// proxy and by check. A reload takes another way at once.
func TestParentOfHosts(t *testing.T) {
	t.Parallel()
	r := newRouted(t)
	p := e2e.StartProxy(t, r.settings)
	client := p.Client(t, false)
	for _, o := range r.origins() {
		for _, scheme := range []string{"http", "https"} {
			if got := e2e.Get(t, client, o.URL(scheme, "/page")); got.Status != 200 || string(got.Body) != "a page" {
				t.Errorf("%s: %d %s", o.URL(scheme, "/page"), got.Status, got.Body)
			}
			if got := e2e.Get(t, client, o.URL(scheme, "/private")); got.Status != http.StatusForbidden {
				t.Errorf("%s: %d", o.URL(scheme, "/private"), got.Status)
			}
		}
	}
	for p, o := range map[*parent]*e2e.Origin{r.ofAll: r.all, r.ofSocks: r.socks, r.ofPlain: r.plain} {
		if got, want := p.log(), asked(p, o); !slices.Equal(got, want) {
			t.Errorf("the upstream proxy for %s got %q, want %q", o.Name, got, want)
		}
		if n, dialed := o.Connections(), p.Dialed(); n != dialed {
			t.Errorf("%s: %d connections, %d of its upstream proxy", o.Name, n, dialed)
		}
		for _, h := range append(o.Arrivals("http"), o.Arrivals("https")...) {
			if h.Header.Get("Proxy-Authorization") != "" {
				t.Errorf("arrived: %+v", h)
			}
		}
	}
	if n := r.direct.Connections(); n == 0 {
		t.Error("no connection to the host that has no upstream proxy")
	}

	before := r.ofSocks.Dialed()
	e2e.Command(t, "check", "-c", p.Config, r.socks.URL("http", "/page")).Want(t, 0)
	if n, dialed := r.socks.Connections(), r.ofSocks.Dialed(); dialed != before+1 || n != dialed {
		t.Errorf("check: %d connections, %d of the upstream proxy, which had %d", n, dialed, before)
	}
	wantNoPassword(t, p)
	for _, page := range []string{"/exceptions", "/hosts/" + r.socks.Name, "/config"} {
		got := e2e.Get(t, e2e.Operator(t), "http://"+p.Admin+page)
		shown := r.ofSocks.url.Scheme + "://" + r.ofSocks.url.Host
		if page != "/config" && !strings.Contains(string(got.Body), shown) || strings.Contains(string(got.Body), "s3cr") {
			t.Errorf("%s: %d, without %s or with the password:\n%s", page, got.Status, shown, got.Body)
		}
	}

	r.socksEntry["parent"] = r.ofPlain.url.String()
	p.Rewrite(t, r.settings)
	p.Signal(t, syscall.SIGHUP)
	testkit.Eventually(t, "the configuration is reloaded", func() bool { return strings.Contains(p.Stderr.String(), "configuration reloaded") })
	before, was := r.ofSocks.Dialed(), r.ofPlain.Dialed()
	if got := e2e.Get(t, p.Client(t, false), r.socks.URL("http", "/page")); got.Status != 200 {
		t.Errorf("after the reload: %d %s", got.Status, got.Body)
	}
	if r.ofSocks.Dialed() != before || r.ofPlain.Dialed() == was {
		t.Errorf("after the reload: %d connections of the one before, %d of the new one", r.ofSocks.Dialed()-before, r.ofPlain.Dialed()-was)
	}
	wantNoPassword(t, p)
}

// An upstream proxy of an entry that refuses or does not answer is no reason to take another way.
func TestParentOfAHostFails(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(r *routed){
		"wrong password": func(r *routed) { r.ofSocks.url.User = url.UserPassword("stranger", parentPassword) },
		"not there":      func(r *routed) { r.ofSocks.url.Host = e2e.DeadEnd(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRouted(t)
			broken(r)
			r.socksEntry["parent"] = r.ofSocks.url.String()
			p := e2e.StartProxy(t, r.settings)
			got := e2e.Get(t, p.Client(t, false), r.socks.URL("http", "/page"))
			e2e.WantOwn(t, got, http.StatusBadGateway, "destination_unavailable")
			if !strings.Contains(string(got.Body), "parent in hosts") {
				t.Errorf("it does not say where to look:\n%s", got.Body)
			}
			w := p.Dial(t)
			w.Send(t, "CONNECT "+r.socks.Hostport("https")+" HTTP/1.1", "Host: "+r.socks.Hostport("https"))
			e2e.WantOwn(t, w.Receive(t, http.MethodConnect), http.StatusBadGateway, "destination_unavailable")
			e2e.Command(t, "check", "-c", p.Config, r.socks.URL("http", "/page")).Want(t, 2)
			if got := e2e.Get(t, p.Client(t, false), r.plain.URL("http", "/page")); got.Status != 200 {
				t.Errorf("another host: %d %s", got.Status, got.Body)
			}
			if n := r.socks.Connections(); n != 0 {
				t.Errorf("%d connections arrived", n)
			}
			if got := r.ofAll.log(); len(got) > 0 {
				t.Errorf("the upstream proxy of all got %q", got)
			}
			for _, rec := range e2e.RecordsOf(e2e.ReadAudit(t, p.Audit), r.socks.URL("http", "/page")) {
				if rec.Reason != "parent" || rec.Status != http.StatusBadGateway || rec.Entry != r.socks.Name {
					t.Errorf("record %+v", rec)
				}
			}
			wantNoPassword(t, p)
		})
	}
}
