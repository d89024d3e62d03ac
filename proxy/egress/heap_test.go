//go:build !race

package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// Limits for the memory of an idle connection to an origin, in bytes, including stacks. For each
// connection of HTTP/2, net/http has a goroutine, two buffers of 4 KiB, the longest frame in each
// direction, and the heads.
const (
	mostIdle      = 32 << 10
	mostIdleHTTP2 = 96 << 10
)

// originsOf is the environment variable with the number of origins that a separate process must
// serve, so that their side of a connection does not count.
const originsOf = "EGRESS_TEST_ORIGINS"

// TestIdleConnections: nothing of a request stays in memory after its response, and each
// idle connection costs little, whatever it was used for.
func TestIdleConnections(t *testing.T) {
	testkit.Long(t, "volume")
	const conns, large = 128, 60 << 10
	for _, c := range []struct {
		name, method, scheme string
		http2                bool
		head, most           int // bytes: the head of each request, and the limit for a connection
	}{
		{"HTTP/1.1", "GET", "http", false, large, mostIdle},
		{"HTTP/1.1 with TLS", "GET", "https", false, large, mostIdle},
		{"HTTP/1.1 with bodies", "POST", "http", false, large, mostIdle},
		{"HTTP/1.1 with bodies and TLS", "POST", "https", false, large, mostIdle},
		{"HTTP/2", "GET", "https", true, maxReusedHead, mostIdleHTTP2},
		{"HTTP/2 with bodies", "POST", "https", true, maxReusedHead, mostIdleHTTP2},
	} {
		t.Run(c.name, func(t *testing.T) {
			origins, roots := startOrigins(t, conns, c.scheme, c.http2)
			d := newClient(t, Options{AllowPrivate: loopback, Roots: roots})
			held := inUse()
			for _, o := range origins {
				if err := d.At(netip.Addr{}).Reach(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				askMuch(t, d, c.method, o, c.head)
			}
			awaitWatches(t, d)
			if n := d.Stats().Origins.Open; n < conns {
				t.Fatalf("%d connections are open, want %d", n, conns)
			}
			each := (inUse() - held) / conns
			t.Logf("%d bytes each", each)
			if each > c.most {
				t.Errorf("an idle connection holds %d bytes, want at most %d", each, c.most)
			}
		})
	}
}

// TestLongHeadEndsConnection: the buffers that a long head leaves in an HTTP/2 connection are freed,
// because the connection is closed.
func TestLongHeadEndsConnection(t *testing.T) {
	origins, roots := startOrigins(t, 1, "https", true)
	d := newClient(t, Options{AllowPrivate: loopback, Roots: roots})
	if err := d.At(netip.Addr{}).Reach(t.Context(), origins[0]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ head, open int }{{maxReusedHead, 1}, {maxReusedHead + 1000, 0}} {
		askMuch(t, d, "GET", origins[0], c.head)
		testkit.Eventually(t, "the connections are open", func() bool { return d.Stats().Origins.Open == c.open })
	}
}

// askMuch sends a request with a head of about the given size and reads a response of the same kind.
func askMuch(t *testing.T, d *Client, method string, o robots.Origin, head int) {
	t.Helper()
	type key struct{}
	const large = 60 << 10
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, make([]byte, 500<<10)))
	defer cancel()
	var body io.Reader
	if method == "POST" {
		body = strings.NewReader(strings.Repeat("b", large))
	}
	const rest = 300 // the rest of the head
	r, err := http.NewRequestWithContext(ctx, method, o.String()+"/"+strings.Repeat("u", (head-rest)/2), body)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Scheme = o.Scheme // not a substring of a URL
	r.Header.Set("X-Large", strings.Repeat("h", (head-rest)/2))
	resp, err := d.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != large || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

// awaitWatches waits until the pool has started its watches.
func awaitWatches(t *testing.T, d *Client) {
	t.Helper()
	watched := func() bool {
		d.pool.mu.Lock()
		defer d.pool.mu.Unlock()
		for _, list := range d.pool.idle {
			for _, k := range list {
				if k.watch == nil {
					return false
				}
			}
		}
		return true
	}
	testkit.Eventually(t, "all connections are watched", watched)
}

// inUse returns the bytes of the heap and the stacks in use.
func inUse() int {
	for range 2 { // the second collection frees what pools hold
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// startOrigins starts n origins in a separate process and returns them with their roots.
func startOrigins(t *testing.T, n int, scheme string, http2 bool) (origins []robots.Origin, roots *x509.CertPool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeOrigins$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %v", originsOf, n, scheme, http2))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // ends the process
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	for len(origins) < n {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		o, err := robots.ParseOrigin(scheme, strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		origins = append(origins, o)
	}
	roots = x509.NewCertPool()
	var cert bytes.Buffer
	for !strings.Contains(cert.String(), "-----END") {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		cert.WriteString(line)
	}
	if !roots.AppendCertsFromPEM(cert.Bytes()) {
		t.Fatalf("no certificate in %q", cert.String())
	}
	return origins, roots
}

// TestServeOrigins is the separate process of startOrigins.
func TestServeOrigins(t *testing.T) {
	var n int
	var scheme string
	var http2 bool
	if _, err := fmt.Sscanf(os.Getenv(originsOf), "%d %s %v", &n, &scheme, &http2); err != nil {
		t.Skip("for another test")
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Large", r.Header.Get("X-Large"))
		io.WriteString(w, strings.Repeat("r", 60<<10))
	}))
	s.EnableHTTP2 = http2
	s.Config.MaxHeaderBytes = 1 << 20
	if scheme == "http" {
		s.Start()
	} else {
		testca.StartTLS(t, s)
	}
	defer s.Close()
	serve := func(l net.Listener) { s.Config.Serve(l) }
	if scheme == "https" {
		serve = func(l net.Listener) { s.Config.ServeTLS(l, "", "") }
		s.Config.TLSConfig = s.TLS
	}
	fmt.Println(s.Listener.Addr())
	for range n - 1 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go serve(l)
		fmt.Println(l.Addr())
	}
	var cert []byte
	if c := s.Certificate(); c != nil {
		cert = c.Raw
	} else {
		other := testca.NewTLSServer(t, nil)
		defer other.Close()
		cert = other.Certificate().Raw
	}
	pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: cert})
	io.Copy(io.Discard, os.Stdin) // until the test ends
}
