package hostile

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/policy"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots/testkit"
)

// TestManyLoopbackAddresses: a program with many source addresses in 127.0.0.0/8 is one client. It does not delay an
// honest client with an entry in clients, and does not fill the audit.
func TestManyLoopbackAddresses(t *testing.T) {
	const addresses, waiting, honestPages = 40, 4, 5
	o := e2e.NewOrigin(t, "shared", privateRules)
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	settings := e2e.Unpaced.With(e2e.Named(honestAddress)).With(e2e.Settings{"pace.requests_per_second": 20, "pace.burst": 1, "pace.max_queue": 1000})
	p := e2e.StartProxy(t, settings)
	attackers := make([]*http.Client, addresses)
	for i := range attackers {
		attackers[i] = e2e.From(t, p.Client(t, false), fmt.Sprintf("127.%d.1.1", i+1))
	}
	honest := p.Client(t, false)
	if got := e2e.Get(t, honest, o.URL("http", "/page?first")); got.Status != http.StatusOK {
		t.Fatal(got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	queued := inParallel(addresses*waiting, addresses*waiting, func(i int) {
		request(ctx, attackers[i%addresses], http.MethodGet, o.URL("http", fmt.Sprint("/page?hostile", i)), nil)
	})
	testkit.Eventually(t, "the attacker's requests wait", func() bool { return p.Metrics(t)[e2e.Waiting] > addresses })
	for i := range honestPages {
		if got := e2e.Get(t, honest, o.URL("http", fmt.Sprint("/page?honest", i))); got.Status != http.StatusOK {
			t.Errorf("an honest request: %v", got)
		}
	}
	cancel()
	queued()
	first, between := -1, 0
	for i, h := range o.Pages("http") {
		if strings.Contains(h.Path, "?honest") {
			if first < 0 {
				first = i
			}
			between = i - first
		}
	}
	if most := honestPages * addresses / 2; between > most { // with a turn for each address, each request would wait for so many
		t.Errorf("%d honest requests lasted as long as %d of all, want at most %d", honestPages, between, most)
	}
}

// TestManyClientsFillNoAudit: refusals that cost many clients nothing do not fill the audit, and those of an
// honest client, which are few, have their records beside them.
func TestManyClientsFillNoAudit(t *testing.T) {
	testkit.Long(t, "volume")
	const attackers, mostASecond, most = 60, 1000, 25
	addresses := []string{honestAddress}
	for i := range attackers {
		addresses = append(addresses, fmt.Sprintf("127.9.1.%d", i+1))
	}
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Named(addresses...)))
	honest := p.Client(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	var answered atomic.Int64
	wait := inParallel(attackers, attackers, func(i int) {
		for ctx.Err() == nil {
			answered.Add(floodRefusals(ctx, p.Listen, addresses[i+1]))
		}
	})
	// The attackers take all of the first seconds.
	testkit.Eventually(t, "refusals are only counted", func() bool {
		return time.Since(began) > 3*time.Second && p.Metrics(t)["robotsproxy_audit_counted_refusals_total"] > 1000
	})
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for n := range most {
		if got := e2e.Get(t, honest, fmt.Sprint("http://127.0.0.1:22/?", n)); got.Status != http.StatusForbidden {
			t.Errorf("an honest request: %v", got)
		}
		<-tick.C
	}
	cancel()
	wait()
	seconds := int(time.Since(began)/time.Second) + 2
	p.End(t)
	of, counted := map[string]int{}, 0
	for _, r := range e2e.ReadLines(t, p.Audit) {
		of[r.Client]++
		counted += r.Count
	}
	recorded := 0
	for _, a := range addresses[1:] {
		recorded += of["client-"+a]
	}
	if recorded > seconds*mostASecond || counted == 0 {
		t.Errorf("%d of %d refusals of the attackers have records and %d are counted, in %d s", recorded, answered.Load(), counted, seconds)
	}
	if n := of["client-"+honestAddress]; n < most/2 { // when attackers that were held up come back, they take all of a second
		t.Errorf("%d of %d honest requests have a record", n, most)
	}
	info, err := os.Stat(p.Audit)
	testkit.Must(t, err)
	t.Logf("%d refusals in %d s: %d with records, %d counted, %s", answered.Load(), seconds, recorded, counted, humanize.Bytes(info.Size()))
}

// floodRefusals sends requests that the proxy refuses over one connection from an address, until ctx ends or the
// proxy closes it. It returns how many were answered.
func floodRefusals(ctx context.Context, proxy, address string) (n int64) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.DialContext(ctx, "tcp", proxy)
	if err != nil {
		return 0
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	answers := make(chan int64)
	go func() { answers <- countAnswers(c) }()
	refused := []byte(strings.Repeat("GET http://127.0.0.1:22/ HTTP/1.1\r\nHost: x\r\n\r\n", 50)) // a port that must not be requested
	for err == nil {
		_, err = c.Write(refused)
	}
	return <-answers
}

// countAnswers reads responses until the connection ends and returns their number.
func countAnswers(c net.Conn) (n int64) {
	for br := bufio.NewReader(c); ; n++ {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return n
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return n
		}
	}
}

// TestWrongPasswordsOfOneClient: many wrong passwords of one address, which take long to check, do not lock out clients
// that log in for the first time.
func TestWrongPasswordsOfOneClient(t *testing.T) {
	const guessers, honest = 200, 6
	o := e2e.NewOrigin(t, "login", "")
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	hash, err := policy.HashPassword(e2e.Secret)
	testkit.Must(t, err)
	clients := []e2e.Entry{{"name": "roaming", "password_hash": hash}} // so that a login is checked from any address
	for i := range honest {
		clients = append(clients, e2e.Entry{"name": fmt.Sprint("honest", i), "password_hash": hash, "networks": []string{honestAddress + "/32"}})
	}
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"clients": clients}))
	ask := func(ctx context.Context, c *http.Client, name, password, query string) int {
		token := base64.StdEncoding.EncodeToString([]byte(name + ":" + password))
		status, _ := request(ctx, c, http.MethodGet, o.URL("http", "/page?"+query), nil, "Proxy-Authorization", "Basic "+token)
		return status
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var busy atomic.Int64
	attacker := e2e.From(t, p.Client(t, false), hostileAddress)
	wait := inParallel(guessers, guessers, func(i int) {
		for n := 0; ctx.Err() == nil; n++ {
			if ask(ctx, attacker, "roaming", fmt.Sprint("guess ", i, " ", n), "hostile") == http.StatusTooManyRequests {
				busy.Add(1)
				select { // otherwise these answers would take the processors
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		}
	})
	testkit.Eventually(t, "too many wait", func() bool { return busy.Load() > guessers })
	for i := range honest {
		if status := ask(t.Context(), p.Client(t, false), fmt.Sprint("honest", i), e2e.Secret, fmt.Sprint(i)); status != http.StatusOK {
			t.Errorf("the first login of client %d: %d", i, status)
		}
	}
	cancel()
	wait()
	var arrived []string
	for _, h := range o.Pages("http") {
		arrived = append(arrived, h.Path)
	}
	if want := []string{"/page?0", "/page?1", "/page?2", "/page?3", "/page?4", "/page?5"}; !slices.Equal(arrived, want) {
		t.Errorf("%q arrived, want %q", arrived, want)
	}
}
