package e2e

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A client that does not know the CA cannot say so to anybody but us.
func TestDistrustIsCounted(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "distrust", "")
	o.handle("/page", textPage("text/plain", "hello"))
	p := startProxy(t, outOfTheWay)
	const untrusted = "robotsproxy_client_tls_failures_total untrusted tunnel"
	strangers := p.client(t, false)
	strangers.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	if resp, err := strangers.Get(o.url("https", "/page")); err == nil {
		resp.Body.Close()
		t.Error("a client that knows no CA trusts one")
	}
	p.awaitMetric(t, untrusted, 1)
	p.awaitMetric(t, "robotsproxy_tunnels_unused_total", 1)
	if got := get(t, p.client(t, false), o.url("https", "/page")); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	t.Run("curl", func(t *testing.T) {
		curl := needPeer(t, "curl")
		if out := runPeer(t, []string{curl, "-s", "-x", "http://" + p.listen, o.url("https", "/page")}, nil); out.code != 60 {
			t.Errorf("exit %d: %s", out.code, out.stdout)
		}
		p.awaitMetric(t, untrusted, 2)
	})
	t.Run("node", func(t *testing.T) { // finds the certificate wrong when the handshake is over
		node := needPeer(t, "node")
		script := `const c = require("http").request({host: "127.0.0.1", port: process.argv[1], method: "CONNECT", path: process.argv[2]});
			c.on("connect", (_, socket) => require("tls").connect({socket, servername: process.argv[2].split(":")[0]}).on("error", e => console.log(e.code)));
			c.end();`
		before := p.metrics(t)["robotsproxy_tunnels_unused_total"]
		_, port, _ := strings.Cut(p.listen, ":")
		if out := runPeer(t, []string{node, "-e", script, port, o.hostport("https")}, nil); out.code != 0 || !strings.Contains(out.stdout, "_") {
			t.Errorf("exit %d: %s%s", out.code, out.stdout, out.stderr)
		}
		p.awaitMetric(t, "robotsproxy_tunnels_unused_total", before+1)
	})
	after := p.metrics(t)
	if after["robotsproxy_leaf_certificates"] != 1 || after["robotsproxy_leaf_certificates_minted_total"] != 1 {
		t.Errorf("%v certificates, %v made; want 1", after["robotsproxy_leaf_certificates"], after["robotsproxy_leaf_certificates_minted_total"])
	}
}

func TestOpenTunnelsAreCounted(t *testing.T) {
	t.Parallel()
	o, sealed := newOrigin(t, "opened", ""), newOrigin(t, "sealed", "")
	o.handle("/page", textPage("text/plain", "hello"))
	p := startProxy(t, outOfTheWay.with(settings{"tls.tunnel": []string{sealed.Name}}))
	inside := p.connect(t, o.hostport("https")).secure(t, p, o.Name, "http/1.1")
	inside.send(t, "GET /page HTTP/1.1", "Host: "+o.hostport("https"))
	if got := inside.receive(t, http.MethodGet); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	passed := p.connect(t, sealed.hostport("https"))
	for name, want := range map[string]float64{
		"robotsproxy_tunnels intercepted": 1, "robotsproxy_tunnels unopened": 1,
		"robotsproxy_tunnels_opened_total intercepted": 1, "robotsproxy_tunnels_opened_total unopened": 1,
		"robotsproxy_client_connections": 2, "robotsproxy_client_connections_accepted_total": 2,
		"robotsproxy_inflight_requests": 1, "robotsproxy_tunnels_unused_total": 0,
	} {
		p.awaitMetric(t, name, want)
	}
	inside.Close()
	passed.Close()
	for name, want := range map[string]float64{
		"robotsproxy_tunnels intercepted": 0, "robotsproxy_tunnels unopened": 0, "robotsproxy_tunnels_opened_total intercepted": 1,
		"robotsproxy_client_connections": 0, "robotsproxy_inflight_requests": 0,
	} {
		p.awaitMetric(t, name, want)
	}
}

// How the way out fares, and what is known of robots.txt.
func TestOriginsAreCounted(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "counted", "")
	o.handle("/page", textPage("text/plain", "hello"))
	ill := newOrigin(t, "ill", "")
	ill.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	none := newOrigin(t, "none", "")
	none.handle("/robots.txt", http.NotFound)
	none.handle("/page", textPage("text/plain", "hello"))
	p := startProxy(t, outOfTheWay)
	c := p.client(t, false)
	for _, site := range []*origin{o, o, o, ill, none} {
		get(t, c, site.url("http", "/page"))
	}
	get(t, c, "http://nowhere.test/page")
	get(t, c, fmt.Sprintf("http://%s:%d/page", o.Name, freePort(t)))
	for name, want := range map[string]float64{
		"robotsproxy_egress_dials_total ok origin":          3,
		"robotsproxy_egress_dials_total dns origin":         1,
		"robotsproxy_egress_dials_total refused origin":     1,
		"robotsproxy_robots_fetches_total rules":            1,
		"robotsproxy_robots_fetches_total unreachable":      1,
		"robotsproxy_robots_fetches_total no-file":          1,
		"robotsproxy_robots_fetches_total no-connection":    2,
		"robotsproxy_robots_fetch_duration_seconds":         5,
		"robotsproxy_robots_cache_hits_total":               2,
		"robotsproxy_robots_cache_misses_total":             5,
		"robotsproxy_robots_cache_entries":                  5,
		"robotsproxy_snapshots_kept_total":                  5,
		"robotsproxy_audit_lines_total":                     12, // five are of fetches
		"robotsproxy_state_errors_total":                    0,
		"robotsproxy_snapshots_errors_total keep":           0,
		"robotsproxy_client_connections_refused_total none": 0,
	} {
		p.awaitMetric(t, name, want)
	}
	if m := p.metrics(t); m["robotsproxy_egress_connections origin"] == 0 || m["robotsproxy_robots_cache_bytes"] == 0 || m["robotsproxy_snapshots_bytes"] == 0 || m["robotsproxy_state_bytes"] == 0 {
		t.Errorf("%v", m)
	}
}

func TestFullDiskIsCounted(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "full", forbidding)
	disk := smallDisk(t, "256k")
	file := filepath.Join(disk, "audit.jsonl")
	p := startProxy(t, outOfTheWay.with(settings{"audit.file": file}))
	c := p.client(t, false)
	before := p.metrics(t)
	if before["robotsproxy_audit_healthy"] != 1 || before["robotsproxy_ready"] != 1 || before["robotsproxy_audit_errors_total"] != 0 {
		t.Errorf("%v", before)
	}
	ballast := fill(t, disk)
	for {
		if _, err := refusedID(c, o.url("http", "/no")); err != nil { // a page may have some room left
			break
		}
	}
	p.awaitMetric(t, "robotsproxy_audit_healthy", 0)
	p.awaitMetric(t, "robotsproxy_ready", 0)
	eventually(t, patience, "errors and the lag grow", func() bool {
		m := p.metrics(t)
		return m["robotsproxy_audit_errors_total"] > 1 && m["robotsproxy_audit_lag_seconds"] > 1 && m["robotsproxy_audit_unwritten_lines"] > 0
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"robotsproxy_audit_healthy": 1, "robotsproxy_ready": 1, "robotsproxy_audit_unwritten_lines": 0, "robotsproxy_audit_lag_seconds": 0,
		"robotsproxy_audit_unsynced_lines": 0, "robotsproxy_audit_lost_records_total": 0,
	} {
		p.awaitMetric(t, name, want)
	}
}

// Whoever is asked for, and whoever asks: no series more.
func TestStrangersAddNoSeries(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "strange", "User-agent: *\nDisallow: /private\n")
	p := startProxy(t, outOfTheWay)
	c := p.client(t, false)
	before := p.metrics(t)
	hosts := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range hosts {
				for _, address := range []string{fmt.Sprintf("http://h%d.nowhere.test/%d", i, i), o.url("http", fmt.Sprintf("/private/%d?%%22%%7d%%0a", i))} {
					req, _ := http.NewRequest(http.MethodGet, address, nil)
					req.Header.Set("User-Agent", fmt.Sprintf("Bot%d\"} 1\t# TYPE x counter", i))
					req.Method = fmt.Sprintf("M%d", i)
					resp, err := c.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	for i := range 500 {
		hosts <- i
	}
	close(hosts)
	all.Wait()
	after := p.metrics(t)
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("a series more: %s", name)
		}
	}
	if n := after["robotsproxy_decisions_total block rule"] + after["robotsproxy_decisions_total block origin"]; n != 1000 { // as many refusals as one client gets without a wait
		t.Errorf("%v requests counted, want 1000", n)
	}
}

// README.md's tables are what serve shows: where it is told to, the certificate of its
// own port as well; of one that is on its own, without what is of a fleet.
func TestServeShowsWhatReadmeTells(t *testing.T) {
	t.Parallel()
	cert, key, _ := ownCertificate(t)
	showsWhatReadmeTells(t, settings{"listen_tls.cert": cert, "listen_tls.key": key}, false)
}

func showsWhatReadmeTells(t *testing.T, s settings, fleet bool) {
	t.Helper()
	p := startProxy(t, s)
	shown := map[string]bool{}
	for name := range p.metrics(t) {
		name, _, _ = strings.Cut(name, " ")
		shown[name] = true
	}
	readme, err := os.Open("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	defer readme.Close()
	told := 0
	for lines := bufio.NewScanner(readme); lines.Scan(); {
		row, ok := strings.CutPrefix(lines.Text(), "| `robotsproxy_")
		if name, _, _ := strings.Cut("robotsproxy_"+row, "`"); ok {
			told++
			ofFleets := strings.HasPrefix(row, "store_") || strings.HasPrefix(row, "pace_times_slower`")
			if want := fleet || !ofFleets; shown[name] != want {
				t.Errorf("%s is shown: %v, want %v", name, shown[name], want)
			}
		}
	}
	if told < 40 {
		t.Errorf("%d metrics are told of", told)
	}
}
