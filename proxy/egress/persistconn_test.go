package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// TestCancelled: the error is the context's cause, whatever the request waited for.
func TestCancelled(t *testing.T) {
	cause := errors.New("enough")
	s := newScript(t, "http", early)
	d := s.client(t, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := s.askAt(t, ctx, d, "/head", &gate{early: func() { cancel(cause) }}); err != cause {
		t.Errorf("for the head: %v", err)
	}
	<-s.hung

	s = newScript(t, "http", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ngood")
	d = s.client(t, Options{})
	ctx, cancel = context.WithCancelCause(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", s.String(), nil)
	resp, err := d.RoundTrip(r)
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

	if _, err := s.askAt(t, t.Context(), d, "/dropped", &gate{ready: func() error { return cause }}); err != cause {
		t.Errorf("dropped: %v", err)
	}
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
	got := make(chan bool)
	var held sync.WaitGroup
	held.Go(func() {
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { got <- c.Reused; <-time.After(longer) }}
		ask(httptrace.WithClientTrace(t.Context(), trace), "/held")
	})
	if !<-got {
		t.Error("the connection is not used again")
	}
	ask(t.Context(), "/late")
	held.Wait()
}

// A gate is a Gate that records its calls.
type gate struct {
	ready func() error // nil: always ready
	early func()       // nil: nothing
	told  []string
}

func (g *gate) Ready(context.Context) error {
	g.told = append(g.told, "ready")
	if g.ready != nil {
		return g.ready()
	}
	return nil
}

func (g *gate) Sent()  { g.told = append(g.told, "sent") }
func (g *gate) Retry() { g.told = append(g.told, "retry") }

func (g *gate) Informational(status int, h textproto.MIMEHeader) error {
	g.told = append(g.told, fmt.Sprint(status, h))
	if g.early != nil {
		g.early()
	}
	return nil
}

// askAt sends a GET through a Gate.
func (s *script) askAt(t *testing.T, ctx context.Context, d *Client, path string, g *gate) (string, error) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.Send(ctx, r, g)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// TestGate: for each request, a Gate is called when there is a connection, right before
// the write, and after the head. The caller's httptrace gets the connection.
func TestGate(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			s := newScript(t, scheme, early+fine)
			d := s.client(t, Options{})
			g := &gate{}
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GetConn: func(string) { g.told = append(g.told, "get") },
				GotConn: func(got httptrace.GotConnInfo) { g.told = append(g.told, fmt.Sprint("got ", got.Reused)) },
			})
			for range 2 {
				if body, err := s.askAt(t, ctx, d, "/", g); body != "good" || err != nil {
					t.Fatalf("%q, %v", body, err)
				}
			}
			of := func(used bool) []string {
				return []string{"get", fmt.Sprint("got ", used), "ready", "ready", "sent", "103 map[Link:[</a>]]"}
			}
			if want := slices.Concat(of(false), of(true)); !slices.Equal(g.told, want) {
				t.Errorf("told %q, want %q", g.told, want)
			}
		})
	}
}

// TestGateOfADeadConnection: another try begins with Retry, and is written when it is ready.
// The write to the dead connection counts as sent.
func TestGateOfADeadConnection(t *testing.T) {
	s := newScript(t, "http", fine, "", fine)
	d := s.client(t, Options{})
	if _, err := s.askAt(t, t.Context(), d, "/", &gate{}); err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	if body, err := s.askAt(t, t.Context(), d, "/again", g); body != "good" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if want := []string{"ready", "ready", "sent", "retry", "ready", "ready", "sent"}; !slices.Equal(g.told, want) {
		t.Errorf("told %q, want %q", g.told, want)
	}
}

// TestNotReady: if Ready refuses, before or right at the write, nothing is written and
// there is no other try.
func TestNotReady(t *testing.T) {
	for calls := 1; calls <= 2; calls++ {
		s := newScript(t, "http", fine)
		d := s.client(t, Options{})
		notReady := errors.New("not yet")
		g := &gate{}
		g.ready = func() error {
			if len(g.told) == calls {
				return notReady
			}
			return nil
		}
		if _, err := s.askAt(t, t.Context(), d, "/", g); err != notReady {
			t.Errorf("%v", err)
		}
		<-s.hung
		s.want(t)
		if want := slices.Repeat([]string{"ready"}, calls); !slices.Equal(g.told, want) {
			t.Errorf("told %q, want %q", g.told, want)
		}
	}
}

// TestHeldUp: if the origin has closed a new connection while Ready delayed the request,
// the request is sent on another one.
func TestHeldUp(t *testing.T) {
	o, l := listen(t, "http", "127.0.0.1")
	hangUp := make(chan struct{})
	var origin sync.WaitGroup
	origin.Go(func() {
		for n := 1; n <= 2; n++ {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			if n == 1 {
				<-hangUp
			} else {
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, fine)
			}
			conn.Close()
			if n == 1 {
				hangUp <- struct{}{}
			}
		}
	})
	g := &gate{}
	g.ready = func() error {
		if len(g.told) == 1 {
			<-time.After(2 * minHeld)
			hangUp <- struct{}{}
			<-hangUp
		}
		return nil
	}
	d := newClient(t, Options{AllowPrivate: loopback})
	s := &script{origin: o}
	if body, err := s.askAt(t, t.Context(), d, "/", g); body != "good" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if want := []string{"ready", "retry", "ready", "ready", "sent"}; !slices.Equal(g.told, want) {
		t.Errorf("told %q, want %q", g.told, want)
	}
	l.Close()
	origin.Wait()
}
