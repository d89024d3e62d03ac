package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// shortSilence makes the proxy end stalled transfers after two to four seconds, but tolerates a pause
// of the whole process for a second.
func shortSilence(o *proxy.Options) { o.Silence, o.Linger = 2*time.Second, time.Second }

// shortestSilence makes the proxy end stalled transfers within 600 ms, for tests that an early end
// does not affect.
func shortestSilence(o *proxy.Options) { o.Silence, o.Linger = 300*time.Millisecond, time.Second }

// lasting is the duration of a transfer that shortSilence must not end.
const lasting = 5 * time.Second

const realClock = "waits for the real clock"

func TestUpgradedConnectionIsNotTimedOut(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	origin := raw(t, func(conn net.Conn, br *bufio.Reader, _ *http.Request) {
		io.WriteString(conn, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(conn, br)
	})
	r := start(t, setup{change: shortSilence})
	conn, br := r.dial()
	fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", origin)
	_, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	const pause = 100 * time.Millisecond
	for i := range lasting / pause {
		io.WriteString(conn, "ping")
		if _, err := io.ReadFull(br, make([]byte, 4)); err != nil {
			t.Fatalf("ping %d: %v", i, err)
		}
		<-time.After(pause)
	}
}

// flood sends requests on a new connection and reads nothing.
func (r *rig) flood(t *testing.T, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", r.url.Host)
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	testkit.Must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	go func() {
		for range 3000 {
			if _, err := io.WriteString(conn, request); err != nil {
				return
			}
		}
	}()
}

func TestUnreadRefusalHoldsNoSlot(t *testing.T) {
	t.Parallel()
	origin := raw(t, func(net.Conn, *bufio.Reader, *http.Request) {}) // closes the connection: 502
	r := start(t, setup{
		limits: pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1, MaxWait: 10 * time.Second, MaxQueue: 9},
		change: func(o *proxy.Options) { o.Linger = time.Second },
	})
	r.flood(t, fmt.Sprintf("GET http://%s/%s HTTP/1.1\r\nHost: x\r\n\r\n", origin, strings.Repeat("x", 50_000)))
	<-time.After(500 * time.Millisecond) // until the client's window is full
	if resp := r.send("GET http://" + origin + "/y HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("another client gets %s", resp.Status)
	}
}

func TestRefusalDoesNotWaitForTheUpload(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	origin := serve(t, false, "User-agent: *\nDisallow: /private\n", hello)
	r := start(t, setup{change: shortSilence})
	conn, br := r.dial()
	fmt.Fprintf(conn, "POST %s/private HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", origin.URL)
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Errorf("%s, closing: %t", resp.Status, resp.Close)
	}
	io.Copy(io.Discard, resp.Body)
	if _, err := br.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("then %v, want a closed connection", err)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

func TestRefusalOfAClientWithoutAWindowEnds(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "User-agent: *\nDisallow: /private\n", hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: shortestSilence})
	conn := r.tunnel(origin.host(), "h2")
	io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	testkit.Must(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", origin.host()}, {":path", "/private"}} {
		testkit.Must(t, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	testkit.Must(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true}))
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("the stream is not ended: %v", err)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				testkit.Must(t, framer.WriteSettingsAck())
			}
		case *http2.RSTStreamFrame:
			return
		}
	}
}

// TestEarlyResponseClosesTheConnection checks that the rest of an upload is never read as a request.
func TestEarlyResponseClosesTheConnection(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	r := start(t, setup{})
	for range 3 {
		conn, br := r.dial()
		fmt.Fprintf(conn, "POST %s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc", origin.URL)
		resp, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
		if !resp.Close {
			t.Error("the response lacks Connection: close")
		}
		io.Copy(io.Discard, resp.Body)
		smuggled := fmt.Sprintf("GET %s/smuggled HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL)
		io.WriteString(conn, strings.Repeat(smuggled, 512<<10/len(smuggled))) // twice what the proxy reads of a body after its response
		if b, err := br.ReadByte(); err == nil || isTimeout(err) {
			t.Errorf("then %q, %v, want a closed connection", b, err)
		}
	}
	r.records.mu.Lock()
	defer r.records.mu.Unlock()
	if n := len(r.records.all); n != 3 {
		t.Errorf("%d records of 3 requests", n)
	}
}

// TestOriginDisconnectsBeforeTheBody checks that the client gets a 502 before it has sent its body.
func TestOriginDisconnectsBeforeTheBody(t *testing.T) {
	t.Parallel()
	origin := raw(t, func(net.Conn, *bufio.Reader, *http.Request) {})
	r := start(t, setup{})
	conn, br := r.dial()
	fmt.Fprintf(conn, "POST http://%s/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", origin)
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusBadGateway {
		t.Error(resp.Status)
	}
}

func TestHintsWithContinue(t *testing.T) {
	t.Parallel()
	origin := raw(t, func(conn net.Conn, _ *bufio.Reader, r *http.Request) {
		io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"+strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 20))
		io.Copy(io.Discard, r.Body)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	})
	r := start(t, setup{})
	for range 30 {
		conn, br := r.dial()
		fmt.Fprintf(conn, "POST http://%s/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", origin)
		for status := 0; status < 200; {
			resp, err := http.ReadResponse(br, nil)
			testkit.Must(t, err)
			if status = resp.StatusCode; status == http.StatusContinue {
				io.WriteString(conn, "hello")
			}
		}
		conn.Close()
	}
}

// TestSilentClientDoesNotAffectOthers checks that an origin connection that is back in the pool is not
// closed when the client that used it first does not read.
func TestSilentClientDoesNotAffectOthers(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	const pause = 50 * time.Millisecond
	const size = 10 * int(lasting/pause)
	origin := raw(t, func(conn net.Conn, br *bufio.Reader, q *http.Request) {
		for err := error(nil); err == nil; q, err = http.ReadRequest(br) {
			if q.URL.Path == "/a" {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4045\r\n\r\n"+strings.Repeat("x", 4045))
				continue
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			for range size / 10 {
				io.WriteString(conn, "0123456789")
				<-time.After(pause)
			}
		}
	})
	r := start(t, setup{change: shortSilence})
	r.flood(t, "GET http://"+origin+"/a HTTP/1.1\r\nHost: x\r\n\r\n")
	<-time.After(300 * time.Millisecond)
	resp, body, err := get(r.client(false), "http://"+origin+"/b")
	if err != nil || len(body) != size {
		t.Errorf("%v, %d of %d bytes, %v", resp, len(body), size, err)
	}
}

func TestSlowUploadIsNotSilent(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	const pause = 100 * time.Millisecond
	origin := serve(t, false, "", hello)
	r := start(t, setup{change: shortSilence})
	conn, br := r.dial()
	fmt.Fprintf(conn, "POST %s/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", origin.URL, lasting/pause)
	go func() {
		for range lasting / pause {
			io.WriteString(conn, "x")
			<-time.After(pause)
		}
	}()
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

func TestTrailerNamedLikeAHeader(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		if route.h2origin {
			continue // HTTP/2 does not allow such trailers
		}
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				testkit.Must(t, err)
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Sum: head\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: tail\r\n\r\n")
			})
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			resp, _, err := get(route.client(r), origin.URL+"/")
			testkit.Must(t, err)
			if got := resp.Trailer["X-Sum"]; len(got) != 1 || got[0] != "tail" {
				t.Errorf("trailer %q", got)
			}
		})
	}
}

func TestUnprintableBytesAreEscapedInJSON(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "User-agent: *\nDisallow: /\u009b31m\u202eltr\n", hello)
	r := start(t, setup{})
	resp := r.send("GET " + origin.URL + "/%C2%9B31m%E2%80%AEltr HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n")
	body, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusForbidden || strings.ContainsAny(string(body), "\u009b\u202e") || !strings.Contains(string(body), `\u202e`) {
		t.Errorf("%s: %+q", resp.Status, body)
	}
}

func TestProxyStatusIsShort(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "User-agent: *\nDisallow: /"+strings.Repeat("*", 16000)+"\n", hello)
	r := start(t, setup{})
	resp := r.send("GET " + origin.URL + "/x HTTP/1.1\r\nHost: x\r\n\r\n")
	if n := len(resp.Header.Get("Proxy-Status")); resp.StatusCode != http.StatusForbidden || n == 0 || n > 1024 {
		t.Errorf("%s with %d bytes", resp.Status, n)
	}
}
