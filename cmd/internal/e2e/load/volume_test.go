//go:build linux && !race

package load

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Bodies of 10 GiB pass in constant memory, both ways.
func BenchmarkVolume(b *testing.B) {
	const size, most = 10 << 30, 100 << 20
	for _, way := range []struct {
		name, scheme string
		h2           bool
		origin       func(t testing.TB, label, robots string) *e2e.Origin
	}{
		{"http", "http", false, e2e.NewOrigin},
		{"https by h1", "https", false, e2e.NewOrigin},
		{"https by h2", "https", true, e2e.NewOrigin2},
	} {
		for _, direction := range []string{"down", "up"} {
			b.Run(way.name+"/"+direction, func(b *testing.B) {
				o := way.origin(b, "volume", "")
				o.Handle("/down", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", strconv.Itoa(size))
					io.Copy(w, io.LimitReader(zeros{}, size))
				})
				o.Handle("/up", func(w http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					fmt.Fprintln(w, n, err)
				})
				p := e2e.StartProxy(b, e2e.Unpaced)
				client := p.Client(b, way.h2)
				client.Timeout = 0
				b.SetBytes(size)
				for b.Loop() {
					var body io.Reader
					if direction == "up" {
						body = io.LimitReader(zeros{}, size)
					}
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, o.URL(way.scheme, "/"+direction), body)
					if err != nil {
						b.Fatal(err)
					}
					resp, err := client.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					var first bytes.Buffer
					n, err := io.Copy(&first, io.LimitReader(resp.Body, 64))
					if err == nil {
						var rest int64
						rest, err = io.Copy(io.Discard, resp.Body)
						n += rest
					}
					resp.Body.Close()
					switch {
					case err != nil || resp.StatusCode != http.StatusOK:
						b.Fatalf("%s after %d octets: %v", resp.Status, n, err)
					case direction == "down" && n != size:
						b.Fatalf("%d octets came", n)
					case direction == "up" && first.String() != fmt.Sprintln(size, nil):
						b.Fatalf("the origin got %s", first.String())
					}
				}
				peak := p.Memory(b, "VmHWM")
				b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
				if peak > most {
					b.Errorf("at its peak the proxy had %d MiB in memory, more than %d", peak>>20, most>>20)
				}
			})
		}
	}
}

// Five thousand tunnels at rest, and what each takes of the proxy's memory.
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
			// One client may have 32 tunnels of a host that are not opened.
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
				for range 100 { // what the first ones take is not the tunnels'
					open().Close()
				}
				before := p.Memory(b, "VmRSS")
				for range tunnels {
					open()
				}
				each := (p.Memory(b, "VmRSS") - before) / tunnels
				b.ReportMetric(float64(each)/(1<<10), "KiB/tunnel")
				if each > most {
					b.Errorf("%d octets a tunnel, more than %d", each, most)
				}
			}
		})
	}
}
