package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/h2"
	"robotsproxy/robots/testkit"
)

// newBudget returns a memory budget of which nothing is in use.
func newBudget(limit int64) *memory.Budget {
	return memory.New(memory.Options{Limit: limit, InUse: func() int64 { return 0 }})
}

// begin begins a request of a client in a budget.
func begin(t *testing.T, in *memory.Budget, client string) *memory.Work {
	t.Helper()
	w, err := in.Begin(client, time.Now())
	testkit.Must(t, err)
	t.Cleanup(w.End)
	return &w
}

// send sends a GET, and returns the final response, with the body not yet read.
func send(t *testing.T, d *Client, url string, work *memory.Work) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	testkit.Must(t, err)
	conn, err := d.At(netip.Addr{}).Acquire(ctx, r, nil)
	testkit.Must(t, err)
	if _, err := conn.Send(r, work); err != nil {
		return nil, err
	}
	for {
		if resp, err := conn.Receive(); err != nil || !IsInterim(resp) {
			return resp, err
		}
	}
}

// protocols runs a test with origins of both versions of HTTP.
func protocols(t *testing.T, test func(t *testing.T, serve func(http.HandlerFunc) (*origin, *Client))) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			ca := newAuthority(t)
			test(t, func(h http.HandlerFunc) (*origin, *Client) {
				o := serveOver(t, h, &tls.Config{NextProtos: []string{protocol}, Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}})
				return o, newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
			})
		})
	}
}

// TestMemoryOfHeads checks what the heads of a response count until the request ends.
func TestMemoryOfHeads(t *testing.T) {
	header := func(fields, size int) func(http.Header) {
		return func(h http.Header) {
			for i := range fields {
				h.Set(fmt.Sprintf("X-%03d", i), strings.Repeat("x", size/fields))
			}
		}
	}
	set := func(what func(http.Header)) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { what(w.Header()) }
	}
	for _, c := range []struct {
		name        string
		handler     http.HandlerFunc
		least, most int64 // bytes
	}{
		{"an ordinary head", set(header(30, 2<<10)), 0, 0},
		{"a long field", set(header(1, 100<<10)), 100<<10*headByte - includedBytes, 150 << 10 * headByte},
		{"many fields", set(header(500, 3000)), 500*headField - includedBytes, 200 << 10},
		{"a long 1xx head", func(w http.ResponseWriter, _ *http.Request) {
			header(1, 100<<10)(w.Header())
			w.WriteHeader(http.StatusEarlyHints)
			clear(w.Header())
		}, 100<<10*headByte - includedBytes, 150 << 10 * headByte},
	} {
		t.Run(c.name, func(t *testing.T) {
			protocols(t, func(t *testing.T, serve func(http.HandlerFunc) (*origin, *Client)) {
				o, d := serve(c.handler)
				budget := newBudget(64 << 20)
				work := begin(t, budget, "a")
				before := budget.Stats().Held
				resp, err := send(t, d, o.String(), work)
				testkit.Must(t, err)
				defer resp.Body.Close()
				if n := budget.Stats().Held - before; n < c.least || n > c.most {
					t.Errorf("%d bytes are counted, want %d to %d", n, c.least, c.most)
				}
				work.End()
				if n := budget.Stats().Held; n != 0 {
					t.Errorf("%d bytes are counted after the end", n)
				}
			})
		})
	}
}

// TestNoMemoryForAHead checks that a long head fails without memory, and that another request to the same origin succeeds.
func TestNoMemoryForAHead(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.HandlerFunc) (*origin, *Client)) {
		o, d := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/short" {
				w.Header().Set("X", strings.Repeat("x", 100<<10))
			}
			if r.URL.Path == "/interim" {
				w.WriteHeader(http.StatusEarlyHints)
				clear(w.Header())
			}
		})
		for _, path := range []string{"/long", "/interim"} {
			budget := newBudget(256 << 10)
			if _, err := send(t, d, o.String()+path, begin(t, budget, "a")); !errors.Is(err, memory.ErrShort) {
				t.Errorf("%s: %v", path, err)
			} else if r, _ := http.NewRequest(http.MethodGet, "/", nil); Repeat(r, err) {
				t.Errorf("%s: the request would be sent again", path)
			}
			if s := budget.Stats(); s.Refused != 1 {
				t.Errorf("%s: stats %+v", path, s)
			}
			resp, err := send(t, d, o.String()+"/short", begin(t, budget, "b"))
			testkit.Must(t, err)
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			resp.Body.Close()
		}
	})
}

// TestMemoryOfBodies checks that the bytes of a body over HTTP/2 count until they were read, and that a body fails without
// memory.
func TestMemoryOfBodies(t *testing.T) {
	const size = 200 << 10
	ca := newAuthority(t)
	o := serveOver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X")
		w.Write(make([]byte, size))
		w.(http.Flusher).Flush()
		if r.URL.Path != "/" {
			<-r.Context().Done()
		}
		w.Header().Set("X", strings.Repeat("x", 10<<10))
	}, &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}})
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	budget := newBudget(64 << 20)
	work := begin(t, budget, "a")
	before := budget.Stats().Held
	resp, err := send(t, d, o.String(), work)
	testkit.Must(t, err)
	testkit.Eventually(t, "the body and the trailer have arrived", func() bool { return budget.Stats().Held-before >= size+h1.MaxHead*headByte-2*includedBytes })
	_, err = io.Copy(io.Discard, resp.Body)
	testkit.Must(t, err)
	if n := budget.Stats().Held - before; n != reserveStep {
		t.Errorf("%d bytes are counted after the body, want those of the trailer: %d", n, reserveStep)
	}

	resp, err = send(t, d, o.String()+"/open", work)
	testkit.Must(t, err)
	testkit.Eventually(t, "the body has arrived", func() bool { return budget.Stats().Held-before >= size-includedBytes })
	resp.Body.Close()
	if n := budget.Stats().Held - before; n != reserveStep {
		t.Errorf("%d bytes are counted after Close, want %d", n, reserveStep)
	}

	short := newBudget(160 << 10)
	resp, err = send(t, d, o.String()+"/open", begin(t, short, "a"))
	testkit.Must(t, err)
	testkit.Eventually(t, "there is no memory", func() bool { return short.Stats().Refused == 1 })
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, memory.ErrShort) {
		t.Error(err)
	}
	resp.Body.Close()
	if n := d.Stats().Origins.Open; n != 1 {
		t.Errorf("%d connections are open, want that of all requests", n)
	}
}

// frames returns what write writes.
func frames(t *testing.T, write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	write(http2.NewFramer(&b, nil))
	return b.Bytes()
}

// TestFrameConn checks what frames count, however they are split.
func TestFrameConn(t *testing.T) {
	head := func(f *http2.Framer, n int, whole bool) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, n), EndHeaders: whole})
	}
	for _, c := range []struct {
		name  string
		write func(*http2.Framer)
		heads int64 // bytes
		body  int
		ended bool
	}{
		{"a whole head", func(f *http2.Framer) { head(f, 16<<10, true) }, 0, 0, false},
		{"a head of several frames", func(f *http2.Framer) {
			head(f, 1, false)
			f.WriteContinuation(1, false, make([]byte, 1000))
		}, h1.MaxHead * headByte, 0, false},
		{"a trailer of several frames", func(f *http2.Framer) { head(f, 1, true); head(f, 1, false) }, 2 * h1.MaxHead * headByte, 0, false},
		{"a short second head", func(f *http2.Framer) { head(f, 1, true); head(f, shortTrailer, true) }, 0, 0, false},
		{"a long second head", func(f *http2.Framer) { head(f, 1, true); head(f, shortTrailer+1, true) }, h1.MaxHead * headByte, 0, false},
		{"data", func(f *http2.Framer) {
			f.WriteData(1, false, make([]byte, 10_000))
			f.WriteData(1, false, make([]byte, 20_000))
		}, 0, 30_000, false},
		{"data with padding", func(f *http2.Framer) { f.WriteDataPadded(1, false, make([]byte, 10_000), make([]byte, 200)) }, 0, 10_000, false},
		{"the end", func(f *http2.Framer) { f.WriteData(1, true, make([]byte, 10_000)) }, 0, 10_000, true},
		{"a reset", func(f *http2.Framer) {
			f.WriteRSTStream(1, http2.ErrCodeCancel)
			f.WriteData(1, false, make([]byte, 100))
		}, 0, 0, true},
		{"another stream", func(f *http2.Framer) { f.WriteData(3, false, make([]byte, 10_000)) }, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			received := frames(t, c.write)
			for _, size := range []int{1, 10, len(received)} {
				conn := newFrameConn(nil)
				conn.open([]byte(h2.Preface))
				budget := newBudget(64 << 20)
				work := begin(t, budget, "a")
				before := budget.Stats().Held
				m := &streamMemory{fail: func(err error) { t.Error(err) }, heads: reserve{work: work}, body: reserve{work: work}}
				conn.expect(m)
				conn.open(frames(t, func(f *http2.Framer) { head(f, 10, true) }))
				for rest := received; len(rest) > 0; rest = rest[min(size, len(rest)):] {
					testkit.Must(t, conn.follow(rest[:min(size, len(rest))]))
				}
				if n := budget.Stats().Held - before - m.body.counted; c.heads > 0 && n < c.heads-includedBytes || c.heads == 0 && n != 0 {
					t.Errorf("%d bytes of heads are counted, want about %d", n, c.heads)
				}
				if ended := conn.streams[1] == nil; m.unread != c.body || ended != c.ended {
					t.Errorf("in pieces of %d bytes: %d bytes of the body, ended: %v", size, m.unread, ended)
				}
			}
		})
	}
}

// TestLongHeadWithoutMemory checks that a head of several frames ends the connection if there is no memory (net/http would keep
// all of it), and that this is known before the request fails: no later request may get the connection.
func TestLongHeadWithoutMemory(t *testing.T) {
	conn := newFrameConn(nil)
	conn.open([]byte(h2.Preface))
	work := begin(t, newBudget(64<<10), "a")
	var failed error
	known := false
	conn.expect(&streamMemory{fail: func(err error) { failed, known = err, conn.hasLong }, heads: reserve{work: work}, body: reserve{work: work}})
	conn.open(frames(t, func(f *http2.Framer) { f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true}) }))
	err := conn.follow(frames(t, func(f *http2.Framer) { f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}) }))
	if err != errHeadMemory || !errors.Is(failed, memory.ErrShort) || !known {
		t.Errorf("the connection ends with %v, the request with %v, known: %v", err, failed, known)
	}
}
