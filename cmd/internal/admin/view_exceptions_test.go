package admin

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
)

// configure adds entries of hosts and clients to the proxy.
func (p *testProxy) configure(t testing.TB) {
	t.Helper()
	google, err := robots.DialectByName("google")
	check(t, err)
	p.engine, err = p.engine.Renew(policy.Options{
		Cache: p.cache, Pace: pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 2, MaxWait: time.Minute, MaxQueue: 500}, Open: true,
		Usage: usage.Policy{Purposes: usage.SetOf(usage.Search)},
		Hosts: []policy.Host{
			{Match: "shop.example.com", Robots: policy.Ignore, Reason: "agreed by mail with the shop, until the sale ends", Until: time.Now().Add(-48 * time.Hour)},
			{Match: "*.example.com", Robots: policy.Ignore, Reason: "our own sites, ticket 4711", Until: time.Now().Add(30 * 24 * time.Hour)},
			{Match: "denied.example", Robots: policy.Deny, Reason: "asked us to stay away"},
			{Match: "api.example.org", Readings: policy.LiteralReadings, IgnoreUsage: true, Reason: "contract 7", Parent: "socks5://10.0.0.7:1080", Pace: pace.Limits{PerSecond: .5, Burst: 3, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 1000}},
		},
		Clients: []policy.Client{
			{Name: "lab-a", Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/32")}, Quota: policy.Quota{Requests: 2}, Dialect: google, Purposes: usage.SetOf(usage.TrainAI, usage.TDM), Pace: pace.Rate{PerSecond: .25, Burst: 2}},
			{Name: "crawler-eu-1", PasswordHash: "$2y$05$abcdefghijklmnopqrstuuW1EtsHQOUQ0MFbVGVyLLtfdGFHN6Aaa", AssetBurst: 20},
		},
	})
	check(t, err)
}

// rowOf returns the row of a table whose first cell has a text.
func rowOf(t testing.TB, table *html.Node, first string) *html.Node {
	t.Helper()
	for _, row := range findAll(table, "role", "row") {
		if head := findAll(row, "role", "rowheader"); len(head) == 1 && textOf(head[0]) == first {
			return row
		}
	}
	t.Fatalf("no row of %q in %q", first, textOf(table))
	return nil
}

func checkText(t testing.TB, of *html.Node, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if got := textOf(of); !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

func TestExceptions(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	if got := textOf(w.get(t, "/exceptions", http.StatusOK)); !strings.Contains(got, "The configuration has no entries of hosts.") {
		t.Errorf("without entries: %q", got)
	}
	w.configure(t)
	for _, host := range []string{"shop.example.com", "shop.example.com", "denied.example", "news.example.net"} {
		w.visit(t, visit{client: "lab-a", agent: "FooBot/1.0", url: "https://" + host + "/cart", status: 200})
	}
	table := findOne(t, w.get(t, "/exceptions", http.StatusOK), "id", "entries")
	over := rowOf(t, table, "shop.example.com")
	checkText(t, over, "Expired", "agreed by mail", "expired ", " UTC, 2 d ago", "none")
	if attr(over, "class") != "expired" {
		t.Error("an expired entry looks like one that applies")
	}
	ours := rowOf(t, table, "*.example.com")
	checkText(t, ours, "ticket 4711", "in 29 d", "2 allowed", "now")
	if len(findAll(ours, "href", "/?entry=%2A.example.com#decisions")) != 1 {
		t.Error("no link to its decisions")
	}
	checkText(t, rowOf(t, table, "denied.example"), "Host denied", "never", "1 disallowed")
	checkText(t, rowOf(t, table, "api.example.org"), "Enforced", "0.5 requests/s, burst 3, 1 at once, queue of 1,000, wait up to 1 min, paths as sent, usage preferences ignored, upstream proxy: socks5://10.0.0.7:1080", "contract 7")
	if rows := findAll(findOne(t, w.get(t, "/?entry=%2A.example.com", http.StatusOK), "id", "rows"), "role", "row"); len(rows) != 2 {
		t.Errorf("%d decisions of the entry", len(rows))
	}
	checkText(t, findOne(t, w.get(t, "/hosts/shop.example.com", http.StatusOK), "id", "entry"), "*.example.com", "Ignored", "ticket 4711", "2 allowed")
	if n := len(findAll(w.get(t, "/hosts/news.example.net", http.StatusOK), "id", "entry")); n != 0 {
		t.Error("a host shows an entry that does not apply to it")
	}
}

func TestClientsPage(t *testing.T) {
	w := newTestProxy(t, sampleFiles)
	checkText(t, w.get(t, "/clients", http.StatusOK), "The configuration names no clients.", "May use the proxyyes", "curl -x ")
	w.configure(t)
	for range 2 {
		w.visit(t, visit{client: "lab-a", agent: "FooBot/1.0", url: "https://news.example.net/archive/", status: 200})
		_, err := w.engine.Take(t.Context(), &policy.Request{Client: "lab-a"})
		check(t, err)
	}
	w.record(t, &audit.Record{Time: time.Now(), Request: policy.Request{Client: "192.0.2.1"}, Decision: policy.Decision{Reason: policy.ReasonAuth}})
	doc := w.get(t, "/clients", http.StatusOK)
	table := findOne(t, doc, "id", "clients")
	a := rowOf(t, table, "lab-a")
	checkText(t, a, "10.1.0.0/16, 2001:db8::/32", "google", "train-ai, tdm", "0.25 requests/s, burst 2", "2 of 2", "2 disallowed", "now")
	if len(findAll(a, "href", "/?client=lab-a#decisions")) != 1 {
		t.Error("no link to its decisions")
	}
	checkText(t, rowOf(t, table, "crawler-eu-1"), "any address, with a password", "standard", "search", "pace of the host, 20 page assets at once", "no quota", "not since the start")
	checkText(t, findOne(t, doc, "id", "others"), "yes", "1 disallowed, last seen now")
	if strings.Contains(textOf(doc), "$2y$") {
		t.Error("a password hash is shown")
	}
}
