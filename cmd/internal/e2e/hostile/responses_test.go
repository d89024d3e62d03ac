//go:build linux && !race

package hostile

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// longHead is the length, in bytes, of a head that the proxy passes on.
const longHead = 244 << 10

// heldRequests is the number of requests of TestHeldResponses, and mostHeld is the maximum memory of its process, in bytes. It
// is above limits.memory for garbage, and for what is no heap.
const heldRequests, mostHeld = 1500, 352 << 20

var heldSettings = e2e.Unpaced.With(e2e.Settings{"limits.memory": "256MiB"})

// A heldResponse is a way in which an origin makes the proxy hold much of a response.
type heldResponse struct {
	name  string
	path  string // of what is answered in this way; others are not found
	hosts int    // how many hosts the requests go to
	read  bool   // the client reads the responses
	h1    string // what is written over HTTP/1.1; empty: the origin speaks HTTP/2
	h2    func(*stream)
}

var heldResponses = []heldResponse{
	{"head that does not end", "/page", 20, false, "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", longHead), nil},
	{"head", "/page", 20, false, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Long: " + strings.Repeat("x", longHead) + "\r\n\r\n", nil},
	{"head of robots.txt", "/robots.txt", heldRequests, false, "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", longHead), nil},
	{"head that does not end, HTTP2", "/page", heldRequests, false, "", func(s *stream) { s.fields(false, long(longHead)) }},
	{"head, HTTP2", "/page", 20, false, "", func(s *stream) { s.fields(true, status("200"), long(longHead)) }},
	{"heads on many connections, HTTP2", "/page", heldRequests, true, "", func(s *stream) {
		s.fields(true, status("200"), long(longHead))
		s.WriteData(s.id, true, nil)
	}},
	{"head of one field many times, HTTP2", "/page", 20, false, "", func(s *stream) { s.fields(true, repeated("200")...) }},
	{"interim heads, HTTP2", "/page", 20, false, "", func(s *stream) {
		for range 8 {
			s.fields(true, repeated("103")...)
		}
	}},
	{"body, HTTP2", "/page", 20, false, "", func(s *stream) {
		s.fields(true, status("200"))
		for range 16 {
			s.WriteData(s.id, false, make([]byte, 16<<10)) // together as much as the proxy permits
		}
	}},
}

func status(code string) hpack.HeaderField { return hpack.HeaderField{Name: ":status", Value: code} }

func long(n int) hpack.HeaderField {
	return hpack.HeaderField{Name: "x-long", Value: strings.Repeat("x", n)}
}

// repeated returns a head of 240 KiB that takes 4 KiB over HTTP/2: it refers to the same field again and again.
func repeated(code string) []hpack.HeaderField {
	return append([]hpack.HeaderField{status(code)}, slices.Repeat([]hpack.HeaderField{long(3900)}, 60)...)
}

// TestHeldResponses lets one client request very many responses that the proxy must hold in memory. The process stays near its
// limit, and another client is served.
func TestHeldResponses(t *testing.T) {
	testkit.Long(t, "volume")
	for _, c := range heldResponses {
		t.Run(c.name, func(t *testing.T) {
			a := newArena(t, heldSettings, 1)
			o := c.serve(t)
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostileAddress)}}
			var conns []net.Conn
			leave := func() {
				for _, conn := range conns {
					conn.Close()
				}
			}
			defer leave()
			for i := range heldRequests {
				conn, err := d.Dial("tcp", a.Listen)
				testkit.Must(t, err)
				conns = append(conns, conn)
				if c.read {
					go io.Copy(io.Discard, conn)
				} else {
					testkit.Must(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
				}
				host := fmt.Sprintf("held-%d.%s", i%c.hosts, o.domain)
				e2e.Names.Point(host, o.addr)
				fmt.Fprintf(conn, "GET %s://%s:%s/page HTTP/1.1\r\nHost: x\r\n\r\n", o.scheme, host, o.port) // the proxy may refuse it
			}
			answered, last := int64(0), time.Now()
			testkit.Eventually(t, "the origin has answered all requests that arrive", func() bool {
				if n := o.answered.Load(); n != answered {
					answered, last = n, time.Now()
				}
				return answered > 0 && time.Since(last) > 2*time.Second
			})
			a.honest.answered(t, a.asked)
			peak := a.Memory(t, "VmHWM")
			t.Logf("the process took %d MiB; of %d responses, %v were refused", peak>>20, answered, a.Metrics(t)["robotsproxy_memory_refused_requests_total"])
			if peak > mostHeld {
				t.Errorf("the process took %d MiB, want at most %d", peak>>20, mostHeld>>20)
			}
			leave()
			a.wantNoHarm(t)
		})
	}
}

// A heldOrigin is the origin of heldResponses. It is at all hosts of a domain.
type heldOrigin struct {
	heldResponse
	scheme, domain, port string
	addr                 netip.Addr
	answered             atomic.Int64
}

// serve starts the origin.
func (c heldResponse) serve(t *testing.T) *heldOrigin {
	o := &heldOrigin{heldResponse: c, scheme: "http"}
	o.domain, o.addr = e2e.NewName("held")
	l, err := net.Listen("tcp", o.addr.String()+":0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	_, o.port, _ = net.SplitHostPort(l.Addr().String())
	serve := o.serveHTTP1
	if c.h1 == "" {
		o.scheme, serve = "https", o.serveHTTP2
		l = tls.NewListener(l, &tls.Config{
			Certificates: []tls.Certificate{e2e.Trusted(t).Leaf(t, "*."+o.domain, time.Now().Add(time.Hour))}, NextProtos: []string{"h2"},
		})
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return o
}

func (o *heldOrigin) serveHTTP1(conn net.Conn) {
	from := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		if r.URL.Path != o.path {
			io.WriteString(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		io.WriteString(conn, o.h1)
		o.answered.Add(1)
	}
}

// A stream is one request over HTTP/2.
type stream struct {
	*http2.Framer
	id    uint32
	pack  *hpack.Encoder
	block *bytes.Buffer // that pack writes to
}

func (o *heldOrigin) serveHTTP2(conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	s := &stream{Framer: http2.NewFramer(conn, conn), block: new(bytes.Buffer)}
	s.pack = hpack.NewEncoder(s.block)
	s.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	s.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000})
	for {
		f, err := s.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				s.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				s.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			if s.id = f.StreamID; f.PseudoValue("path") != o.path {
				s.fields(true, status("404"))
				s.WriteData(s.id, true, nil)
				continue
			}
			o.h2(s)
			o.answered.Add(1)
		}
	}
}

// fields writes the fields of a head, and its end.
func (s *stream) fields(end bool, fields ...hpack.HeaderField) {
	s.block.Reset()
	for _, f := range fields {
		s.pack.WriteField(f)
	}
	for first := true; first || s.block.Len() > 0; first = false {
		part := bytes.Clone(s.block.Next(16 << 10))
		whole := end && s.block.Len() == 0
		if first {
			s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: part, EndHeaders: whole})
		} else {
			s.WriteContinuation(s.id, whole, part)
		}
	}
}
