package inbound

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// readerOf returns a requestReader of a connection on which the parts arrive. At an empty part, a read times
// out, as it does when net/http ends its wait for the end of the connection.
func readerOf(t *testing.T, parts ...string) *requestReader {
	return &requestReader{active: true, memory: plenty(t), limit: func() error { return nil }, from: func(b []byte) (int, error) {
		if len(parts) == 0 || parts[0] == "" {
			parts = parts[min(1, len(parts)):]
			return 0, os.ErrDeadlineExceeded
		}
		n := copy(b, parts[0])
		if parts[0] = parts[0][n:]; parts[0] == "" {
			parts = parts[1:]
		}
		return n, nil
	}}
}

// TestNextHeadInParts: a head whose beginning arrives before the response to the request before is read like any
// other (RFC 9112 9.3.2).
func TestNextHeadInParts(t *testing.T) {
	const first = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"
	for _, parts := range [][2]string{
		{"GET /b|% HT", "TP/1.1\r\nHost: x\r\n\r\n"},
		{"GET /b|% HTTP/1.1\r\n", "Host: x\r\n\r\n"},
		{"GET /b|% HTTP/1.1\r\nHost: x\r\n", "A: b\r\n\r\n"},
		{"\r\nGET /b|% HTTP/1.1\r\nHost: x\r\n", "\r\n"},
		{"", "GET /b|% HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		r := readerOf(t, first, "x"+parts[0], "", parts[1])
		b := make([]byte, 4<<10)
		n, err := r.Read(b)
		if string(b[:n]) != first || err != nil {
			t.Fatalf("the first head: %q, %v", b[:n], err)
		}
		if n, err = r.Read(b); string(b[:n]) != "x" || err != nil {
			t.Fatalf("its body: %q, %v", b[:n], err)
		}
		if n, err = r.Read(b[:1]); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("during the first request: %q, %v", b[:n], err)
		}
		r.reset()
		next, err := http.ReadRequest(bufio.NewReader(r))
		if err != nil {
			t.Errorf("%q: %v", parts, err)
			continue
		}
		if got := sentHeadOf(next); got.method != "GET" || got.target != "/b|%" || got.fault != nil {
			t.Errorf("%q: read as %+v", parts, got)
		}
	}
}

// TestBodyIsNoHead: the bytes behind a head that may be a body pass unchanged, even if they look like a head
// that needs a stand-in.
func TestBodyIsNoHead(t *testing.T) {
	const head = "GET /% HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, fields := range map[string]string{
		"a length": fmt.Sprintf("Content-Length: %d\r\n", len(head)), "a length in other letters": fmt.Sprintf("cOnTeNt-LeNgTh:%d\r\n", len(head)),
		"a folded length (RFC 9112 5.2)": fmt.Sprintf("Content-Length:\r\n %d\r\n", len(head)), "two lengths": "Content-Length: 1\r\nContent-Length: 2\r\n",
		"no number": "Content-Length: +5\r\n", "a transfer coding": "Transfer-Encoding: chunked\r\n", "another protocol": "Upgrade: x\r\n",
		"bare line feeds": fmt.Sprintf("Content-Length: %d\n", len(head)),
	} {
		r := readerOf(t, "POST / HTTP/1.1\r\nHost: x\r\n"+fields+"\r\n", head)
		var got strings.Builder
		b := make([]byte, 100)
		for {
			n, err := r.Read(b)
			if got.Write(b[:n]); err != nil {
				break
			}
		}
		if !strings.HasSuffix(got.String(), "\n\r\n"+head) {
			t.Errorf("%s: %q", name, got.String())
		}
	}
}
