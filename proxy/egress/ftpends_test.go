package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/proxy/egress/ftptest"
)

// The request counts as handed over when RETR is, once; where there is none,
// when all is over.
func TestFTPTrace(t *testing.T) {
	for _, c := range []struct {
		name, path string
		reply      map[string]string
		at         string // the verb that it is handed over with; "": none
	}{
		{"a file", "/a.txt", nil, "RETR"},
		{"no file", "/none", nil, "RETR"},
		{"a directory", "/pub/", nil, "MLSD"},
		{"no directory", "/none/", nil, ""},
		{"no login", "/a.txt", map[string]string{"PASS": "530 no"}, ""},
		{"no data port", "/a.txt", map[string]string{"EPSV": "229 (|||25|)"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got, wrote atomic.Int32
			handed := make(chan struct{})
			s := startFTP(t, &ftptest.Server{Reply: func(verb, _ string) string {
				if verb == c.at {
					<-handed
				} else if c.at != "" && wrote.Load() > 0 && verb != "QUIT" && verb != "CWD" {
					t.Errorf("handed over before %s", verb)
				}
				return c.reply[verb]
			}})
			d := newDoor(t, Options{AllowPrivate: loopback, HeaderTimeout: 5 * time.Second})
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(httptrace.GotConnInfo) { got.Add(1) },
				WroteHeaders: func() {
					if wrote.Add(1) == 1 {
						close(handed)
					}
				},
			})
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "ftp://"+s.Addr()+c.path, nil)
			resp, err := d.RoundTrip(r)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			} else if c.at != "" {
				t.Error(err)
			}
			if got.Load() != 1 || wrote.Load() != 1 {
				t.Errorf("GotConn %d times, WroteHeaders %d times", got.Load(), wrote.Load())
			}
		})
	}
	d := newDoor(t, Options{AllowPrivate: loopback})
	o, l := listen(t, "ftp", "127.0.0.1")
	l.Close()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { t.Error("GotConn without a connection") },
		WroteHeaders: func() { t.Error("WroteHeaders without a connection") },
	})
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, o.String(), nil)
	if _, err := d.RoundTrip(r); err == nil {
		t.Error("nobody listens there")
	}
}

// Whoever ends a transfer ends both connections.
func TestFTPEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(resp *http.Response, conn net.Conn, cancel context.CancelFunc)
		want error
	}{
		{"the body is closed", func(resp *http.Response, _ net.Conn, _ context.CancelFunc) { resp.Body.Close() }, http.ErrBodyReadAfterClose},
		{"the context ends", func(_ *http.Response, _ net.Conn, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"the trace's connection is closed", func(_ *http.Response, conn net.Conn, _ context.CancelFunc) { conn.Close() }, net.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			gone := make(chan struct{})
			s := startFTP(t, &ftptest.Server{Transfer: func(data net.Conn, content string) string {
				io.WriteString(data, content[:3])
				data.Read(make([]byte, 1)) // until the other side ends
				close(gone)
				return "426 broken off"
			}})
			d := newDoor(t, Options{AllowPrivate: loopback})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var conn net.Conn
			ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { conn = c.Conn }})
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "ftp://"+s.Addr()+"/a.txt", nil)
			resp, err := d.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			c.end(resp, conn, cancel)
			<-gone
			s.Wait()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// Silence has a limit until the answer has begun, and at its end.
func TestFTPTimeLimits(t *testing.T) {
	for _, silent := range []string{"USER", "PASS", "SIZE", "EPSV", "RETR", "the end"} {
		t.Run(silent, func(t *testing.T) {
			release := make(chan struct{})
			s := startFTP(t, &ftptest.Server{
				Reply: func(verb, _ string) string {
					if verb == silent {
						<-release
					}
					return ""
				},
				Transfer: func(data net.Conn, content string) string {
					io.WriteString(data, content)
					if silent == "the end" {
						data.Close()
						<-release
					}
					return "226 done"
				},
			})
			d := newDoor(t, Options{AllowPrivate: loopback, HeaderTimeout: 100 * time.Millisecond})
			t.Cleanup(func() { close(release) })
			_, _, err := visit(t, d, http.MethodGet, "ftp://"+s.Addr()+"/a.txt", nil)
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Errorf("%v, want a timeout", err)
			}
		})
	}
}

// Behind a parent both connections are tunnels of its, to the name that was asked for.
func TestFTPThroughAParent(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		server := startFTP(t, &ftptest.Server{})
		_, port, err := net.SplitHostPort(server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		d := behind(t, p, ca)
		resp, body, err := visit(t, d, http.MethodGet, "ftp://origin.test:"+port+"/a.txt", nil)
		if err != nil || resp.StatusCode != http.StatusOK || body != "0123456789" {
			t.Fatalf("%v %q %v", resp, body, err)
		}
		asked := p.Asked()
		if len(asked) != 2 {
			t.Fatalf("the parent was asked for %v", asked)
		}
		for _, a := range asked {
			if !strings.HasPrefix(a.Target, "origin.test:") {
				t.Errorf("the parent was asked for %v", a)
			}
		}
	})
}
