package proxy_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// shortTimeouts also shortens the timeouts for clients that are slow to start.
func shortTimeouts(o *proxy.Options) {
	shortSilence(o)
	o.HeadTimeout = 2 * time.Second // also limits a CONNECT and a handshake
}

// drip writes one byte at a time, faster than any timeout, until the connection is closed.
func drip(conn net.Conn, data string) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range len(data) {
		if _, err := io.WriteString(conn, data[i:i+1]); err != nil {
			return
		}
		<-tick.C
	}
}

// clientHello returns the first bytes of a TLS client.
func clientHello(t *testing.T) string {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		tls.Client(client, &tls.Config{ServerName: "o.test"}).Handshake()
		client.Close()
	}()
	first := make([]byte, 100)
	_, err := io.ReadFull(server, first)
	testkit.Must(t, err)
	server.Close()
	return string(first)
}

// slowBeginnings lists clients that never complete their first request.
var slowBeginnings = []struct {
	name    string
	begin   func(r *rig, origin string) net.Conn
	text    string // o.test is the origin, HELLO the first bytes of a TLS client
	dripped bool
	answers []int
}{
	{"nothing", plainly, "", false, nil},
	{"a request line without an end", plainly, "GET http://o.test/", false, nil},
	{"a head without an end", plainly, "GET http://o.test/ HTTP/1.1\r\nHost: o.test\r\n", false, nil},
	{"a dripped head", plainly, "GET http://o.test/ HTTP/1.1\r\nHost: o.test\r\n" + strings.Repeat("X: y\r\n", 1000), true, nil},
	{"dripped empty lines", plainly, strings.Repeat("\r\n", 1000), true, nil},
	{"a second head without an end", plainly, "OPTIONS * HTTP/1.1\r\nHost: o.test\r\n\r\nGET http://o.test/", false, []int{400}},
	{"a silent tunnel", plainly, "CONNECT o.test HTTP/1.1\r\nHost: o.test\r\n\r\n", false, []int{200}},
	{"half a ClientHello", plainly, "CONNECT o.test HTTP/1.1\r\nHost: o.test\r\n\r\nHELLO", false, []int{200}},
	{"a dripped ClientHello", plainly, "CONNECT o.test HTTP/1.1\r\nHost: o.test\r\n\r\nHELLO", true, []int{200}},
	{"half a head in a tunnel", plainly, "CONNECT o.test HTTP/1.1\r\nHost: o.test\r\n\r\nGET / HTTP/1.1\r\n", false, []int{200}},
	{"nothing after the handshake", inTunnel(), "", false, nil},
	{"half a head after the handshake", inTunnel(), "GET / HTTP/1.1\r\n", false, nil},
	{"nothing after negotiating HTTP/2", inTunnel("h2"), "", false, nil},
	{"half an HTTP/2 preface", inTunnel("h2"), http2.ClientPreface[:16], false, nil},
	{"HTTP/1.1 after negotiating HTTP/2", inTunnel("h2"), "GET / HTTP/1.1\r\nHost: o.test\r\n\r\n", false, nil},
	{"a dripped head after the handshake", inTunnel(), "GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 1000), true, nil},
}

// TestSlowToBegin checks that slow clients are disconnected and cost the origin at most the connection of
// their tunnel.
func TestSlowToBegin(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	origin := listenRaw(t, true)
	text := strings.NewReplacer("o.test", origin.host(), "HELLO", clientHello(t))
	var rows sync.WaitGroup // the rows wait, so they run together whatever the limit of -parallel
	for _, c := range slowBeginnings {
		rows.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				r := start(t, setup{origins: []*httptest.Server{origin.trusted}, change: shortTimeouts})
				conn := c.begin(r, origin.host())
				defer conn.Close()
				written := make(chan struct{})
				go func() {
					defer close(written)
					begin(conn, text.Replace(c.text), c.dripped)
				}()
				got := answers(t, conn)
				if n := len(c.answers); len(got) == n+1 && got[n] == http.StatusBadRequest {
					got = got[:n] // net/http answers a partial line but not a partial head
				}
				if !slices.Equal(got, c.answers) {
					t.Errorf("answered %v, want %v", got, c.answers)
				}
				conn.Close()
				<-written
			})
		})
	}
	rows.Wait()
	if got := origin.take(); got != nil {
		t.Errorf("the origin got %q", got)
	}
}

func plainly(r *rig, _ string) net.Conn {
	conn, _ := r.dial()
	return conn
}

func inTunnel(protos ...string) func(*rig, string) net.Conn {
	return func(r *rig, origin string) net.Conn { return r.tunnel(origin, protos...) }
}

// begin writes data. If dripped is set, it drips the bytes after a CONNECT.
func begin(conn net.Conn, data string, dripped bool) {
	if head, rest, ok := strings.Cut(data, "\r\n\r\n"); dripped && ok && strings.HasPrefix(head, "CONNECT") {
		io.WriteString(conn, head+"\r\n\r\n")
		data = rest
	}
	if dripped {
		drip(conn, data)
	} else {
		io.WriteString(conn, data)
	}
}

// answers reads responses until the connection ends and returns their statuses.
func answers(t *testing.T, conn net.Conn) (status []int) {
	t.Helper()
	for br := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
		if err != nil {
			if isTimeout(err) {
				t.Error("the connection stays open")
			}
			return status
		}
		status = append(status, resp.StatusCode)
		if resp.StatusCode != http.StatusOK {
			io.CopyN(io.Discard, br, resp.ContentLength)
		}
	}
}

// stalling starts an origin that stalls at a point given by the path.
func stalling(t *testing.T) string {
	still := make(chan struct{})
	t.Cleanup(func() { close(still) })
	return raw(t, func(conn net.Conn, br *bufio.Reader, r *http.Request) {
		switch r.URL.Path {
		case "/upload":
			io.Copy(io.Discard, r.Body)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n"+whole)
		case "/head":
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Le")
			<-still
		case "/nothing":
			<-still
		case "/body":
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
			<-still
		case "/hints":
			for range 50 {
				if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
				<-time.After(20 * time.Millisecond)
			}
			<-still
		}
	})
}

// TestSilentBodies checks what a client gets when either side stalls.
func TestSilentBodies(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	origin := stalling(t)
	var rows sync.WaitGroup // together, as in TestSlowToBegin
	for _, c := range []struct {
		name, raw string
		status    int
		broken    bool
		reason    string
	}{
		{"a missing small body", "POST http://o.test/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nok", 400, false, "malformed"},
		{"a missing large body", "POST http://o.test/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\nok", 400, false, "no-file"},
		{"missing chunks", "POST http://o.test/upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", 400, false, "no-file"},
		{"no response", "GET http://o.test/nothing HTTP/1.1\r\nHost: x\r\n\r\n", 504, false, "no-file"},
		{"half a head", "GET http://o.test/head HTTP/1.1\r\nHost: x\r\n\r\n", 504, false, "no-file"},
		{"half a body", "GET http://o.test/body HTTP/1.1\r\nHost: x\r\n\r\n", 200, true, "no-file"},
		{"half a body, HTTP/1.0", "GET http://o.test/body HTTP/1.0\r\n\r\n", 200, true, "no-file"},
		{"hints and no response", "GET http://o.test/hints HTTP/1.1\r\nHost: x\r\n\r\n", 504, false, "no-file"},
	} {
		rows.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				r := start(t, setup{change: shortSilence})
				conn, _ := r.dial()
				resp, body, err := readRaw(conn, strings.ReplaceAll(c.raw, "o.test", origin))
				if resp == nil || resp.StatusCode != c.status || (err != nil) != c.broken || isTimeout(err) {
					t.Fatalf("%v %q, %v", resp, body, err)
				}
				if rec := r.records.last(t, 1); string(rec.Decision.Reason) != c.reason || rec.Err == nil || rec.Status != c.status {
					t.Errorf("record: %+v", rec)
				}
			})
		})
	}
	rows.Wait()
}
