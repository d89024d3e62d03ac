//go:build linux && !race

package operations

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// Large bodies pass in constant memory in both directions: 5 GiB, which 32 bits cannot count,
// and 1 GiB with encryption.
func BenchmarkVolume(b *testing.B) {
	for _, way := range []struct {
		name, scheme string
		h2           bool
		origin       func(t testing.TB, label, robots string) *e2e.Origin
		size         int64
	}{
		{"http", "http", false, e2e.NewOrigin, 5 << 30},
		{"https by h1", "https", false, e2e.NewOrigin, 1 << 30},
		{"https by h2", "https", true, e2e.NewOrigin2, 1 << 30},
	} {
		for _, direction := range []string{"down", "up"} {
			b.Run(way.name+"/"+direction, func(b *testing.B) {
				o := way.origin(b, "volume", "")
				serveVolume(o, way.size)
				p := e2e.StartProxy(b, e2e.Unpaced)
				client := p.Client(b, way.h2)
				client.Timeout = 0
				b.SetBytes(way.size)
				for b.Loop() {
					if direction == "down" {
						receive(b, client, o.URL(way.scheme, "/down"), way.size)
					} else {
						send(b, client, o.URL(way.scheme, "/up"), way.size)
					}
				}
				p.WantPeak(b, 100<<20)
			})
		}
	}
}

// serveVolume makes the origin send a body at /down, and count the bytes of a request
// body at /up.
func serveVolume(o *e2e.Origin, size int64) {
	const block = 1 << 15
	o.Handle("/down", e2e.RepeatedPage(make([]byte, block), int(size/block)))
	o.Handle("/up", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n, err)
	})
}

func receive(b *testing.B, client *http.Client, url string, size int64) {
	b.Helper()
	resp, err := client.Post(url, "", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s, %d bytes: %v", resp.Status, n, err)
	}
}

func send(b *testing.B, client *http.Client, url string, size int64) {
	b.Helper()
	resp, err := client.Post(url, "application/octet-stream", io.LimitReader(e2e.Zeros{}, size))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != fmt.Sprintln(size, nil) || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s, the origin got %s: %v", resp.Status, got, err)
	}
}

// Measures the memory of the proxy with five thousand idle tunnels.
func BenchmarkIdleTunnels(b *testing.B) {
	const tunnels, most = 5000, 40 << 10
	e2e.NeedFiles(b, 3*tunnels)
	for _, kind := range []string{"opened", "opened h2", "unopened", "silent"} {
		b.Run(kind, func(b *testing.B) {
			o := e2e.NewOriginWith(b, "rest", "", func(string) tls.Certificate {
				return e2e.Trusted(b).Leaf(b, "*.rest.test", time.Now().Add(time.Hour))
			})
			own := e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 10_000})
			if kind == "unopened" {
				own["tls.tunnel"] = []string{"*"}
			}
			p := e2e.StartProxy(b, own)
			roots := e2e.CertPool(b, p.CA)
			if kind == "unopened" {
				roots = e2e.CertPool(b, e2e.TrustedFile(b))
			}
			// One client may have 32 tunnels to a host that are passed through.
			hosts := make([]string, tunnels/25)
			for i := range hosts {
				hosts[i] = fmt.Sprintf("%d.rest.test", i)
				e2e.Names.Point(hosts[i], o.Ip)
			}
			n := 0
			open := func() *e2e.RawClient {
				n++
				w := p.Connect(b, fmt.Sprintf("%s:%d", hosts[n%len(hosts)], o.Ports["https"]))
				if kind != "silent" {
					config := &tls.Config{RootCAs: roots, ServerName: hosts[n%len(hosts)]}
					if kind == "opened h2" {
						config.NextProtos = []string{"h2"}
					}
					if err := tls.Client(w.Conn, config).HandshakeContext(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				return w
			}
			for b.Loop() {
				for range 100 { // the memory of the first ones does not belong to the tunnels
					open().Close()
				}
				before := p.Memory(b, "VmRSS")
				for range tunnels {
					open()
				}
				each := (p.Memory(b, "VmRSS") - before) / tunnels
				b.ReportMetric(float64(each)/(1<<10), "KiB/tunnel")
				if each > most {
					b.Errorf("%d bytes a tunnel, more than %d", each, most)
				}
			}
		})
	}
}
