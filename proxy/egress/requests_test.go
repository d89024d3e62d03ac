package egress

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzSized compares the response that is read here with that of net/http.
func FuzzSized(f *testing.F) {
	for _, in := range []string{
		fine, fine + "more", chunked, early + fine,
		"HTTP/1.1 206 \r\nConnection: keep-alive\r\ncontent-length:\t4 \r\n\r\ngo",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nPragma: no-cache\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
		"HTTP/1.1 +20 OK\r\nContent-Length: 1\r\n\r\na",
		"HTTP/1.1 205 Reset Content\r\nContent-Length: +4\r\n\r\ngood",
		"HTTP/1.1 200 OK\r\nContent-Length: 004\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\nTrailer: a\r\n\r\ngood",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, close\r\n\r\na",
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
		from.Peek(1)
		got := readSimpleResponse(from, r)
		if got == nil {
			return
		}
		want, err := http.ReadResponse(by, r)
		if err != nil {
			t.Fatalf("net/http does not read %+v: %v", got, err)
		}
		body, wantBody := got.Body, want.Body
		got.Body, want.Body = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v\nnet/http has\n%+v", got, want)
		}
		text, err := io.ReadAll(body)
		wantText, wantErr := io.ReadAll(wantBody)
		if string(text) != string(wantText) || err != wantErr || from.Buffered() != by.Buffered() {
			t.Errorf("a body %q, %v, and %d bytes behind; net/http has %q, %v, %d", text, err, from.Buffered(), wantText, wantErr, by.Buffered())
		}
	})
}

// TestSized: some heads are read here, all others are left to net/http.
func TestSized(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	tests := []struct {
		name, head string
		simple     bool
	}{
		{"RFC 9112 6.3 a length", ok + "Content-Length: 4\r\n", true},
		{"and the connection kept", ok + "Content-Length: 4\r\nConnection: keep-alive\r\n", true},
		{"RFC 9110 8.6 leading zeros", ok + "Content-Length: 004\r\n", true},
		{"no body", ok + "Content-Length: 0\r\n", true},
		{"RFC 9112 4 no reason", "HTTP/1.1 404 \r\nContent-Length: 4\r\n", true},
		{"RFC 9110 15.3.6 Reset Content", "HTTP/1.1 205 Reset Content\r\nContent-Length: 4\r\n", true},

		{"no length", ok, false},
		{"RFC 9110 8.6 a sign", ok + "Content-Length: +4\r\n", false},
		{"an empty length", ok + "Content-Length: \r\n", false},
		{"a list of lengths", ok + "Content-Length: 4, 4\r\n", false},
		{"a length beyond 63 bits", ok + "Content-Length: 9223372036854775808\r\n", false},
		{"two lengths", ok + "Content-Length: 4\r\nContent-Length: 4\r\n", false},
		{"RFC 9112 6.1 another framing", ok + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", false},
		{"RFC 9110 6.6.2 Trailer", ok + "Content-Length: 4\r\nTrailer: a\r\n", false},
		{"RFC 9111 5.4 Pragma", ok + "Content-Length: 4\r\nPragma: no-cache\r\n", false},
		{"RFC 9112 9.6 the end of the connection", ok + "Content-Length: 4\r\nConnection: a, Close\r\n", false},
		{"RFC 9110 15.2 an answer before the answer", "HTTP/1.1 103 Early Hints\r\nContent-Length: 4\r\n", false},
		{"RFC 9110 15.3.5 No Content", "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n", false},
		{"RFC 9110 15.4.5 Not Modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n", false},
		{"RFC 9112 2.3 HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n", false},
		{"RFC 9112 4 two spaces", "HTTP/1.1  200 OK\r\nContent-Length: 4\r\n", false},
		{"RFC 9112 4 a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 4\r\n", false},
		{"RFC 9112 2.2 a bare line feed", ok + "Content-Length: 4\nA: b\r\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from := bufio.NewReader(strings.NewReader(tt.head + "\r\ngood"))
			from.Peek(1)
			come := from.Buffered()
			if got := readSimpleResponse(from, &http.Request{Method: http.MethodGet}); (got != nil) != tt.simple {
				t.Errorf("read: %v", got != nil)
			}
			if !tt.simple && from.Buffered() != come {
				t.Errorf("of %d bytes %d are left for net/http", come, from.Buffered())
			}
		})
	}
	from := bufio.NewReader(strings.NewReader(fine))
	from.Peek(1)
	if readSimpleResponse(from, &http.Request{Method: http.MethodHead}) != nil {
		t.Error("RFC 9110 9.3.2 an answer to HEAD is read as if it had a body")
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

// TestWriteIsOurs: usual requests are written without net/http, which allocates more.
func TestWriteIsOurs(t *testing.T) {
	r, err := http.NewRequest(http.MethodGet, "http://a.test/page", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"User-Agent": {"ExampleBot/1.0"}, "Accept": {"*/*"}, "Via": {"1.1 a"}}
	to := bufio.NewWriter(io.Discard)
	if n := testing.AllocsPerRun(100, func() { writeRequest(to, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzWrite compares the bytes that are sent for a received request with those of
// net/http.
func FuzzWrite(f *testing.F) {
	const head = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n"
	for _, in := range []string{
		head + "User-Agent:  ExampleBot/1.0\r\nB: 2\r\nA: 1\r\nB: 3\r\n\r\n",
		head + "User-Agent: \r\nConnection: close\r\n\r\n",
		head + "User-Agent: a\r\nUser-Agent: b\r\nTrailer: c\r\n\r\n",
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
		if len(r.Header["User-Agent"]) == 1 {
			r.Header["User-Agent"][0] = agent
		}
		if r.URL.RawQuery += query; !simple(r) {
			return
		}
		var got, want strings.Builder
		to, by := bufio.NewWriter(&got), bufio.NewWriter(&want)
		err, wantErr := writeRequest(to, r), r.Write(by)
		to.Flush()
		by.Flush()
		if (err == nil) != (wantErr == nil) || got.String() != want.String() {
			t.Errorf("%q, %v\nnet/http sends\n%q, %v", &got, err, &want, wantErr)
		}
	})
}
