package h1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

const (
	fine    = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
	chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n4\r\ngood\r\n0\r\nSum: 1\r\n\r\n"
	early   = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
)

// read reads a response of which the first bytes have arrived.
func read(from *bufio.Reader, r *http.Request) (*http.Response, int, error) {
	from.Peek(1)
	return ReadResponse(from, r, func() error { return nil })
}

// FuzzResponse compares the response that is read here with that of net/http. What net/http reads is
// read in the same way, except that no field is added or removed.
func FuzzResponse(f *testing.F) {
	for _, in := range []string{
		fine, fine + "more", chunked, early + fine,
		"HTTP/1.1 206 \r\nConnection: keep-alive\r\ncontent-length:\t4 \r\n\r\ngo",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nPragma: no-cache\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
		"HTTP/1.1 +20 OK\r\nContent-Length: 1\r\n\r\na",
		"HTTP/1.1 205 Reset Content\r\nContent-Length: +4\r\n\r\ngood",
		"HTTP/1.1 200 OK\r\nContent-Length: 004\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 4\nContent-Length: 4\nTrailer: a\n b\n\ngood",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, close\r\n\r\na",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nB: c\r\n\r\n",
	} {
		f.Add([]byte(in), false)
		f.Add([]byte(in), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, isHead bool) {
		r := &http.Request{Method: http.MethodGet}
		if isHead {
			r.Method = http.MethodHead
		}
		from, by := bufio.NewReaderSize(bytes.NewReader(in), len(in)+1), bufio.NewReaderSize(bytes.NewReader(in), len(in)+1)
		got, _, err := read(from, r)
		want, wantErr := http.ReadResponse(by, r)
		if wantErr != nil || strings.HasPrefix(want.Status, "+") {
			return
		}
		if err != nil {
			spaced := false // in a name, which net/http ignores for message framing
			for name := range want.Header {
				spaced = spaced || strings.HasSuffix(name, " ")
			}
			if CountFields(want.Header) < MaxFields && !spaced {
				t.Errorf("%q: %v", in, err)
			}
			return
		}
		text, err := io.ReadAll(got.Body)
		wantText, wantErr := io.ReadAll(want.Body)
		if wantErr == nil && err == nil && from.Buffered() != by.Buffered() {
			t.Errorf("%d bytes are left; net/http leaves %d", from.Buffered(), by.Buffered())
		}
		if string(text) != string(wantText) || wantErr == nil && err != nil && CountFields(want.Trailer) <= maxTrailerFields {
			t.Errorf("a body %q, %v; net/http has %q, %v", text, err, wantText, wantErr)
		}
		if wantErr != nil {
			want.Trailer, got.Trailer = nil, nil
		}
		for _, name := range []string{"Connection", "Cache-Control", "Trailer"} {
			delete(got.Header, name)
			delete(want.Header, name)
		}
		for name := range want.Header { // net/http leaves white space in a name
			if strings.Contains(name, " ") {
				return
			}
		}
		if !httpguts.ValidHeaderFieldValue(want.Status) {
			want.Status = got.Status // without its reason
		}
		got.Body, want.Body = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v\nnet/http has\n%+v", got, want)
		}
	})
}

// TestResponse: what browsers and curl read is read.
func TestResponse(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name, in, body string
		header         http.Header
		dropped        int
	}{
		{"RFC 9112 6.3 identity", ok + "Transfer-Encoding: identity\r\nContent-Length: 4\r\n\r\ngood and more", "good", http.Header{"Content-Length": {"4"}}, 0},
		{"identity without a length", ok + "Transfer-Encoding: identity\r\n\r\ngood", "good", http.Header{}, 0},
		{"chunked twice in a list", ok + "Transfer-Encoding: chunked, Chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n", "good", http.Header{}, 0},
		{"chunked on two lines", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n", "good", http.Header{}, 0},
		{"RFC 9112 6.1 chunked with a length", ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n4\r\ngood\r\n0\r\n\r\n", "good", http.Header{}, 0},
		{"RFC 9110 8.6 a length twice in a list", ok + "Content-Length: 4, 4\r\n\r\ngood", "good", http.Header{"Content-Length": {"4"}}, 0},
		{"RFC 9112 2.2 bare line feeds", "HTTP/1.1 200 OK\nA: b\nContent-Length: 4\n\ngood", "good", http.Header{"A": {"b"}, "Content-Length": {"4"}}, 0},
		{"RFC 9112 5.2 a field on two lines", ok + "A: b\r\n c\r\n\td\r\n\r\ngood", "good", http.Header{"A": {"b c d"}}, 0},
		{"RFC 9112 5.1 white space before the colon", ok + "A : b\r\n\r\ngood", "good", http.Header{"A": {"b"}}, 0},
		{"a control byte in a value", ok + "A: b\x01c\r\nD: e\r\n\r\ngood", "good", http.Header{"D": {"e"}}, 1},
		{"a carriage return in a value", ok + "A: b\rc\r\nD: e\r\n\r\ngood", "good", http.Header{"D": {"e"}}, 1},
		{"a line without a colon", ok + "hello\r\nD: e\r\n\r\ngood", "good", http.Header{"D": {"e"}}, 1},
		{"a line without a colon that continues", ok + "hello\r\n world\r\nD: e\r\n\r\ngood", "good", http.Header{"D": {"e"}}, 1},
		{"a line of white space first", ok + " A: b\r\nD: e\r\n\r\ngood", "good", http.Header{"D": {"e"}}, 1},
		{"a name that is not ASCII", ok + "\xc3\xa9t\xc3\xa9: b\r\n: c\r\nA B: c\r\nD: e\r\n\r\ngood", "good", http.Header{"D": {"e"}}, 3},
		{"RFC 9110 5.5 a value that is not ASCII", ok + "A: \xe9\r\n\r\ngood", "good", http.Header{"A": {"\xe9"}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, dropped, err := read(bufio.NewReader(strings.NewReader(tt.in)), &http.Request{Method: http.MethodGet})
			testkit.Must(t, err)
			body, err := io.ReadAll(resp.Body)
			if string(body) != tt.body || err != nil || dropped != tt.dropped || !reflect.DeepEqual(resp.Header, tt.header) {
				t.Errorf("%q, %v, %d fields dropped, %v", body, err, dropped, resp.Header)
			}
		})
	}
	for name, head := range map[string]string{
		"two lengths":                         "Content-Length: 4\r\nContent-Length: 5\r\n",
		"two lengths in a list":               "Content-Length: 4, 5\r\n",
		"a length with a sign":                "Content-Length: +4\r\n",
		"a length beyond 63 bits":             "Content-Length: 9223372036854775808\r\n",
		"an empty length":                     "Content-Length: \r\n",
		"a control byte in a length":          "Content-Length: 4\x01\r\n",
		"another transfer coding":             "Transfer-Encoding: gzip, chunked\r\n",
		"a control byte in Transfer-Encoding": "Transfer-Encoding: chunked\x0b\r\n",
		"white space before the colon":        "Transfer-Encoding : chunked\r\n",
	} {
		if resp, _, err := read(bufio.NewReader(strings.NewReader(ok+head+"\r\ngood")), &http.Request{Method: http.MethodGet}); err == nil {
			t.Errorf("%s (RFC 9112 6.3): read as %+v", name, resp)
		}
	}
}

// TestBodyOfALength: exactly the announced length is read, and an earlier end is an
// error.
func TestBodyOfALength(t *testing.T) {
	for _, tt := range []struct {
		come string
		want error
	}{{"a body of two bytes more", io.EOF}, {"a body", io.ErrUnexpectedEOF}} {
		from := bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(tt.come)), 16)
		body := &sizedBody{from, int64(len("a body of two bytes mo"))}
		text, err := io.ReadAll(body)
		if err == nil {
			_, err = body.Read(make([]byte, 1))
		}
		if err != tt.want || !strings.HasPrefix(tt.come, string(text)) || len(text) != min(len(tt.come), len("a body of two bytes mo")) {
			t.Errorf("%q: %q, %v", tt.come, text, err)
		}
	}
}

// TestWriteAllocatesNothing, for a usual request.
func TestWriteAllocatesNothing(t *testing.T) {
	r, err := http.NewRequest(http.MethodGet, "http://a.test/page", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"User-Agent": {"ExampleBot/1.0"}, "Accept": {"*/*"}, "Via": {"1.1 a"}}
	to := bufio.NewWriter(io.Discard)
	if n := testing.AllocsPerRun(100, func() { WriteHead(to, r, robots.PathQueryOf(r.URL), "") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzWrite compares the head that is sent for a received request with that of net/http.
func FuzzWrite(f *testing.F) {
	const head = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n"
	for _, in := range []string{
		head + "User-Agent:  ExampleBot/1.0\r\nB: 2\r\nA: 1\r\nB: 3\r\n\r\n",
		head + "User-Agent: \r\nConnection: close\r\n\r\n",
		head + "User-Agent: a\r\nUser-Agent: b\r\nTrailer: c\r\n\r\n",
		"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody",
		"PUT http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTrailer: B, A\r\n\r\n4\r\nbody\r\n0\r\nA: b\r\n\r\n",
		"HEAD http://[fe80::1%25a]:80/a%00?b HTTP/1.0\r\nuser-agent: a\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: \xe4.test\r\nUser-Agent: a\r\n\r\n",
		"GET /?a\tb HTTP/1.1\r\nHost: a.test\r\nUser-Agent: a\r\n\r\n",
	} {
		f.Add([]byte(in), "", "ExampleBot/1.0")
		f.Add([]byte(in), "\x7f", " ")
	}
	f.Add([]byte("GET p:t HTTP/1.1\r\nUser-Agent: a\r\n\r\n"), "\x1c", "a") // net/url has no path of it
	f.Fuzz(func(t *testing.T, in []byte, query, agent string) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(in)))
		if err != nil {
			return
		}
		r.Header["User-Agent"] = []string{agent}
		r.URL.RawQuery += query
		var got, want strings.Builder
		to, by := bufio.NewWriter(&got), bufio.NewWriter(&want)
		if WriteHead(to, r, robots.PathQueryOf(r.URL), "") != nil {
			return
		}
		if HasBody(r) {
			if WriteBody(to, r) != nil {
				return
			}
			if r, err = http.ReadRequest(bufio.NewReader(bytes.NewReader(in))); err != nil {
				t.Fatal(err)
			}
			r.Header["User-Agent"] = []string{agent}
			r.URL.RawQuery += query
		}
		err = r.Write(by)
		to.Flush()
		by.Flush()
		if err != nil || got.String() != want.String() {
			t.Errorf("%q\nnet/http sends\n%q, %v", &got, &want, err)
		}
	})
}
