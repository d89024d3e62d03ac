package proxy_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// TestUnreadableIsNotReset checks that a client whose request cannot be read gets the whole response and the end of the
// connection, not a reset, although it sends more than is read.
func TestUnreadableIsNotReset(t *testing.T) {
	t.Parallel()
	const post = "POST / HTTP/1.1\r\nHost: x\r\n"
	body := strings.Repeat("b", 100<<10)
	for name, front := range map[string]front{"in the clear": inTheClear, "over TLS": overTLS} {
		r := start(t, setup{front: front})
		for raw, want := range map[string]int{
			post + strings.Repeat("A: b\r\n", 20_000) + "\r\n":          http.StatusRequestHeaderFieldsTooLarge,
			post + "A b: c\r\nContent-Length: 102400\r\n\r\n" + body:    http.StatusBadRequest,
			post + "Transfer-Encoding: xchunked\r\n\r\n" + body:         http.StatusNotImplemented,
			post + "Expect: x\r\nContent-Length: 102400\r\n\r\n" + body: http.StatusExpectationFailed,
		} {
			c, br := r.dial()
			_, err := io.WriteString(c, raw)
			testkit.Must(t, err)
			resp, err := http.ReadResponse(br, nil)
			testkit.Must(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			testkit.Must(t, err)
			if _, err := br.ReadByte(); resp.StatusCode != want || err != io.EOF {
				t.Errorf("%s: %.60q: %s, then %v", name, raw, resp.Status, err)
			}
			c.Close()
		}
	}
}

// TestBrokenUploadIsNotReset checks the same for a body that cannot be read to its end.
func TestBrokenUploadIsNotReset(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	r := start(t, setup{})
	c, br := r.dial()
	_, err := io.WriteString(c, "POST "+origin.URL+"/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n"+strings.Repeat("b", 100<<10))
	testkit.Must(t, err)
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	testkit.Must(t, errors.Join(err, c.(*net.TCPConn).CloseWrite()))
	if _, err := br.ReadByte(); resp.StatusCode != http.StatusBadRequest || err != io.EOF {
		t.Errorf("%s, then %v", resp.Status, err)
	}
}

// TestLastResponseIsNotReset checks the same for a client that has sent more requests than the connection will serve.
func TestLastResponseIsNotReset(t *testing.T) {
	t.Parallel()
	for name, front := range map[string]front{"in the clear": inTheClear, "over TLS": overTLS} {
		r := start(t, setup{front: front, change: func(o *proxy.Options) { o.MaxConnsPerClient = 1 }})
		r.send("GET http://proxy.test:1/ HTTP/1.1\r\nHost: x\r\n\r\n")
		c, br := r.dial()
		_, err := io.WriteString(c, strings.Repeat("GET http://proxy.test:1/ HTTP/1.1\r\nHost: x\r\n\r\n", 2000))
		testkit.Must(t, err)
		resp, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		testkit.Must(t, err)
		if _, err := br.ReadByte(); resp.StatusCode != http.StatusTooManyRequests || err != io.EOF {
			t.Errorf("%s: %s, then %v", name, resp.Status, err)
		}
		c.Close()
	}
}
