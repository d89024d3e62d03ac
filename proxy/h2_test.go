package proxy_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/robots/testkit"
)

// h2Client is the client side of an HTTP/2 connection, frame by frame.
type h2Client struct {
	*http2.Framer
	t     *testing.T
	conn  net.Conn
	block bytes.Buffer
	pack  *hpack.Encoder
	next  uint32 // next stream
	ended string // how the connection ended; "": open
}

// http2InTunnel opens a tunnel to an origin and starts HTTP/2 in it.
func (r *rig) http2InTunnel(t *testing.T, origin string) *h2Client {
	t.Helper()
	return newFrames(t, r.tunnel(origin, "h2"))
}

// http2ByPriorKnowledge starts HTTP/2 on the proxy's own port with prior knowledge.
func (r *rig) http2ByPriorKnowledge(t *testing.T) *h2Client {
	t.Helper()
	c, _ := r.dial()
	return newFrames(t, c)
}

func newFrames(t *testing.T, c net.Conn) *h2Client {
	t.Helper()
	f := &h2Client{t: t, conn: c, next: 1}
	f.pack = hpack.NewEncoder(&f.block)
	f.Framer = http2.NewFramer(f.conn, f.conn)
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	io.WriteString(f.conn, http2.ClientPreface)
	testkit.Must(t, f.WriteSettings())
	for {
		frame, err := f.ReadFrame()
		testkit.Must(t, err)
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			testkit.Must(t, f.WriteSettingsAck())
			return f
		}
	}
}

// pairs encodes names and values as header fields, unchanged and in order.
func (f *h2Client) pairs(fields ...string) []byte {
	f.t.Helper()
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		testkit.Must(f.t, f.pack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return slices.Clone(f.block.Bytes())
}

// maxFragment is the largest frame that the proxy takes (RFC 9113 4.2).
const maxFragment = 16 << 10

// open begins a stream and sends body unless it is empty.
func (f *h2Client) open(body string, fields ...string) uint32 {
	f.t.Helper()
	id := f.next
	f.next += 2
	block := f.pairs(fields...)
	first := block[:min(len(block), maxFragment)]
	testkit.Must(f.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(first) == len(block), EndStream: body == ""}))
	for block = block[len(first):]; len(block) > 0; block = block[min(len(block), maxFragment):] {
		testkit.Must(f.t, f.WriteContinuation(id, len(block) <= maxFragment, block[:min(len(block), maxFragment)]))
	}
	if body != "" {
		testkit.Must(f.t, f.WriteData(id, true, []byte(body)))
	}
	return id
}

// outcome reads until the stream has a response or has ended. It returns the status, the reset code,
// or how the connection ended. It writes nothing.
func (f *h2Client) outcome(stream uint32) string {
	f.t.Helper()
	for f.ended == "" {
		frame, err := f.ReadFrame()
		if err != nil {
			f.lost(err)
			break
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				f.ended = "GOAWAY " + frame.ErrCode.String()
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == stream {
				return frame.ErrCode.String()
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamID == stream {
				return frame.PseudoValue("status")
			}
		}
	}
	return f.ended
}

func (f *h2Client) lost(err error) {
	f.t.Helper()
	if isTimeout(err) {
		f.t.Errorf("the connection stalls: %v", err)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "connection reset") {
		f.t.Logf("the connection ended with %v", err)
	}
	f.ended = "closed"
}

const (
	valid    = ":method GET :scheme https :authority o.test :path /a"
	upload   = ":method POST :scheme https :authority o.test :path /a"
	getThere = "GET /a HTTP/1.1\r\nHost: o.test\r\n\r\n" // what the origin gets of a valid request
)

// http2Requests lists valid and invalid HTTP/2 heads.
var http2Requests = []struct {
	name, fields string // alternating names and values; in a value, "_" stands for a space, "nul", "cr" and "lf" for those bytes
	body         string
	want         string
	arrives      []string
	inside       bool // only in a tunnel
}{
	{"a request", valid, "", "200", []string{getThere}, false},
	{"a rule", ":method GET :scheme https :authority o.test :path /private", "", "403", nil, false},
	// RFC 9113 8.2.1
	{"upper case in a name", valid + " X-A b", "", "400", nil, false},
	{"a space in a name", valid + " x_a b", "", "400", nil, false},
	{"a colon in a name", valid + " x:a b", "", "400", nil, false},
	{"CR in a value", valid + " x acrb", "", "400", nil, false},
	{"LF in a value", valid + " x alfb", "", "400", nil, false},
	{"a request in a value", valid + " x acrlfcrlfGET_/private_HTTP/1.1crlf", "", "400", nil, false},
	{"NUL in a value", valid + " x anulb", "", "400", nil, false},
	// RFC 9113 8.2.2
	{"connection", valid + " connection x-a", "", "400", nil, false},
	{"keep-alive", valid + " keep-alive 5", "", "400", nil, false},
	{"proxy-connection", valid + " proxy-connection keep-alive", "", "400", nil, false},
	{"transfer-encoding", valid + " transfer-encoding chunked", "0crlfcrlfGET_/private_HTTP/1.1crlfcrlf", "400", nil, false},
	{"upgrade", valid + " upgrade h2c", "", "400", nil, false},
	{"te: gzip", valid + " te gzip", "", "400", nil, false},
	{"te twice", valid + " te trailers te trailers", "", "400", nil, false},
	{"te: gzip beside a body", upload + " te gzip", "hello", "400", nil, false},
	{"te: trailers", valid + " te trailers", "", "200", []string{"GET /a HTTP/1.1\r\nHost: o.test\r\nConnection: TE\r\nTe: trailers\r\n\r\n"}, false},
	// RFC 9113 8.3
	{"a pseudo-header after a field", ":method GET :scheme https :authority o.test x a :path /a", "", "400", nil, false},
	{"an unknown pseudo-header", valid + " :x a", "", "400", nil, false},
	{"a response pseudo-header", valid + " :status 200", "", "400", nil, false},
	{"two :path", valid + " :path /private", "", "400", nil, false},
	{"two :authority", valid + " :authority victim.test", "", "400", nil, false},
	{"no :method", ":scheme https :authority o.test :path /a", "", "400", nil, false},
	{"no :scheme", ":method GET :authority o.test :path /a", "", "400", nil, false},
	{"no :path", ":method GET :scheme https :authority o.test", "", "400", nil, false},
	{"an empty :path", ":method GET :scheme https :authority o.test :path ", "", "400", nil, false},
	{"another :scheme does not leave TLS", ":method GET :scheme http :authority o.test :path /a", "", "200", []string{getThere}, true},
	{"an unknown :scheme", ":method GET :scheme ftp :authority o.test :path /a", "", "400", nil, false},
	{"a :method that is no token", ":method GET_/private_HTTP/1.1 :scheme https :authority o.test :path /a", "", "400", nil, false},
	{":authority with userinfo", ":method GET :scheme https :authority x@o.test :path /a", "", "400", nil, false},
	{":authority of another host", ":method GET :scheme https :authority victim.test :path /a", "", "421", nil, true},
	{":authority with a path", ":method GET :scheme https :authority o.test/private :path /a", "", "400", nil, false},
	{"neither :authority nor host", ":method GET :scheme https :path /a", "", "400", nil, false},
	{"host for :authority", ":method GET :scheme https :path /a host o.test", "", "200", []string{getThere}, false},
	{"host is :authority", valid + " host o.test", "", "200", []string{getThere}, false},
	{"host is not :authority", valid + " host victim.test", "", "400", nil, false},
	{"a second host is not :authority", valid + " host o.test host victim.test", "", "400", nil, false},
	{":path *", ":method GET :scheme https :authority o.test :path *", "", "400", nil, false},
	{":path * of OPTIONS", ":method OPTIONS :scheme https :authority o.test :path *", "", "200", []string{"OPTIONS * HTTP/1.1\r\nHost: o.test\r\n\r\n"}, false},
	{"an absolute :path is judged by its path", ":method GET :scheme https :authority o.test :path https://o.test/private", "", "403", nil, false},
	{"an absolute :path elsewhere", ":method GET :scheme https :authority o.test :path https://victim.test/", "", "421", nil, true},
	{"a :path without a slash", ":method GET :scheme https :authority o.test :path a", "", "400", nil, false},
	{"a :path with a space", ":method GET :scheme https :authority o.test :path /a_HTTP/1.1", "", "400", nil, false},
	{"a query with a space", ":method GET :scheme https :authority o.test :path /?a_HTTP/1.1", "", "400", nil, false},
	{"a :path with a line end", ":method GET :scheme https :authority o.test :path /acrlf", "", "400", nil, false},
	{"a fragment", ":method GET :scheme https :authority o.test :path /a?b#c", "", "400", nil, false},
	{"a tunnel in a tunnel", ":method CONNECT :authority victim.test:443", "", "400", nil, true},
	{"an extended CONNECT", ":method CONNECT :protocol websocket :scheme https :authority o.test :path /a", "", "400", nil, false},
	// RFC 9113 8.1.1
	{"content-length", ":method POST :scheme https :authority o.test :path /a content-length 5", "hello", "200", []string{postThere}, false},
	{"a body without content-length", ":method POST :scheme https :authority o.test :path /a", "hello", "200", []string{chunksThere + "5\r\nhello\r\n0\r\n\r\n"}, false},
	{"more than content-length", ":method POST :scheme https :authority o.test :path /a content-length 4", "hello", "PROTOCOL_ERROR", nil, false},
	{"less than content-length", ":method POST :scheme https :authority o.test :path /a content-length 6", "hello", "400", nil, false},
	{"content-length and no body", ":method POST :scheme https :authority o.test :path /a content-length 5", "", "400", nil, false},
	{"two content-lengths", ":method POST :scheme https :authority o.test :path /a content-length 5 content-length 6", "hello", "400", nil, false},
	{"the same content-length twice", ":method POST :scheme https :authority o.test :path /a content-length 5 content-length 5", "hello", "400", nil, false},
	{"a content-length that is no number", ":method POST :scheme https :authority o.test :path /a content-length x", "hello", "400 or PROTOCOL_ERROR", nil, false}, // whichever check comes first
	{"a content-length that is no number, and no body", valid + " content-length x", "", "400", nil, false},
	{"a value over the head limit", valid + " x " + strings.Repeat("x", 70_000), "", "431", nil, false},
	{"a head over the limit", valid + strings.Repeat(" x "+strings.Repeat("x", 1000), 70), "", "431", nil, false},
	{"an HPACK bomb: 8 kilobytes make 16 MB", valid + strings.Repeat(" x "+strings.Repeat("x", 4000), 4000), "", "431", nil, false},
}

func TestHTTP2Requests(t *testing.T) {
	t.Parallel()
	origin := listenRaw(t, true)
	r := start(t, setup{origins: []*httptest.Server{origin.trusted}})
	for _, c := range http2Requests {
		text := strings.NewReplacer("o.test", origin.host(), "nul", "\x00", "cr", "\r", "lf", "\n", "_", " ")
		fields := strings.Split(c.fields, " ")
		for i, field := range fields {
			if len(field) < 1000 { // the long ones have nothing to replace
				fields[i] = text.Replace(field)
			}
		}
		run := func(t *testing.T, f *h2Client) {
			defer f.conn.Close()
			arrives := c.arrives
			if got := f.outcome(f.open(text.Replace(c.body), fields...)); !slices.Contains(strings.Split(c.want, " or "), got) {
				t.Errorf("ended with %s, want %s", got, c.want)
			}
			if f.ended == "" { // the connection stays open whatever happened to the stream
				if got := f.outcome(f.open("", ":method", "GET", ":scheme", "https", ":authority", origin.host(), ":path", "/last")); got != "200" {
					t.Errorf("then %s", got)
				}
				arrives = append(slices.Clone(arrives), lastThere)
			}
			if got := origin.take(); !slices.Equal(got, arrives) {
				t.Errorf("the origin got\n%q, want\n%q", got, arrives)
			}
		}
		t.Run("tunnel/"+c.name, func(t *testing.T) { run(t, r.http2InTunnel(t, origin.host())) })
		if !c.inside {
			t.Run("own port/"+c.name, func(t *testing.T) { run(t, r.http2ByPriorKnowledge(t)) })
		}
	}
}

// TestHTTP2ConnectionFields checks that connection-specific fields are found however the head is sent and
// that the next head can still be decoded.
func TestHTTP2ConnectionFields(t *testing.T) {
	t.Parallel()
	origin := listenRaw(t, true)
	r := start(t, setup{origins: []*httptest.Server{origin.trusted}})
	page := []string{":method", "GET", ":scheme", "https", ":authority", origin.host(), ":path", "/a"}
	bad := append(slices.Clone(page), "x-before", "b", "connection", "x-a", "x-after", "c")
	f := r.http2InTunnel(t, origin.host())
	defer f.conn.Close()
	for i, send := range []func(id uint32, block []byte) error{
		func(id uint32, block []byte) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
		},
		func(id uint32, block []byte) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true, PadLength: 200,
				Priority: http2.PriorityParam{StreamDep: 0, Weight: 9}})
		},
		func(id uint32, block []byte) error { // one byte per frame
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1], EndStream: true})
			for i := 1; i < len(block) && err == nil; i++ {
				err = f.WriteContinuation(id, i == len(block)-1, block[i:i+1])
			}
			return err
		},
	} {
		for round := range 3 { // from the second round on, the fields are references
			f.pack.SetMaxDynamicTableSize(uint32(4096 - 512*(i+round))) // a table size update precedes them
			for _, c := range []struct {
				fields []string
				want   string
			}{{bad, "400"}, {append(slices.Clone(page), "te", "trailers"), "200"}, {append(slices.Clone(page), "te", "gzip"), "400"}, {page, "200"}} {
				id := f.next
				f.next += 2
				testkit.Must(t, send(id, f.pairs(c.fields...)))
				if got := f.outcome(id); got != c.want {
					t.Fatalf("form %d, round %d: %v ended with %s, want %s", i, round, c.fields, got, c.want)
				}
			}
		}
	}
	want := slices.Repeat([]string{"GET /a HTTP/1.1\r\nHost: o.test\r\nConnection: TE\r\nTe: trailers\r\n\r\n", "GET /a HTTP/1.1\r\nHost: o.test\r\n\r\n"}, 3*3)
	if got := origin.take(); !slices.Equal(got, want) {
		t.Errorf("the origin got\n%q, want\n%q", got, want)
	}
}

func TestHTTP2Trailers(t *testing.T) {
	t.Parallel()
	origin := listenRaw(t, true)
	r := start(t, setup{origins: []*httptest.Server{origin.trusted}})
	for _, c := range []struct {
		name, announced string
		fields          []string
		want            string
		arrives         []string
	}{
		{"announced", "x-sum", []string{"x-sum", "7", "x-more", "8"}, "200", []string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n"}},
		{"not announced", "", []string{"x-sum", "7"}, "200", []string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"}},
		{"fields not allowed in trailers", "x-sum, cookie, proxy-authenticate-info, upgrade", []string{"x-sum", "7", "cookie", "a=b", "proxy-authenticate-info", "x"}, "200",
			[]string{"POST /a HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n"}},
		{"framing fields", "x-sum", []string{"content-length", "5"}, "PROTOCOL_ERROR", nil},
		{"connection-specific fields", "upgrade", []string{"upgrade", "h2c"}, "PROTOCOL_ERROR", nil},
		{"a pseudo-header", "x-sum", []string{":path", "/private"}, "PROTOCOL_ERROR", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := r.http2InTunnel(t, origin.host())
			defer f.conn.Close()
			fields := []string{":method", "POST", ":scheme", "https", ":authority", origin.host(), ":path", "/a"}
			if c.announced != "" {
				fields = append(fields, "trailer", c.announced)
			}
			testkit.Must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.pairs(fields...), EndHeaders: true}))
			testkit.Must(t, f.WriteData(1, false, []byte("hello")))
			testkit.Must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.pairs(c.fields...), EndHeaders: true, EndStream: true}))
			if got := f.outcome(1); got != c.want {
				t.Errorf("ended with %s, want %s", got, c.want)
			}
			if got := origin.take(); !slices.Equal(got, c.arrives) {
				t.Errorf("the origin got\n%q, want\n%q", got, c.arrives)
			}
		})
	}
	if resp, _, err := get(r.client(true), "https://"+origin.host()+"/a"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("after all that: %v, %v", resp, err)
	}
}

// recordCounter counts incoming TLS records.
type recordCounter struct {
	net.Conn
	n          int
	head, left int // bytes read of the current record's header, and bytes of its content still to come
	length     int
}

func (c *recordCounter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, next := range b[:n] {
		switch {
		case c.left > 0:
			c.left--
		case c.head < 4: // RFC 8446 5.1: the length is in the last two of five bytes
			c.head++
			c.length = int(next)
		default:
			c.head, c.left = 0, c.length<<8|int(next)
			c.n++
		}
	}
	return n, err
}

// TestSmallResponseIsOneTLSRecord checks that the head and the body of a small response share a TLS
// record, unless the machine pauses between the two.
func TestSmallResponseIsOneTLSRecord(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}})
	c, _ := r.plainTunnel(origin.host())
	records := &recordCounter{Conn: c}
	host, _, _ := net.SplitHostPort(origin.host())
	tc := tls.Client(records, &tls.Config{RootCAs: r.roots, ServerName: host, NextProtos: []string{"h2"}})
	testkit.Must(t, tc.Handshake())
	f := newFrames(t, tc)
	const asked = 40
	one := 0
	for range asked {
		before := records.n
		if got := f.outcome(f.open("", ":method", "GET", ":scheme", "https", ":authority", origin.host(), ":path", "/a")); got != "200" {
			t.Fatal(got)
		}
		for over := false; !over; {
			next, err := f.ReadFrame()
			testkit.Must(t, err)
			data, ok := next.(*http2.DataFrame)
			over = ok && data.StreamEnded()
		}
		if records.n == before+1 {
			one++
		}
	}
	if one < asked/4 { // some records coincide by chance
		t.Errorf("%d of %d answers were one record", one, asked)
	}
}
