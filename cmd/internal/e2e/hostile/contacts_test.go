package hostile

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

const (
	scanned     = 30                     // ports of one host
	scanGap     = 100 * time.Millisecond // of the host's rate
	freeContact = 7                      // connections that need not wait: the first ones, and one with the host's burst
)

// contactsOf returns the lines about connections that no request has used.
func contactsOf(t *testing.T, p *e2e.Proxy) []e2e.Record {
	t.Helper()
	return slices.DeleteFunc(e2e.ReadLines(t, p.Audit), func(r e2e.Record) bool { return r.Kind != "contact" })
}

// TestOpenPortsScanned: connections by CONNECT to many ports of a host keep its rate after the first ones, and each leaves
// a line. An honest client of another host waits for nothing.
func TestOpenPortsScanned(t *testing.T) {
	t.Parallel()
	name, ip := e2e.NewName("scanned")
	var mu sync.Mutex
	var arrived []time.Time
	var targets []string
	for range scanned {
		l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		testkit.Must(t, err)
		t.Cleanup(func() { l.Close() })
		targets = append(targets, fmt.Sprintf("%s:%d", name, l.Addr().(*net.TCPAddr).Port))
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				mu.Lock()
				arrived = append(arrived, time.Now())
				mu.Unlock()
				t.Cleanup(func() { c.Close() })
			}
		}()
	}
	o := e2e.NewOrigin(t, "honest", "")
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": float64(time.Second / scanGap), "pace.max_concurrent": scanned})
	var all sync.WaitGroup
	for _, target := range targets {
		all.Go(func() { p.Connect(t, target).Close() })
	}
	client := p.Client(t, false)
	for range 5 {
		if got := e2e.Get(t, client, o.URL("http", "/page")); got.Status != http.StatusOK {
			t.Errorf("the honest client: %v", got)
		}
	}
	all.Wait()
	testkit.Eventually(t, "each connection has a line", func() bool { return len(contactsOf(t, p)) == scanned })
	for _, r := range contactsOf(t, p) {
		if r.Method != http.MethodConnect || r.Host != name || r.Client != "127.0.0.1" || !slices.Contains(targets, r.URL) {
			t.Errorf("%+v", r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(arrived, time.Time.Compare)
	if took, want := arrived[len(arrived)-1].Sub(arrived[0]), (scanned-freeContact-1)*scanGap; len(arrived) != scanned || took < want {
		t.Errorf("%d connections arrived within %v, want at least %v", len(arrived), took, want)
	}
}

// TestClosedPortsScanned: requests to many closed ports of a host keep its rate after the first ones. Those that are being
// tried are not counted yet, so a busy machine may try as many more as may be in flight.
func TestClosedPortsScanned(t *testing.T) {
	t.Parallel()
	name, _ := e2e.NewName("closed")
	const inFlight = 2
	p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": float64(time.Second / scanGap), "pace.max_concurrent": inFlight})
	client := p.Client(t, false)
	began := time.Now()
	var all sync.WaitGroup
	for range scanned {
		target := fmt.Sprintf("http://%s:%d/", name, e2e.FreePort(t))
		all.Go(func() {
			if got := e2e.Get(t, client, target); got.Status != http.StatusBadGateway {
				t.Errorf("%s: %v", target, got)
			}
		})
	}
	all.Wait()
	// A request connects shortly before its turn.
	if took, want := time.Since(began), (scanned-freeContact-1-inFlight)*scanGap-scanGap/2; took < want {
		t.Errorf("%d ports were tried within %v, want at least %v", scanned, took, want)
	}
	if got := len(e2e.ReadAudit(t, p.Audit)); got != scanned {
		t.Errorf("%d records, want %d", got, scanned)
	}
}
