package egress

import (
	"context"
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
	"time"

	"robotsproxy/robots/testkit"
)

// TestCancelled checks that the error is the context's cause, whatever the request waits for.
func TestCancelled(t *testing.T) {
	cause := errors.New("enough")
	s := newScript(t, "http", early)
	d := s.client(t, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	r := s.request(t, "GET", "/head").WithContext(ctx)
	conn, err := d.At(netip.Addr{}).Acquire(ctx, r, nil)
	testkit.Must(t, err)
	_, err = conn.Send(r, nil)
	testkit.Must(t, err)
	_, err = conn.Receive()
	testkit.Must(t, err)
	cancel(cause)
	if _, err := conn.Receive(); err != cause {
		t.Errorf("for the head: %v", err)
	}
	<-s.hung

	s = newScript(t, "http", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ngood")
	d = s.client(t, Options{})
	ctx, cancel = context.WithCancelCause(t.Context())
	resp, err := d.RoundTrip(s.request(t, "GET", "/").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if _, err := resp.Body.Read(make([]byte, 1)); err != cause {
		t.Errorf("for the body: %v", err)
	}
	<-s.hung
	s.want(t, "1: GET /")
}

// TestCancelledBeforeTheAnswer: the connection is closed even if the origin neither answers nor reads.
func TestCancelledBeforeTheAnswer(t *testing.T) {
	cause := errors.New("enough")
	for _, c := range []struct {
		name string
		head int // bytes of a field of the request
	}{
		{"silent", 1}, {"reads nothing", 16 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			o, l := listen(t, "http", "127.0.0.1")
			given := make(chan struct{}) // closed when the request was given up
			var origin sync.WaitGroup
			origin.Go(func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				conn.Read(make([]byte, 1))
				cancel(cause)
				<-given
				io.Copy(io.Discard, conn) // ends with the connection
			})
			r, _ := http.NewRequestWithContext(ctx, "GET", o.String(), nil)
			r.Header.Set("Long", strings.Repeat("x", c.head))
			if _, err := newClient(t, Options{AllowPrivate: loopback}).RoundTrip(r); err != cause {
				t.Errorf("%v, want %v", err, cause)
			}
			close(given)
			l.Close()
			origin.Wait()
		})
	}
}

// TestHeadInTime: the time limit applies only to the head. A connection that has met it
// can be used after it.
func TestHeadInTime(t *testing.T) {
	testkit.Long(t, "waits for the real clock")
	const limit, longer = 2 * time.Second, 2500 * time.Millisecond
	o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			w.(http.Flusher).Flush()
			<-time.After(longer)
		}
		io.WriteString(w, "good")
	})
	d := newClient(t, Options{AllowPrivate: loopback, HeaderTimeout: limit})
	ask := func(ctx context.Context, path string) {
		r, _ := http.NewRequestWithContext(ctx, "GET", o.String()+path, nil)
		resp, err := d.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); string(body) != "good" || err != nil {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
	ask(t.Context(), "/") // on a kept connection
	held := make(chan struct{})
	s := &script{origin: o}
	go func() {
		defer close(held)
		if heard, _, err := s.converse(t, d, "/held", func() { <-time.After(longer) }); !slices.Equal(heard, []string{"200good"}) || err != nil {
			t.Errorf("%q, %v", heard, err)
		}
	}()
	ask(t.Context(), "/late")
	<-held
}

// converse sends a GET by way of its Conn. It returns the responses, each as its status and its header
// or body, and whether something was sent.
func (s *script) converse(t *testing.T, d *Client, path string, wait func()) (heard []string, sent bool, err error) {
	t.Helper()
	r := s.request(t, "GET", path)
	conn, err := d.At(netip.Addr{}).Acquire(t.Context(), r, nil)
	if err != nil {
		return nil, false, err
	}
	if wait != nil {
		wait()
	}
	sent, err = conn.Send(r, nil)
	for err == nil {
		var resp *http.Response
		if resp, err = conn.Receive(); err == nil && !IsInterim(resp) {
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return append(heard, fmt.Sprint(resp.StatusCode, string(b))), sent, err
		} else if err == nil {
			heard = append(heard, fmt.Sprint(resp.StatusCode, resp.Header))
		}
	}
	return heard, sent, err
}

// TestReceive: each response to a request is returned, on a new and on a kept connection.
func TestReceive(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			s := newScript(t, scheme, early+early+fine)
			d := s.client(t, Options{})
			for range 2 {
				heard, sent, err := s.converse(t, d, "/", nil)
				if want := []string{"103 map[Link:[</a>]]", "103 map[Link:[</a>]]", "200good"}; !slices.Equal(heard, want) || !sent || err != nil {
					t.Errorf("%q, sent %t, %v", heard, sent, err)
				}
			}
			s.want(t, "1: GET /", "1: GET /")
		})
	}
}

// TestRelease: a connection that has sent nothing carries the next request.
func TestRelease(t *testing.T) {
	s := newScript(t, "http", fine)
	d := s.client(t, Options{})
	conn, err := d.At(netip.Addr{}).Acquire(t.Context(), s.request(t, "GET", "/"), nil)
	testkit.Must(t, err)
	conn.Release()
	if body, err := s.ask(t, d, "GET", "/"); body != "good" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	s.want(t, "1: GET /")
}

// TestRepeat: which failures of which requests permit another try.
func TestRepeat(t *testing.T) {
	some := errors.New("some")
	inMemory := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
	for _, c := range []struct {
		name    string
		err     error
		method  string
		body    io.ReadCloser
		getBody func() (io.ReadCloser, error)
		want    bool
	}{
		{"another error", some, "GET", nil, nil, false},
		{"nothing was sent", &unsentError{some}, "POST", io.NopCloser(nil), nil, true},
		{"nothing was sent, with a body in memory", &unsentError{some}, "POST", io.NopCloser(nil), inMemory, true},
		{"not processed (RFC 9113 8.7)", &unprocessedError{some}, "POST", nil, nil, true},
		{"not processed, with a body in memory", &unprocessedError{some}, "POST", io.NopCloser(nil), inMemory, true},
		{"not processed, with a body that was read", &unprocessedError{some}, "PUT", io.NopCloser(nil), nil, false},
		{"lost (RFC 9110 9.2.2)", &lostError{some}, "GET", nil, nil, true},
		{"lost, wrapped", fmt.Errorf("read: %w", &lostError{some}), "HEAD", nil, nil, true},
		{"lost, not idempotent", &lostError{some}, "POST", nil, nil, false},
		{"lost, with a body", &lostError{some}, "GET", io.NopCloser(nil), inMemory, false},
	} {
		r := &http.Request{Method: c.method, Body: c.body, GetBody: c.getBody}
		if got := Repeat(r, c.err); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
		if c.want && c.getBody != nil {
			if body, err := io.ReadAll(r.Body); string(body) != "body" || err != nil {
				t.Errorf("%s: the body of the next try is %q, %v", c.name, body, err)
			}
		}
	}
}

// TestHeldUp checks that a request may be sent again if the origin closed its new connection while it waited.
func TestHeldUp(t *testing.T) {
	o, l := listen(t, "http", "127.0.0.1")
	var origin sync.WaitGroup
	hangUp := make(chan struct{})
	origin.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		<-hangUp
		conn.Close()
		hangUp <- struct{}{}
	})
	d := newClient(t, Options{AllowPrivate: loopback})
	s := &script{origin: o}
	_, sent, err := s.converse(t, d, "/", func() {
		<-time.After(2 * minHeld)
		hangUp <- struct{}{}
		<-hangUp
	})
	if sent || !Repeat(s.request(t, "GET", "/"), err) {
		t.Errorf("sent %t, %v", sent, err)
	}
	l.Close()
	origin.Wait()
}

// TestUnsentHead checks that a request may be repeated if its connection is dead before anything of it was sent,
// however long its head is, and that a failed upload does not wait.
func TestUnsentHead(t *testing.T) {
	for _, size := range []int{1, 2 * bufferSize} {
		for name, body := range map[string]io.Reader{"no body": nil, "in memory": strings.NewReader("body"), "streamed": io.NopCloser(strings.NewReader("body"))} {
			near, far := net.Pipe()
			far.Close()
			p := newPersistConn(&trackedConn{Conn: near}, anyAddr("a.test").endpoint, newPool(time.Minute), time.Minute)
			p.used = true
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.test/", body)
			testkit.Must(t, err)
			r.Header.Set("Long", strings.Repeat("x", size))
			sent, err := p.Send(r, nil)
			if sent || !Repeat(r, err) {
				t.Errorf("%d bytes, %s: sent %t, %v", size, name, sent, err)
				continue
			}
			if body != nil {
				if b, err := io.ReadAll(r.Body); string(b) != "body" || err != nil {
					t.Errorf("%d bytes, %s: the body of the next try is %q, %v", size, name, b, err)
				}
			}
		}
	}
}

// TestLogin checks which credentials log in a connection (RFC 4559 6).
func TestLogin(t *testing.T) {
	for value, want := range map[string]bool{
		"NTLM TlRM": true, "negotiate\tYII": true, "Basic x, Negotiate": true, "Basic NTLM": false, "Bearer x": false, "": false,
	} {
		if got := hasLogin([]string{value}); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}
