package h1

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"reflect"
	"testing"
	"unsafe"
)

var blank = &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, URL: new(url.URL), Body: http.NoBody}

// FuzzPlain compares the parsed request with net/http's.
func FuzzPlain(f *testing.F) {
	for _, in := range []string{
		"GET http://a.test/x?y=%41#z HTTP/1.1\r\nHost: b.test\r\nConnection: a, Close\r\n\r\nmore",
		"HEAD /%zz HTTP/1.1\r\nhost: a.test\r\nPragma: no-cache\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: a.test\r\nPragma: no-cache\r\nCache-Control: max-age=0\r\n\r\n",
		"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
		"CONNECT HTTP/1.1\r\nHost:\r\n\r\n",
		"CONNECT //a?b HTTP/1.1\r\nHost: \r\nTe: c\r\nte: d\r\n\r\n",
		"GET http://a.test/?%zz HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET a?b://c HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET t::// HTTP/1.1\r\nHost:\r\n\r\n",
		"GET http://u:p@a.test?\xff|^ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET //u:p@[::1]:1/ HTTP/1.1\r\nHost: [::1]\r\n\r\n",
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, size := parseRequest(in, blank)
		if r == nil {
			return
		}
		rest := bufio.NewReaderSize(bytes.NewReader(in), len(in)+1) // all bytes in one buffer
		want, err := http.ReadRequest(rest)
		if err != nil {
			t.Fatalf("net/http does not read %+v: %v", r, err)
		}
		want.URL = &url.URL{Scheme: want.URL.Scheme, User: want.URL.User, Host: want.URL.Host}
		if !reflect.DeepEqual(r, want) || size != len(in)-rest.Buffered() {
			t.Errorf("%d bytes of\n%+v %+v\nnet/http has %d of\n%+v %+v", size, r, r.URL, len(in)-rest.Buffered(), want, want.URL)
		}
	})
}

// TestHostIsCopied: a Host that is kept for long must not keep the request's head in memory.
func TestHostIsCopied(t *testing.T) {
	r, _ := parseRequest([]byte("GET / HTTP/1.1\r\nHost: a.test\r\nCookie: b=c\r\n\r\n"), blank)
	before := uintptr(len("a.test\r\nCookie: "))
	if cookie := r.Header.Get("Cookie"); uintptr(unsafe.Pointer(unsafe.StringData(r.Host)))+before == uintptr(unsafe.Pointer(unsafe.StringData(cookie))) {
		t.Error("Host is a piece of the head")
	}
}

// BenchmarkPlain compares the parsing of a crawler's request with net/http.
func BenchmarkPlain(b *testing.B) {
	in := []byte("GET http://a.test/page?x=1 HTTP/1.1\r\nHost: a.test\r\nUser-Agent: ExampleBot/1.0 (+https://example.test/bot)\r\n" +
		"Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate\r\nAccept-Language: en\r\n\r\n")
	b.Run("h1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if r, _ := parseRequest(in, blank); r == nil {
				b.Fatal("not read")
			}
		}
	})
	b.Run("net_http", func(b *testing.B) {
		from := bytes.NewReader(in)
		rest := bufio.NewReader(from)
		b.ReportAllocs()
		for b.Loop() {
			from.Reset(in)
			rest.Reset(from)
			if _, err := http.ReadRequest(rest); err != nil {
				b.Fatal(err)
			}
		}
	})
}
