//go:build linux && !race

package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestMemoryAtRest: a proxy with the default configuration that nobody asks for
// anything takes less than 25 MiB, what it has mapped of its binary included.
func TestMemoryAtRest(t *testing.T) {
	const most = 25 << 20
	p := startProxy(t, nil)
	var got int64
	eventually(t, patience, fmt.Sprintf("less than %d MiB in memory", most>>20), func() bool {
		got = p.memory(t, "VmRSS")
		return got < most
	})
	t.Logf("%.1f MiB", float64(got)/(1<<20))
}

// BenchmarkStart is the time from the start of serve until it has answered on its
// port: the first time, when the CA is made, and each later one.
func BenchmarkStart(b *testing.B) {
	for _, first := range []bool{true, false} {
		name := "kept state"
		if first {
			name = "no state"
		}
		b.Run(name, func(b *testing.B) {
			h := newHouse(b, nil)
			if !first {
				launch(b, h).answered(b).end(b)
			}
			b.ResetTimer()
			for range b.N {
				p := launch(b, h).answered(b)
				b.StopTimer()
				p.end(b)
				if first {
					if err := os.RemoveAll(h.state); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/start")
		})
	}
}

// answered waits until the proxy has answered on its port.
func (p *proxy) answered(t testing.TB) *proxy {
	t.Helper()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		c, err := net.Dial("tcp", p.listen)
		if err != nil {
			continue
		}
		defer c.Close()
		if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+p.listen+"\r\nConnection: close\r\n\r\n"); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("nothing answers on its port")
	return nil
}
