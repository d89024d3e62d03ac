package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/robots/testkit"
)

// BenchmarkRequest sends requests for a page of 1 KiB on 32 persistent connections, with robots.txt
// enforced, no rate limit and an audit file. The time includes the origin and the clients.
func BenchmarkRequest(b *testing.B) { benchmarkRoutes(b, routes[:2], proxy.Signers{}) }

// BenchmarkSignedRequest is BenchmarkRequest with a signature on each intercepted request.
func BenchmarkSignedRequest(b *testing.B) {
	by, _ := newSigner(b, "https://bot.example/.well-known/http-message-signatures-directory")
	benchmarkRoutes(b, routes[1:2], proxy.Signers{Default: by})
}

// BenchmarkArchivedRequest is BenchmarkRequest with an archive of what is fetched, and larger pages too.
func BenchmarkArchivedRequest(b *testing.B) {
	for _, size := range []int{pageSize, 64 << 10} {
		for _, how := range []string{"off", "none", "gzip"} {
			b.Run(fmt.Sprintf("%d KiB/%s", size>>10, how), func(b *testing.B) {
				var a *archive.Archive
				if how != "off" {
					a, _ = openArchive(b, func(o *archive.Options) { o.Compress = how == "gzip" })
					b.Cleanup(func() { a.Close() })
				}
				b.SetBytes(int64(size))
				benchmarkRoute(b, routes[0], size, func(o *proxy.Options) { o.Archive = a })
			})
		}
	}
}

func benchmarkRoutes(b *testing.B, routes []route, signers proxy.Signers) {
	for _, route := range routes {
		b.Run(route.name, func(b *testing.B) {
			benchmarkRoute(b, route, pageSize, func(o *proxy.Options) { o.Signers = signers })
		})
	}
}

// benchmarkRoute sends requests for a page of size bytes.
func benchmarkRoute(b *testing.B, over route, size int, change func(*proxy.Options)) {
	r, origin := startForBenchmark(b, over, size, change)
	request := "GET " + origin.URL + "/page HTTP/1.1\r\nHost: " + origin.host() + "\r\nUser-Agent: FooBot/1.0\r\n\r\n"
	open := func() net.Conn {
		conn, _ := r.dial()
		return conn
	}
	if over.tls {
		request = "GET /page HTTP/1.1\r\nHost: " + origin.host() + "\r\nUser-Agent: FooBot/1.0\r\n\r\n"
		open = func() net.Conn { return r.tunnel(origin.host()) }
	}
	benchmarkRequests(b, open, request, size)
}

// pageSize is the length of the pages in benchmarks, in bytes.
const pageSize = 1 << 10

// startForBenchmark starts an origin with a page of size bytes, and a proxy with an audit file.
func startForBenchmark(b *testing.B, over route, size int, change func(*proxy.Options)) (*rig, *site) {
	page := make([]byte, size)
	origin := over.serve(b, rules, func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
	log, err := audit.Open(audit.Options{File: filepath.Join(b.TempDir(), "audit.jsonl"), Log: slog.New(slog.DiscardHandler)})
	testkit.Must(b, err)
	b.Cleanup(func() { log.Close() })
	return start(b, setup{
		origins: []*httptest.Server{origin.Server},
		change: func(o *proxy.Options) {
			o.Audit = log
			change(o)
		},
	}), origin
}

// onConns runs a loop on each of 32 connections, which it opens first.
func onConns(b *testing.B, open func() net.Conn, loop func(net.Conn, *testing.PB)) {
	conns := make(chan net.Conn, 32)
	for range cap(conns) {
		conn := open()
		testkit.Must(b, conn.SetDeadline(time.Time{}))
		conns <- conn
	}
	b.ReportAllocs()
	b.SetParallelism(cap(conns) / runtime.GOMAXPROCS(0))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		conn := <-conns
		defer func() { conns <- conn }()
		loop(conn, pb)
	})
}

// benchmarkRequests sends a request again and again on 32 connections.
func benchmarkRequests(b *testing.B, open func() net.Conn, request string, size int) {
	onConns(b, open, func(conn net.Conn, pb *testing.PB) {
		br := bufio.NewReader(conn)
		for pb.Next() {
			io.WriteString(conn, request)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				b.Error(err)
				return
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != int64(size) || err != nil {
				b.Error(n, err)
				return
			}
		}
	})
}
