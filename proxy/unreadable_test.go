package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

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
