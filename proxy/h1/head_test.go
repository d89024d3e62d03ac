package h1_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"reflect"
	"strings"
	"testing"

	"robotsproxy/proxy/h1"
)

// request is a typical request of a crawler, answer its response.
const (
	request = "GET http://a.test/page?x=1 HTTP/1.1\r\nHost: a.test\r\nUser-Agent: ExampleBot/1.0 (+https://example.test/bot)\r\n" +
		"Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate\r\nAccept-Language: en\r\n\r\n"
	answer = "HTTP/1.1 200 OK\r\nDate: Mon, 23 Nov 2026 08:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\n" +
		"Content-Length: 1024\r\nETag: \"33a64df5\"\r\nCache-Control: max-age=600\r\nServer: origin\r\n\r\n"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, in string
		want     string // the start line; "": not parsed
		fields   http.Header
		rest     string
	}{
		{"RFC 9112 2.1 a message", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\nbody", "GET / HTTP/1.1", http.Header{"Host": {"a.test"}}, "body"},
		{"RFC 9112 2.1 no fields", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK", http.Header{}, ""},
		{"RFC 9110 5.1 names in any case", "a\r\nx-one: 1\r\nX-TWO: 2\r\n\r\n", "a", http.Header{"X-One": {"1"}, "X-Two": {"2"}}, ""},
		{"RFC 9110 5.3 a name again", "a\r\nVia: b\r\nX: 1\r\nvia: c\r\n\r\n", "a", http.Header{"Via": {"b", "c"}, "X": {"1"}}, ""},
		{"RFC 9112 5 white space around a value", "a\r\nX: \t b c\t \r\nY:d\r\nZ:\r\n\r\n", "a", http.Header{"X": {"b c"}, "Y": {"d"}, "Z": {""}}, ""},
		{"RFC 9110 5.5 bytes beyond ASCII", "a\r\nX: \xff\xfe\r\n\r\n", "a", http.Header{"X": {"\xff\xfe"}}, ""},
		{"two messages", "a\r\nX: 1\r\n\r\nb\r\nY: 2\r\n\r\n", "a", http.Header{"X": {"1"}}, "b\r\nY: 2\r\n\r\n"},

		{name: "nothing", in: ""},
		{name: "half a head", in: "GET / HTTP/1.1\r\nHost: a.test\r\n"},
		{name: "no end of a line", in: "GET / HTTP/1.1"},
		{name: "RFC 9112 2.2 an empty line first", in: "\r\nGET / HTTP/1.1\r\n\r\n"},
		{name: "RFC 9112 2.2 bare line feeds", in: "GET / HTTP/1.1\nHost: a.test\n\n"},
		{name: "RFC 9112 2.2 a bare line feed behind the start line", in: "GET / HTTP/1.1\nHost: a.test\r\n\r\n"},
		{name: "RFC 9112 2.2 a bare line feed between fields", in: "a\r\nX: 1\nY: 2\r\n\r\n"},
		{name: "RFC 9112 2.2 a bare carriage return in the start line", in: "a\rb\r\nX: 1\r\n\r\n"},
		{name: "RFC 9112 2.2 a bare carriage return in a field", in: "a\r\nX: 1\r2\r\n\r\n"},
		{name: "RFC 9112 5.1 a space before the colon", in: "a\r\nX : 1\r\n\r\n"},
		{name: "RFC 9112 5.2 a folded line", in: "a\r\nX: 1\r\n 2\r\n\r\n"},
		{name: "RFC 9112 2.2 white space before the first field", in: "a\r\n X: 1\r\n\r\n"},
		{name: "RFC 9110 5.1 no name", in: "a\r\n: 1\r\n\r\n"},
		{name: "RFC 9110 5.6.2 a name that is no token", in: "a\r\nX(): 1\r\n\r\n"},
		{name: "RFC 9112 5 no colon", in: "a\r\nX\r\n\r\n"},
		{name: "RFC 9110 5.5 NUL", in: "a\r\nX: \x00\r\n\r\n"},
		{name: "RFC 9110 5.5 DEL", in: "a\r\nX: \x7f\r\n\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start, fields, n := h1.ParseHead([]byte(tt.in))
			if start != tt.want || !reflect.DeepEqual(fields, tt.fields) {
				t.Errorf("Parse gives %q %q, want %q %q", start, fields, tt.want, tt.fields)
			}
			if want := len(tt.in) - len(tt.rest); tt.want != "" && n != want || tt.want == "" && n != 0 {
				t.Errorf("%d bytes, want %d", n, want)
			}
		})
	}
}

// TestValuesAreApart checks that appending a value to one field leaves the others unchanged.
func TestValuesAreApart(t *testing.T) {
	_, fields, _ := h1.ParseHead([]byte("a\r\nX: 1\r\nY: 2\r\n\r\n"))
	fields["X"] = append(fields["X"], "3")
	if got := fields.Get("Y"); got != "2" {
		t.Errorf("Y has become %q", got)
	}
}

// FuzzParse compares Parse with net/textproto.
func FuzzParse(f *testing.F) {
	f.Add([]byte(request + "more"))
	f.Add([]byte(answer + request))
	f.Add([]byte("a\r\nVia: b\r\nvia:\tc \r\n\r\n"))
	f.Add([]byte("a\nX: b\r\n c\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		start, fields, n := h1.ParseHead(in)
		if n == 0 {
			return
		}
		rest := bufio.NewReaderSize(bytes.NewReader(in), len(in)+1) // all bytes in one buffer
		by := textproto.NewReader(rest)
		line, err := by.ReadLine()
		if err != nil {
			t.Fatal(err)
		}
		header, err := by.ReadMIMEHeader()
		if err != nil {
			t.Fatal(err)
		}
		size := len(in) - rest.Buffered()
		if start != line || !reflect.DeepEqual(map[string][]string(fields), map[string][]string(header)) || n != size {
			t.Errorf("%q %q of %d bytes; net/textproto has %q %q of %d", start, fields, n, line, header, size)
		}
	})
}

// BenchmarkParse compares Parse of a request's head with net/textproto.
func BenchmarkParse(b *testing.B) {
	b.Run("own", func(b *testing.B) {
		in := []byte(request)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, n := h1.ParseHead(in); n == 0 {
				b.Fatal("not read")
			}
		}
	})
	b.Run("net_textproto", func(b *testing.B) {
		from := strings.NewReader(request)
		r := bufio.NewReader(from)
		b.ReportAllocs()
		for b.Loop() {
			from.Reset(request)
			r.Reset(from)
			by := textproto.NewReader(r)
			if _, err := by.ReadLine(); err != nil {
				b.Fatal(err)
			}
			if _, err := by.ReadMIMEHeader(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
