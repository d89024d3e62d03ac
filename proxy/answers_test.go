package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots/testkit"
)

const (
	stray = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
	whole = "Content-Length: 2\r\n\r\nok"
)

// hostileAnswers are responses of an origin and what the client gets: the response, a 502, or a
// transfer that is broken off.
var hostileAnswers = []struct {
	name, raw string
	status    int
	body      string
	broken    bool
	head      http.Header // fields the client gets; nil: absent
}{
	// RFC 9112 6.3
	{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 43\r\n\r\nok" + stray, 502, "", false, nil},
	{"the same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + whole, 200, "ok", false, nil},
	{"a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", 200, "ok", false, http.Header{"Content-Length": {"2"}}},
	{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", 502, "", false, nil},
	{"no length at all", "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nok", 502, "", false, nil},
	{"CL and TE: the length is dropped", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, "hello", false,
		http.Header{"Content-Length": nil}},
	{"xchunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 502, "", false, nil},
	{"gzip, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 502, "", false, nil},
	{"chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, "ok", false, nil},
	{"chunked twice in a list", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, "ok", false, nil},
	{"identity", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok" + stray, 200, "ok", false, http.Header{"Content-Length": {"2"}}},
	{"bytes after the body", "HTTP/1.1 200 OK\r\n" + whole + stray, 200, "ok", false, nil},
	{"fewer bytes than the length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", 200, "ok", true, nil},
	{"a body of a 204", "HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n" + stray, 204, "", false, http.Header{"Content-Length": nil}},
	{"chunks of a 204", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 204, "", false, nil},
	{"a body of a 304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n" + stray, 304, "", false, http.Header{"Content-Length": nil}},
	// RFC 9112 7.1
	{"a chunk size that ends in a bare LF", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\nok\r\n0\r\n\r\n", 200, "", true, nil},
	{"a chunk longer than its size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n", 200, "", true, nil},
	{"a chunk size that overflows", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nok\r\n0\r\n\r\n", 200, "", true, nil},
	{"chunks that break off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", 200, "ok", true, nil},
	{"chunk extensions are dropped", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n", 200, "ok", false, nil},
	{"a trailer of ten kilobytes", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: " + strings.Repeat("x", 10_000) + "\r\n\r\n", 200, "ok", true, nil},
	{"Content-Length announced as a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n", 200, "ok", false, http.Header{"Trailer": nil}},
	// RFC 9112 5
	{"a folded value", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n" + whole, 200, "ok", false, http.Header{"X": {"a b"}}},
	{"a folded framing field", "HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 1\r\n" + whole, 200, "ok", false, http.Header{"X": {"a Content-Length: 1"}}},
	{"a fold as the first header", "HTTP/1.1 200 OK\r\n X: a\r\n" + whole, 200, "ok", false, http.Header{"X": nil}},
	{"a space before the colon", "HTTP/1.1 200 OK\r\nx-Y  : a\r\n" + whole, 200, "ok", false, http.Header{"X-Y": {"a"}}},
	{"a space before the colon of hop-by-hop fields", "HTTP/1.1 200 OK\r\nConnection : X\r\nX: a\r\nKeep-Alive  : 5\r\n" + whole, 200, "ok", false, http.Header{"X": nil, "Keep-Alive": nil}},
	{"a space in a name", "HTTP/1.1 200 OK\r\nX Y: a\r\n" + whole, 200, "ok", false, http.Header{"X": nil, "Y": nil, "X-Y": nil, "X Y": nil}},
	{"a space before the colon of Content-Length", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", 502, "", false, nil},
	{"a space before the colon of Transfer-Encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 502, "", false, nil},
	{"NUL in a value", "HTTP/1.1 200 OK\r\nX: a\x00b\r\n" + whole, 200, "ok", false, http.Header{"X": nil}},
	{"a bare CR in a value", "HTTP/1.1 200 OK\r\nX: a\rY: b\r\n" + whole, 200, "ok", false, http.Header{"X": nil, "Y": nil}},
	{"a bare CR before the end of a line", "HTTP/1.1 200 OK\r\nX: a\r\r\n" + whole, 200, "ok", false, http.Header{"X": {"a"}}},
	{"a control character in a value", "HTTP/1.1 200 OK\r\nX: a\x1bb\r\n" + whole, 200, "ok", false, http.Header{"X": nil}},
	{"a line without a colon", "HTTP/1.1 200 OK\r\nhello\r\n" + whole, 200, "ok", false, http.Header{"Hello": nil}},
	{"a name that is not ASCII", "HTTP/1.1 200 OK\r\nX-\xc3\xa9: a\r\n" + whole, 200, "ok", false, http.Header{"X-\xc3\xa9": nil}},
	{"RFC 9110 7.6.1 fields that Connection names beside close", "HTTP/1.1 200 OK\r\nConnection: close, X-Y\r\nX-Y: a\r\n" + whole, 200, "ok", false, http.Header{"X-Y": nil}},
	{"a head of 300 KiB", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10) + "\r\n" + whole, 502, "", false, nil},
	{"a head of 100,000 fields", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 100_000) + whole, 502, "", false, nil},
	// RFC 9112 4
	{"a status of four digits", "HTTP/1.1 2000 OK\r\n" + whole, 502, "", false, nil},
	{"a status with a sign", "HTTP/1.1 +20 OK\r\n" + whole, 502, "", false, nil},
	{"no status", "HTTP/1.1\r\n" + whole, 502, "", false, nil},
	{"no HTTP", "ICY 200 OK\r\n" + whole, 502, "", false, nil},
	{"a reason with a bare CR is dropped", "HTTP/1.1 200 O\rX: y\x00\r\n" + whole, 200, "ok", false, http.Header{"X": nil}},
	// RFC 9110 15.2
	{"100 interim responses", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100) + "HTTP/1.1 200 OK\r\n" + whole, 200, "ok", false, nil},
	{"1,000 interim responses", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000) + "HTTP/1.1 200 OK\r\n" + whole, 502, "", false, nil},
	{"1,000 times 100 Continue", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000) + "HTTP/1.1 200 OK\r\n" + whole, 502, "", false, nil},
	{"framing in an interim response", "HTTP/1.1 103 Early Hints\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\n" + whole, 200, "ok", false,
		http.Header{"Transfer-Encoding": nil}},
	{"unsolicited 101 with a body", "HTTP/1.1 101 x\r\n" + whole, 502, "", false, nil},
}

func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	for _, route := range []struct {
		name string
		tls  bool
		read func(t *testing.T, r *rig, origin, path string) (*http.Response, string, error)
	}{
		{"HTTP/1.1", false, func(t *testing.T, r *rig, origin, path string) (*http.Response, string, error) {
			conn, _ := r.dial()
			return readRaw(conn, "GET http://"+origin+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		}},
		{"HTTP/1.0", false, func(t *testing.T, r *rig, origin, path string) (*http.Response, string, error) {
			conn, _ := r.dial()
			return readRaw(conn, "GET http://"+origin+path+" HTTP/1.0\r\n\r\n")
		}},
		{"HTTP/1.0 in TLS", true, func(t *testing.T, r *rig, origin, path string) (*http.Response, string, error) {
			return readRaw(r.tunnel(origin), "GET "+path+" HTTP/1.0\r\n\r\n")
		}},
		{"HTTP/2", true, func(t *testing.T, r *rig, origin, path string) (*http.Response, string, error) {
			return get(r.client(true), "https://"+origin+path)
		}},
	} {
		for _, c := range hostileAnswers {
			t.Run(route.name+"/"+c.name, func(t *testing.T) {
				origin := listenRaw(t, route.tls)
				origin.answers = map[string]string{"/x": c.raw}
				s := setup{change: shortSilence}
				if route.tls {
					s.origins = []*httptest.Server{origin.trusted}
				}
				r := start(t, s)
				resp, body, err := route.read(t, r, origin.host(), "/x")
				if resp == nil {
					t.Fatalf("no response: %v", err)
				}
				if resp.StatusCode != c.status || c.broken != (err != nil) || c.status != 502 && !strings.HasPrefix(c.body, body) || !c.broken && c.status != 502 && body != c.body {
					t.Errorf("%s %q, %v; want %d %q, broken: %t", resp.Status, body, err, c.status, c.body, c.broken)
				}
				for name, values := range c.head {
					if got := resp.Header[name]; !slices.Equal(got, values) {
						t.Errorf("%s: %q, want %q", name, got, values)
					}
				}
				if strings.Contains(body, "smuggled") {
					t.Errorf("%q", body)
				}
				if resp, body, err := route.read(t, r, origin.host(), "/next"); err != nil || resp.StatusCode != 200 || body != "ok" {
					t.Errorf("then %v %q, %v; %v", resp, body, err, r.records.last(t, 2).Err)
				}
			})
		}
	}
}

// readRaw writes data and reads up to the final response.
func readRaw(conn net.Conn, data string) (*http.Response, string, error) {
	defer conn.Close()
	io.WriteString(conn, data)
	for br := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return nil, "", err
		}
		if resp.StatusCode >= 200 {
			body, err := io.ReadAll(resp.Body)
			return resp, string(body), err
		}
	}
}

// RFC 9110 6.5.1, 7.6.1: the proxy drops fields that are not allowed in trailers.
func TestTrailersOfAnswers(t *testing.T) {
	t.Parallel()
	const fields = "X-Sum: 7\r\nX-More: 8\r\nX-Hop: 9\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nHost: evil.test\r\nSet-Cookie: a=b\r\n" +
		"Connection: close\r\nUpgrade: h2c\r\nContent-Type: x/y\r\nProxy-Authenticate: Basic\r\nWww-Authenticate: Basic\r\nProxy-Status: robotsproxy; error=http_request_denied\r\nVia: 1.1 evil\r\n" +
		"Location: http://evil.test/\r\n\r\n"
	for _, overTLS := range []bool{false, true} {
		for name, announced := range map[string]string{"announced": "Trailer: X-Sum, X-More, X-Hop, Host, Set-Cookie, Connection\r\n", "announced in part": "Trailer: X-Sum\r\n", "not announced": ""} {
			t.Run(fmt.Sprintf("TLS %t/%s", overTLS, name), func(t *testing.T) {
				origin := listenRaw(t, overTLS)
				origin.answers = map[string]string{"/x": "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\n" + announced + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + fields}
				s, address := setup{}, "http://"+origin.host()+"/x"
				if overTLS {
					s.origins, address = []*httptest.Server{origin.trusted}, "https://"+origin.host()+"/x"
				}
				resp, body, err := get(start(t, s).client(overTLS), address)
				testkit.Must(t, err)
				if diff := cmp.Diff(http.Header{"X-Sum": {"7"}, "X-More": {"8"}}, resp.Trailer); diff != "" || body != "ok" {
					t.Errorf("%q, trailer (-want +got):\n%s", body, diff)
				}
			})
		}
	}
}

// TestUnsolicitedResponseClosesTheConnection checks that a response sent before the request closes the
// connection, and that the next request uses a new connection.
func TestUnsolicitedResponseClosesTheConnection(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	origin := raw(t, func(conn net.Conn, br *bufio.Reader, r *http.Request) {
		if r.URL.Path != "/first" {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+whole)
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+whole)
		io.WriteString(conn, stray)
		io.Copy(io.Discard, br)
		close(ended)
	})
	r := start(t, setup{})
	for _, path := range []string{"/first", "/second"} {
		resp, body, err := get(r.client(false), "http://"+origin+path)
		if err != nil || resp.StatusCode != 200 || body != "ok" {
			t.Errorf("%s: %v %q, %v", path, resp, body, err)
		}
		if path == "/first" {
			<-ended
		}
	}
}

// TestDroppedFieldsAreRecorded checks that the record has the number of malformed fields of the response.
func TestDroppedFieldsAreRecorded(t *testing.T) {
	t.Parallel()
	origin := listenRaw(t, false)
	origin.answers = map[string]string{"/x": "HTTP/1.1 200 OK\r\nX: a\x00b\r\nno colon\r\nY: kept\r\n" + whole}
	r := start(t, setup{})
	resp, body, err := get(r.client(false), "http://"+origin.host()+"/x")
	if err != nil || body != "ok" || resp.Header.Get("Y") != "kept" {
		t.Errorf("%q %v, %v", body, resp, err)
	}
	if rec := r.records.last(t, 1); rec.Dropped != 2 {
		t.Errorf("the record has %d", rec.Dropped)
	}
}
