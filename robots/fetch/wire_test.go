package fetch

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// raw writes the same bytes to each connection and closes it; with reset it closes it with RST.
func raw(t *testing.T, answer string, reset bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				_, _ = conn.Write([]byte(answer))
				if reset {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return "http://" + l.Addr().String()
}

func zip(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

func withLength(header, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
}

func chunked(header string, body string) string {
	return "HTTP/1.1 200 OK\r\n" + header + "Transfer-Encoding: chunked\r\n\r\n" + body
}

func TestWire(t *testing.T) {
	const zipped = "Content-Encoding: gzip\r\n"
	whole := outline{Status: 200, Body: text, Connected: true, MaxAge: -1}
	empty := outline{Status: 200, Connected: true, MaxAge: -1}
	torn := outline{Status: 200, Connected: true, Fail: true, MaxAge: -1}
	noAnswer := outline{Connected: true, Fail: true, MaxAge: -1}
	member := zip(text)
	for _, tc := range []struct {
		name, answer string
		reset        bool
		want         outline
	}{
		{"plain", withLength("", text), false, whole},
		{"until closed", "HTTP/1.0 200 OK\r\n\r\n" + text, false, whole},
		{"after 103", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + withLength("", text), false, whole},
		{"gzip", withLength(zipped, member), false, whole},
		{"x-gzip, any case", withLength("Content-Encoding: X-GZip\r\n", member), false, whole},
		{"identity", withLength("Content-Encoding: identity\r\n", text), false, whole},
		{"identity, gzip", withLength("Content-Encoding: identity, gzip\r\n", member), false, whole},
		{"gzip of two members", withLength(zipped, zip(text[:9])+zip(text[9:])), false, whole},
		{"gzip of nothing", withLength(zipped, zip("")), false, empty},
		{"no octet, called gzip", withLength(zipped, ""), false, empty},

		{"an unknown coding", withLength("Content-Encoding: br\r\n", text), false, torn},
		{"gzip twice", withLength("Content-Encoding: gzip, gzip\r\n", zip(member)), false, torn},
		{"not gzip at all", withLength(zipped, text), false, torn},
		{"gzip torn off", withLength(zipped, member[:len(member)-9]), false, torn},
		{"gzip torn off in its head", withLength(zipped, member[:4]), false, torn},
		{"gzip with a bad sum", withLength(zipped, member[:len(member)-8]+"\x00\x00\x00\x00"+member[len(member)-4:]), false, torn},
		{"short of Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + text, false, torn},
		{"bad chunk size", chunked("", "5\r\nUser-\r\nzz\r\n"), false, torn},
		{"chunks break off", chunked("", "5\r\nUser-\r\n"), false, torn},
		{"chunk breaks off", chunked("", "50\r\nUser-"), false, torn},
		{"gzip in chunks that break off after its end", chunked(zipped, fmt.Sprintf("%x\r\n%s\r\n", len(member), member)), false, torn},
		{"reset in the body", "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + text, true, torn},
		{"reset before the answer", "", true, noAnswer},
		{"closed before the answer", "", false, noAnswer},
		{"no HTTP", "220 mail.example ESMTP\r\n", false, noAnswer},
		{"head breaks off", "HTTP/1.1 200 OK\r\nContent-", false, noAnswer},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", false,
			outline{Status: 101, Connected: true, Fail: true, MaxAge: -1}},
		{"a body of a 404 that breaks off", "HTTP/1.1 404 Not Found\r\nContent-Length: 999\r\n\r\n" + text, false,
			outline{Status: 404, Connected: true, MaxAge: -1}},
		{"a status without meaning", "HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n", false,
			outline{Status: 999, Connected: true, MaxAge: -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, raw(t, tc.answer, tc.reset)), UserAgent: "FooBot"})
			if got := outlineOf(t, a); got != tc.want {
				t.Errorf("answer %+v, want %+v (%v)", got, tc.want, a.Err)
			}
		})
	}
}

func TestNoConnection(t *testing.T) {
	unknownCA := httptest.NewUnstartedServer(nil)
	unknownCA.Config.ErrorLog = quiet
	unknownCA.StartTLS()
	t.Cleanup(unknownCA.Close)
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	for name, address := range map[string]string{
		"refused":              "http://" + testkit.DeadEnd(t, "127.0.0.1"),
		"unknown authority":    unknownCA.URL,
		"TLS spoken to no TLS": strings.Replace(plain.URL, "http:", "https:", 1),
	} {
		t.Run(name, func(t *testing.T) {
			a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, address), UserAgent: ""})
			if a.Err == nil || a.Connected || a.Status != 0 {
				t.Errorf("%+v", a)
			}
		})
	}
}

// TestKeptConnectionDies: if an idle connection proves dead and a new one fails, there was no
// connection to the origin.
func TestKeptConnectionDies(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, 0)
	o := originOf(t, s.URL)
	if a := c.Fetch(t.Context(), Request{Origin: o, UserAgent: ""}); a.Err != nil || !a.Connected {
		t.Fatalf("%+v", a)
	}
	s.Close()
	if a := c.Fetch(t.Context(), Request{Origin: o, UserAgent: ""}); a.Err == nil || a.Connected {
		t.Errorf("%+v", a)
	}
}

// TestGzipBomb: a small body that decodes to a gigabyte costs no more than the limit.
func TestGzipBomb(t *testing.T) {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	line := bytes.Repeat([]byte("Allow: /\n"), 8<<10)
	for range 1 << 8 {
		_, _ = z.Write(line)
	}
	_ = z.Close()
	address := raw(t, withLength("Content-Encoding: gzip\r\n", b.String()), false)
	a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, address), UserAgent: ""})
	if a.Err != nil || len(a.Body) != robots.MaxBytes {
		t.Errorf("Err %v, %d bytes", a.Err, len(a.Body))
	}
}

// TestGzipOfNothing: endless members that decode to nothing end at the limit of coded bytes.
func TestGzipOfNothing(t *testing.T) {
	member := []byte(zip(""))
	page := bytes.Repeat(member, 1000)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		for {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	})
	a := newClient(t, time.Minute).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
	if a.Err == nil || len(a.Body) != 0 {
		t.Errorf("Err %v, %d bytes", a.Err, len(a.Body))
	}
}

// TestNoFileWithoutEnd: little is read of a body that is not kept.
func TestNoFileWithoutEnd(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		for {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 4<<10)); err != nil {
				return
			}
		}
	})
	if a := newClient(t, time.Minute).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""}); a.Err != nil || a.Status != 404 {
		t.Errorf("%+v", a)
	}
}
