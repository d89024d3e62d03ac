//go:build linux && !race

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/elazarl/goproxy"
)

// hostTwo is the origin of BenchmarkHTTP2.
const hostTwo = "two-bench.test"

// TestGoproxyProcess is goproxy, interception by HTTP/2 and all, in a process of
// its own, for BenchmarkHTTP2 to start; it ends with its standard input.
func TestGoproxyProcess(t *testing.T) {
	dir := os.Getenv("E2E_GOPROXY") // where the CA is
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
		TLSClientConfig: &tls.Config{RootCAs: pool(t, os.Getenv("E2E_GOPROXY_ROOTS"))},
		DialContext: func(ctx context.Context, network, hostport string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(hostport)
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(firstSite.String(), port))
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

// leaves keeps the certificates that goproxy makes.
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
func startGoproxy(b *testing.B, p *proxy) *proxy {
	b.Helper()
	g := &proxy{house: &house{listen: fmt.Sprintf("127.0.0.1:%d", freePort(b))}, stderr: &syncBuffer{}}
	g.cmd = exec.Command(os.Args[0], "-test.run", "^TestGoproxyProcess$")
	g.cmd.Env = cleanEnv("E2E_GOPROXY="+p.state, "E2E_GOPROXY_LISTEN="+g.listen, "E2E_GOPROXY_ROOTS="+trustedFile(b))
	g.cmd.Stdout, g.cmd.Stderr = g.stderr, g.stderr
	stdin, err := g.cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		if err := g.cmd.Wait(); err != nil {
			b.Errorf("goproxy: %v\n%s", err, g.stderr)
		}
	})
	eventually(b, patience, "goproxy listens", func() bool {
		c, err := net.Dial("tcp", g.listen)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return g
}

// Pages of 1 KiB by HTTP/2 inside four intercepted tunnels, 16 streams at once in
// each, from an origin of HTTP/1.1: ours, with everything on, beside goproxy's.
func BenchmarkHTTP2(b *testing.B) {
	s := newSecureSites(b, 1, func(int) int { return 500 }, &tls.Config{
		Certificates: []tls.Certificate{trusted(b).leaf(b, hostTwo, time.Now().Add(time.Hour))},
	})
	names.point(hostTwo, firstSite)
	target := fmt.Sprintf("https://%s:%d/page", hostTwo, s.port)
	own := startProxy(b, outOfTheWay.with(settings{"pace.adaptive": false, "pace.back_off": false, "log.level": "warn"}))
	for _, c := range []struct {
		name  string
		proxy *proxy
	}{{"robotsproxy", own}, {"goproxy", startGoproxy(b, own)}} {
		b.Run(c.name, func(b *testing.B) {
			clients := make([]*http.Client, 4)
			for i := range clients {
				clients[i] = c.proxy.twoClient(b, target)
			}
			askByTwo(b, clients, target, 20)
			asked, began, cpu := 0, time.Now(), c.proxy.cpu(b)
			for b.Loop() {
				askByTwo(b, clients, target, 32)
				asked += 32 * 16 * len(clients)
			}
			cpu = c.proxy.cpu(b) - cpu
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(asked)/time.Since(began).Seconds(), "req/s")
			b.ReportMetric(float64(cpu.Microseconds())/float64(asked), "cpu-us/req")
		})
	}
}

// twoClient speaks HTTP/2 over one tunnel, and believes every certificate.
func (p *proxy) twoClient(b *testing.B, target string) *http.Client {
	b.Helper()
	tr := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: p.listen}),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Protocols:       new(http.Protocols),
	}
	tr.Protocols.SetHTTP1(true)
	tr.Protocols.SetHTTP2(true)
	b.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr, Timeout: patience}
	if err := pageByTwo(c, target); err != nil { // and the tunnel is open
		b.Fatal(err)
	}
	return c
}

// askByTwo has 16 goroutines of each client ask so often.
func askByTwo(b *testing.B, clients []*http.Client, target string, each int) {
	b.Helper()
	var all sync.WaitGroup
	for _, c := range clients {
		for range 16 {
			all.Go(func() {
				for range each {
					if err := pageByTwo(c, target); err != nil {
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

func pageByTwo(c *http.Client, target string) error {
	resp, err := c.Get(target)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || n != 1024) {
		err = fmt.Errorf("%s %s, %d octets", resp.Proto, resp.Status, n)
	}
	return err
}
