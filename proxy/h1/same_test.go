package h1_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/proxy/h1"
)

func page(name string) string {
	return fmt.Sprintf("GET http://a.test/%s HTTP/1.1\r\nHost: a.test\r\n\r\n", name)
}

// pathOf returns the path of a request, which has it only in its RequestURI.
func pathOf(r *http.Request) string {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return "" // of a CONNECT
	}
	return u.Path
}

// same lists input of a client.
var same = []struct {
	name, in string
	direct   bool // the last request is served directly
}{
	{"RFC 9112 3.2.2 absolute form", page(""), true},
	{"RFC 9112 3.2.1 origin form", "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n", true},
	{"RFC 9112 3.2 what no URI has", "GET /|\xc3\xbc?%zz HTTP/1.1\r\nHost: a.test\r\n\r\n", true},
	{"RFC 9110 9.3.2 HEAD", "HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n", true},
	{"HEAD of what has a length", "HEAD /length HTTP/1.1\r\nHost: a.test\r\n\r\n", true},
	{"HEAD of a stream", "HEAD /stream HTTP/1.1\r\nHost: a.test\r\n\r\n", true},
	{"HEAD of what has trailers", "HEAD /trailer HTTP/1.1\r\nHost: a.test\r\n\r\n", true},
	{"a body of unknown length", page("unknown"), true},
	{"and a long one", page("long"), true},
	{"RFC 9112 7.1 a stream", page("stream"), true},
	{"a body with its length", page("length"), true},
	{"a long body with its length", page("longlength"), true},
	{"more than its length", page("more"), true},
	{"less than its length", page("less") + page(""), true},
	{"RFC 9110 15.3.5 204", page("204"), true},
	{"RFC 9110 15.4.5 304", page("304"), true},
	{"a status without a name", page("599"), true},
	{"nothing written", page("nothing"), true},
	{"nothing but flushed", page("flushed"), true},
	{"RFC 9110 6.5 trailers", page("trailer"), true},
	{"trailers that were not announced", page("lateTrailer"), true},
	{"RFC 9110 15.2 early hints", page("hints"), true},
	{"a second WriteHeader", page("twice"), true},
	{"a type of its own", page("type"), true},
	{"no type", page("notype"), true},
	{"a coded body", page("coded"), true},
	{"a date of its own", page("date"), true},
	{"the handler closes", page("close") + page(""), true},
	{"the handler breaks off", page("abort") + page(""), true},
	{"the handler faults", page("fault") + page(""), true},
	{"a line end in a field", page("crlf"), true},
	{"RFC 9112 9.6 the client closes", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n" + page(""), true},
	{"RFC 9112 9.3.2 pipelined", page("") + page("unknown") + page("length"), true},
	{"RFC 9110 5.1 names in small letters", "GET / HTTP/1.1\r\nhost: a.test\r\nx-a: b\r\n\r\n", true},
	{"RFC 9110 5.5 bytes beyond ASCII", "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: \xff\xfe\r\n\r\n", true},
	{"RFC 9110 9.3.6 CONNECT", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\nmore", true},

	{"RFC 3986 2.1 a broken escape", "GET /100%/x HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
	{"RFC 9112 3.2 a fragment", "GET /a#b HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
	{"RFC 9112 3.2 no Host", "GET / HTTP/1.1\r\n\r\n", false},
	{"no Host in absolute form", "GET http://a.test/ HTTP/1.1\r\n\r\n", false},
	{"RFC 9112 3.2 two Hosts", "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", false},
	{"a Host that is none", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false},
	{"RFC 9112 2.2 bare line feeds", "GET / HTTP/1.1\nHost: a.test\n\n", false},
	{"RFC 9112 2.2 a bare carriage return", "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: b\rc\r\n\r\n", false},
	{"RFC 9112 2.2 an empty line first", "\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
	{"RFC 9112 5.1 a space before the colon", "GET / HTTP/1.1\r\nHost: a.test\r\nX-A : b\r\n\r\n", false},
	{"RFC 9112 5.2 a folded line", "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: b\r\n c\r\n\r\n", false},
	{"a field without a name", "GET / HTTP/1.1\r\nHost: a.test\r\n: b\r\n\r\n", false},
	{"a field without a colon", "GET / HTTP/1.1\r\nHost: a.test\r\nX-A\r\n\r\n", false},
	{"RFC 9110 5.5 NUL", "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: \x00\r\n\r\n", false},
	{"two spaces in the request line", "GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
	{"an address that is none", "GET http://[a/ HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
	{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", false},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a.test\r\n\r\n", false},
	{"HTTP/3.0", "GET / HTTP/3.0\r\nHost: a.test\r\n\r\n", false},
	{"another method", "OPTIONS / HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
	{"RFC 9110 8.6 an empty body", "GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", false},
	{"a body", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc" + page(""), false},
	{"a chunked body", "GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + page(""), false},
	{"RFC 9112 6.3 both lengths", "GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + page(""), false},
	{"RFC 9110 10.1.1 Expect", "GET / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n\r\n", false},
	{"another expectation", "GET / HTTP/1.1\r\nHost: a.test\r\nExpect: b\r\n\r\n", false},
	{"RFC 9110 7.8 Upgrade", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", false},
	{"half a head", "GET / HTTP/1.1\r\nHost: a.te", false},
	{"a long head", "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: " + strings.Repeat("a", 5000) + "\r\n\r\n" + page(""), false},
	{"no HTTP", "\x16\x03\x01\x02\x00", false},
	{"after others", page("") + page("unknown") + "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc" + page(""), false},
}

// TestSame checks that the output of a Server equals that of net/http's server for the same input.
func TestSame(t *testing.T) {
	for _, tt := range same {
		t.Run(tt.name, func(t *testing.T) {
			alone, _ := talk(t, false, tt.in)
			front, by := talk(t, true, tt.in)
			if alone != front {
				t.Errorf("net/http alone answers\n%s\na Server\n%s", alone, front)
			}
			if strings.HasSuffix(by, "*h1.response") != tt.direct {
				t.Errorf("served by %q", by)
			}
		})
	}
}

// FuzzSame repeats TestSame with random input.
func FuzzSame(f *testing.F) {
	f.Add([]byte("GET http://a.test/stream HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"))
	f.Add([]byte("HEAD / HTTP/1.1\r\nhost: a.test\r\nX-A: b\r\n\r\nGET /less HTTP/1.1\r\nHost: a.test\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabcCONNECT a.test:1 HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\nabc"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 8<<10 {
			return
		}
		alone, _ := talk(t, false, string(in))
		front, _ := talk(t, true, string(in))
		if alone != front {
			t.Errorf("net/http alone answers\n%s\na Server\n%s", alone, front)
		}
	})
}

// talk returns the output of a server of pages for input in, and which server served the requests.
func talk(t *testing.T, front bool, in string) (out, by string) {
	t.Helper()
	c := &script{in: strings.NewReader(in), closed: make(chan struct{})}
	l := &once{conn: c, ended: make(chan struct{})}
	var served []string
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served = append(served, fmt.Sprintf("%T", w))
			pages(w, r)
		}),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	serve, end := s.Serve, s.Close
	if front {
		f := h1.New(s)
		serve, end = f.Serve, f.Close
	}
	done := make(chan error)
	go func() { done <- serve(l) }()
	<-c.closed
	end()
	if err := <-done; err != http.ErrServerClosed {
		t.Fatal(err)
	}
	return c.responses(t), strings.Join(served, " ")
}

// pages serves all kinds of responses.
func pages(w http.ResponseWriter, r *http.Request) {
	w.Header()["Date"] = nil
	switch name := strings.TrimPrefix(pathOf(r), "/"); {
	case r.Method == http.MethodConnect:
		tunnel(w)
	case !bodies(w, name) && !heads(w, name):
		echo(w, r)
	}
}

// tunnel answers CONNECT with the bytes that follow it.
func tunnel(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	rest, _ := rw.Reader.Peek(rw.Reader.Buffered())
	fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(rest), rest)
	conn.Close()
}

// bodies serves bodies of all lengths. It returns false if name is none of them.
func bodies(w http.ResponseWriter, name string) bool {
	h, long := w.Header(), strings.Repeat("0123456789abcdef", 1<<10)
	switch name {
	case "unknown":
		io.WriteString(w, "<html>abc")
	case "long":
		for b := long; b != ""; b = b[1000:] {
			if len(b) < 1000 {
				io.WriteString(w, b)
				break
			}
			io.WriteString(w, b[:1000])
		}
	case "stream":
		io.WriteString(w, "abc")
		http.NewResponseController(w).Flush()
		io.WriteString(w, "")
		io.WriteString(w, "def")
	case "length", "more", "less":
		h.Set("Content-Length", map[byte]string{'l': "3", 'm': "2"}[name[0]])
		if name == "less" {
			h.Set("Content-Length", "4")
		}
		if _, err := io.WriteString(w, "abc"); name == "more" && err != http.ErrContentLength {
			panic(err)
		}
	case "longlength":
		h.Set("Content-Length", strconv.Itoa(3*len(long)))
		for range 3 {
			io.WriteString(w, long)
		}
	case "trailer":
		h.Set("Trailer", "X-End, X-None, Content-Length")
		io.WriteString(w, "abc")
		h.Set("X-End", "e")
	case "lateTrailer":
		io.WriteString(w, "abc")
		http.NewResponseController(w).Flush()
		h.Set(http.TrailerPrefix+"X-Late", "l")
	default:
		return false
	}
	return true
}

// heads serves all kinds of heads. It returns false if name is none of them.
func heads(w http.ResponseWriter, name string) bool {
	h := w.Header()
	switch name {
	case "204", "304", "599":
		h.Set("Content-Length", "3")
		h.Set("Content-Type", "text/x")
		n, _ := strconv.Atoi(name)
		w.WriteHeader(n)
		if n == 599 {
			io.WriteString(w, "abc")
		}
	case "nothing":
	case "flushed":
		http.NewResponseController(w).Flush()
	case "hints":
		h.Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		h.Del("Link")
		w.WriteHeader(http.StatusOK)
		h.Set("X-Too-Late", "x")
	case "twice":
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusNotFound)
	case "type":
		h.Set("Content-Type", "text/x")
		io.WriteString(w, "<html>")
	case "notype":
		h["Content-Type"] = nil
		io.WriteString(w, "<html>")
	case "coded":
		h.Set("Content-Encoding", "x")
		io.WriteString(w, "<html>")
	case "date":
		h.Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
	case "close":
		h.Set("Connection", "close")
		io.WriteString(w, "abc")
	case "abort", "fault":
		h.Set("Content-Length", "9")
		io.WriteString(w, "abc")
		http.NewResponseController(w).Flush()
		if name == "fault" {
			panic("a fault")
		}
		panic(http.ErrAbortHandler)
	case "crlf":
		h.Set("X-A", "b\r\nX-B: c")
	default:
		return false
	}
	return true
}

// echo responds with the request it received.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %q %v %v %v\n", r.Method, r.RequestURI, r.Host, body, err, r.Close, r.RemoteAddr)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range r.Header {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
	}
}

// script is a connection with a fixed input and then its end.
type script struct {
	net.Conn
	in     *strings.Reader
	out    bytes.Buffer
	ahead  []byte
	closed chan struct{}
	once   sync.Once

	mu sync.Mutex // guards in
}

func (c *script) Direct() net.Conn      { return c }
func (c *script) HandOver(ahead []byte) { c.ahead = ahead }

func (c *script) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.in.Read(b)
}

func (c *script) Write(b []byte) (int, error) { return c.out.Write(b) }

func (c *script) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (*script) CloseWrite() error                { return nil }
func (*script) LocalAddr() net.Addr              { return &net.TCPAddr{Port: 1} }
func (*script) RemoteAddr() net.Addr             { return &net.TCPAddr{Port: 2} }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }

// responses returns the output, without what may differ.
func (c *script) responses(t *testing.T) string {
	var all strings.Builder
	for br := bufio.NewReader(&c.out); ; {
		if _, err := br.Peek(1); err != nil {
			return all.String()
		}
		// Compare the body and how it ends.
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			rest, _ := io.ReadAll(br)
			return fmt.Sprintf("%s%v: %d bytes", all.String(), err, len(rest))
		}
		var body []byte
		if br.Buffered() > 0 || resp.ContentLength != 0 {
			body, err = io.ReadAll(resp.Body)
		}
		fmt.Fprintf(&all, "%d %d %v %v %v %v %v\n", resp.StatusCode, resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Header, resp.Trailer, err)
		fmt.Fprintf(&all, "%d bytes %.300q\n", len(body), body)
	}
}

// once is a listener with one connection.
type once struct {
	conn  net.Conn
	ended chan struct{}
	end   sync.Once
}

func (l *once) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.ended
	return nil, net.ErrClosed
}

func (l *once) Close() error {
	l.end.Do(func() { close(l.ended) })
	return nil
}

func (*once) Addr() net.Addr { return &net.TCPAddr{} }
