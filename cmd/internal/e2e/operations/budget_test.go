package operations

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots/testkit"
)

// withBudget are the settings of hosts with a budget.
func withBudget(match string, budget e2e.Entry) e2e.Settings {
	return e2e.Unpaced.With(e2e.Settings{"hosts": []e2e.Entry{{"match": match, "budget": budget}}})
}

// budgetHost is what the API says of the budgets of a host.
type budgetHost struct {
	Budgets []struct {
		Entry        string
		Requests     int64
		RequestsUsed int64 `json:"requests_used"`
		BytesUsed    int64 `json:"bytes_used"`
		PerS         int   `json:"per_s"`
		Next         time.Time
	}
}

// wantFull asks for a page at a host whose budget is used up.
func wantFull(t *testing.T, p *e2e.Proxy, url, detail string) {
	t.Helper()
	got := e2e.Get(t, p.Client(t, false), url)
	e2e.WantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
	if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < 30*60 || after > 65*60 {
		t.Errorf("Retry-After: %q, want at most the period and a twelfth", got.Header.Get("Retry-After"))
	}
	if status := got.Header.Get("Proxy-Status"); !strings.Contains(status, `details="budget: `) || !strings.Contains(string(got.Body), detail) {
		t.Errorf("%s: %s, want %q", status, got.Body, detail)
	}
	e2e.WantBlocked(t, e2e.AwaitRecord(t, p.Audit, url), "budget", http.StatusTooManyRequests)
}

// TestBudget: a host gets no more requests than its budget, fetches of robots.txt included, which are sent even if it is used up. The
// count is kept when the proxy ends; after a crash, at most the requests of the last second are forgotten.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, scheme := range e2e.Schemes {
		o := e2e.NewOrigin(t, "budget", "")
		o.Handle("/page", e2e.TextPage("text/plain", "0123456789"))
		p := e2e.StartProxy(t, withBudget("*.test", e2e.Entry{"requests": 3, "per": "1h"}))
		page := func(n int) string { return o.URL(scheme, fmt.Sprint("/page?", n)) }
		e2e.Get(t, p.Client(t, false), page(1))
		e2e.Get(t, p.Client(t, false), page(2))
		const detail = "The budget of this host is used up: 3 requests in 1 h (budget in hosts)."
		wantFull(t, p, page(3), detail)
		if host := e2e.API[budgetHost](t, p, "GET", "hosts/"+o.Name, "", 200); len(host.Budgets) != 1 || host.Budgets[0].RequestsUsed != 3 ||
			host.Budgets[0].Entry != "*.test" || host.Budgets[0].PerS != 3600 || time.Until(host.Budgets[0].Next) < 30*time.Minute {
			t.Errorf("%s: %+v", scheme, host)
		}
		// The explanation counts nothing.
		for range 2 {
			if x := e2e.API[struct{ Reason string }](t, p, "POST", "explain", fmt.Sprintf(`{"url":%q}`, page(3)), 200); x.Reason != "budget" {
				t.Errorf("%s: explained by %q", scheme, x.Reason)
			}
		}
		e2e.AwaitState(t, p, "uses", "budget:"+o.Name)
		p = p.EndAgain(t)
		wantFull(t, p, page(4), detail)
		p = p.KillAgain(t)
		wantFull(t, p, page(5), detail)
		if n := len(o.Arrivals(scheme)); n != 3 || o.Fetches(scheme) != 1 {
			t.Errorf("%s: %d requests arrived, %d of them fetches of robots.txt; the budget is 3", scheme, n, o.Fetches(scheme))
		}
		e2e.API[struct{}](t, p, "POST", "refetch", fmt.Sprintf(`{"origin":"%s://%s"}`, scheme, o.Hostport(scheme)), 200)
		if n := o.Fetches(scheme); n != 2 {
			t.Errorf("%s: robots.txt was fetched %d times", scheme, n)
		}
		wantFull(t, p, page(6), detail)
		if host := e2e.API[budgetHost](t, p, "GET", "hosts/"+o.Name, "", 200); host.Budgets[0].RequestsUsed != 4 {
			t.Errorf("%s: %+v after a refetch", scheme, host)
		}
		if got := e2e.Get(t, p.Client(t, false), o.URL(scheme, "/robots.txt")); got.Status != http.StatusOK {
			t.Errorf("%s: the cached robots.txt: %v", scheme, got)
		}
	}
}

// TestBudgetOfBytes: the bodies of responses, and what passes through tunnels, are counted when they end.
func TestBudgetOfBytes(t *testing.T) {
	t.Parallel()
	for _, scheme := range e2e.Schemes {
		o := e2e.NewOrigin(t, "bytes", "#23456789")
		o.Handle("/page", e2e.TextPage("text/plain", "0123456789"))
		p := e2e.StartProxy(t, withBudget(o.Name, e2e.Entry{"bytes": "32B", "per": "1h"}))
		for n := range 4 {
			url := o.URL(scheme, fmt.Sprint("/page?", n))
			if n == 3 {
				wantFull(t, p, url, "The budget of this host is used up: 32 B in 1 h (budget in hosts).")
				continue
			}
			e2e.Get(t, p.Client(t, false), url)
			// A response counts when its record is written.
			e2e.AwaitRecord(t, p.Audit, url)
		}
		if n := len(o.Pages(scheme)); n != 3 {
			t.Errorf("%s: %d pages of ten bytes arrived beside a robots.txt of nine", scheme, n)
		}
	}
	o := e2e.NewOrigin(t, "tunnel", "")
	o.Handle("/page", e2e.TextPage("text/plain", strings.Repeat("a", 3000)))
	p := e2e.StartProxy(t, withBudget(o.Name, e2e.Entry{"bytes": "3KiB", "per": "1h"}).With(e2e.Settings{"tls.tunnel": []string{o.Name}}))
	client := p.Client(t, false)
	client.Transport.(*http.Transport).TLSClientConfig.RootCAs = e2e.CertPool(t, e2e.TrustedFile(t))
	if got := e2e.Get(t, client, o.URL("https", "/page")); got.Status != http.StatusOK {
		t.Errorf("the first tunnel: %v", got)
	}
	client.CloseIdleConnections()
	testkit.Eventually(t, "the tunnel has ended and is counted", func() bool {
		c, err := net.Dial("tcp", p.Listen)
		testkit.Must(t, err)
		defer c.Close()
		fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", o.Hostport("https"))
		answer := make([]byte, len("HTTP/1.1 429"))
		io.ReadFull(c, answer)
		return string(answer) == "HTTP/1.1 429"
	})
}

// TestBudgetOfPaths: the budget of an entry with paths counts requests to these paths alone, and a request whose path has several
// forms in each of their budgets.
func TestBudgetOfPaths(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "paths", "")
	for _, path := range []string{"/data/x", "/data/../secret", "/secret", "/page"} {
		o.Handle(path, e2e.TextPage("text/plain", path))
	}
	data := e2e.Entry{"match": o.Name, "paths": []string{"/data/"}, "budget": e2e.Entry{"requests": 2, "per": "1h"}}
	all := e2e.Entry{"match": o.Name, "budget": e2e.Entry{"requests": 4, "per": "1h"}}
	c := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"hosts": []e2e.Entry{data, all}})).Dial(t)
	ask := func(path string, want int) {
		t.Helper()
		c.Send(t, "GET "+o.URL("http", path)+" HTTP/1.1", "Host: "+o.Hostport("http"))
		if got := c.Receive(t, http.MethodGet); got.Status != want {
			t.Errorf("%s: %v, want %d", path, got, want)
		}
	}
	// This counts in the budget of /data/ alone, and the next one in both budgets, one of which has had a fetch.
	ask("/data/x", 200)
	ask("/data/../secret", 200)
	// The budget of /data/ is used up, also for a path of which only one form begins so. The other has room for two.
	ask("/data/x", 429)
	ask("/data/../secret", 429)
	ask("/page", 200)
	ask("/secret", 200)
	ask("/page", 429)
	if n := len(o.Pages("http")); n != 4 {
		t.Errorf("%d pages arrived", n)
	}
}

// TestBudgetCountsRedirects: a fetch of robots.txt that is redirected counts at the host to which it goes.
func TestBudgetCountsRedirects(t *testing.T) {
	t.Parallel()
	from, to := e2e.NewOrigin(t, "from", ""), e2e.NewOrigin(t, "to", "")
	from.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to.URL("http", "/robots.txt"), http.StatusFound)
	})
	for _, o := range []*e2e.Origin{from, to} {
		o.Handle("/page", e2e.TextPage("text/plain", "a"))
	}
	p := e2e.StartProxy(t, withBudget(to.Name, e2e.Entry{"requests": 3, "per": "1h"}))
	for i, c := range []struct {
		o    *e2e.Origin
		want int
	}{{from, 200}, {to, 200}, {to, 429}, {from, 200}} {
		if got := e2e.Get(t, p.Client(t, false), c.o.URL("http", fmt.Sprint("/page?", i))); got.Status != c.want {
			t.Errorf("%s: %v, want %d", c.o.Name, got, c.want)
		}
	}
	if n := len(to.Arrivals("http")); n != 3 || to.Fetches("http") != 2 {
		t.Errorf("%d requests arrived, %d of them fetches", n, to.Fetches("http"))
	}
}

// TestBudgetOfAFleet: two replicas keep one budget. While their store is away, each has its share of what was left.
func TestBudgetOfAFleet(t *testing.T) {
	t.Parallel()
	const most, first = 40, 10
	o := e2e.NewOrigin(t, "fleet-budget", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	s := redistest.Start(t)
	f := startFleet(t, s.URL(), 2, withBudget(o.Name, e2e.Entry{"requests": most, "per": "1h"}))
	f.awaitStore(t, 1)
	// n guards asked.
	var n sync.Mutex
	asked := 0
	ask := func(times int) {
		var all sync.WaitGroup
		for i := range times {
			all.Go(func() {
				n.Lock()
				asked++
				url := o.URL(e2e.Schemes[i/2%2], fmt.Sprint("/page?", asked))
				n.Unlock()
				e2e.Get(t, f.replicas[i%2].Client(t, false), url)
			})
		}
		all.Wait()
	}
	arrived := func() int { return len(o.Arrivals("http")) + len(o.Arrivals("https")) }
	ask(first)
	used := arrived()
	// Each replica asks the store once more after all of these.
	for range 2 {
		for _, p := range f.replicas {
			e2e.Get(t, p.Client(t, false), o.URL("http", "/page?more"))
		}
	}
	used += 4
	s.Stop()
	f.awaitStore(t, 0)
	ask(2 * most)
	// A replica may know of the fetches of the other a second later.
	if got := arrived() - used; got < most-used-2 || got > most-used+4 {
		t.Errorf("while the store was away, %d requests arrived of the %d that were left", got, most-used)
	}
	s.Continue()
	f.awaitStore(t, 1)
	for _, p := range f.replicas {
		testkit.Eventually(t, "the store knows of all", func() bool {
			if got := e2e.Get(t, p.Client(t, false), o.URL("http", "/page?again")); got.Status != http.StatusTooManyRequests {
				return false
			}
			host := e2e.API[budgetHost](t, p, "GET", "hosts/"+o.Name, "", 200)
			return int(host.Budgets[0].RequestsUsed) == arrived()
		})
	}
	if got := arrived(); got > most+4 {
		t.Errorf("%d requests arrived, the budget is %d", got, most)
	}
}

// TestBudgetOfReplicas: replicas that share a store send no more than the budget, whoever asks.
func TestBudgetOfReplicas(t *testing.T) {
	t.Parallel()
	const most = 20
	o := e2e.NewOrigin(t, "replicas-budget", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	f := startFleet(t, storeURL(t), 2, e2e.Unpaced.With(e2e.Settings{
		"hosts": []e2e.Entry{{"match": "*", "robots": "ignore", "reason": "no fetches", "budget": e2e.Entry{"requests": most, "per": "1h"}}},
	}))
	f.awaitStore(t, 1)
	var all sync.WaitGroup
	for i := range 3 * most {
		all.Go(func() {
			e2e.Get(t, f.replicas[i%2].Client(t, false), o.URL(e2e.Schemes[i/2%2], fmt.Sprint("/page?", i)))
		})
	}
	all.Wait()
	if n := len(o.Pages("http")) + len(o.Pages("https")); n != most {
		t.Errorf("%d pages arrived, the budget is %d", n, most)
	}
	wantFull(t, f.replicas[0].EndAgain(t), o.URL("http", "/page?last"), "20 requests in 1 h")
}
