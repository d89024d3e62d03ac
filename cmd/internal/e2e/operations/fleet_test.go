package operations

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots/testkit"
)

// A fleet is a set of replicas with one CA and one store behind a TCP load balancer.
type fleet struct {
	replicas []*e2e.Proxy
	front    string // address of the load balancer, host:port
}

// storeURL returns the URL of a store: a real server, or a substitute under -short.
func storeURL(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		return "redis://" + m.Addr()
	}
	return redistest.Start(t).URL()
}

// startFleet runs the given number of replicas until the test ends.
func startFleet(t testing.TB, store string, n int, own e2e.Settings) *fleet {
	t.Helper()
	f := &fleet{}
	own = own.With(e2e.Settings{"store.redis": store, "store.replicas": n})
	for i := range n {
		mine := own.With(e2e.Settings{"store.replica": fmt.Sprintf("r%d", i)})
		if i > 0 {
			ca := f.replicas[0].CA
			mine = mine.With(e2e.Settings{"tls.ca_cert": ca, "tls.ca_key": filepath.Join(filepath.Dir(ca), "ca.key")})
		}
		f.replicas = append(f.replicas, e2e.StartProxy(t, mine))
	}
	f.front = balance(t, f.replicas)
	return f
}

// client returns a client that knows only the load balancer. Each of its connections
// leads to one replica.
func (f *fleet) client(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	c := f.replicas[0].Client(t, h2)
	c.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: f.front})
	c.Timeout = 2 * time.Minute
	return c
}

// awaitStore waits until all replicas report the store as available or unavailable.
func (f *fleet) awaitStore(t testing.TB, there float64) {
	t.Helper()
	for _, p := range f.replicas {
		testkit.Eventually(t, fmt.Sprintf("robotsproxy_store_up is %v", there), func() bool { return p.Metrics(t)["robotsproxy_store_up"] == there })
	}
}

// balance passes connections to the replicas in turn until the test ends. It returns the
// address on which it listens.
func balance(t testing.TB, replicas []*e2e.Proxy) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for next := 0; ; next++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { lead(ctx, c, replicas[next%len(replicas)].Listen) })
		}
	})
	t.Cleanup(func() {
		stop()
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// lead joins a connection with a new one to addr.
func lead(ctx context.Context, c net.Conn, addr string) {
	defer c.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	end := context.AfterFunc(ctx, func() { c.Close(); to.Close() })
	defer end()
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(c, to)
		c.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(to, c)
	to.(*net.TCPConn).CloseWrite()
	<-back
}

// startHAProxy runs HAProxy with the published configuration and these replicas, and
// returns its address.
func startHAProxy(t testing.TB, replicas []*e2e.Proxy) string {
	t.Helper()
	bin := e2e.NeedPeer(t, "haproxy")
	text, _, _ := strings.Cut(e2e.ReadText(t, e2e.DeployDir()+"/fleet/haproxy.cfg"), "\nresolvers docker")
	front := fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(t))
	change := []string{"bind :8080", "bind " + front, "init-addr last,libc,none resolvers docker", ""}
	for i, p := range replicas {
		name := fmt.Sprintf("server proxy-%d ", i+1)
		change = append(change, fmt.Sprintf("%sproxy-%d:8080", name, i+1), name+p.Listen)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	e2e.WriteFile(t, file, strings.NewReplacer(change...).Replace(text)+"\n")
	cmd := exec.Command(bin, "-db", "-f", file)
	var said e2e.SyncBuffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy said:\n%s", &said)
		}
	})
	testkit.Eventually(t, "haproxy listens", func() bool {
		c, err := net.Dial("tcp", front)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return front
}

// sender returns the replica that sent a request: each has its own pseudonym in Via.
func sender(h e2e.Hit) string { return cmp.Or(h.Header.Get("Via"), "nobody") }

// gaps returns the times between successive arrivals.
func gaps(hits []e2e.Hit) (all []time.Duration) {
	slices.SortFunc(hits, func(a, b e2e.Hit) int { return a.At.Compare(b.At) })
	for i := 1; i < len(hits); i++ {
		all = append(all, hits[i].At.Sub(hits[i-1].At))
	}
	return all
}

// leastGap returns the minimum time between two requests that are due to be some time apart. A machine may stop a
// replica right before it writes: its request arrives late, after a gap that is longer by as much as the next one is
// shorter, so that much is added to the next gap.
func leastGap(hits []e2e.Hit, due time.Duration) time.Duration {
	least, late := time.Hour, time.Duration(0)
	for _, gap := range gaps(hits) {
		least = min(least, gap+late)
		late = max(0, gap-due)
	}
	return least
}

// bySender returns the arrivals by replica.
func bySender(hits []e2e.Hit) map[string][]e2e.Hit {
	all := map[string][]e2e.Hit{}
	for _, h := range hits {
		all[sender(h)] = append(all[sender(h)], h)
	}
	return all
}

// between returns the hits within a period.
func between(hits []e2e.Hit, from, to time.Time) []e2e.Hit {
	return slices.DeleteFunc(slices.Clone(hits), func(h e2e.Hit) bool { return h.At.Before(from) || h.At.After(to) })
}

// sendLoad requests pages of o until stop is closed. Each client sends one request after
// the other, on its own connections to the load balancer; with stay, two of three stay at
// one replica. It returns the number of responses, and all that were not 200.
func (f *fleet) sendLoad(
	t testing.TB, o *e2e.Origin, scheme string, clients int, stay bool, stop <-chan struct{},
) (answered *atomic.Int64, end func() []string) {
	t.Helper()
	var mu sync.Mutex // guards lost
	var lost []string
	answered = new(atomic.Int64)
	var all sync.WaitGroup
	for i := range clients {
		client := f.client(t, i%2 == 0)
		transport := client.Transport.(*http.Transport)
		if transport.DisableKeepAlives = i%3 == 0; i%3 > 0 && stay {
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: f.replicas[i/3%len(f.replicas)].Listen})
		}
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Get(o.URL(scheme, fmt.Sprintf("/page?%d.%d", i, n)))
				why := ""
				if err != nil {
					why = err.Error()
				} else {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK {
						why = fmt.Sprint(resp.Status, " ", err, resp.Header["Proxy-Status"])
					}
				}
				answered.Add(1)
				if why != "" {
					mu.Lock()
					lost = append(lost, why)
					mu.Unlock()
				}
			}
		})
	}
	return answered, func() []string {
		all.Wait()
		return lost
	}
}

// Three replicas together are as polite as one. BenchmarkFleetPace sends more requests
// and measures how late they are.
func TestFleetKeepsOnePace(t *testing.T) {
	testkit.Long(t, "waits for the real clock")
	t.Parallel()
	onePace(t, 18, 200*time.Millisecond)
}

// onePace makes many clients request pages of a host with a Crawl-delay from a fleet, and returns the
// times between the arrivals.
func onePace(t testing.TB, requests int, delay time.Duration) []time.Duration {
	t.Helper()
	const clients = 12
	o := e2e.NewOrigin(t, "fleet", fmt.Sprintf("User-agent: *\nCrawl-delay: %v\n", delay.Seconds()))
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	f := startFleet(t, storeURL(t), 3, e2e.Settings{"pace.requests_per_second": 1 / delay.Seconds(), "pace.max_wait": "2m", "pace.adaptive": false})
	f.awaitStore(t, 1)
	var left atomic.Int64
	left.Store(int64(requests))
	var all sync.WaitGroup
	for i := range clients {
		client := f.client(t, i%2 == 0)
		scheme := e2e.Schemes[i/2%2]
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if got := e2e.Get(t, client, o.URL(scheme, "/page")); got.Status != http.StatusOK {
					t.Errorf("%v", got)
				}
			}
		})
	}
	all.Wait()
	pages := slices.Concat(o.Pages("http"), o.Pages("https"))
	if len(pages) != requests || len(bySender(pages)) != len(f.replicas) {
		t.Fatalf("%d pages arrived, from %d replicas", len(pages), len(bySender(pages)))
	}
	if least := leastGap(pages, delay); least < delay {
		t.Errorf("two were sent within %v of each other; apart: %v", least, gaps(pages))
	}
	for _, scheme := range e2e.Schemes {
		if n := o.Fetches(scheme); n != 1 {
			t.Errorf("%s: robots.txt was fetched %d times", scheme, n)
		}
	}
	return gaps(pages)
}

// Failures of a store under load: while it is unavailable, each replica paces alone. No request
// is lost, and the replicas reconnect by themselves.
func TestStoreFailsUnderLoad(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	for name, o := range map[string]outage{
		"killed":  {"http", (*redistest.Server).Kill, (*redistest.Server).Restart},
		"stopped": {"https", (*redistest.Server).Stop, (*redistest.Server).Continue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.underLoad(t, name)
		})
	}
}

// An outage is a way in which a store becomes unavailable and returns, while many clients
// send requests.
type outage struct {
	scheme     string
	away, back func(*redistest.Server)
}

// underLoad runs an outage of the store of a fleet.
func (fail outage) underLoad(t *testing.T, name string) {
	const gap, replicas, clients, some = 150 * time.Millisecond, 3, 9, 8
	const alone = replicas * gap
	o := e2e.NewOrigin(t, name, "")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	store := redistest.Start(t)
	f := startFleet(t, store.URL(), replicas, e2e.Settings{"pace.requests_per_second": 1 / gap.Seconds(), "pace.adaptive": false})
	f.awaitStore(t, 1)
	stop := make(chan struct{})
	answered, end := f.sendLoad(t, o, fail.scheme, clients, true, stop)
	// Replicas that have shared the store for less than 5 s take turns at once when they lose it.
	testkit.Eventually(t, "the clients are served", func() bool { return answered.Load() > int64(6*time.Second/gap) })

	fail.away(store)
	f.awaitStore(t, 0)
	gone := time.Now().Add(gap) // requests that were already on their way
	for _, p := range f.replicas {
		if line := p.Readyz(t); !strings.Contains(line, "store") {
			t.Errorf("/readyz says %q", line)
		}
	}
	testkit.Eventually(t, "each replica is at work alone", func() bool {
		by := bySender(between(o.Pages(fail.scheme), gone, time.Now()))
		return len(by) == replicas && !slices.ContainsFunc(slices.Collect(maps.Values(by)), func(own []e2e.Hit) bool { return len(own) < 8 })
	})
	returns := time.Now()
	fail.back(store)
	f.awaitStore(t, 1)
	n := answered.Load()
	testkit.Eventually(t, "the clients are served again", func() bool { return answered.Load() > n+some })
	close(stop)
	if lost := end(); len(lost) > 0 {
		t.Errorf("%d requests were lost: %.300q", len(lost), lost)
	}
	pages := o.Pages(fail.scheme)
	// The gap holds throughout: the clocks of the replicas agree.
	if least := leastGap(pages, gap); least < gap*9/10 {
		t.Errorf("two arrived within %v of each other: %v", least, gaps(pages))
	}
	while := between(pages, gone, returns)
	if most := int(returns.Sub(gone)/gap) + replicas; len(while) > most {
		t.Errorf("%d arrived in %v alone, want at most %d", len(while), returns.Sub(gone), most)
	}
	for who, own := range bySender(while) {
		if least := leastGap(own, alone); least < alone-e2e.Early {
			t.Errorf("two of %s arrived within %v of each other, want %v", who, least, alone)
		}
	}
	f.wantStoreAway(t, gone, returns)
}

// wantStoreAway checks what the records of a period say about the store and the replica.
func (f *fleet) wantStoreAway(t testing.TB, from, to time.Time) {
	t.Helper()
	for i, p := range f.replicas {
		said := 0
		for _, r := range e2e.ReadAudit(t, p.Audit) {
			if r.URL == "" {
				continue
			}
			if want := fmt.Sprintf("r%d", i); r.Replica != want {
				t.Errorf("a record of %s says it is %q's", want, r.Replica)
			}
			if r.Time.After(from) && r.Time.Before(to) && r.StoreAway {
				said++
			}
		}
		if said == 0 {
			t.Errorf("no record of r%d says that the store was away", i)
		}
	}
}

// The replicas are restarted one after the other under load, and no request fails.
func TestRollingRestart(t *testing.T) {
	testkit.Long(t, "real peers")
	t.Parallel()
	o := e2e.NewOrigin(t, "rolling", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	f := startFleet(t, storeURL(t), 2, e2e.Settings{"drain": "30s", "pace.requests_per_second": 20, "pace.max_concurrent": 8})
	f.awaitStore(t, 1)
	f.front = startHAProxy(t, f.replicas)
	stop := make(chan struct{})
	answered, end := f.sendLoad(t, o, "https", 8, false, stop)
	for i, p := range f.replicas {
		n := answered.Load()
		testkit.Eventually(t, "the clients are served", func() bool { return answered.Load() > n+15 })
		p.End(t)
		f.replicas[i] = e2e.Launch(t, p.Setup) // killed with the test, because draining takes 6 s
		f.replicas[i].AwaitReady(t)
	}
	n := answered.Load()
	testkit.Eventually(t, "the clients are served", func() bool { return answered.Load() > n+15 })
	close(stop)
	if lost := end(); len(lost) > 0 {
		t.Errorf("%d of %d requests were lost: %.300q", len(lost), answered.Load(), lost)
	}
	if least := leastGap(o.Pages("https"), 50*time.Millisecond); least < 50*time.Millisecond-e2e.Early {
		t.Errorf("two arrived within %v of each other", least)
	}
}
