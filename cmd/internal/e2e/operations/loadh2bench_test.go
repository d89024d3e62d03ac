//go:build linux && !race

package operations

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/elazarl/goproxy"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// hostTwo is the origin of BenchmarkHTTP2.
const hostTwo = "two-bench.test"

// TestGoproxyProcess is a separate process with goproxy, intercepting and with HTTP/2,
// for BenchmarkHTTP2. It ends with its standard input.
func TestGoproxyProcess(t *testing.T) {
	dir := os.Getenv("E2E_GOPROXY") // directory of the CA
	if dir == "" {
		t.Skip("runs as a process of BenchmarkHTTP2")
	}
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	p := goproxy.NewProxyHttpServer()
	p.AllowHTTP2 = true
	p.CertStore = &leaves{made: map[string]*tls.Certificate{}}
	p.Tr = &http.Transport{
		MaxIdleConnsPerHost: 512, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: e2e.CertPool(t, os.Getenv("E2E_GOPROXY_ROOTS"))},
		DialContext: func(ctx context.Context, network, hostport string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(hostport)
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(e2e.FirstSite.String(), port))
		},
	}
	act := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&ca)}
	p.OnRequest().HandleConnect(goproxy.FuncHttpsHandler(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		return act, host
	}))
	server := &http.Server{Addr: os.Getenv("E2E_GOPROXY_LISTEN"), Handler: p}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		t.Fatal(err)
	}
}

// leaves caches the certificates that goproxy makes.
type leaves struct {
	mu   sync.Mutex // guards made
	made map[string]*tls.Certificate
}

func (l *leaves) Fetch(host string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.made[host]; c != nil {
		return c, nil
	}
	c, err := gen()
	if err == nil {
		l.made[host] = c
	}
	return c, err
}

// startGoproxy runs TestGoproxyProcess with the CA of p until the benchmark ends.
func startGoproxy(b *testing.B, p *e2e.Proxy) *e2e.Proxy {
	b.Helper()
	g := &e2e.Proxy{Setup: &e2e.Setup{Listen: fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(b)), CA: p.CA}, Stderr: &e2e.SyncBuffer{}}
	g.Cmd = exec.Command(os.Args[0], "-test.run", "^TestGoproxyProcess$")
	g.Cmd.Env = e2e.CleanEnv("E2E_GOPROXY="+p.State, "E2E_GOPROXY_LISTEN="+g.Listen, "E2E_GOPROXY_ROOTS="+e2e.TrustedFile(b))
	g.Cmd.Stdout, g.Cmd.Stderr = g.Stderr, g.Stderr
	stdin, err := g.Cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := g.Cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		if err := g.Cmd.Wait(); err != nil {
			b.Errorf("goproxy: %v\n%s", err, g.Stderr)
		}
	})
	testkit.Eventually(b, "goproxy listens", func() bool {
		c, err := net.Dial("tcp", g.Listen)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return g
}

// Pages of 1 KiB over HTTP/2 in four intercepted tunnels, 16 streams at once in each,
// from an HTTP/1.1 origin: this proxy with all features, and goproxy for comparison.
func BenchmarkHTTP2(b *testing.B) {
	s := e2e.NewSecureSites(b, 1, func(int) int { return 500 }, &tls.Config{
		Certificates: []tls.Certificate{e2e.Trusted(b).Leaf(b, hostTwo, time.Now().Add(time.Hour))},
	})
	e2e.Names.Point(hostTwo, e2e.FirstSite)
	target := fmt.Sprintf("https://%s:%d/page", hostTwo, s.Port)
	own := e2e.StartProxy(b, e2e.Unpaced.With(e2e.Settings{"pace.adaptive": false, "pace.back_off": false, "log.level": "warn"}))
	for _, c := range []struct {
		name  string
		proxy *e2e.Proxy
	}{{"robotsproxy", own}, {"goproxy", startGoproxy(b, own)}} {
		b.Run(c.name, func(b *testing.B) {
			clients := make([]*http.Client, 4)
			for i := range clients {
				clients[i] = c.proxy.Client(b, true)
				testkit.Must(b, pageByHTTP2(clients[i], target)) // and the tunnel is open
			}
			askByTwo(b, clients, target, 20)
			asked, began, cpu := 0, time.Now(), c.proxy.CPU(b)
			for b.Loop() {
				askByTwo(b, clients, target, 32)
				asked += 32 * 16 * len(clients)
			}
			cpu = c.proxy.CPU(b) - cpu
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(asked)/time.Since(began).Seconds(), "req/s")
			b.ReportMetric(float64(cpu.Microseconds())/float64(asked), "cpu-us/req")
		})
	}
}

// askByTwo makes 16 goroutines of each client send the given number of requests.
func askByTwo(b *testing.B, clients []*http.Client, target string, each int) {
	b.Helper()
	var all sync.WaitGroup
	for _, c := range clients {
		for range 16 {
			all.Go(func() {
				for range each {
					if err := pageByHTTP2(c, target); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// pageByHTTP2 fetches a page of 1 KiB, which must come by HTTP/2.
func pageByHTTP2(c *http.Client, target string) error {
	resp, err := c.Get(target)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || n != 1024) {
		err = fmt.Errorf("%s %s, %d bytes", resp.Proto, resp.Status, n)
	}
	return err
}
