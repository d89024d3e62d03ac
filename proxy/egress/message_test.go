package egress

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// FuzzSized holds what is read of an answer against what net/http makes of it.
func FuzzSized(f *testing.F) {
	for _, in := range []string{
		fine, fine + "more", chunked, early + fine,
		"HTTP/1.1 206 \r\nConnection: keep-alive\r\ncontent-length:\t4 \r\n\r\ngo",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nPragma: no-cache\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
		"HTTP/1.1 +20 OK\r\nContent-Length: 1\r\n\r\na",
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
		got := sized(from, r)
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
			t.Errorf("a body %q, %v, and %d octets behind; net/http has %q, %v, %d", text, err, from.Buffered(), wantText, wantErr, by.Buffered())
		}
	})
}

// FuzzWrite holds what is sent of a request that has come against what net/http sends.
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
		f.Add([]byte(in), "")
		f.Add([]byte(in), "\x7f")
	}
	f.Fuzz(func(t *testing.T, in []byte, query string) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(in)))
		if err != nil || !simple(r) {
			return
		}
		r.URL.RawQuery += query
		var got, want strings.Builder
		to, by := bufio.NewWriter(&got), bufio.NewWriter(&want)
		err, wantErr := write(to, r, nil), r.Write(by)
		to.Flush()
		by.Flush()
		if (err == nil) != (wantErr == nil) || got.String() != want.String() {
			t.Errorf("%q, %v\nnet/http sends\n%q, %v", &got, err, &want, wantErr)
		}
	})
}
