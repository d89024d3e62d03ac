//go:build linux && !race

package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// memory is a line of /proc/PID/status, in octets: VmHWM is the peak of what a
// process had in memory, VmRSS what it has.
func (p *proxy) memory(t testing.TB, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

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
		origin       func(t testing.TB, label, robots string) *origin
	}{
		{"http", "http", false, newOrigin},
		{"https by h1", "https", false, newOrigin},
		{"https by h2", "https", true, newOrigin2},
	} {
		for _, direction := range []string{"down", "up"} {
			b.Run(way.name+"/"+direction, func(b *testing.B) {
				o := way.origin(b, "volume", "")
				o.handle("/down", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", strconv.Itoa(size))
					io.Copy(w, io.LimitReader(zeros{}, size))
				})
				o.handle("/up", func(w http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					fmt.Fprintln(w, n, err)
				})
				p := startProxy(b, outOfTheWay)
				client := p.client(b, way.h2)
				client.Timeout = 0
				b.SetBytes(size)
				for b.Loop() {
					var body io.Reader
					if direction == "up" {
						body = io.LimitReader(zeros{}, size)
					}
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, o.url(way.scheme, "/"+direction), body)
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
				peak := p.memory(b, "VmHWM")
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
	needFiles(b, 3*tunnels)
	for _, kind := range []string{"opened", "opened h2", "unopened", "silent"} {
		b.Run(kind, func(b *testing.B) {
			o := newOriginWith(b, "rest", "", func(string) tls.Certificate {
				return trusted(b).leaf(b, "*.rest.test", time.Now().Add(time.Hour))
			})
			own := outOfTheWay.with(settings{"pace.max_concurrent": 10_000})
			if kind == "unopened" {
				own["tls.tunnel"] = []string{"*"}
			}
			p := startProxy(b, own)
			roots := pool(b, p.ca)
			if kind == "unopened" {
				roots = pool(b, trustedFile(b))
			}
			// One client may have 32 tunnels of a host that are not opened.
			hosts := make([]string, tunnels/25)
			for i := range hosts {
				hosts[i] = fmt.Sprintf("%d.rest.test", i)
				names.point(hosts[i], o.ip)
			}
			n := 0
			open := func() *wireClient {
				n++
				w := p.connect(b, fmt.Sprintf("%s:%d", hosts[n%len(hosts)], o.ports["https"]))
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
				before := p.memory(b, "VmRSS")
				for range tunnels {
					open()
				}
				each := (p.memory(b, "VmRSS") - before) / tunnels
				b.ReportMetric(float64(each)/(1<<10), "KiB/tunnel")
				if each > most {
					b.Errorf("%d octets a tunnel, more than %d", each, most)
				}
			}
		})
	}
}
