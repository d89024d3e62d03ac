package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

const (
	mostHeap       = 8 << 20 // growth of the heap allowed after a flood, in bytes
	mostGoroutines = 20      // a persistent origin connection has three
)

// noGrowth notes the memory and goroutines in use. The function it returns waits until no more are in use.
func noGrowth(t *testing.T) func() {
	t.Helper()
	inUse := func() (goroutines int, size uint64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	goroutines, size := inUse()
	return func() {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("there are about %d goroutines and %d KiB again", goroutines, size>>10), func() bool {
			n, used := inUse()
			return n <= goroutines+mostGoroutines && used <= size+mostHeap
		})
	}
}

// http2Floods lists bulk frames of a client. Each flood is cut off or tolerated.
var http2Floods = []struct {
	name  string
	flood func(f *h2Client, origin string) error
	reads bool     // the client reads during the flood
	want  []string // allowed ends of the connection or of one more request: the status or the reset code
}{
	{"rapid reset (CVE-2023-44487)", func(f *h2Client, origin string) (err error) {
		page := f.pairs(page(origin)...)
		for i := uint32(0); i < 3000 && err == nil; i++ {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: page, EndHeaders: true, EndStream: true})
			if err == nil {
				err = f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
			}
		}
		return err
	}, true, []string{"200", "PROTOCOL_ERROR", "GOAWAY ENHANCE_YOUR_CALM", "closed"}},
	{"resets by the server (CVE-2025-8671)", func(f *h2Client, origin string) (err error) {
		page := f.pairs(page(origin)...)
		for i := uint32(0); i < 3000 && err == nil; i++ {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: page, EndHeaders: true, EndStream: true})
			if err == nil {
				err = f.WriteWindowUpdate(2*i+1, 1<<31-1) // too large: the server must reset the stream
			}
		}
		return err
	}, true, []string{"200", "PROTOCOL_ERROR", "GOAWAY ENHANCE_YOUR_CALM", "GOAWAY PROTOCOL_ERROR", "closed"}},
	{"CONTINUATION (CVE-2023-45288)", func(f *h2Client, origin string) error {
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.pairs(page(origin)...)})
		more := f.pairs("x", strings.Repeat("x", 4000))
		for i := 0; i < 10_000 && err == nil; i++ {
			err = f.WriteContinuation(1, false, more)
		}
		return err
	}, true, []string{"GOAWAY PROTOCOL_ERROR", "closed"}},
	{"CONTINUATION without a field", func(f *h2Client, origin string) error {
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.pairs(page(origin)...), EndStream: true})
		for i := 0; i < 20_000 && err == nil; i++ {
			err = f.WriteContinuation(1, i == 19_999, nil)
		}
		return err
	}, true, []string{"closed"}},
	{"SETTINGS, read (CVE-2019-9515)", func(f *h2Client, _ string) (err error) {
		for i := 0; i < 5000 && err == nil; i++ {
			err = f.WriteSettings()
		}
		return err
	}, true, []string{"200"}},
	{"SETTINGS, not read", func(f *h2Client, _ string) (err error) {
		for i := 0; i < 30_000 && err == nil; i++ {
			err = f.WriteSettings()
		}
		return err
	}, false, []string{"borne"}}, // one acknowledgement waits for all
	{"PING, not read (CVE-2019-9512)", func(f *h2Client, _ string) (err error) {
		for err == nil {
			err = f.WritePing(false, [8]byte{})
		}
		return err
	}, false, []string{"cut off"}},
	{"more streams than are allowed", func(f *h2Client, origin string) (err error) {
		page := f.pairs(":method", "POST", ":scheme", "https", ":authority", origin, ":path", "/a", "content-length", "9")
		for i := uint32(0); i < 1000 && err == nil; i++ {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: page, EndHeaders: true})
		}
		return err
	}, true, []string{"PROTOCOL_ERROR"}},
	{"a window that overflows", func(f *h2Client, _ string) error { return f.WriteWindowUpdate(0, 1<<31-1) }, true, []string{"GOAWAY FLOW_CONTROL_ERROR"}},
	{"DATA on an idle stream", func(f *h2Client, _ string) error { return f.WriteData(1, true, []byte("hello")) }, true, []string{"GOAWAY PROTOCOL_ERROR"}},
	{"a frame over the size limit", func(f *h2Client, _ string) error {
		_, err := f.conn.Write([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1})
		return err
	}, true, []string{"GOAWAY FRAME_SIZE_ERROR", "closed"}},
	{"no frames at all", func(f *h2Client, _ string) error {
		_, err := io.WriteString(f.conn, strings.Repeat("GET /private HTTP/1.1\r\n\r\n", 10))
		return err
	}, true, []string{"GOAWAY PROTOCOL_ERROR", "GOAWAY FRAME_SIZE_ERROR", "closed"}},
}

// TestHTTP2Floods checks that each flood leaves no trace.
func TestHTTP2Floods(t *testing.T) {
	testkit.Long(t, "volume")
	origin := listenRaw(t, true)
	r := start(t, setup{
		origins: []*httptest.Server{origin.trusted},
		// A request that is reset must not reach the origin or open connections to it.
		limits: pace.Limits{PerSecond: 50, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 1000},
	})
	for _, c := range http2Floods {
		t.Run(c.name, func(t *testing.T) {
			f := r.http2InTunnel(t, origin.host())
			if got := f.outcome(f.open("", page(origin.host())...)); got != "200" {
				t.Fatal(got)
			}
			f.conn.Close()
			origin.take()
			back := noGrowth(t)
			f = r.http2InTunnel(t, origin.host())
			defer f.conn.Close()
			last := make(chan string, 1)
			if c.reads {
				go func() { last <- f.outcome(probe) }()
			}
			got := "cut off"
			if c.flood(f, origin.host()) == nil {
				got = "borne"
			}
			if c.reads {
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: probe, BlockFragment: f.pairs(page(origin.host())...), EndHeaders: true, EndStream: true})
				got = <-last
			}
			if !slices.Contains(c.want, got) {
				t.Errorf("ended with %q, want %q", got, c.want)
			}
			f.conn.Close()
			r.records.forget()
			back()
			for _, request := range origin.take() {
				if request != "GET /page HTTP/1.1\r\nHost: o.test\r\n\r\n" {
					t.Errorf("the origin got %q", request)
				}
			}
			if resp, body, err := get(r.client(true), "https://"+origin.host()+"/page"); err != nil || body != "ok" {
				t.Errorf("another client: %v %q, %v", resp, body, err)
			}
		})
	}
}

// probe is the stream of the request after a flood.
const probe = 1_000_001

func page(origin string) []string {
	return []string{":method", "GET", ":scheme", "https", ":authority", origin, ":path", "/page"}
}

// TestHTTP1Floods sends floods on HTTP/1.1, where the client sends one request at a time.
func TestHTTP1Floods(t *testing.T) {
	testkit.Long(t, "volume")
	origin := listenRaw(t, false)
	r := start(t, setup{})
	r.send("GET http://" + origin.host() + "/page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	for _, c := range []struct{ name, raw string }{
		{"a head without an end", "GET http://" + origin.host() + "/ HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 1<<20)},
		{"a line without an end", "GET http://" + origin.host() + "/" + strings.Repeat("x", 8<<20)},
		{"a chunk size without an end", "POST http://" + origin.host() + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("0", 8<<20)},
		{"chunk extensions without an end", "POST http://" + origin.host() + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1;"+strings.Repeat("x", 1000)+"\r\nx\r\n", 8<<10)},
		{"empty lines", strings.Repeat("\r\n", 4<<20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			back := noGrowth(t)
			conn, _ := r.dial()
			defer conn.Close()
			if _, err := io.WriteString(conn, c.raw); err == nil {
				conn.(*net.TCPConn).CloseWrite()
				_, err = io.Copy(io.Discard, conn)
				if isTimeout(err) {
					t.Errorf("%v", err)
				}
			} else if isTimeout(err) {
				t.Errorf("%v", err)
			}
			conn.Close()
			back()
			for _, request := range origin.take() {
				if !strings.HasPrefix(request, "GET /page") {
					t.Errorf("the origin got %.100q", request)
				}
			}
		})
	}
}
