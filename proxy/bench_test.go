package proxy_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
)

// BenchmarkWay is a kept connection's request and its 1 KiB answer, robots.txt
// enforced, paced out of the way, recorded on disk; the origin's and the
// client's share is in it.
func BenchmarkWay(b *testing.B) {
	page := make([]byte, 1<<10)
	for _, way := range ways[:2] {
		b.Run(way.name, func(b *testing.B) {
			origin := serve(b, way.tls, rules, func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
			log, err := audit.Open(audit.Options{File: filepath.Join(b.TempDir(), "audit.jsonl"), Log: slog.New(slog.DiscardHandler)})
			must(b, err)
			defer log.Close()
			r := start(b, setup{
				origins: []*httptest.Server{origin.Server},
				change:  func(o *proxy.Options) { o.Audit = log },
			})
			var conn net.Conn
			request := "GET " + origin.URL + "/page HTTP/1.1\r\nHost: " + origin.host() + "\r\nUser-Agent: FooBot/1.0\r\n\r\n"
			if way.tls {
				conn = r.tunnel(origin.host())
				request = "GET /page HTTP/1.1\r\nHost: " + origin.host() + "\r\nUser-Agent: FooBot/1.0\r\n\r\n"
			} else {
				conn, _ = r.dial()
			}
			must(b, conn.SetDeadline(time.Time{}))
			br := bufio.NewReader(conn)
			b.ReportAllocs()
			for b.Loop() {
				io.WriteString(conn, request)
				resp, err := http.ReadResponse(br, nil)
				must(b, err)
				if n, err := io.Copy(io.Discard, resp.Body); n != int64(len(page)) || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
