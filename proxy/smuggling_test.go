package proxy_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// rawOrigin is an origin that keeps the bytes of each complete request and answers "ok". Its
// robots.txt disallows /private.
type rawOrigin struct {
	t       testing.TB
	l       net.Listener
	trusted *httptest.Server  // its certificate is used
	answers map[string]string // raw responses by path, after which the connection ends; set before the first request
	serving sync.WaitGroup
	stalled atomic.Pointer[chan struct{}] // receives new connections, which then get no response

	mu      sync.Mutex // guards arrived
	arrived []string
}

func listenRaw(t testing.TB, overTLS bool) *rawOrigin {
	t.Helper()
	w := &rawOrigin{t: t}
	var err error
	w.l, err = net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	if overTLS {
		w.trusted = testca.NewTLSServer(t, nil)
		w.trusted.Close()
		w.l = tls.NewListener(w.l, &tls.Config{Certificates: w.trusted.TLS.Certificates})
	}
	w.serving.Go(func() {
		for {
			c, err := w.l.Accept()
			if err != nil {
				return
			}
			go w.serve(c) // ends with the proxy's connection
		}
	})
	t.Cleanup(func() {
		w.l.Close()
		w.serving.Wait()
	})
	return w
}

func (w *rawOrigin) serve(c net.Conn) {
	defer c.Close()
	if stalled := w.stalled.Load(); stalled != nil {
		*stalled <- struct{}{}
		io.Copy(io.Discard, c.(*tls.Conn).NetConn()) // the handshake is not answered
		return
	}
	var size strings.Builder
	for br := bufio.NewReader(io.TeeReader(c, &size)); ; size.Reset() {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if r.URL.Path == "/robots.txt" {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\nUser-agent: *\nDisallow: /private")
			continue
		}
		_, err = io.Copy(io.Discard, r.Body)
		if strings.Contains(size.String(), "/private") {
			w.t.Errorf("the origin got %q", size.String())
		}
		if err != nil {
			return // an incomplete request
		}
		w.mu.Lock()
		w.arrived = append(w.arrived, size.String())
		w.mu.Unlock()
		if answer, ok := w.answers[r.URL.Path]; ok {
			io.WriteString(c, answer)
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func (w *rawOrigin) host() string { return w.l.Addr().String() }

var viaLine = regexp.MustCompile(`Via: 1\.1 robotsproxy-[0-9a-f]+\r\n`)

// take returns the requests since the last call, with o.test as the origin's name and without our Via.
func (w *rawOrigin) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, data := range w.arrived {
		all = append(all, viaLine.ReplaceAllString(strings.ReplaceAll(data, w.host(), "o.test"), ""))
	}
	w.arrived = nil
	return all
}

const (
	last      = "GET {/last} HTTP/1.1\r\nHost: o.test\r\nConnection: close\r\n\r\n"
	lastThere = "GET /last HTTP/1.1\r\nHost: o.test\r\n\r\n"

	second       = "GET {/second} HTTP/1.1\r\nHost: o.test\r\n\r\n"
	secondThere  = "GET /second HTTP/1.1\r\nHost: o.test\r\n\r\n"
	private      = "GET {/private} HTTP/1.1\r\nHost: o.test\r\n\r\n"
	post         = "POST {/a} HTTP/1.1\r\nHost: o.test\r\n"
	chunks       = post + "Transfer-Encoding: chunked\r\n\r\n"
	postThere    = "POST /a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 5\r\n\r\nhello"
	chunksThere  = "POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	nothingThere = "POST /a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 0\r\n"
)

// Each row is written to a connection, followed by one more request. A target in braces becomes
// absolute on the proxy's own port.
var smuggling = []struct {
	name, raw string
	status    []int    // statuses before that of the last request
	kept      bool     // the last request is answered because the connection is still open
	arrives   []string // at the origin before the last request
}{
	{"a pipelined second request", "GET {/a} HTTP/1.1\r\nHost: o.test\r\n\r\n" + second, []int{200, 200}, true, []string{"GET /a HTTP/1.1\r\nHost: o.test\r\n\r\n", secondThere}},
	{"a pipelined second request is judged", "GET {/a} HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{200, 403}, true, []string{"GET /a HTTP/1.1\r\nHost: o.test\r\n\r\n"}},
	{"a request in a body is a body", post + "Content-Length: 5\r\n\r\nhello", []int{200}, true, []string{postThere}},

	// RFC 9112 6.1: Transfer-Encoding overrides; the length is never sent on.
	{"CL.TE", post + "Content-Length: 62\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + private, []int{200}, false, []string{chunksThere + "0\r\n\r\n"}},
	{"TE.CL", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + private, []int{200}, false, []string{chunksThere + "5\r\nhello\r\n0\r\n\r\n"}},
	{"CL.TE, invalid length", post + "Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	// RFC 9112 6.3
	{"two lengths", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + private, []int{400}, false, nil},
	{"the same length twice", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", []int{200}, true, []string{postThere}},
	{"a list of lengths", post + "Content-Length: 5, 5\r\n\r\nhello" + private, []int{400}, false, nil},
	{"a length with a sign", post + "Content-Length: +5\r\n\r\nhello" + private, []int{400}, false, nil},
	{"a negative length", post + "Content-Length: -5\r\n\r\nhello" + private, []int{400}, false, nil},
	{"a length in hexadecimal", post + "Content-Length: 0x5\r\n\r\nhello" + private, []int{400}, false, nil},
	{"a length with leading zeros", post + "Content-Length: 005\r\n\r\nhello", []int{200}, true, []string{postThere}},
	{"no length at all", post + "Content-Length: \r\n\r\nhello" + private, []int{400}, false, nil},
	{"a length that overflows", post + "Content-Length: 99999999999999999999\r\n\r\nhello" + private, []int{400}, false, nil},
	// RFC 9112 6.1
	{"xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + private, []int{501}, false, nil},
	{"gzip, chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + private, []int{501}, false, nil},
	{"chunked, then identity", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + private, []int{501}, false, nil},
	{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + private, []int{501}, false, nil},
	{"a vertical tab before chunked", post + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a tab before chunked", post + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", []int{200}, false, []string{chunksThere + "0\r\n\r\n"}},
	{"CHUNKED", post + "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", []int{200}, false, []string{chunksThere + "0\r\n\r\n"}},
	// RFC 9112 6.1: such framing is faulty, and 9.3: an HTTP/1.0 client's connection is not kept.
	{"HTTP/1.0 with chunks", "POST {/a} HTTP/1.0\r\nHost: o.test\r\nConnection: keep-alive\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2e\r\n" + private, []int{200}, false,
		[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 4\r\n\r\n2e\r\n"}},
	{"HTTP/1.0 with keep-alive", "GET {/a} HTTP/1.0\r\nHost: o.test\r\nConnection: keep-alive\r\n\r\n" + private, []int{200}, false, []string{"GET /a HTTP/1.1\r\nHost: o.test\r\n\r\n"}},
	// RFC 9112 5.1
	{"a space before the colon", post + "Content-Length : 5\r\n\r\nhello" + private, []int{400}, false, nil},
	{"a space before another colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"no colon", post + "X\r\n\r\n" + private, []int{400}, false, nil},
	{"no name", post + ": x\r\n\r\n" + private, []int{400}, false, nil},
	{"NUL in a name", post + "X\x00Y: x\r\n\r\n" + private, []int{400}, false, nil},
	{"NUL in a value", post + "X: x\x00y\r\n\r\n" + private, []int{400}, false, nil},
	// RFC 9112 5.2: a fold is a space.
	{"a folded value", post + "X: a\r\n b\r\n\tc\r\nContent-Length: 5\r\n\r\nhello", []int{200}, true, []string{"POST /a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 5\r\nX: a b c\r\n\r\nhello"}},
	{"a folded framing field", post + "X: a\r\n Transfer-Encoding: chunked\r\n\r\n", []int{200}, true, []string{nothingThere + "X: a Transfer-Encoding: chunked\r\n\r\n"}},
	{"chunked after a fold", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", []int{200}, false, []string{chunksThere + "0\r\n\r\n"}},
	{"a fold as the first header", "POST {/a} HTTP/1.1\r\n X: a\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	// RFC 9112 2.2
	{"a bare CR", post + "X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a bare CR before the end of a line", post + "X: y\r\r\n\r\n" + private, []int{400}, false, nil},
	{"bare LFs end lines", "POST {/a} HTTP/1.1\nHost: o.test\nTransfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n", []int{200}, false, []string{chunksThere + "5\r\nhello\r\n0\r\n\r\n"}},
	{"an empty line before the request", "\r\nGET {/a} HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"white space before the request", " GET {/a} HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	// RFC 9112 3
	{"two spaces", "GET  {/a} HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"a tab for a space", "GET\t{/a} HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"a space in the target", "GET {/a} /b HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"a bare CR in the target", "GET {/a}\r/b HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"a version with a trailing space", "GET {/a} HTTP/1.1 \r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"a version in lower case", "GET {/a} http/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"no version", "GET {/a}\r\n" + private, []int{400}, false, nil},
	{"HTTP/2.0 in HTTP/1 syntax", "GET {/a} HTTP/2.0\r\nHost: o.test\r\n\r\n" + private, []int{505}, false, nil},
	{"HTTP/0.9", "GET {/a} HTTP/0.9\r\nHost: o.test\r\n\r\n" + private, []int{505}, false, nil},
	{"a method that is no token", "G@T {/a} HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"a fragment", "GET {/a}#b HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400, 403}, true, nil},
	{"a fragment after a query", "GET {/a}?b#c HTTP/1.1\r\nHost: o.test\r\n\r\n" + private, []int{400, 403}, true, nil},
	{"line ends stay escaped", "GET {/a}%0d%0aX:%20y HTTP/1.1\r\nHost: o.test\r\n\r\n", []int{200}, true, []string{"GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: o.test\r\n\r\n"}},
	// RFC 9112 3.2
	{"no Host", "GET {/a} HTTP/1.1\r\n\r\n" + private, []int{400}, false, nil},
	{"two Hosts", "GET {/a} HTTP/1.1\r\nHost: o.test\r\nHost: o.test\r\n\r\n" + private, []int{400}, false, nil},
	{"Host with a space", "GET {/a} HTTP/1.1\r\nHost: o.test x\r\n\r\n" + private, []int{400}, false, nil},
	// RFC 9112 7.1
	{"chunk extensions are dropped", chunks + "5;a=\"b\"\r\nhello\r\n0;c\r\n\r\n", []int{200}, false, []string{chunksThere + "5\r\nhello\r\n0\r\n\r\n"}},
	{"a chunk extension that ends in a bare LF", chunks + "5;a\nhello\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a chunk size that ends in a bare LF", chunks + "5\nhello\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a chunk size that overflows", chunks + "10000000000000005\r\nhello\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a chunk size with 0x", chunks + "0x5\r\nhello\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a chunk size with a sign", chunks + "-5\r\nhello\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a chunk size with a space before it", chunks + " 5\r\nhello\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a chunk longer than its size", chunks + "3\r\nhello\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a chunk that ends in a bare LF", chunks + "5\r\nhelloX\n0\r\n\r\n" + private, []int{400}, false, nil},
	// RFC 9110 6.5.1, 7.6.1
	{"trailers", post + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 7\r\nX-More: 8\r\n\r\n", []int{200}, false,
		[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 7\r\n\r\n"}},
	{"announced trailers that are missing", post + "Trailer: X-Sum, X-More\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-More: 8\r\n\r\n", []int{200}, false,
		[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-More,X-Sum\r\n\r\n0\r\nX-More: 8\r\n\r\n"}},
	{"trailers that identify or route", post + "Trailer: X-Sum, User-Agent, From, Forwarded, X-Forwarded-Host, X-Original-Url, Proxy-Status, Signature-Agent\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 7\r\nUser-Agent: EvilBot/1.0\r\nFrom: evil@evil.test\r\nForwarded: host=evil.test\r\n" +
		"X-Forwarded-Host: evil.test\r\nX-Original-URL: /private\r\nProxy-Status: x\r\nSignature-Agent: evil.test\r\n\r\n", []int{200}, false,
		[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 7\r\n\r\n"}},
	{"an unannounced User-Agent beside an announced trailer", post + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 7\r\nUser-Agent: EvilBot/1.0\r\n\r\n", []int{200}, false,
		[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 7\r\n\r\n"}},
	{"fields not allowed in trailers", post + "Trailer: X-Sum, Host, Proxy-Authorization, Cookie\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 7\r\n" +
		"Content-Length: 9\r\nTransfer-Encoding: chunked\r\nHost: evil.test\r\nProxy-Authorization: Basic eDp5\r\nAuthorization: Basic eDp5\r\nCookie: a=b\r\n" +
		"Connection: close\r\nUpgrade: h2c\r\nContent-Type: x/y\r\nTe: gzip\r\n\r\n", []int{200}, false,
		[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 7\r\n\r\n"}},
	{"a trailer that Connection names", post + "Connection: X-Hop\r\nTrailer: X-Sum, X-Hop\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 7\r\nX-Hop: 8\r\n\r\n", []int{200}, false,
		[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 7\r\n\r\n"}},
	{"no allowed trailers", post + "Trailer: Host\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: evil.test\r\nX: 1\r\n\r\n", []int{200}, false, []string{chunksThere + "0\r\n\r\n"}},
	{"unannounced trailers are dropped", chunks + "0\r\nX: 1\r\nContent-Length: 5\r\n\r\n", []int{200}, false, []string{chunksThere + "0\r\n\r\n"}},
	{"Content-Length announced as a trailer", post + "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + private, []int{400}, false, nil},
	{"a trailer of ten kilobytes", chunks + "0\r\nX: " + strings.Repeat("x", 10_000) + "\r\n\r\n" + private, []int{400}, false, nil},

	{"an unknown expectation", post + "Expect: x\r\nContent-Length: 5\r\n\r\nhello" + private, []int{417}, false, nil},
	{"Connection names the framing", post + "Connection: Content-Length, Host\r\nContent-Length: 5\r\n\r\nhello", []int{200}, true, []string{postThere}},
	{"a body of a GET", "GET {/a} HTTP/1.1\r\nHost: o.test\r\nContent-Length: 5\r\n\r\nhello", []int{200}, true, []string{"GET /a HTTP/1.1\r\nHost: o.test\r\nContent-Length: 5\r\n\r\nhello"}},
	{"a head of 70 KiB", post + "X: " + strings.Repeat("x", 70<<10) + "\r\n\r\n" + private, []int{431}, false, nil},
	{"a head of many names", post + strings.Repeat("X: y\r\n", 20_000) + "\r\n" + private, []int{431}, false, nil},
}

var target = regexp.MustCompile(`\{(/[^}]*)\}`)

func TestSmuggling(t *testing.T) {
	t.Parallel()
	for _, route := range []struct {
		name          string
		overTLS, port bool
	}{{"own port", false, true}, {"tunnel", false, false}, {"tunnel with TLS", true, false}} {
		origin := listenRaw(t, route.overTLS)
		s := setup{}
		if route.overTLS {
			s.origins = []*httptest.Server{origin.trusted}
		}
		r := start(t, s)
		for _, c := range smuggling {
			t.Run(route.name+"/"+c.name, func(t *testing.T) {
				as := "$1"
				if route.port {
					as = "http://o.test$1"
				}
				text := strings.ReplaceAll(target.ReplaceAllString(c.raw+last, as), "o.test", origin.host())
				status, arrives := c.status, c.arrives
				if c.kept {
					status, arrives = append(slices.Clone(status), 200), append(slices.Clone(arrives), lastThere)
				}
				if got := r.exchangeRaw(t, route.overTLS, route.port, origin.host(), text); !slices.Equal(got, status) {
					t.Errorf("answered %v, want %v", got, status)
				}
				if got := origin.take(); !slices.Equal(got, arrives) {
					t.Errorf("the origin got\n%q, want\n%q", got, arrives)
				}
			})
		}
	}
}

// exchangeRaw writes data to the proxy's port or into a tunnel and returns the statuses of all responses.
func (r *rig) exchangeRaw(t *testing.T, overTLS, port bool, origin, data string) (status []int) {
	t.Helper()
	var conn net.Conn
	switch {
	case overTLS:
		conn = r.tunnel(origin, "http/1.1")
	case port:
		conn, _ = r.dial()
	default:
		conn, _ = r.dial()
		data = "CONNECT " + origin + " HTTP/1.1\r\nHost: " + origin + "\r\n\r\n" + data
	}
	defer conn.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		io.WriteString(conn, data) // the proxy may close the connection early
	}()
	for br := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(br, nil)
		if err == nil && len(status) == 0 && !overTLS && !port && strings.HasPrefix(resp.Status, "200 Connection") {
			port = true // skip the response to the CONNECT
			br.Discard(0)
			continue
		}
		if err == nil {
			status = append(status, resp.StatusCode)
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if err != nil {
			conn.Close()
			<-written
			if isTimeout(err) {
				t.Errorf("after %v: %v", status, err)
			}
			return status
		}
	}
}

// TestAbsoluteFormDecides checks that the request goes to the host of the absolute form, whatever Host says.
func TestAbsoluteFormDecides(t *testing.T) {
	t.Parallel()
	origin := listenRaw(t, false)
	r := start(t, setup{})
	for _, c := range []struct {
		name, raw string
		status    int
		arrives   []string
	}{
		{"another Host (RFC 9112 3.2.2)", "GET http://o.test/a HTTP/1.1\r\nHost: victim.test\r\n\r\n", 200, []string{"GET /a HTTP/1.1\r\nHost: o.test\r\n\r\n"}},
		{"an empty Host", "GET http://o.test/a HTTP/1.1\r\nHost:\r\n\r\n", 200, []string{"GET /a HTTP/1.1\r\nHost: o.test\r\n\r\n"}},
		{"another Host does not hide a rule", "GET http://o.test/private HTTP/1.1\r\nHost: victim.test\r\n\r\n", 403, nil},
		{"a query without a path", "GET http://o.test?a HTTP/1.1\r\nHost: o.test\r\n\r\n", 200, []string{"GET /?a HTTP/1.1\r\nHost: o.test\r\n\r\n"}},
		{"userinfo", "GET http://o.test@victim.test/ HTTP/1.1\r\nHost: o.test\r\n\r\n", 400, nil},
		{"userinfo after a backslash", "GET http://o.test\\@victim.test/ HTTP/1.1\r\nHost: o.test\r\n\r\n", 400, nil},
		{"userinfo after a fragment", "GET http://victim.test#@o.test/ HTTP/1.1\r\nHost: o.test\r\n\r\n", 400, nil},
		{"a body of a CONNECT", "CONNECT o.test HTTP/1.1\r\nHost: o.test\r\nContent-Length: 36\r\n\r\nGET /a HTTP/1.1\r\nHost: o.test\r\n\r\n", 400, nil},
		{"chunks of a CONNECT", "CONNECT o.test HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if resp := r.send(strings.ReplaceAll(c.raw, "o.test", origin.host())); resp.StatusCode != c.status {
				t.Errorf("%s, want %d", resp.Status, c.status)
			}
			if got := origin.take(); !slices.Equal(got, c.arrives) {
				t.Errorf("the origin got %q, want %q", got, c.arrives)
			}
		})
	}
}
