package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// RFC 9113 8.3.1: a request with :scheme https goes out over TLS, however the client sends it.
func TestSchemeOfPriorKnowledge(t *testing.T) {
	t.Parallel()
	secure, plain := serve(t, true, rules, hello), serve(t, false, rules, hello)
	r := start(t, setup{origins: []*httptest.Server{secure.Server}})
	for scheme, o := range map[string]*site{"https": secure, "http": plain} {
		f := r.http2ByPriorKnowledge(t)
		for path, want := range map[string]string{"/a": "200", "/private": "403"} {
			if got := f.outcome(f.open("", ":method", "GET", ":scheme", scheme, ":authority", o.host(), ":path", path)); got != want {
				t.Errorf("%s %s: %s, want %s", scheme, path, got, want)
			}
		}
		if got := o.paths(); !slices.Equal(got, []string{"/robots.txt", "/a"}) {
			t.Errorf("%s: arrived %q", scheme, got)
		}
	}
}

func TestNoPasswordOfAStreamIsRecorded(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	f := r.http2ByPriorKnowledge(t)
	if got := f.outcome(f.open("", ":method", "CONNECT", ":authority", "user:hunter2@site.test:443")); got != "400" {
		t.Error(got)
	}
	if rec := r.records.last(t, 1); strings.Contains(fmt.Sprintf("%v %+v", rec.Err, rec), "hunter2") {
		t.Errorf("recorded as %+v", rec)
	}
}

// TestClientThatReadsNothing checks that the connection of such a client is ended and frees its slots.
func TestClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) {
		for b := make([]byte, 64<<10); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
	r := start(t, setup{change: shortestSilence})
	f := r.http2ByPriorKnowledge(t)
	f.conn.(*net.TCPConn).SetReadBuffer(4096)
	testkit.Must(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}))
	testkit.Must(t, f.WriteWindowUpdate(0, 1<<31-1-65535))
	for range 3 {
		f.open("", ":method", "GET", ":scheme", "http", ":authority", origin.host(), ":path", "/a")
	}
	for i := range 3 {
		if rec := r.records.last(t, i+1); rec.Err == nil {
			t.Errorf("record: %+v", rec)
		}
	}
}

// TestConnectionsThatEndEarlyAreNotCounted covers connections that end before their requests start.
func TestConnectionsThatEndEarlyAreNotCounted(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", hello)
	r := start(t, setup{
		clients: []policy.Client{{Name: "lab-a", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
		change:  func(o *proxy.Options) { o.MaxConnsPerClient = 2 },
	})
	for range 500 {
		f := r.http2ByPriorKnowledge(t)
		f.open("", ":method", "GET", ":scheme", "http", ":authority", origin.host(), ":path", "/a")
		f.conn.Close()
	}
	testkit.Eventually(t, "another connection is accepted", func() bool {
		c, resp := r.connectAndGet(origin.URL)
		c.Close()
		return resp != nil && resp.StatusCode == http.StatusOK
	})
}

// TestPersistentConnectionAfterASilentOrigin checks that the client's connection stays usable after a 504.
func TestPersistentConnectionAfterASilentOrigin(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	for name, front := range map[string]front{"in the clear": inTheClear, "over TLS": overTLS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent := raw(t, func(_ net.Conn, br *bufio.Reader, _ *http.Request) { io.Copy(io.Discard, br) })
			origin := serve(t, false, "", hello)
			c, br := start(t, setup{front: front, change: shortSilence}).dial()
			for _, ask := range []struct {
				address string
				want    int
			}{{origin.URL, http.StatusOK}, {"http://" + silent, http.StatusGatewayTimeout}, {origin.URL, http.StatusOK}} {
				fmt.Fprintf(c, "GET %s/ HTTP/1.1\r\nHost: x\r\n\r\n", ask.address)
				resp, err := http.ReadResponse(br, nil)
				if err != nil || resp.StatusCode != ask.want || resp.Close {
					t.Fatalf("%s: %v %v", ask.address, resp, err)
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
}

// stream opens a tunnel in an HTTP/2 stream and returns its two directions.
func (r *rig) stream(origin string) (to *io.PipeWriter, from io.ReadCloser) {
	r.t.Helper()
	body, to := io.Pipe()
	req, err := http.NewRequest(http.MethodConnect, "http://"+origin, body)
	testkit.Must(r.t, err)
	req.Host = origin
	resp, err := r.http2Transport().RoundTrip(req)
	testkit.Must(r.t, err)
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("CONNECT: %s", resp.Status)
	}
	r.t.Cleanup(func() {
		to.Close()
		resp.Body.Close()
	})
	return to, resp.Body
}

// TestHalfClosedStream checks that the end of the client's direction leaves the other open (RFC 9113 8.5).
func TestHalfClosedStream(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			br := bufio.NewReader(c)
			if first, err := br.Peek(1); err == nil && first[0] != 22 { // otherwise it is the fetch of robots.txt
				all, _ := io.ReadAll(br)
				fmt.Fprintf(c, "got %d bytes", len(all))
			}
			c.Close()
		}
	}()
	r := start(t, setup{change: func(o *proxy.Options) {
		o.PassThrough, o.Monitor = func(string) bool { return true }, true // there is no robots.txt
	}})
	to, from := r.stream(l.Addr().String())
	io.WriteString(to, "hello")
	to.Close()
	if got, err := io.ReadAll(from); err != nil || string(got) != "got 5 bytes" {
		t.Errorf("%q %v", got, err)
	}
	l.Close()
	<-ended
}

// TestBrokenTransferInAStream checks that the client can see a truncated response.
func TestBrokenTransferInAStream(t *testing.T) {
	t.Parallel()
	origin := raw(t, func(c net.Conn, _ *bufio.Reader, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	})
	to, from := start(t, setup{}).stream(origin)
	fmt.Fprintf(to, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", origin)
	if got, err := io.ReadAll(from); err == nil {
		t.Errorf("%q looks complete", got)
	}
}

// TestShutdownDoesNotWaitForStreams checks that shutdown closes tunnels in streams immediately.
func TestShutdownDoesNotWaitForStreams(t *testing.T) {
	t.Parallel()
	for name, passThrough := range map[string]bool{"passed through": true, "intercepted": false} {
		t.Run(name, func(t *testing.T) {
			origin := serve(t, true, "", hello)
			r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
				o.PassThrough, o.Linger = func(string) bool { return passThrough }, time.Minute
			}})
			r.stream(origin.host())
			ended := make(chan error, 1)
			go func() { ended <- r.handler.Shutdown(context.Background()) }()
			testkit.Must(t, testkit.Within(t, "the shutdown ends", ended))
		})
	}
}

// TestTunnelEndsWithItsStream checks that a tunnel that is passed through ends when its stream does, although the origin is
// silent.
func TestTunnelEndsWithItsStream(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(f *h2Client, stream uint32) error{
		"reset": func(f *h2Client, stream uint32) error { return f.WriteRSTStream(stream, http2.ErrCodeCancel) },
		"reset after its last bytes": func(f *h2Client, stream uint32) error {
			return errors.Join(f.WriteData(stream, true, nil), f.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"connection closed": func(f *h2Client, _ uint32) error { return f.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{})
			silent := accepting(t, func(c *net.TCPConn) {
				first := make([]byte, 1)
				if c.Read(first); string(first) != "x" {
					return // the fetch of robots.txt
				}
				close(begun)
				<-t.Context().Done()
			})
			r := passThroughRig(t)
			f := r.http2ByPriorKnowledge(t)
			const stream = 1
			testkit.Must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.pairs(":method", "CONNECT", ":authority", silent), EndHeaders: true}))
			if got := f.outcome(stream); got != "200" {
				t.Fatal(got)
			}
			testkit.Must(t, f.WriteData(stream, false, []byte("x")))
			<-begun
			testkit.Must(t, leave(f, stream))
			r.records.last(t, 1)
		})
	}
}
