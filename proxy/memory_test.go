package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"golang.org/x/net/http2"

	"robotsproxy/policy"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// TestShortOfMemory checks that new work is refused, with an explanation, when the memory budget is used up.
func TestShortOfMemory(t *testing.T) {
	for _, route := range []route{routes[0], routes[7]} {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page") })
			budget := memory.New(memory.Options{})
			r := start(t, setup{
				origins: []*httptest.Server{origin.Server}, front: route.front,
				change: func(o *proxy.Options) { o.Memory = budget },
			})
			client := route.client(r)
			ask := func() *http.Response {
				resp, err := client.Get(origin.URL + "/page")
				testkit.Must(t, err)
				resp.Body.Close()
				return resp
			}
			if resp := ask(); resp.StatusCode != http.StatusOK {
				t.Fatalf("with memory: %s", resp.Status)
			}
			budget.SetLimit(1) // less than the test itself uses
			resp := ask()
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(resp.Header.Get("Proxy-Status"), "limit") {
				t.Errorf("without memory: %s, %v", resp.Status, resp.Header)
			}
			if resp.ProtoMajor == 2 && resp.ContentLength != 0 { // a client that does not read would keep the stream open
				t.Errorf("HTTP/2: a refusal of %d bytes", resp.ContentLength)
			}
			if rec := r.records.of(t, policy.ReasonLimit); rec.Status != http.StatusServiceUnavailable || rec.Decision.Verdict != policy.Refuse {
				t.Errorf("record %+v", rec)
			}
			budget.SetLimit(memory.Default)
			if resp := ask(); resp.StatusCode != http.StatusOK {
				t.Errorf("with memory again: %s", resp.Status)
			}
			if s := r.handler.Stats().Memory; s.Refused != 1 || s.Bodies != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestBodiesReadAheadAreBounded checks that bodies of waiting requests stay within their part of the
// memory budget, of which one client gets at most half. A request whose body is not read ahead still
// waits and arrives whole.
func TestBodiesReadAheadAreBounded(t *testing.T) {
	const n, size = 8, 32 << 10
	body := bytes.Repeat([]byte("b"), size)
	route, goOn := routes[7], make(chan struct{}) // many requests on one connection
	origin := route.serve(t, rules, func(w http.ResponseWriter, r *http.Request) {
		<-goOn
		if got, err := io.ReadAll(r.Body); !bytes.Equal(got, body) || err != nil {
			t.Errorf("%d bytes arrive, %v", len(got), err)
		}
	})
	r := start(t, setup{
		origins: []*httptest.Server{origin.Server}, front: route.front,
		limits: pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 1000},
		change: func(o *proxy.Options) {
			o.Memory = memory.New(memory.Options{Limit: 16 * 4 * size, InUse: func() int64 { return 0 }}) // a sixteenth is for bodies
		},
	})
	client := route.client(r)
	answered := make(chan error, n)
	for range n {
		go func() {
			resp, err := client.Post(origin.URL+"/page", "text/plain", bytes.NewReader(body))
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					err = errors.New(resp.Status)
				}
			}
			answered <- err
		}()
	}
	testkit.Eventually(t, "all other requests wait", func() bool { return r.pacer.Stats().Waiting == n-1 })
	if s := r.handler.Stats().Memory; s.Bodies != 2*size || s.Unread != n-2 {
		t.Errorf("%d bytes of bodies read ahead, %d bodies not read; want %d and %d", s.Bodies, s.Unread, 2*size, n-2)
	}
	close(goOn)
	for range n {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	testkit.Eventually(t, "no body is held", func() bool { return r.handler.Stats().Memory.Bodies == 0 })
}

// largeFiles is a Fetcher of 400 KiB files that counts the files still in memory.
type largeFiles struct {
	mu     sync.Mutex
	bodies []weak.Pointer[byte]
}

func (l *largeFiles) Fetch(_ context.Context, r fetch.Request) *fetch.Result {
	body := []byte("User-agent: *\nAllow: /page\n" + strings.Repeat("Disallow: /private*x\n", 20_000))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bodies = append(l.bodies, weak.Make(&body[0]))
	return &fetch.Result{URL: r.Origin.RobotsURL(), Status: http.StatusOK, Body: body, MaxAge: -1, Connected: true, Fetched: time.Now()}
}

// held returns how many bodies are in memory.
func (l *largeFiles) held() (n int) {
	runtime.GC()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bodies {
		if b.Value() != nil {
			n++
		}
	}
	return n
}

// withoutCache makes the engine use files of f without caching them.
func withoutCache(t *testing.T, f cache.Fetcher) func(*policy.Options) {
	robotsCache, err := cache.New(cache.Options{Fetcher: f, MaxBytes: 1})
	testkit.Must(t, err)
	return func(o *policy.Options) { o.Cache = robotsCache }
}

// TestWaitingHoldsNoRobotsTxt covers a waiting request and a streaming response: neither needs the file.
func TestWaitingHoldsNoRobotsTxt(t *testing.T) {
	goOn := make(chan struct{})
	defer close(goOn)
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-goOn
	})
	files := new(largeFiles)
	r := start(t, setup{
		policyOptions: withoutCache(t, files),
		limits:        pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 10},
	})
	streaming, answer := r.dial()
	fmt.Fprintf(streaming, "GET %s/page HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL)
	_, err := http.ReadResponse(answer, nil)
	testkit.Must(t, err)
	waiting, _ := r.dial()
	fmt.Fprintf(waiting, "GET %s/page HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL)
	testkit.Eventually(t, "a request waits", func() bool { return r.pacer.Stats().Waiting == 1 })
	testkit.Eventually(t, "no file is held", func() bool { return files.held() == 0 })
	if len(files.bodies) != 2 {
		t.Errorf("%d files were fetched, want 2", len(files.bodies))
	}
}

// TestRobotsTxtInTransferIsCounted checks that a robots.txt being sent counts against the client's share.
func TestRobotsTxtInTransferIsCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit int64 // bytes
		want  int
	}{{4 << 20, http.StatusOK}, {256 << 10, http.StatusServiceUnavailable}} {
		r := start(t, setup{policyOptions: withoutCache(t, new(largeFiles)), change: func(o *proxy.Options) {
			o.Memory = memory.New(memory.Options{Limit: c.limit, InUse: func() int64 { return 0 }})
		}})
		if resp := r.send("GET http://127.0.0.1:8080/robots.txt HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != c.want {
			t.Errorf("with a limit of %d bytes: %s", c.limit, resp.Status)
		}
		if rec := r.records.last(t, 1); c.want == http.StatusServiceUnavailable && (rec.Cached || rec.Decision.Ruling.Result != nil) {
			t.Errorf("a refused request holds its copy: %+v", rec)
		}
	}
}

// TestOneAddressHoldsHalf checks that the connections of one address use at most half of the memory. A
// few excess connections stay open for a response, the rest are closed, and another address is served.
func TestOneAddressHoldsHalf(t *testing.T) {
	t.Parallel()
	const most, answered, each = 20, 16, 32 << 10
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page") })
	s := twoClients(pace.Limits{})
	s.change = func(o *proxy.Options) {
		o.Memory = memory.New(memory.Options{Limit: 2 * most * each, InUse: func() int64 { return 0 }})
	}
	r := start(t, s)
	for range most + answered + 10 {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", r.url.Host)
		testkit.Must(t, err)
		defer conn.Close()
	}
	testkit.Eventually(t, "the rest are closed", func() bool {
		s := r.handler.Stats() // counts a connection as closed before it is
		return s.Memory.Closed == answered+10 && s.Conns.Open == most+answered
	})
	if held := r.handler.Stats().Memory.Held; held != most*each {
		t.Errorf("the connections count for %d bytes, want %d", held, most*each)
	}
	if resp := r.send("GET " + origin.URL + "/page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); resp.StatusCode != http.StatusOK {
		t.Errorf("another address gets %s", resp.Status)
	}
}

// TestLongHeadsAreCounted checks that reading stops when a head exceeds the client's share of memory.
func TestLongHeadsAreCounted(t *testing.T) {
	t.Parallel()
	r := start(t, setup{change: func(o *proxy.Options) {
		o.Memory = memory.New(memory.Options{Limit: 192 << 10, InUse: func() int64 { return 0 }})
	}})
	conn, br := r.dial()
	_, err := io.WriteString(conn, "GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 20<<10))
	testkit.Must(t, err)
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	conn.Close() // the proxy reads on until then
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s, %v", resp.Status, resp.Header)
	}
	if rec := r.records.of(t, policy.ReasonLimit); rec.Status != http.StatusServiceUnavailable {
		t.Errorf("record %+v", rec)
	}
	conn, _ = r.dial()
	_, err = io.WriteString(conn, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	testkit.Must(t, err)
	frame := "\x00\x40\x00\x09\x00\x00\x00\x00\x01" + strings.Repeat("x", 16<<10)
	for _, part := range []string{"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82", frame, frame} {
		io.WriteString(conn, part) // the last write may fail
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("HTTP/2: the connection is not closed")
	}
	testkit.Eventually(t, "nothing is held", func() bool { s := r.handler.Stats(); return s.Conns.Open == 0 && s.Memory.Held == 0 })
	if s := r.handler.Stats().Memory; s.Closed != 2 {
		t.Errorf("stats %+v", s)
	}
}

// TestNoMemoryForAResponse checks that a response whose head finds no memory is refused with an explanation, and that short
// responses of the same origin pass.
func TestNoMemoryForAResponse(t *testing.T) {
	for _, route := range []route{routes[0], routes[3], routes[7]} {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/long" {
					w.Header().Set("X", strings.Repeat("x", 200<<10))
				}
				io.WriteString(w, "page")
			})
			r := start(t, setup{origins: []*httptest.Server{origin.Server}, front: route.front, change: func(o *proxy.Options) {
				o.Memory = memory.New(memory.Options{Limit: 768 << 10, InUse: func() int64 { return 0 }})
			}})
			client := route.client(r)
			ask := func(path string) *http.Response {
				resp, err := client.Get(origin.URL + path)
				testkit.Must(t, err)
				resp.Body.Close()
				return resp
			}
			resp := ask("/long")
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(resp.Header.Get("Proxy-Status"), "limit") {
				t.Errorf("%s, %v", resp.Status, resp.Header)
			}
			if rec := r.records.last(t, 1); rec.Status != http.StatusServiceUnavailable || !errors.Is(rec.Err, memory.ErrShort) {
				t.Errorf("record %+v", rec)
			}
			testkit.Eventually(t, "a short one passes", func() bool { return ask("/page").StatusCode == http.StatusOK })
			client.CloseIdleConnections()
			testkit.Eventually(t, "nothing is held", func() bool { s := r.handler.Stats(); return s.Conns.Open == 0 && s.Memory.Held == 0 })
		})
	}
}

// TestLongHeadsKeptByHTTP2 checks that a client's connection counts for more after a long head of a response, because net/http
// keeps a buffer of its length, and that the connection is closed without memory for it.
func TestLongHeadsKeptByHTTP2(t *testing.T) {
	const head, least = 30 << 10, 512 << 10 // bytes
	route := routes[7]
	origin := route.serve(t, rules, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X", strings.Repeat("x", head)) })
	for _, c := range []struct {
		limit int64
		open  bool
	}{{4 << 20, true}, {least + 64<<10 - 1, false}} {
		r := start(t, setup{origins: []*httptest.Server{origin.Server}, front: route.front, change: func(o *proxy.Options) {
			o.Memory = memory.New(memory.Options{Limit: c.limit, InUse: func() int64 { return 0 }})
		}})
		client := route.client(r)
		for range 2 {
			resp, err := client.Get(origin.URL + "/page")
			if c.open != (err == nil) {
				t.Fatalf("with a limit of %d bytes: %v", c.limit, err)
			}
			if err == nil {
				resp.Body.Close()
			}
		}
		testkit.Eventually(t, "the connection counts once for the buffer, or is closed", func() bool {
			if !c.open {
				client.CloseIdleConnections() // the client may have opened another one
			}
			held := r.handler.Stats().Memory.Held
			return c.open && held > least && held < 2*least || !c.open && held == 0
		})
	}
}

// TestCopiesAreCounted checks that the buffer for a long body counts while it is copied, and that the body arrives without memory
// for the buffer too.
func TestCopiesAreCounted(t *testing.T) {
	t.Parallel()
	const each, size = 32 << 10, 8 << 20 // the latter is more than sockets take
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/known" {
			w.Header().Set("Content-Length", strconv.Itoa(size))
		}
		w.Write(make([]byte, size))
	})
	for limit, held := range map[int64]int64{1 << 20: 3 * each, 200 << 10: 2 * each} {
		r := start(t, setup{change: func(o *proxy.Options) {
			o.Memory = memory.New(memory.Options{Limit: limit, InUse: func() int64 { return 0 }})
		}})
		for _, path := range []string{"/known", "/unknown"} {
			conn, br := r.dial()
			fmt.Fprintf(conn, "GET %s%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", origin.URL, path)
			resp, err := http.ReadResponse(br, nil)
			testkit.Must(t, err)
			testkit.Eventually(t, "the body waits for the client", func() bool { return r.handler.Stats().Memory.Held == held })
			if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
				t.Errorf("%s with a limit of %d bytes: %d bytes, %v", path, limit, n, err)
			}
			conn.Close()
			testkit.Eventually(t, "nothing is held", func() bool { return r.handler.Stats().Memory.Held == 0 })
		}
	}
}

// TestFieldsOfARequestAreBounded checks that a head under 64 KiB with too many fields is refused.
func TestFieldsOfARequestAreBounded(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page") })
	r := start(t, setup{})
	for _, c := range []struct{ fields, want int }{{900, http.StatusOK}, {2000, http.StatusRequestHeaderFieldsTooLarge}} {
		head := "POST " + origin.URL + "/page HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a: b\r\n", c.fields) + "Content-Length: 5000\r\n\r\n"
		if resp := r.send(head + strings.Repeat("\n", 5000)); resp.StatusCode != c.want {
			t.Errorf("%d fields: %s", c.fields, resp.Status)
		}
	}
}
