package proxy_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// headLimit is the maximum length of a head in bytes, as docs/failures.md says.
const headLimit = 64 << 10

// TestHeadSize checks that a head of 64 KiB is accepted and a head one byte longer is refused.
func TestHeadSize(t *testing.T) {
	t.Parallel()
	secure := serve(t, true, "", hello)
	plain := serve(t, false, "", hello)
	r := start(t, setup{origins: []*httptest.Server{secure.Server}})
	for name, dial := range map[string]func() (net.Conn, string){
		"own port": func() (net.Conn, string) {
			c, _ := r.dial()
			return c, plain.URL + "/a"
		},
		"tunnel": func() (net.Conn, string) { return r.tunnel(secure.host(), "http/1.1"), "/a" },
		"tunnel in the clear": func() (net.Conn, string) {
			c, _ := r.plainTunnel(plain.host())
			return c, "/a"
		},
	} {
		for size, want := range map[int]int{headLimit: http.StatusOK, headLimit + 1: http.StatusRequestHeaderFieldsTooLarge} {
			t.Run(name+"/"+strconv.Itoa(size), func(t *testing.T) {
				c, target := dial()
				host := plain.host()
				if _, ok := c.(*tls.Conn); ok {
					host = secure.host()
				}
				head := "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nX: "
				head += strings.Repeat("x", size-len(head)-len("\r\n\r\n")) + "\r\n\r\n"
				_, err := io.WriteString(c, head)
				testkit.Must(t, err)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				testkit.Must(t, err)
				if resp.StatusCode != want {
					t.Errorf("%s, want %d", resp.Status, want)
				}
			})
		}
	}
}

// TestHeadSizeOfHTTP2 counts as RFC 9113 6.5.2 does: 32 extra bytes for each field.
func TestHeadSizeOfHTTP2(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}})
	for name, begin := range map[string]func() *h2Client{
		"own port": func() *h2Client { return r.http2ByPriorKnowledge(t) },
		"tunnel":   func() *h2Client { return r.http2InTunnel(t, origin.host()) },
	} {
		for size, want := range map[int]string{headLimit: "200", headLimit + 1: "431"} {
			t.Run(name+"/"+strconv.Itoa(size), func(t *testing.T) {
				fields := []string{":method", "GET", ":scheme", "https", ":authority", origin.host(), ":path", "/a", "x", ""}
				for i, f := range fields {
					size -= len(f)
					if i%2 == 0 {
						size -= 32
					}
				}
				fields[len(fields)-1] = strings.Repeat("x", size)
				f := begin()
				defer f.conn.Close()
				if got := f.outcome(f.open("", fields...)); got != want {
					t.Errorf("ended with %s, want %s", got, want)
				}
			})
		}
	}
}
