package proxy_test

import (
	"bufio"
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
	"robotsproxy/robots/testkit"
)

// BenchmarkRequest sends requests for a page of 1 KiB on 32 persistent connections, with robots.txt
// enforced, no rate limit and an audit file. The time includes the origin and the clients. The PGO
// profile comes from this benchmark.
func BenchmarkRequest(b *testing.B) {
	page := make([]byte, 1<<10)
	for _, route := range routes[:2] {
		b.Run(route.name, func(b *testing.B) {
			origin := route.serve(b, rules, func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
			log, err := audit.Open(audit.Options{File: filepath.Join(b.TempDir(), "audit.jsonl"), Log: slog.New(slog.DiscardHandler)})
			testkit.Must(b, err)
			defer log.Close()
			r := start(b, setup{
				origins: []*httptest.Server{origin.Server},
				change:  func(o *proxy.Options) { o.Audit = log },
			})
			request := "GET " + origin.URL + "/page HTTP/1.1\r\nHost: " + origin.host() + "\r\nUser-Agent: FooBot/1.0\r\n\r\n"
			open := func() net.Conn {
				conn, _ := r.dial()
				return conn
			}
			if route.tls {
				request = "GET /page HTTP/1.1\r\nHost: " + origin.host() + "\r\nUser-Agent: FooBot/1.0\r\n\r\n"
				open = func() net.Conn { return r.tunnel(origin.host()) }
			}
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
				br := bufio.NewReader(conn)
				for pb.Next() {
					io.WriteString(conn, request)
					resp, err := http.ReadResponse(br, nil)
					if err != nil {
						b.Error(err)
						return
					}
					if n, err := io.Copy(io.Discard, resp.Body); n != int64(len(page)) || err != nil {
						b.Error(n, err)
						return
					}
				}
			})
		})
	}
}
