//go:build linux && !race

package proxy_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// memoryInUse returns the value that a Budget compares with its limit.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
}

// withoutRequest lists bytes that make a connection hold memory of the proxy without a complete request.
var withoutRequest = []struct {
	name, sent string
	long       bool // counts for more than an idle connection
}{
	{"nothing", "", false},
	{"a short partial head", "GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n", false},
	{"a long line", "GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 63<<10), true},
	{"a repeated field", "GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:\r\n", 1000), true},
	{"HTTP/2", greeting, false},
	{"the start of an HTTP/2 head", greeting + unended(60), false},
	{"60 KB of an HTTP/2 head", greeting + unended(60<<10), true},
	{"100 KB of an HTTP/2 head", greeting + unended(100<<10), true},
}

// greeting is the start of an HTTP/2 connection.
const greeting = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// unended returns the first n bytes of an HTTP/2 head that does not end.
func unended(n int) string {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x00\x01a\x7f\x80\x80\x7f")})
	for n > 0 {
		part := min(n, 16<<10)
		f.WriteContinuation(1, false, bytes.Repeat([]byte("a"), part))
		n -= part
	}
	return b.String()
}

// TestConnMemoryIsWithinItsEstimate covers connections without a complete request.
func TestConnMemoryIsWithinItsEstimate(t *testing.T) {
	testkit.Long(t, "volume")
	const conns = 200
	for _, c := range withoutRequest {
		t.Run(c.name, func(t *testing.T) {
			budget := memory.New(memory.Options{Limit: 1 << 40})
			r := start(t, setup{change: func(o *proxy.Options) { o.Memory = budget }})
			open := make([]net.Conn, conns)
			before := memoryInUse()
			for i := range open {
				conn, err := net.Dial("tcp", r.url.Host)
				testkit.Must(t, err)
				defer conn.Close()
				_, err = io.WriteString(conn, c.sent)
				testkit.Must(t, err)
				open[i] = conn
			}
			testkit.Eventually(t, "all connections are open", func() bool { return r.handler.Stats().Conns.Open == conns })
			const atRest, long = 32 << 10, (32 + 160) << 10
			want := int64(atRest)
			if c.long {
				want = long
			}
			var took, counted int64
			testkit.Eventually(t, "a connection uses no more memory than its estimate", func() bool { // until the proxy has read what was sent
				took, counted = (memoryInUse()-before)/conns, budget.Stats().Held/conns
				return counted == want && took <= counted
			})
			t.Logf("a connection uses %d bytes, estimated %d", took, counted)
		})
	}
}
