package operations

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

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// Clients that do not trust the CA count in the metrics by how they end the handshake.
func TestDistrustIsCounted(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "distrust", "")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	const untrusted = "robotsproxy_client_tls_failures_total untrusted tunnel"
	strangers := p.Client(t, false)
	strangers.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	if resp, err := strangers.Get(o.URL("https", "/page")); err == nil {
		resp.Body.Close()
		t.Error("a client that knows no CA trusts one")
	}
	p.AwaitMetric(t, untrusted, 1)
	p.AwaitMetric(t, "robotsproxy_tunnels_unused_total", 1)
	if got := e2e.Get(t, p.Client(t, false), o.URL("https", "/page")); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	t.Run("curl", func(t *testing.T) {
		curl := e2e.NeedPeer(t, "curl")
		if out := e2e.RunPeer(t, []string{curl, "-s", "-x", "http://" + p.Listen, o.URL("https", "/page")}, nil); out.Code != 60 {
			t.Errorf("exit %d: %s", out.Code, out.Stdout)
		}
		p.AwaitMetric(t, untrusted, 2)
	})
	t.Run("node", func(t *testing.T) { // rejects the certificate after the handshake
		node := e2e.NeedPeer(t, "node")
		script := `const c = require("http").request({host: "127.0.0.1", port: process.argv[1], method: "CONNECT", path: process.argv[2]});
			c.on("connect", (_, socket) => require("tls").connect({socket, servername: process.argv[2].split(":")[0]}).on("error", e => console.log(e.code)));
			c.end();`
		before := p.Metrics(t)["robotsproxy_tunnels_unused_total"]
		_, port, _ := strings.Cut(p.Listen, ":")
		if out := e2e.RunPeer(t, []string{node, "-e", script, port, o.Hostport("https")}, nil); out.Code != 0 || !strings.Contains(out.Stdout, "_") {
			t.Errorf("exit %d: %s%s", out.Code, out.Stdout, out.Stderr)
		}
		p.AwaitMetric(t, "robotsproxy_tunnels_unused_total", before+1)
	})
	after := p.Metrics(t)
	if after["robotsproxy_leaf_certificates"] != 1 || after["robotsproxy_leaf_certificates_minted_total"] != 1 {
		t.Errorf("%v certificates, %v made; want 1", after["robotsproxy_leaf_certificates"], after["robotsproxy_leaf_certificates_minted_total"])
	}
}

func TestOpenTunnelsAreCounted(t *testing.T) {
	t.Parallel()
	o, sealed := e2e.NewOrigin(t, "opened", ""), e2e.NewOrigin(t, "sealed", "")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"tls.tunnel": []string{sealed.Name}}))
	inside := p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name, "http/1.1")
	inside.Send(t, "GET /page HTTP/1.1", "Host: "+o.Hostport("https"))
	if got := inside.Receive(t, http.MethodGet); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	passed := p.Connect(t, sealed.Hostport("https"))
	for name, want := range map[string]float64{
		"robotsproxy_tunnels intercepted": 1, "robotsproxy_tunnels unopened": 1,
		"robotsproxy_tunnels_opened_total intercepted": 1, "robotsproxy_tunnels_opened_total unopened": 1,
		"robotsproxy_client_connections": 2, "robotsproxy_client_connections_accepted_total": 2,
		"robotsproxy_inflight_requests": 1, "robotsproxy_tunnels_unused_total": 0,
	} {
		p.AwaitMetric(t, name, want)
	}
	inside.Close()
	passed.Close()
	for name, want := range map[string]float64{
		"robotsproxy_tunnels intercepted": 0, "robotsproxy_tunnels unopened": 0, "robotsproxy_tunnels_opened_total intercepted": 1,
		"robotsproxy_client_connections": 0, "robotsproxy_inflight_requests": 0,
	} {
		p.AwaitMetric(t, name, want)
	}
}

// Metrics about egress and about robots.txt.
func TestOriginsAreCounted(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "counted", "")
	o.Handle("/page", e2e.TextPage("text/plain", "hello"))
	ill := e2e.NewOrigin(t, "ill", "")
	ill.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	none := e2e.NewOrigin(t, "none", "")
	none.Handle("/robots.txt", http.NotFound)
	none.Handle("/page", e2e.TextPage("text/plain", "hello"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	c := p.Client(t, false)
	for _, site := range []*e2e.Origin{o, o, o, ill, none} {
		e2e.Get(t, c, site.URL("http", "/page"))
	}
	e2e.Get(t, c, "http://nowhere.test/page")
	e2e.Get(t, c, fmt.Sprintf("http://%s:%d/page", o.Name, e2e.FreePort(t)))
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
		"robotsproxy_audit_lines_total":                     13, // five lines are about fetches, one about the start
		"robotsproxy_state_errors_total":                    0,
		"robotsproxy_snapshots_errors_total keep":           0,
		"robotsproxy_client_connections_refused_total none": 0,
	} {
		p.AwaitMetric(t, name, want)
	}
	if m := p.Metrics(t); m["robotsproxy_egress_connections origin"] == 0 || m["robotsproxy_robots_cache_bytes"] == 0 || m["robotsproxy_snapshots_bytes"] == 0 || m["robotsproxy_state_bytes"] == 0 {
		t.Errorf("%v", m)
	}
}

func TestFullDiskIsCounted(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	o := e2e.NewOrigin(t, "full", e2e.Forbidding)
	disk := e2e.SmallDisk(t, "256k")
	file := filepath.Join(disk, "audit.jsonl")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.file": file}))
	c := p.Client(t, false)
	before := p.Metrics(t)
	if before["robotsproxy_audit_healthy"] != 1 || before["robotsproxy_ready"] != 1 || before["robotsproxy_audit_errors_total"] != 0 {
		t.Errorf("%v", before)
	}
	p.AwaitMetric(t, "robotsproxy_audit_space_left_seconds", 0)
	if health := e2e.Get(t, &http.Client{Timeout: testkit.Patience}, "http://"+p.Admin+"/healthz"); health.Status != 200 || !strings.Contains(string(health.Body), "free on the disk of the audit") {
		t.Errorf("/healthz of a disk that is nearly full: %d %s", health.Status, health.Body)
	}
	ballast := e2e.Fill(t, disk)
	for {
		if _, err := e2e.RefusedID(c, o.URL("http", "/no")); err != nil { // a page of the disk may have some space left
			break
		}
	}
	p.AwaitMetric(t, "robotsproxy_audit_healthy", 0)
	p.AwaitMetric(t, "robotsproxy_ready", 0)
	testkit.Eventually(t, "errors and the lag grow", func() bool {
		m := p.Metrics(t)
		return m["robotsproxy_audit_errors_total"] > 1 && m["robotsproxy_audit_lag_seconds"] > 1 && m["robotsproxy_audit_unwritten_lines"] > 0
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"robotsproxy_audit_healthy": 1, "robotsproxy_ready": 1, "robotsproxy_audit_unwritten_lines": 0, "robotsproxy_audit_lag_seconds": 0,
		"robotsproxy_audit_unsynced_lines": 0, "robotsproxy_audit_lost_records_total": 0,
	} {
		p.AwaitMetric(t, name, want)
	}
}

// The number of series does not grow with the number of hosts and clients.
func TestStrangersAddNoSeries(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	o := e2e.NewOrigin(t, "strange", "User-agent: *\nDisallow: /private\n")
	p := e2e.StartProxy(t, e2e.Unpaced)
	c := p.Client(t, false)
	before := p.Metrics(t)
	hosts := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range hosts {
				for _, address := range []string{fmt.Sprintf("http://h%d.nowhere.test/%d", i, i), o.URL("http", fmt.Sprintf("/private/%d?%%22%%7d%%0a", i))} {
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
	after := p.Metrics(t)
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("a series more: %s", name)
		}
	}
	if n := after["robotsproxy_decisions_total block rule"] + after["robotsproxy_decisions_total block origin"]; n != 1000 { // the maximum number of refusals that one client gets without a wait
		t.Errorf("%v requests counted, want 1000", n)
	}
}

// The tables of docs/metrics.md match the metrics of serve, including those of listen_tls, and
// without the ones of a fleet if there is none.
func TestServeShowsWhatPageTells(t *testing.T) {
	t.Parallel()
	cert, key, _ := ownCertificate(t)
	showsWhatPageTells(t, e2e.Settings{"listen_tls.cert": cert, "listen_tls.key": key}, false)
}

func showsWhatPageTells(t *testing.T, s e2e.Settings, fleet bool) {
	t.Helper()
	// Without these, it has no fetches of tdmrep.json and no quotas to show.
	client := e2e.Entry{"name": "lab-a", "networks": []string{"127.0.0.0/8"}, "quota": e2e.Entry{"requests_per_day": 9}}
	p := e2e.StartProxy(t, s.With(e2e.Settings{"usage.tdmrep": true, "clients": []e2e.Entry{client}}))
	shown := map[string]bool{}
	for name := range p.Metrics(t) {
		name, _, _ = strings.Cut(name, " ")
		shown[name] = true
	}
	page, err := os.Open(filepath.Join(e2e.TreeRoot(), "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	told := 0
	for lines := bufio.NewScanner(page); lines.Scan(); {
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
