package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// raw starts an origin without robots.txt whose other requests are answered by f on the bare connection.
func raw(t *testing.T, f func(c net.Conn, br *bufio.Reader, r *http.Request)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		for br := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if r.URL.Path != "/robots.txt" {
				f(c, br, r)
				return
			}
			io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// TestEarlyResponseKeepsTheUpload checks that the origin gets the whole upload if it responds before
// reading and the client continues after it has seen the response.
func TestEarlyResponseKeepsTheUpload(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		testkit.Must(t, http.NewResponseController(w).EnableFullDuplex())
		w.(http.Flusher).Flush()
		n, err := io.Copy(io.Discard, r.Body)
		got <- fmt.Sprint(n, err)
	})
	conn, br := start(t, setup{}).dial()
	fmt.Fprintf(conn, "POST %s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", origin.URL)
	fmt.Fprintf(conn, "3e8\r\n%s\r\n", strings.Repeat("x", 1000))
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	for range 19 {
		fmt.Fprintf(conn, "3e8\r\n%s\r\n", strings.Repeat("x", 1000))
	}
	io.WriteString(conn, "0\r\n\r\n")
	_, err = io.Copy(io.Discard, resp.Body)
	testkit.Must(t, err)
	if g := <-got; g != "20000 <nil>" {
		t.Errorf("the origin got %s of 20000 bytes", g)
	}
}

func TestInvalidResponsesGet502(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, answer string }{
		{"a status that net/http cannot write", "HTTP/1.1 099 hm\r\nContent-Length: 0\r\n\r\n"},
		{"an unsolicited 101", "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
		{"nothing", ""},
		{"no HTTP", "hello\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin := raw(t, func(conn net.Conn, _ *bufio.Reader, _ *http.Request) { io.WriteString(conn, c.answer) })
			r := start(t, setup{})
			resp := r.send("GET http://" + origin + "/x HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp.StatusCode != 502 {
				t.Errorf("%s", resp.Status)
			}
			if rec := r.records.last(t, 1); rec.Status != 502 || rec.Err == nil || rec.Blocked() {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

func TestUpgradeToUnrequestedProtocol(t *testing.T) {
	t.Parallel()
	origin := raw(t, func(conn net.Conn, _ *bufio.Reader, _ *http.Request) {
		io.WriteString(conn, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	})
	resp := start(t, setup{}).send("GET http://" + origin + "/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if resp.StatusCode != 502 {
		t.Errorf("%s", resp.Status)
	}
}

func TestClientLeavesAfterItsRequestIsSent(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	origin := raw(t, func(conn net.Conn, br *bufio.Reader, _ *http.Request) {
		close(arrived)
		br.ReadByte() // until the proxy disconnects
	})
	r := start(t, setup{})
	ctx, leave := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+origin+"/x", nil)
	go func() {
		<-arrived
		leave()
	}()
	if resp, err := r.client(false).Do(req); err == nil {
		t.Errorf("answered with %s", resp.Status)
	}
	if rec := r.records.last(t, 1); rec.Blocked() || rec.Err == nil {
		t.Errorf("the served request is recorded as %+v", rec)
	}
}

// TestClientLeavesDuringTheDial checks that a connection attempt continues after its client has
// disconnected and counts as a request. Otherwise clients that connect and disconnect would open one
// connection after another.
func TestClientLeavesDuringTheDial(t *testing.T) {
	t.Parallel()
	origin := listenRaw(t, true)
	origin.answers = map[string]string{"/first": "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"}
	r := start(t, setup{
		origins: []*httptest.Server{origin.trusted},
		limits:  pace.Limits{PerSecond: 0.001, Burst: 2, MaxConcurrent: 1, MaxWait: time.Millisecond, MaxQueue: 9},
	})
	ask := "GET https://" + origin.host() + "%s HTTP/1.1\r\nHost: x\r\n\r\n"
	if resp := r.send(fmt.Sprintf(ask, "/first")); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	connected := make(chan struct{}, 9)
	origin.stalled.Store(&connected)
	conn, _ := r.dial()
	fmt.Fprintf(conn, ask, "/a")
	<-connected // the TLS handshake is not answered
	conn.Close()
	r.records.last(t, 2)
	if resp := r.send(fmt.Sprintf(ask, "/b")); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("another client gets %s", resp.Status)
	}
	select {
	case <-connected:
		t.Error("a second connection was made")
	default:
	}
}

func TestUpgradedConnectionEndsWithItsClient(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	defer close(held)
	origin := raw(t, func(conn net.Conn, _ *bufio.Reader, _ *http.Request) {
		io.WriteString(conn, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		<-held // does not notice the disconnect
	})
	r := start(t, setup{})
	conn, br := r.dial()
	fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", origin)
	_, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	conn.Close()
	if rec := r.records.last(t, 1); rec.Status != 101 {
		t.Errorf("record: %+v", rec)
	}
}

func TestRequestsSimilarToRobotsTxtArePaced(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "User-agent: *\nDisallow: /\n", hello)
	r := start(t, setup{limits: pace.Limits{PerSecond: 0.001, Burst: 1, MaxConcurrent: 1, MaxWait: time.Millisecond}})
	for _, head := range []string{"POST %s/robots.txt", "PUT %s/robots.txt", "DELETE %s/robots.txt"} {
		resp := r.send(fmt.Sprintf(head, origin.URL) + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if resp.StatusCode != http.StatusTooManyRequests { // the fetch of robots.txt has taken the slot
			t.Errorf("%s: %s", head, resp.Status)
		}
	}
}

func TestBrokenUploadIsAClientError(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	resp := start(t, setup{}).send("POST " + origin.URL + "/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if resp.StatusCode != 400 {
		t.Errorf("%s", resp.Status)
	}
}

func TestPlainHTTPToAPassThroughHostIsChecked(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.80:80")
	if err != nil {
		t.Skip("cannot listen on port 80, the only port where a passed-through tunnel may carry plain HTTP: ", err)
	}
	origin := route{}.serveOn(t, l, rules, hello)
	r := start(t, setup{change: func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } }})
	conn, br := r.dial()
	io.WriteString(conn, "CONNECT "+l.Addr().String()+" HTTP/1.1\r\nHost: x\r\n\r\nGET /private HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\n\r\n")
	for _, want := range []int{200, 403} {
		resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
		testkit.Must(t, err)
		if resp.StatusCode != want {
			t.Errorf("%s, want %d", resp.Status, want)
		}
	}
	if got := origin.paths(); slices.Contains(got, "/private") {
		t.Errorf("the origin saw %q", got)
	}
	if rec := r.records.last(t, 1); rec.Decision.Reason != policy.ReasonRule {
		t.Errorf("record: %+v", rec)
	}
}

func TestUnreachableOriginBacksOff(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	origin := httptest.NewUnstartedServer(http.NotFoundHandler())
	origin.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	origin.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	testca.StartTLS(t, origin) // with a certificate the proxy does not trust
	defer origin.Close()
	r := start(t, setup{})
	target := origin.Listener.Addr().String()
	for range 5 {
		conn := r.tunnel(target)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		testkit.Must(t, err)
		if after, _ := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != 502 || after < 25 || after > 30 {
			t.Errorf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("the origin was tried %d times", n)
	}
}

func TestShutdownWaitsForTheRecords(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-gone
	})
	defer close(gone)
	r := start(t, setup{change: func(o *proxy.Options) { o.Linger = 100 * time.Millisecond }})
	const requests = 40
	for i := range requests {
		conn, br := r.dial()
		fmt.Fprintf(conn, "GET %s/%d HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL, i)
		_, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
	}
	if err := r.handler.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	r.records.mu.Lock()
	defer r.records.mu.Unlock()
	if n := len(r.records.all); n != requests {
		t.Errorf("%d records of %d requests", n, requests)
	}
}
