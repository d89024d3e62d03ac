package egress

import (
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

// TestCancelled: the error is the cause, whatever was waited for.
func TestCancelled(t *testing.T) {
	cause := errors.New("enough")
	s := newScript(t, "http", early)
	d := s.client(t, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { cancel(cause); return nil }}
	if _, err := s.askIn(t, ctx, d, "GET", "/head", trace); err != cause {
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

	ctx, cancel = context.WithCancelCause(t.Context())
	trace = &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { cancel(cause); Drop(got) }}
	if _, err := s.askIn(t, ctx, d, "GET", "/dropped", trace); err != cause {
		t.Errorf("dropped: %v", err)
	}
	s.want(t, "1: GET /")
}

// TestCancelledBeforeTheAnswer: the connection is cut also where the origin neither answers nor reads.
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
			given := make(chan struct{}) // up
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

// TestHeadInTime: the limit is of the head alone, and a connection that has kept it may
// be used when it is over.
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
	ask(t.Context(), "/") // by a connection that is kept
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

// TestTold: what http.Transport tells of its HTTP/1 connections, and NextWrite's Writer
// of the head.
func TestTold(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			s := newScript(t, scheme, early+fine)
			d := s.client(t, Options{})
			var told []string
			w := &teller{told: &told}
			trace := &httptrace.ClientTrace{
				GetConn: func(string) { told = append(told, "get") },
				GotConn: func(got httptrace.GotConnInfo) {
					told = append(told, fmt.Sprint("got ", got.Reused))
					if !NextWrite(got, w) {
						t.Error("no word of the next write")
					}
				},
				WroteHeaders:   func() { told = append(told, "wrote") },
				Got1xxResponse: func(status int, h textproto.MIMEHeader) error { told = append(told, fmt.Sprint(status, h)); return nil },
			}
			for range 2 {
				if body, err := s.ask(t, d, "GET", "/", trace); body != "good" || err != nil {
					t.Fatalf("%q, %v", body, err)
				}
			}
			of := func(used bool) []string {
				return []string{"get", fmt.Sprint("got ", used), "wrote", "writing", "written", "103 map[Link:[</a>]]"}
			}
			if want := slices.Concat(of(false), of(true)); !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
		})
	}
}

// A teller is a Writer that tells.
type teller struct{ told *[]string }

func (w *teller) Writing() error { *w.told = append(*w.told, "writing"); return nil }
func (w *teller) Written()       { *w.told = append(*w.told, "written") }

// TestShutWriter: what may not be written is not, and it is no reason to try again.
func TestShutWriter(t *testing.T) {
	s := newScript(t, "http", fine)
	d := s.client(t, Options{})
	shut := errors.New("not yet")
	ctx, cancel := context.WithCancelCause(t.Context())
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		NextWrite(got, shutter(func() error { cancel(shut); return shut }))
	}}
	if _, err := s.askIn(t, ctx, d, "GET", "/", trace); err != shut {
		t.Errorf("%v", err)
	}
	<-s.hung
	s.want(t)
}

type shutter func() error

func (f shutter) Writing() error { return f() }
func (shutter) Written()         {}
