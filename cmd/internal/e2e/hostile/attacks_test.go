package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// An attack is what hostile parties do to a proxy while an honest client uses it.
type attack struct {
	name     string
	settings e2e.Settings // in addition to those of an arena
	// runs the attack and checks its own results; the honest client sends requests until it
	// returns
	run  func(t testing.TB, a *arena)
	load int    // factor by which BenchmarkHostile enlarges the attack; 0: not in the benchmark
	long string // why -short skips it; empty: it does not
}

// TestHostile runs each attack beside an honest client, each on a separate proxy. A few run at once:
// more keep each other from the processors for longer than a proxy waits for the name server.
func TestHostile(t *testing.T) {
	places := make(chan struct{}, 3)
	for _, c := range attacks {
		t.Run(c.name, func(t *testing.T) {
			if c.long != "" {
				testkit.Long(t, c.long)
			}
			t.Parallel()
			places <- struct{}{}
			defer func() { <-places }()
			a := newArena(t, c.settings, 1)
			c.run(t, a)
			a.honest.answered(t, a.asked)
			a.wantNoHarm(t)
		})
	}
}

const (
	honestRate  = 20 // requests per second; every second one is for a new host
	knownHosts  = 4  // number of hosts for the other requests
	honestAgent = "FooBot/1.0 (+https://foo.test/bot)"

	// privateRules disallow paths that must not arrive at any origin.
	privateRules = "User-agent: *\nDisallow: /private\n"
)

// An arena is a proxy, an honest client of it, and origins. The honest client has an entry in clients. The honest client requests hosts under
// honest.test, which are all at one address and have no delay. The settings of an attack decide
// the pace of other hosts.
type arena struct {
	*e2e.Proxy
	site   *e2e.Origin // origin of the honest hosts
	honest *honestClient
	scale  int // factor by which an attack is larger than in a test
	asked  int // number of requests of the honest client, however short the attack is

	mu      sync.Mutex    // guards origins
	origins []*e2e.Origin // their arrivals are compared with the audit
}

// newArena starts a proxy and the honest client.
func newArena(t testing.TB, own e2e.Settings, scale int) *arena {
	t.Helper()
	a := &arena{scale: scale, asked: honestRate / 2}
	switch {
	case scale > 1:
		a.asked = 2 * honestRate
	case testing.Short():
		a.asked = honestRate / 4
	}
	a.site = a.origin(t, "honest", privateRules)
	a.site.Handle("/page", e2e.TextPage("text/plain", "page"))
	quick := map[string]any{"requests_per_second": 100_000, "burst": 1000, "max_concurrent": 100, "max_queue": 5000}
	a.Proxy = e2e.StartProxy(t, e2e.Settings{
		"log.level":     "warn",
		"pace.adaptive": false, // on a busy machine, every host responds slowly
		"hosts":         []map[string]any{{"match": "*.honest.test", "pace": quick}, {"match": a.site.Name, "pace": quick}},
	}.With(e2e.Named(honestAddress)).With(own))
	a.honest = a.beHonest(t)
	return a
}

// origin starts an origin whose arrivals are compared with the audit at the end.
func (a *arena) origin(t testing.TB, label, robots string) *e2e.Origin {
	t.Helper()
	o := e2e.NewOrigin(t, label, robots)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.origins = append(a.origins, o)
	return o
}

// newHost returns a new host under domain that resolves to o, and the HTTP port of o.
func newHost(o *e2e.Origin, domain string) string {
	name := fmt.Sprintf("host-%d.%s", e2e.OriginCount.Add(1), domain)
	e2e.Names.Point(name, o.Ip)
	return net.JoinHostPort(name, strconv.Itoa(o.Ports["http"]))
}

// An honestClient requests pages of honest hosts at honestRate, whatever happens to its
// earlier requests.
type honestClient struct {
	a     *arena
	http  *http.Client
	known []string // URLs without a query
	stop  context.CancelFunc
	over  chan struct{} // closed when all requests have ended

	mu      sync.Mutex         // guards what follows
	asked   []string           // URLs, each once
	wrong   []string           // responses that were not the page
	latency [2][]time.Duration // for known hosts and for new hosts
}

// beHonest starts the honest client.
func (a *arena) beHonest(t testing.TB) *honestClient {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := &honestClient{a: a, http: a.Client(t, false), stop: stop, over: make(chan struct{})}
	c.known = []string{a.site.URL("https", "/page")}
	for len(c.known) < knownHosts {
		c.known = append(c.known, "http://"+newHost(a.site, "honest.test")+"/page")
	}
	go c.run(ctx)
	t.Cleanup(func() {
		stop()
		<-c.over
	})
	return c
}

// run sends requests until ctx ends.
func (c *honestClient) run(ctx context.Context) {
	defer close(c.over)
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(time.Second / honestRate)
	defer tick.Stop()
	for n := 0; ; n++ {
		url, class := c.known[n/2%len(c.known)], n%2
		if class == 1 {
			url = "http://" + newHost(c.a.site, "honest.test") + "/page"
		}
		url += "?" + strconv.Itoa(n)
		all.Go(func() { c.ask(url, class) })
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask sends one request.
func (c *honestClient) ask(url string, class int) {
	began := time.Now()
	status, body := request(context.Background(), c.http, http.MethodGet, url, nil, "User-Agent", honestAgent)
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, url)
	c.latency[class] = append(c.latency[class], took)
	if status != http.StatusOK || body != "page" {
		c.wrong = append(c.wrong, fmt.Sprintf("%s after %v: %d %s", url, took, status, body))
	}
}

// answered waits until n more requests have a response.
func (c *honestClient) answered(t testing.TB, n int) {
	t.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.asked)
	}
	n += count()
	testkit.Eventually(t, "the honest client has its answers", func() bool { return count() >= n })
}

// request sends a request. It returns the status (0 if there is no response) and the body or the
// error.
func request(ctx context.Context, c *http.Client, method, url string, body io.Reader, header ...string) (status int, text string) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, err.Error()
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// hostile returns a client at an address that no honest client shares.
func (a *arena) hostile(t testing.TB) *http.Client {
	t.Helper()
	c := e2e.From(t, a.Client(t, false), hostileAddress)
	c.Timeout = 0
	return c
}

const honestAddress, hostileAddress = "127.0.0.1", "127.0.6.66"

// hostileStreams returns such a client that sends all requests over one HTTP/2 connection.
func (a *arena) hostileStreams(t testing.TB) *http.Client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostileAddress)}}
	tr := &http.Transport{DialContext: d.DialContext, Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	conn, err := tr.NewClientConn(t.Context(), "http", a.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &http.Client{Transport: conn}
}

// inParallel calls f with 0 to n-1 in n goroutines. It returns a function that waits for
// them.
func inParallel(workers, n int, f func(i int)) (wait func()) {
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	return all.Wait
}

// wantNoHarm ends the honest client and the proxy. Each honest request got the page and arrived
// once. No disallowed request arrived anywhere, and everything that arrived is in the audit.
func (a *arena) wantNoHarm(t testing.TB) {
	t.Helper()
	a.honest.stop()
	<-a.honest.over
	a.Proxy.End(t)
	if wrong := a.honest.wrong; len(wrong) > 0 {
		t.Errorf("%d of %d honest requests failed; the first:\n%s", len(wrong), len(a.honest.asked), wrong[0])
	}
	recorded := map[string]int{} // requests that were sent, by URL
	for _, r := range e2e.ReadAudit(t, a.Audit) {
		if r.Decision == "allow" {
			recorded[r.URL]++
		}
	}
	arrived := map[string]int{}
	for _, o := range a.origins {
		for _, h := range slices.Concat(o.Pages("http"), o.Pages("https")) {
			if strings.HasPrefix(h.Path, "/private") {
				t.Errorf("%s %s arrived at %s", h.Method, h.Path, h.Host)
			}
			arrived[h.Scheme+"://"+h.Host+h.Path]++
		}
	}
	var lost, unrecorded []string
	for _, url := range a.honest.asked {
		if arrived[url] != 1 {
			lost = append(lost, fmt.Sprintf("%.200s arrived %d times", url, arrived[url]))
		}
	}
	for url, n := range arrived {
		if recorded[url] < n {
			unrecorded = append(unrecorded, fmt.Sprintf("%.200s arrived %d times and was recorded as allowed %d times", url, n, recorded[url]))
		}
	}
	for _, wrong := range [][]string{lost, unrecorded} {
		if len(wrong) > 0 {
			t.Errorf("%s, and %d more like that", wrong[0], len(wrong)-1)
		}
	}
}

// attacks are all attacks.
var attacks = []attack{
	{"hosts with long robots.txt files", e2e.Unpaced, longRobots, 5, "volume"},
	{"redirects of robots.txt to what is forbidden", e2e.Unpaced, redirects, 0, ""},
	{"a User-Agent that origins refuse", e2e.Unpaced, refusedAgent, 0, ""},
	{"redirects of robots.txt to one host", e2e.Settings{"pace.requests_per_second": 1 / hopGap.Seconds()}, pacedHops, 0, ""},
	{"transfers that hold a host's places", e2e.Settings{"pace.requests_per_second": 1000, "pace.max_wait": "25s"}, slowTransfers, 0, "real clock"},
	{"origins that never send robots.txt", e2e.Settings{"robots.fetch_timeout": "60s"}, tarpits, 4, "volume"},
	{"records that push others out", e2e.Unpaced, longRecords, 0, "volume"},
	{"bodies that wait for their turn", e2e.Settings{"pace.max_queue": 5000}, waitingBodies, 15, "volume"},
	{"robots.txt asked for again and again", nil, robotsAgain, 0, ""},
	{"bodies in small pieces", e2e.Unpaced, slowBodies, 10, "volume"},
	{"trailers that say something else", e2e.Unpaced, trailers, 0, ""},
	{"a back-off for an address that others share", e2e.Unpaced.With(e2e.Settings{"pace.per": "address"}), sharedAddress, 0, ""},
	{"streams that are reset at once", e2e.Unpaced, rapidReset, 10, "volume"},
	{"URLs that take long to judge", e2e.Unpaced, longURLs, 0, ""},
	{"connections with heads that do not end", e2e.Settings{"limits.memory": "256MiB"}, unendedHeads, 10, "volume"},
	{"answers of very many fields", e2e.Unpaced, manyFields, 5, "volume"},
}

// longRobots requests many hosts whose robots.txt has the maximum length.
func longRobots(t testing.TB, a *arena) {
	const connections = 8
	long := a.origin(t, "long", "User-agent: *\nDisallow: /private\nDisallow: /"+strings.Repeat("*", 500<<10))
	long.Handle("/page", e2e.TextPage("text/plain", "page"))
	client := a.hostile(t)
	inParallel(connections, 100*a.scale, func(int) {
		if status, text := request(t.Context(), client, http.MethodGet, "http://"+newHost(long, "hostile.test")+"/page", nil); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	})()
}

// redirects requests many hosts whose robots.txt redirects to a disallowed page of
// another host.
func redirects(t testing.TB, a *arena) {
	const hosts = 40
	victim, leads := a.origin(t, "victim", privateRules), a.origin(t, "leads", "")
	victim.Handle("/private", e2e.TextPage("text/plain", ""))
	leads.Handle("/page", e2e.TextPage("text/plain", "page"))
	leads.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, victim.URL("http", "/private?"+r.Host), http.StatusFound)
	})
	client := a.hostile(t)
	inParallel(8, hosts, func(int) {
		if status, text := request(t.Context(), client, http.MethodGet, "http://"+newHost(leads, "hostile.test")+"/page", nil); status != http.StatusForbidden {
			t.Errorf("%d, want 403 for unreachable: %s", status, text)
		}
	})()
	testkit.Eventually(t, "each fetch has a record", func() bool {
		text, err := os.ReadFile(a.Audit)
		return err == nil && bytes.Count(text, []byte(`"kind":"robots"`)) >= hosts
	})
}

// hopGap is the gap between two requests to a host that is the target of redirects.
const hopGap = 50 * time.Millisecond

// pacedHops requests many hosts whose robots.txt redirects to an allowed page of another host.
// That host still gets the requests of its own client.
func pacedHops(t testing.TB, a *arena) {
	const hosts = 16
	target, leads := e2e.NewOrigin(t, "target", ""), a.origin(t, "leads", "")
	target.Handle("/rules", e2e.TextPage("text/plain", ""))
	leads.Handle("/page", e2e.TextPage("text/plain", "page"))
	leads.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL("http", "/rules?"+r.Host), http.StatusFound)
	})
	client := a.hostile(t)
	wait := inParallel(8, hosts, func(int) {
		if status, text := request(t.Context(), client, http.MethodGet, "http://"+newHost(leads, "hostile.test")+"/page", nil); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	})
	for range 4 {
		if status, text := request(t.Context(), a.Client(t, false), http.MethodGet, target.URL("http", "/rules?honest"), nil); status != http.StatusOK {
			t.Errorf("the target's own client: %d %s", status, text)
		}
	}
	wait()
	pages := target.Pages("http")
	if len(pages) != hosts+4 {
		t.Errorf("%d requests arrived, want %d", len(pages), hosts+4)
	}
	e2e.WantGaps(t, pages, hopGap)
}

// refusedAgent is the first to request origins that answer its User-Agent in another way than
// others.
func refusedAgent(t testing.TB, a *arena) {
	const scanner = "sqlmap/1.8"
	hides, fails := a.origin(t, "hides", ""), a.origin(t, "fails", "")
	for o, status := range map[*e2e.Origin]int{hides: http.StatusForbidden, fails: http.StatusServiceUnavailable} {
		o.Handle("/page", e2e.TextPage("text/plain", "page"))
		o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
			if ua := r.UserAgent(); ua == scanner || ua == "" {
				w.WriteHeader(status)
				return
			}
			io.WriteString(w, privateRules)
		})
	}
	client, honest := a.hostile(t), a.Client(t, false)
	for i, agent := range []string{scanner, ""} {
		for _, o := range []*e2e.Origin{hides, fails} {
			host := o.Hostport("http")
			if i > 0 {
				host = newHost(o, "hostile.test")
			}
			request(t.Context(), client, http.MethodGet, "http://"+host+"/page?hostile", nil, "User-Agent", agent)
			for path, want := range map[string]int{"/page?honest": http.StatusOK, "/private": http.StatusForbidden} {
				if status, text := request(t.Context(), honest, http.MethodGet, "http://"+host+path, nil, "User-Agent", honestAgent); status != want {
					t.Errorf("%s%s behind %q: %d, want %d: %s", host, path, agent, status, want, text)
				}
			}
		}
	}
}

// slowTransfers holds all slots of two hosts with slow transfers: uploads, and responses that it
// does not read. Another client still gets its pages.
func slowTransfers(t testing.TB, a *arena) {
	const pages = 10
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shared := a.origin(t, "shared", "")
	shared.Handle("/page", e2e.TextPage("text/plain", "page"))
	shared.Handle("/upload", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	shared.Handle("/endless", e2e.RepeatedPage(make([]byte, 1<<20), 1<<10))
	hosts := []string{newHost(shared, "hostile.test"), newHost(shared, "hostile.test")}
	client := a.hostile(t)
	var all sync.WaitGroup
	defer all.Wait()
	for range 2 { // pace.max_concurrent
		all.Go(func() {
			body, trickle := io.Pipe()
			all.Go(func() {
				for ctx.Err() == nil {
					trickle.Write([]byte("b"))
					select {
					case <-time.After(50 * time.Millisecond):
					case <-ctx.Done():
					}
				}
				trickle.Close()
			})
			request(ctx, client, http.MethodPost, "http://"+hosts[0]+"/upload", body)
		})
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hosts[1]+"/endless", nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			<-ctx.Done()
			resp.Body.Close()
		})
	}
	testkit.Eventually(t, "the places are taken", func() bool { return len(shared.Pages("http")) == 4 })
	other := a.Client(t, false)
	inParallel(len(hosts), len(hosts), func(i int) {
		for n := range pages {
			if status, text := request(t.Context(), other, http.MethodGet, fmt.Sprintf("http://%s/page?%d", hosts[i], n), nil); status != http.StatusOK {
				t.Errorf("another client's request to %s: %d %s", hosts[i], status, text)
			}
		}
	})()
	cancel()
}

// tarpits requests, over HTTP/2, more hosts that never send their robots.txt than there are slots
// for fetches, until the honest client has its responses.
func tarpits(t testing.TB, a *arena) {
	const connections = 20
	streams := 60 * a.scale
	tarpit := e2e.NewOrigin(t, "tarpit", "")
	release := make(chan struct{})
	tarpit.Handle("/robots.txt", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	clients := make([]*http.Client, connections)
	for i := range clients {
		clients[i] = a.hostileStreams(t)
	}
	wait := inParallel(connections*streams, connections*streams, func(i int) {
		request(ctx, clients[i%connections], http.MethodGet, "http://"+newHost(tarpit, "hostile.test")+"/page", nil)
	})
	testkit.Eventually(t, "fetches are held up", func() bool { return len(tarpit.Arrivals("http")) > 100 })
	a.honest.answered(t, a.asked)
	close(release)
	cancel()
	wait()
}

// longRecords sends requests that need much space in the audit and cost the sender
// little.
func longRecords(t testing.TB, a *arena) {
	const requests, garbage = 100, 500
	const mostBesidesURL, mostASecond = 4 << 10, 100 // bytes of a record besides its URL, and records per second
	o := a.origin(t, "long", privateRules)
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	long := strings.Repeat("\xff", 8<<10) // six bytes each in JSON
	client := a.hostile(t)
	inParallel(4, requests, func(i int) {
		request(t.Context(), client, http.MethodGet, o.URL("http", "/page?"+strconv.Itoa(i)), nil, "User-Agent", long, "From", long)
		request(t.Context(), client, http.MethodGet, o.URL("http", "/private?"+strconv.Itoa(i)), nil, "User-Agent", long)
	})()
	began := time.Now()
	inParallel(8, garbage, func(int) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostileAddress)}}
		c, err := d.Dial("tcp", a.Listen)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "GET /no-host HTTP/1.1\r\n\r\n")
		io.Copy(io.Discard, c)
	})()
	seconds := int(time.Since(began)/time.Second) + 2 // maximum number of clock seconds during the sending
	var malformed, counted int
	testkit.Eventually(t, "all of the garbage is accounted for", func() bool {
		malformed, counted = 0, 0
		for _, r := range e2e.ReadLines(t, a.Audit) {
			if r.Reason == "malformed" {
				malformed++
			} else if r.Kind != "" {
				counted += r.Count
			}
		}
		return malformed+counted == garbage
	})
	if malformed > seconds*mostASecond {
		t.Errorf("%d malformed requests have records, want at most %d in %d s", malformed, seconds*mostASecond, seconds)
	}
	text, err := os.ReadFile(a.Audit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r struct{ URL json.RawMessage }
		if json.Unmarshal(line, &r) == nil && len(line)-len(r.URL) > mostBesidesURL {
			t.Fatalf("a record has %d bytes besides its URL, want at most %d: %.200s", len(line)-len(r.URL), mostBesidesURL, line)
		}
	}
}

// waitingBodies sends bodies, over HTTP/2, that the proxy reads before the turn of their
// requests.
func waitingBodies(t testing.TB, a *arena) {
	const connections = 20
	streams := 20 * a.scale
	slow := a.origin(t, "slow", "User-agent: *\nCrawl-delay: 10\n")
	slow.Handle("/page", e2e.TextPage("text/plain", "page"))
	ctx, cancel := context.WithCancel(t.Context())
	clients := make([]*http.Client, connections)
	for i := range clients {
		clients[i] = a.hostileStreams(t)
	}
	body := strings.Repeat("b", 64<<10)
	wait := inParallel(connections*streams, connections*streams, func(i int) {
		request(ctx, clients[i%connections], http.MethodPost, "http://"+slow.Hostport("http")+"/page", strings.NewReader(body))
	})
	a.honest.answered(t, a.asked)
	cancel()
	wait()
}

// robotsAgain requests the robots.txt of a slow host again and again, as crawlers do.
func robotsAgain(t testing.TB, a *arena) {
	const rules = "User-agent: *\nCrawl-delay: 10\n"
	slow := e2e.NewOrigin(t, "slow", rules)
	client := a.hostile(t)
	inParallel(8, 200, func(int) {
		if status, text := request(t.Context(), client, http.MethodGet, slow.URL("http", "/robots.txt"), nil); status != http.StatusOK || text != rules {
			t.Errorf("%d %s", status, text)
		}
	})()
	if n := len(slow.Arrivals("http")); n != 1 {
		t.Errorf("robots.txt was asked for %d times, want once", n)
	}
}

// slowBodies transfers many bodies in very small pieces: uploads and responses, each on its
// own connection. Nobody reads what the proxy sends.
func slowBodies(t testing.TB, a *arena) {
	const hosts = 20
	o := a.origin(t, "slow", privateRules)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan net.Conn) // receives the connections on which pieces are sent
	for path, head := range map[string]string{"/upload": "", "/answer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"} {
		o.Handle(path, func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
			if io.WriteString(c, head); head != "" {
				begun <- c
			}
		})
	}
	to := make([]string, hosts)
	for i := range to {
		to[i] = newHost(o, "hostile.test")
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostileAddress)}}
	wait := inParallel(8, 200*a.scale, func(i int) {
		c, err := d.Dial("tcp", a.Listen)
		if err != nil {
			t.Error(err)
			return
		}
		context.AfterFunc(ctx, func() { c.Close() })
		if i%2 == 0 {
			fmt.Fprintf(c, "GET http://%[1]s/answer?%[2]d HTTP/1.1\r\nHost: %[1]s\r\n\r\n", to[i%hosts], i)
			return
		}
		fmt.Fprintf(c, "POST http://%[1]s/upload?%[2]d HTTP/1.1\r\nHost: %[1]s\r\nTransfer-Encoding: chunked\r\n\r\n", to[i%hosts], i)
		begun <- c
	})
	conns := make([]net.Conn, 200*a.scale)
	for i := range conns {
		conns[i] = testkit.Within(t, "a transfer begins", begun)
	}
	wait()
	testkit.Eventually(t, "the uploads have arrived", func() bool { return len(o.Pages("http")) == len(conns) })
	var pieces sync.WaitGroup
	pieces.Go(func() { sendPieces(ctx, conns) })
	a.honest.answered(t, a.asked)
	cancel()
	pieces.Wait()
}

// sendPieces sends a byte on each connection repeatedly until ctx ends.
func sendPieces(ctx context.Context, conns []net.Conn) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, c := range conns {
			io.WriteString(c, "1\r\nb\r\n")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// trailers sends trailer fields that were judged in the head.
func trailers(t testing.TB, a *arena) {
	o := a.origin(t, "trailers", privateRules)
	arrived := make(chan http.Header, 1)
	o.Handle("/page", func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		arrived <- r.Trailer
	})
	for _, announced := range []string{"X-Sum", "X-Sum, User-Agent, Host"} {
		w := a.Dial(t)
		w.Send(t, "POST "+o.URL("http", "/page")+" HTTP/1.1", "Host: "+o.Hostport("http"), "User-Agent: "+honestAgent, "Trailer: "+announced, "Transfer-Encoding: chunked", "",
			"0", "X-Sum: 7", "User-Agent: EvilBot/1.0", "X-More: 8", "Host: evil.test")
		if got := w.Receive(t, http.MethodPost); got.Status != http.StatusOK {
			t.Errorf("%v", got)
		}
		if diff := cmp.Diff(http.Header{"X-Sum": {"7"}}, testkit.Within(t, "the request", arrived)); diff != "" {
			t.Errorf("announced %s: trailer (-want +got):\n%s", announced, diff)
		}
	}
}

// sharedAddress makes a host at the address of the honest hosts ask for a back-off.
func sharedAddress(t testing.TB, a *arena) {
	a.site.Handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for range 3 {
		request(t.Context(), a.hostile(t), http.MethodGet, "http://"+newHost(a.site, "hostile.test")+"/busy", nil)
	}
}

// rapidReset opens streams and resets them at once (CVE-2023-44487).
func rapidReset(t testing.TB, a *arena) {
	const connections = 4
	o := a.origin(t, "reset", privateRules)
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	inParallel(connections, connections, func(int) { a.resetStreams(t, o.Hostport("http"), 1000*a.scale) })()
}

// resetStreams does this on one connection until the proxy closes it.
func (a *arena) resetStreams(t testing.TB, host string, n int) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostileAddress)}}
	c, err := d.Dial("tcp", a.Listen)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	go io.Copy(io.Discard, c) // ends with c
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, nil)
	f.WriteSettings()
	var block bytes.Buffer
	pack := hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", host}, {":path", "/page?" + strconv.Itoa(i)}} {
			pack.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		id := uint32(2*i + 1)
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		if err := f.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			return
		}
	}
}

// longURLs requests URLs of a host whose rules take long to match them.
func longURLs(t testing.TB, a *arena) {
	const rule = "Disallow: /*a*a*a*a*a*a*a*a*b$\n"
	o := a.origin(t, "longurls", "User-agent: *\n"+strings.Repeat(rule, 500<<10/len(rule)))
	client := a.hostile(t)
	inParallel(4, 40, func(i int) {
		if status, _ := request(t.Context(), client, http.MethodGet, o.URL("http", "/"+strings.Repeat("a", (9+i)<<10)), nil); status != http.StatusRequestURITooLong {
			t.Errorf("a URL of %d KiB: %d, want %d", 9+i, status, http.StatusRequestURITooLong)
		}
	})()
	if n := len(o.Pages("http")); n != 0 {
		t.Errorf("%d of them arrived", n)
	}
}

// unendedHeads opens connections and sends 60 KB of an HTTP/2 head on each. One address may not use
// that much memory.
func unendedHeads(t testing.TB, a *arena) {
	var head bytes.Buffer
	head.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&head, nil)
	f.WriteSettings()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82")})
	for range 4 {
		f.WriteContinuation(1, false, make([]byte, 15_000))
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostileAddress)}}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range 800 * a.scale {
		c, err := d.Dial("tcp", a.Listen)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		c.Write(head.Bytes()) // fails if the proxy has closed the connection
	}
	testkit.Eventually(t, "connections have been closed", func() bool {
		return a.Metrics(t)["robotsproxy_memory_refused_connections_total"] > 0
	})
	a.honest.answered(t, a.asked)
}

// manyFields makes origins respond with heads of very many small fields and bodies that never
// arrive.
func manyFields(t testing.TB, a *arena) {
	o := a.origin(t, "fields", "")
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n")
	for i := 0; head.Len() < 250_000; i++ {
		fmt.Fprintf(&head, "%x:\r\n", i)
	}
	head.WriteString("\r\n")
	o.Handle("/page", func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		c.Write(head.Bytes())
		io.Copy(io.Discard, c)
	})
	client := a.hostile(t)
	inParallel(20, 200*a.scale, func(int) {
		if status, _ := request(t.Context(), client, http.MethodGet, "http://"+newHost(o, "hostile.test")+"/page", nil); status != http.StatusBadGateway {
			t.Errorf("status %d", status)
		}
	})()
}
