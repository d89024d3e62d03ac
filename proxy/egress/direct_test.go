package egress

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"robotsproxy/proxy/h1"
	"robotsproxy/proxy/socket"
	"robotsproxy/robots/testkit"
)

// A script is an origin with prepared responses: it answers the n-th request of all with
// the n-th response, then repeats the last one. If a response is empty, it closes the
// connection.
type script struct {
	*origin
	pool    *authority
	mu      sync.Mutex
	answers []string
	heard   []string    // "connection number: request line", from 1
	unasked chan string // is sent on the latest connection
	sent    chan struct{}
}

func newScript(t testing.TB, scheme string, answers ...string) *script {
	t.Helper()
	s := &script{pool: newAuthority(t), answers: answers, unasked: make(chan string), sent: make(chan struct{})}
	var l net.Listener
	s.origin, l = listen(t, scheme, "127.0.0.1")
	if scheme == "https" {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{s.pool.leaf(t, "127.0.0.1", later())}})
	}
	var serving sync.WaitGroup
	over := make(chan struct{})
	t.Cleanup(func() { l.Close(); close(over); serving.Wait() })
	serving.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked := make(chan struct{})
			serving.Go(func() { defer close(asked); s.serve(c, n) })
			serving.Go(func() {
				for {
					select {
					case data := <-s.unasked:
						io.WriteString(c, data)
						s.sent <- struct{}{}
					case <-asked:
						return
					case <-over:
						c.Close()
						return
					}
				}
			})
		}
	})
	return s
}

func (s *script) serve(c net.Conn, n int) {
	defer func() { c.Close(); s.hung <- struct{}{} }()
	for br := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.heard = append(s.heard, fmt.Sprintf("%d: %s %s", n, r.Method, r.URL.Path))
		answer := s.answers[0]
		if len(s.answers) > 1 {
			s.answers = s.answers[1:]
		}
		s.mu.Unlock()
		if answer == "" {
			return
		}
		io.WriteString(c, answer)
		if strings.HasSuffix(answer, "EOF") {
			return
		}
	}
}

func (s *script) request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *script) want(t *testing.T, lines ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.heard, lines) {
		t.Errorf("arrived: %q, want %q", s.heard, lines)
	}
}

func (s *script) client(t *testing.T, o Options) *Client {
	t.Helper()
	o.AllowPrivate, o.Roots = loopback, s.pool.pool
	return newClient(t, o)
}

// ask sends a request and returns the body.
func (s *script) ask(t *testing.T, d *Client, method, path string) (string, error) {
	t.Helper()
	resp, err := d.RoundTrip(s.request(t, method, path))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

const (
	fine    = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
	chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n4\r\ngood\r\n0\r\nSum: 1\r\n\r\n"
	early   = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
)

// TestConnectionIsUsedAgain: the first response decides whether its connection is reused.
func TestConnectionIsUsedAgain(t *testing.T) {
	for _, c := range []struct {
		name, method, answer, body string
		again                      bool
	}{
		{"a length (RFC 9112 6.3)", "GET", fine, "good", true},
		{"chunks and a trailer (RFC 9112 7.1)", "GET", chunked, "good", true},
		{"no body", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "", true},
		{"nothing in it", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true},
		{"HEAD (RFC 9110 9.3.2)", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "", true},
		{"OPTIONS", "OPTIONS", fine, "good", true},
		{"answers before the answer (RFC 9110 15.2)", "GET", early + "HTTP/1.1 100 Continue\r\n\r\n" + fine, "good", true},
		{"more than HEAD asks for", "HEAD", fine, "", false},
		{"more than its length", "GET", fine + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", "good", false},
		{"more than its chunks", "GET", chunked + "\r\n", "good", false},
		{"close (RFC 9112 9.6)", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood", "good", false},
		{"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ngood", "good", false},
		{"the end is its end", "GET", "HTTP/1.1 200 OK\r\n\r\ngoodEOF", "goodEOF", false},
		{"another protocol that nobody asked for", "GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "", false},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(scheme+", "+c.name, func(t *testing.T) {
				s := newScript(t, scheme, c.answer, fine)
				d := s.client(t, Options{})
				if body, err := s.ask(t, d, c.method, "/1"); body != c.body || err != nil {
					t.Errorf("%q, %v", body, err)
				}
				if body, err := s.ask(t, d, "GET", "/2"); body != "good" || err != nil {
					t.Errorf("the next: %q, %v", body, err)
				}
				second := 2
				if c.again {
					second = 1
				}
				s.want(t, "1: "+c.method+" /1", fmt.Sprintf("%d: GET /2", second))
				if n := d.Stats().Origins.Open; n != 1 {
					t.Errorf("%d are open", n)
				}
			})
		}
	}
}

// TestAnswerIsNone: an invalid response is not passed on, and the connection is closed.
func TestAnswerIsNone(t *testing.T) {
	long := strings.Repeat("x", h1.MaxHead/4)
	for _, c := range []struct{ name, answer, says string }{
		{"no HTTP", "hello\r\n\r\n", "malformed"},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nEOF", "unexpected EOF"},
		{"two lengths (RFC 9112 6.3)", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\ngood", "Content-Length"},
		{"a head without an end", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat(long, 5), "exceeds"},
		{"a head of many fields", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + strings.Repeat("a:\r\n", h1.MaxFields) + "\r\ngood", "exceeds"},
		{"a head of very many fields without an end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("a:\r\n", 3*h1.MaxFields), "exceeds"},
		{"answers before the answer without an end", strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: "+long+"\r\n\r\n", 5), "exceeds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, "http", c.answer)
			d := s.client(t, Options{})
			if body, err := s.ask(t, d, "GET", "/"); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q, %v", body, err)
			}
			s.want(t, "1: GET /")
			<-s.hung
		})
	}
}

// TestBodyThatIsNotReadToItsEnd: the connection is closed, and the rest of the body is
// not read.
func TestBodyThatIsNotReadToItsEnd(t *testing.T) {
	s := newScript(t, "http", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\ngood", fine)
	d := s.client(t, Options{})
	r, _ := http.NewRequestWithContext(t.Context(), "GET", s.String(), nil)
	resp, err := d.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	<-s.hung
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("read on: %v", err)
	}
	if body, err := s.ask(t, d, "GET", "/2"); body != "good" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

// TestBodyThatBreaksOff: reading an incomplete body returns an error.
func TestBodyThatBreaksOff(t *testing.T) {
	s := newScript(t, "http", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nEOF")
	if body, err := s.ask(t, s.client(t, Options{}), "GET", "/"); body != "EOF" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", body, err)
	}
}

// TestConnectionThatDied: a request whose response has not begun is sent again on a new
// connection.
func TestConnectionThatDied(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []string
		arrived []string
		fails   bool
	}{
		{"as it was used again", []string{fine, "", fine}, []string{"1: GET /1", "1: GET /2", "2: GET /2"}, false},
		{"and the next one too", []string{fine, "", "", fine}, []string{"1: GET /1", "1: GET /2", "2: GET /2"}, true},
		{"behind the first bytes of an answer", []string{fine, "HTTP/1.EOF", fine}, []string{"1: GET /1", "1: GET /2"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, "http", c.answers...)
			d := s.client(t, Options{})
			if _, err := s.ask(t, d, "GET", "/1"); err != nil {
				t.Fatal(err)
			}
			body, err := s.ask(t, d, "GET", "/2")
			if (err != nil) != c.fails || err == nil && body != "good" {
				t.Errorf("%q, %v", body, err)
			}
			s.want(t, c.arrived...)
		})
	}
	t.Run("new", func(t *testing.T) {
		s := newScript(t, "http", "", fine)
		if _, err := s.ask(t, s.client(t, Options{}), "GET", "/"); !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
		s.want(t, "1: GET /")
	})
}

// TestNobodyAskedForIt: data that arrives before the request is written is not its
// response, whether the connection was idle or the request waited for its turn.
func TestNobodyAskedForIt(t *testing.T) {
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for _, scheme := range []string{"http", "https"} {
		for _, used := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, used before: %t", scheme, used), func(t *testing.T) {
				s := newScript(t, scheme, fine)
				d := s.client(t, Options{})
				if used {
					if _, err := s.ask(t, d, "GET", "/1"); err != nil {
						t.Fatal(err)
					}
				}
				r := s.request(t, "GET", "/2")
				conn, err := d.At(netip.Addr{}).Acquire(t.Context(), r, nil)
				testkit.Must(t, err)
				s.unasked <- poison
				<-s.sent
				awaitReadable(t, conn.(*persistConn).conn)
				if sent, err := conn.Send(r, nil); sent || !errors.Is(err, errUnsolicited) || used && !Repeat(r, err) {
					t.Errorf("sent %t, %v", sent, err)
				}
				if used {
					s.want(t, "1: GET /1")
					return
				}
				s.want(t)
			})
		}
	}
}

// awaitReadable waits until the socket under conn has something to read.
func awaitReadable(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := tracked(conn).Conn.(*socket.Conn).SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool { return peeked(fd) })
	}
	if err != nil {
		t.Error(err)
	}
}

// TestHalfARecord: crypto/tls does not report that it holds part of a record.
func TestHalfARecord(t *testing.T) {
	whole := []byte{23, 3, 3, 0, 4, 'a', 'b', 'c', 'd'}
	for cut := range whole {
		var r recordTracker
		r.advance(whole)
		r.advance(whole[:cut])
		if got := r.atBoundary(); got != (cut == 0) {
			t.Errorf("after %d bytes: between = %t", cut, got)
		}
		r.advance(whole[cut:])
		if !r.atBoundary() {
			t.Errorf("cut at %d: not between at the end", cut)
		}
	}
}
