package ftp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/proxy/egress/ftptest"
	"robotsproxy/robots/testkit"
)

// Options.Sent is called once: when RETR is sent, or at the end if there is no RETR.
func TestSent(t *testing.T) {
	for _, c := range []struct {
		name, path string
		reply      map[string]string
		at         string // the command at which Sent is called; "": none
	}{
		{"a file", "/a.txt", nil, "RETR"},
		{"no file", "/none", nil, "RETR"},
		{"a directory", "/pub/", nil, "MLSD"},
		{"no directory", "/none/", nil, ""},
		{"no login", "/a.txt", map[string]string{"PASS": "530 no"}, ""},
		{"no data port", "/a.txt", map[string]string{"EPSV": "229 (|||25|)"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var wrote atomic.Int32
			handed := make(chan struct{})
			s := start(t, &ftptest.Server{Reply: func(verb, _ string) string {
				if verb == c.at {
					<-handed
				} else if c.at != "" && wrote.Load() > 0 && verb != "QUIT" && verb != "CWD" {
					t.Errorf("handed over before %s", verb)
				}
				return c.reply[verb]
			}})
			o := options()
			o.Sent = func() {
				if wrote.Add(1) == 1 {
					close(handed)
				}
			}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "ftp://"+s.Addr()+c.path, nil)
			resp, err := RoundTrip(r, o)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			} else if c.at != "" {
				t.Error(err)
			}
			if n := wrote.Load(); n != 1 {
				t.Errorf("Sent %d times", n)
			}
		})
	}
	o := options()
	o.Sent = func() { t.Error("Sent without a connection") }
	if _, _, err := visitBy(t, o, http.MethodGet, "ftp://"+testkit.DeadEnd(t, "127.0.0.1"), nil); err == nil {
		t.Error("nobody listens there")
	}
}

// Whoever ends a transfer, both connections are closed.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(resp *http.Response, cancel context.CancelFunc)
		want error
	}{
		{"the body is closed", func(resp *http.Response, _ context.CancelFunc) { resp.Body.Close() }, http.ErrBodyReadAfterClose},
		{"the context ends", func(_ *http.Response, cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			gone := make(chan struct{})
			s := start(t, &ftptest.Server{Transfer: func(data net.Conn, content string) string {
				io.WriteString(data, content[:3])
				data.Read(make([]byte, 1)) // until the other side closes
				close(gone)
				return "426 broken off"
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "ftp://"+s.Addr()+"/a.txt", nil)
			resp, err := RoundTrip(r, options())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			c.end(resp, cancel)
			<-gone
			s.Wait()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A silent server has a time limit until the response has begun, and again at its end.
func TestTimeLimits(t *testing.T) {
	for _, silent := range []string{"USER", "PASS", "SIZE", "EPSV", "RETR", "the end"} {
		t.Run(silent, func(t *testing.T) {
			release := make(chan struct{})
			s := start(t, &ftptest.Server{
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
			o := options()
			o.Timeout = 100 * time.Millisecond
			t.Cleanup(func() { close(release) })
			_, _, err := visitBy(t, o, http.MethodGet, "ftp://"+s.Addr()+"/a.txt", nil)
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Errorf("%v, want a timeout", err)
			}
		})
	}
}
