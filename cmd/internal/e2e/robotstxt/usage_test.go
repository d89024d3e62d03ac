package robotstxt

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/e2e"
)

// newUsageOrigin starts an origin that states its preferences in its robots.txt and in header fields. It returns the
// text of its pages, too.
func newUsageOrigin(t *testing.T) (o *e2e.Origin, text string) {
	t.Helper()
	const robots = "License: https://site.test/license.xml\nUser-agent: *\nContent-Usage: /blog/ train-ai=n\nContent-Usage: /blog/ train-ai=y\n"
	o = e2e.NewOrigin(t, "usage", robots)
	text = strings.Repeat("content ", 1<<16)
	for path, header := range map[string]http.Header{
		"/blog/1": nil, "/free": nil,
		"/tagged":   {"X-Robots-Tag": {"noai"}},
		"/reserved": {"Tdm-Reservation": {"1"}, "Tdm-Policy": {"https://site.test/tdm.json"}},
		"/others":   {"X-Robots-Tag": {"otherbot: noai", "noindex"}, "Link": {`</terms>; rel="license", </a.css>; rel=preload`}},
	} {
		o.Handle(path, func(w http.ResponseWriter, r *http.Request) {
			for name, values := range header {
				w.Header()[name] = values
			}
			e2e.TextPage("text/plain", text)(w, r)
		})
	}
	o.Handle("/paid", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Crawler-Price", "USD 0.01")
		w.WriteHeader(http.StatusPaymentRequired)
	})
	return o, text
}

// With on_disallowed: refuse, content that a site does not permit for a purpose of the client does not reach
// the client: by robots.txt without a request, by the head of the response without its body.
func TestUsageIsEnforced(t *testing.T) {
	t.Parallel()
	o, text := newUsageOrigin(t)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"usage.purposes": []string{"train-ai"}, "usage.on_disallowed": "refuse"}))
	for _, scheme := range e2e.Schemes {
		for _, c := range []struct {
			path, source, outcome, said string
			line                        int
			asked, refused              bool
		}{
			{"/blog/1", "robots.txt", "disallowed", "The site's robots.txt (line 3) does not permit the use of this content for train-ai", 3, false, true},
			{"//blog/1", "robots.txt", "disallowed", "The site's robots.txt (line 3) does not permit the use of this content for train-ai", 3, false, true},
			{"/tagged", "header X-Robots-Tag", "disallowed", "The header X-Robots-Tag of the site's response does not permit", 0, true, true},
			{"/reserved", "header tdm-reservation", "disallowed", "tdm-reservation: 1", 0, true, true},
			{"/others", "", "unknown", "", 0, true, false},
			{"/free", "", "unknown", "", 0, true, false},
			{"/paid", "", "unknown", "", 0, true, false},
		} {
			for _, h2 := range []bool{false, true} {
				if h2 && scheme == "http" {
					continue
				}
				url := o.URL(scheme, c.path+"?"+map[bool]string{false: "h1", true: "h2"}[h2])
				got := e2e.Get(t, p.Client(t, h2), url)
				if c.refused {
					e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
					if body := string(got.Body); !strings.Contains(body, c.said) || strings.Contains(body, text[:100]) || !strings.Contains(body, "reason:       usage") {
						t.Errorf("%s is refused with\n%.600s", url, body)
					}
				} else if c.path != "/paid" && string(got.Body) != text {
					t.Errorf("%s: %v", url, got)
				}
				r := e2e.AwaitRecord(t, p.Audit, url)
				u := r.Usage["train-ai"]
				if len(r.Usage) != 1 || u.Outcome != c.outcome || u.Source != c.source || u.Line != c.line || r.UsageSource != c.source {
					t.Errorf("%s: record %+v, source %q", url, r.Usage, r.UsageSource)
				}
				if r.Withheld != (c.refused && c.asked) || (r.Reason == "usage") != c.refused || (r.Decision == "block") != c.refused {
					t.Errorf("%s: withheld %v, %s by %s", url, r.Withheld, r.Decision, r.Reason)
				}
				license := "https://site.test/license.xml"
				if c.path == "/others" {
					license += " /terms"
				}
				if r.License != license || (r.Price == "USD 0.01") != (c.path == "/paid") {
					t.Errorf("%s: license %q, price %q", url, r.License, r.Price)
				}
				arrived := slices.ContainsFunc(o.Pages(scheme), func(hit e2e.Hit) bool { return strings.HasPrefix(url, o.URL(scheme, hit.Path)) })
				if arrived != c.asked {
					t.Errorf("%s has arrived: %t", url, arrived)
				}
			}
		}
	}
}

// By default, and in an exception, what a site says is recorded and refuses nothing.
func TestUsageIsRecorded(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "usagerecord", "User-agent: *\nContent-Signal: search=yes, ai-train=no\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	purposes := []string{"train-ai", "search", "tdm"}
	want := map[string]e2e.Use{
		"train-ai": {Outcome: "disallowed", Statement: "Content-Signal: search=yes, ai-train=no", Source: "robots.txt", Line: 2},
		"search":   {Outcome: "allowed", Statement: "Content-Signal: search=yes, ai-train=no", Source: "robots.txt", Line: 2},
		"tdm":      {Outcome: "unknown"},
	}
	for name, settings := range map[string]e2e.Settings{
		"default":   {},
		"monitor":   {"usage.on_disallowed": "refuse", "mode": "monitor"},
		"exception": {"usage.on_disallowed": "refuse", "hosts": []e2e.Entry{{"match": o.Name, "usage": "ignore", "reason": "contract 7"}}},
		"refused":   {"usage.on_disallowed": "refuse"},
	} {
		p := e2e.StartProxy(t, e2e.Unpaced.With(settings).With(e2e.Settings{"usage.purposes": purposes}))
		got := e2e.Get(t, p.Client(t, false), o.URL("http", "/a"))
		if refused := name == "refused"; (got.Status == http.StatusForbidden) != refused {
			t.Errorf("%s: %v", name, got)
		}
		r := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/a"))
		if diff := cmp.Diff(want, r.Usage); diff != "" {
			t.Errorf("%s: record (-want +got):\n%s", name, diff)
		}
		if r.UsageSource != "robots.txt" || r.Withheld || (name == "exception") != (r.EntryReason == "contract 7") {
			t.Errorf("%s: source %q, withheld %v, entry reason %q", name, r.UsageSource, r.Withheld, r.EntryReason)
		}
	}
}

// tdmrep.json is fetched once, and what it reserves is refused; its fetch is in the audit.
func TestTDMRepIsEnforced(t *testing.T) {
	t.Parallel()
	const file = "/.well-known/tdmrep.json"
	o := e2e.NewOrigin(t, "tdmrep", "User-agent: *\nDisallow: /private\n")
	o.Handle(file, e2e.TextPage("application/json", `[{"location": "/open/", "tdm-reservation": 0}, {"location": "/", "tdm-reservation": 1, "tdm-policy": "https://site.test/terms"}]`))
	for _, path := range []string{"/open/a", "/a"} {
		o.Handle(path, e2e.TextPage("text/plain", path))
	}
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"usage.purposes": []string{"tdm"}, "usage.on_disallowed": "refuse", "usage.tdmrep": true}))
	for _, scheme := range e2e.Schemes {
		for _, query := range []string{"?1", "?2"} {
			if got := e2e.Get(t, p.Client(t, false), o.URL(scheme, "/open/a")); string(got.Body) != "/open/a" {
				t.Errorf("%s: %v", scheme, got)
			}
			e2e.WantOwn(t, e2e.Get(t, p.Client(t, false), o.URL(scheme, "/a"+query)), http.StatusForbidden, "http_request_denied")
		}
		r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, "/a?2"))
		if r.Reason != "usage" || r.UsageSource != "tdmrep.json" || r.Withheld || r.Usage["tdm"].Statement != "tdm-reservation: 1 for /" || r.TDMPolicy != "https://site.test/terms" {
			t.Errorf("%s: %+v", scheme, r)
		}
		if x := p.Explain(t, r, 0); x.TDMRep != "there" {
			t.Errorf("%s: snapshot of tdmrep.json: %q", scheme, x.TDMRep)
		}
		checked := e2e.Command(t, "check", "-c", p.Config, "-A", "FooBot", o.URL(scheme, "/a")).Want(t, 1).Stdout
		if want := "use tdm:        disallowed (tdmrep.json: tdm-reservation: 1 for /)"; !strings.Contains(checked, want) {
			t.Errorf("%s: check does not say %q:\n%s", scheme, want, checked)
		}
		arrived := map[string]int{}
		for _, hit := range o.Pages(scheme) {
			arrived[hit.Path]++
		}
		// check has fetched the file once more.
		if arrived[file] != 2 || arrived["/a"] != 0 || arrived["/open/a"] != 2 {
			t.Errorf("%s: arrived %v", scheme, arrived)
		}
	}
	if out := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0).Stdout; !strings.Contains(out, "robots  1 snapshot unchanged\ntdmrep  1 snapshot unchanged\nindex   4 lines the same") {
		t.Error(out)
	}
	fetches := 0
	for _, r := range e2e.ReadLines(t, p.Audit) {
		if r.Kind == "tdmrep" && r.SHA256 != "" {
			fetches++
		}
	}
	if fetches != len(e2e.Schemes) {
		t.Errorf("%d records of fetches", fetches)
	}
}
