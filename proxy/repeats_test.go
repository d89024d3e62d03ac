package proxy_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// TestRepeatsOverHTTP2 checks which requests are sent again that an origin has ended without a response, and
// that the others are not.
func TestRepeatsOverHTTP2(t *testing.T) {
	t.Parallel()
	reset := func(code http2.ErrCode) func(*http2.Framer, net.Conn, uint32) {
		return func(f *http2.Framer, _ net.Conn, stream uint32) { f.WriteRSTStream(stream, code) }
	}
	goAway := func(last uint32) func(*http2.Framer, net.Conn, uint32) {
		return func(f *http2.Framer, c net.Conn, stream uint32) {
			f.WriteGoAway(stream-last, http2.ErrCodeNo, nil)
			if last == 0 {
				c.Close()
			}
		}
	}
	hangUp := func(_ *http2.Framer, c net.Conn, _ uint32) { c.Close() }
	const by1, by2 = "/x HTTP/1.1", "/x HTTP/2"
	for _, c := range []struct {
		name, method string
		fail         func(f *http2.Framer, c net.Conn, stream uint32)
		arrive       string // over which the request arrives at last; "": it does not
	}{
		{"RFC 9113 7 HTTP_1_1_REQUIRED", "GET", reset(http2.ErrCodeHTTP11Required), by1},
		{"HTTP_1_1_REQUIRED, with a body", "POST", reset(http2.ErrCodeHTTP11Required), by1},
		{"RFC 9113 8.7 REFUSED_STREAM", "POST", reset(http2.ErrCodeRefusedStream), by2},
		{"RFC 9113 5.1.2 PROTOCOL_ERROR", "GET", reset(http2.ErrCodeProtocol), by2},
		{"PROTOCOL_ERROR, with a body", "POST", reset(http2.ErrCodeProtocol), ""},
		{"INTERNAL_ERROR", "GET", reset(http2.ErrCodeInternal), ""},
		{"RFC 9113 6.8 above the last stream of GOAWAY", "GET", goAway(2), by2},
		{"above the last stream of GOAWAY, with a body", "POST", goAway(2), by2},
		{"the last stream of GOAWAY", "GET", goAway(0), by2},
		{"the last stream of GOAWAY, with a body", "POST", goAway(0), ""},
		{"RFC 9110 9.2.2 the connection ends", "GET", hangUp, by2},
		{"the connection ends, not idempotent", "DELETE", hangUp, ""},
		{"the connection ends, with a body", "POST", hangUp, ""},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: ", from HTTP/2", false: ""}[h2], func(t *testing.T) {
				var failed atomic.Bool
				origin := listenTargets(t, "", "h2", "http/1.1")
				origin.fail = func(f *http2.Framer, conn net.Conn, stream uint32, method string) bool {
					fails := method == c.method && stream > 1 && failed.CompareAndSwap(false, true)
					if fails {
						c.fail(f, conn, stream)
					}
					return fails
				}
				r := start(t, setup{origins: []*httptest.Server{origin.trusted}})
				client := r.client(h2)
				ask := func(method, path string) int {
					body := strings.NewReader(map[string]string{"POST": "body"}[method])
					req, err := http.NewRequestWithContext(t.Context(), method, "https://"+origin.host()+path, body)
					testkit.Must(t, err)
					resp, err := client.Do(req)
					testkit.Must(t, err)
					resp.Body.Close()
					return resp.StatusCode
				}
				ask("HEAD", "/first") // the connection has worked
				origin.take()
				status, arrived := ask(c.method, "/x"), origin.take()
				if c.arrive == "" {
					if status != http.StatusBadGateway || len(arrived) > 0 {
						t.Errorf("%d, arrived %q", status, arrived)
					}
					return
				}
				if want := []string{c.method + " " + c.arrive}; status != http.StatusOK || !slices.Equal(arrived, want) {
					t.Errorf("%d, arrived %q, want %q", status, arrived, want)
				}
				failed.Store(false) // HTTP/1.1 is remembered
				if status := ask(c.method, "/x"); c.arrive == by1 && (status != http.StatusOK || failed.Load()) {
					t.Errorf("%d, and HTTP/2 was tried again", status)
				}
			})
		}
	}
}

// TestHTTP2Statuses checks that the proxy survives an origin that sends a status over HTTP/2 that HTTP/2 does not
// have, also for robots.txt, and that the client gets an answer.
func TestHTTP2Statuses(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"101", "1000", "0", "-1", "099"} {
		t.Run(status, func(t *testing.T) {
			origin := listenTargets(t, "", "h2")
			origin.fail = func(f *http2.Framer, _ net.Conn, stream uint32, _ string) bool {
				head := func(status string, end bool) {
					var block bytes.Buffer
					testkit.Must(t, hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: status}))
					f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
				}
				head(status, status != "101")
				if status == "101" {
					head("200", true)
				}
				return true
			}
			r := start(t, setup{origins: []*httptest.Server{origin.trusted}, change: func(o *proxy.Options) { o.Monitor = true }})
			for _, h2 := range []bool{false, true} {
				resp, err := r.client(h2).Get("https://" + origin.host() + "/x")
				testkit.Must(t, err)
				resp.Body.Close()
				if resp.StatusCode != http.StatusBadGateway {
					t.Errorf("the client gets %s", resp.Status)
				}
			}
		})
	}
}
