package h1_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const get = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"

// untilLeft measures how long a request lasts until its client disconnects.
func untilLeft(took *time.Duration) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		began := time.Now()
		<-r.Context().Done()
		*took = time.Since(began)
	}
}

// TestClientLeaves checks that the request's context ends soon after the client disconnects.
func TestClientLeaves(t *testing.T) {
	t.Run("during a request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var took time.Duration
			f := start(untilLeft(&took))
			c := f.dial()
			io.WriteString(c, get)
			<-time.After(time.Second)
			c.Close()
			synctest.Wait()
			if took != time.Second {
				t.Error(took)
			}
			f.end(t)
		})
	})
	t.Run("immediately", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var took time.Duration
			f := start(untilLeft(&took))
			c := f.dial()
			io.WriteString(c, get)
			c.Close()
			<-time.After(time.Second)
			synctest.Wait()
			if took == 0 || took > 100*time.Millisecond {
				t.Error(took)
			}
			f.end(t)
		})
	})
}

// TestClientLeavesDuringAResponse checks that the server stops after the client disconnects: it writes no
// more of the response and serves no pipelined request.
func TestClientLeavesDuringAResponse(t *testing.T) {
	t.Run("with a pipelined request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var served int
			f := start(func(w http.ResponseWriter, r *http.Request) {
				served++
				<-r.Context().Done()
			})
			c := f.dial()
			io.WriteString(c, get+get)
			synctest.Wait()
			c.Close()
			f.end(t)
			if served != 1 {
				t.Errorf("%d requests were served, want only the first", served)
			}
		})
	})
	t.Run("during the response", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var cause error
			f := start(func(w http.ResponseWriter, r *http.Request) {
				for cause == nil {
					if _, err := w.Write(make([]byte, 10_000)); err != nil {
						cause = r.Context().Err()
					}
				}
			})
			c := f.dial()
			io.WriteString(c, get)
			c.Close()
			synctest.Wait()
			if cause != context.Canceled {
				t.Error(cause)
			}
			f.end(t)
		})
	})
}

// TestClientStays checks that a waiting client keeps its request alive and may pipeline the next one.
func TestClientStays(t *testing.T) {
	t.Run("with a pipelined request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			slow := make(chan struct{})
			f := start(func(w http.ResponseWriter, r *http.Request) {
				if pathOf(r) == "/slow" {
					<-slow
				}
				if err := r.Context().Err(); err != nil {
					t.Error(err)
				}
				io.WriteString(w, pathOf(r))
			})
			c := f.dial()
			defer c.Close()
			br := bufio.NewReader(c)
			for range 3 {
				io.WriteString(c, strings.Replace(get, "a.test/", "a.test/slow", 1))
				go io.WriteString(c, get)
				<-time.After(time.Second)
				slow <- struct{}{}
				for _, want := range []string{"/slow", "/"} {
					resp, err := http.ReadResponse(br, nil)
					if err != nil {
						t.Fatal(err)
					}
					if body, err := io.ReadAll(resp.Body); string(body) != want || err != nil {
						t.Fatal(string(body), err)
					}
				}
			}
			f.end(t)
		})
	})
	t.Run("without a pipelined request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(func(w http.ResponseWriter, r *http.Request) {
				<-time.After(time.Hour)
				if err := r.Context().Err(); err != nil {
					t.Error(err)
				}
			})
			c := f.dial()
			defer c.Close()
			br := bufio.NewReader(c)
			for range 3 {
				ask(t, c, br, get)
			}
			f.end(t)
		})
	})
}

// TestTimeLimits checks the server's time limits for the first bytes and between requests.
func TestTimeLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(func(w http.ResponseWriter, r *http.Request) {})
		c := f.dial()
		began := time.Now()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != 30*time.Second {
			t.Error(err, time.Since(began))
		}
		c = f.dial()
		br := bufio.NewReader(c)
		for range 10 { // the server updates the limit only now and then
			ask(t, c, br, get)
			<-time.After(20 * time.Second)
		}
		ask(t, c, br, get)
		began = time.Now()
		_, err := br.Read(make([]byte, 1))
		if took := time.Since(began); err != io.EOF || took > 3*time.Minute || took < 150*time.Second {
			t.Error(err, took)
		}
		f.end(t)
	})
}

// TestWriteDeadline checks that a write deadline ends with its request.
func TestWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed error
		f := start(func(w http.ResponseWriter, r *http.Request) {
			ctl := http.NewResponseController(w)
			if pathOf(r) == "/late" {
				ctl.SetWriteDeadline(time.Unix(1, 0))
				failed = ctl.Flush()
				return
			}
			ctl.SetWriteDeadline(time.Now().Add(time.Second))
		})
		c := f.dial()
		br := bufio.NewReader(c)
		ask(t, c, br, get)
		<-time.After(time.Minute)
		ask(t, c, br, get)
		io.WriteString(c, strings.Replace(get, "a.test/", "a.test/late", 1))
		if _, err := br.ReadByte(); err != io.EOF || !errors.Is(failed, os.ErrDeadlineExceeded) {
			t.Error(err, failed)
		}
		f.end(t)
	})
}

// TestShutdown checks that requests finish, idle connections are closed and hijacked ones stay open.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var taken net.Conn
		f := start(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodConnect {
				taken, _, _ = http.NewResponseController(w).Hijack()
				return
			}
			if pathOf(r) == "/slow" {
				<-end
			}
		})
		busy, rest, fresh, handed, tunnel := f.dial(), f.dial(), f.dial(), f.dial(), f.dial()
		fromBusy := bufio.NewReader(busy)
		ask(t, rest, bufio.NewReader(rest), get)
		ask(t, handed, bufio.NewReader(handed), "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
		io.WriteString(tunnel, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n")
		io.WriteString(busy, strings.Replace(get, "a.test/", "a.test/slow", 1))
		synctest.Wait()
		var over bool
		go func() {
			f.end(t)
			over = true
		}()
		for _, c := range []net.Conn{rest, fresh, handed} {
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Error(err)
			}
		}
		synctest.Wait()
		if over {
			t.Error("Shutdown did not wait for the request")
		}
		close(end)
		resp, err := http.ReadResponse(fromBusy, nil)
		if err != nil || !resp.Close {
			t.Error(resp, err)
		}
		synctest.Wait()
		if !over {
			t.Error("Shutdown waits for more than requests")
		}
		go io.WriteString(taken, "x")
		b := make([]byte, 1)
		if _, err := tunnel.Read(b); err != nil || b[0] != 'x' {
			t.Error(b, err)
		}
		taken.Close()
	})
}

// TestShutdownDuringAResponse checks that the connection is closed although the head did not say so.
func TestShutdownDuringAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			<-time.After(time.Second)
			io.WriteString(w, "rest")
		})
		c := f.dial()
		io.WriteString(c, get)
		go io.Copy(io.Discard, c) // until the connection is closed
		synctest.Wait()
		began := time.Now()
		f.end(t)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v, want as long as the answer", took)
		}
	})
}

// TestShutdownBeforeTheHandler: a connection that Shutdown closes when its request was read, and the hook has heard
// of it, does not pass the request on to the handler.
func TestShutdownBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *front
		ended := make(chan error, 1)
		f = start(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }, func(s *http.Server) {
			s.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateActive {
					go func() { ended <- f.Shutdown(t.Context()) }()
					synctest.Wait()
				}
			}
		})
		c := f.dial()
		io.WriteString(c, get)
		io.Copy(io.Discard, c)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-f.served
	})
}

// TestCloseEndsRequests checks that Close ends a request, with or without a pipelined one.
func TestCloseEndsRequests(t *testing.T) {
	for _, requests := range []string{get, get + get} {
		synctest.Test(t, func(t *testing.T) {
			f := start(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			c := f.dial()
			io.WriteString(c, requests)
			synctest.Wait()
			if err := f.Server.Close(); err != nil {
				t.Error(err)
			}
			<-f.served
			synctest.Wait() // fails if a request is still being served
			c.Close()
		})
	}
}

// TestHandOverWhileWatched checks that bytes read to detect a disconnect are handed over with the rest.
func TestHandOverWhileWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(func(w http.ResponseWriter, r *http.Request) {
			<-time.After(time.Second)
			io.WriteString(w, r.Method)
		})
		c := f.dial()
		defer c.Close()
		io.WriteString(c, get+"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
		go io.WriteString(c, get)
		br := bufio.NewReader(c)
		for _, want := range []string{"GET", "POST", "GET"} {
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != want || err != nil {
				t.Fatalf("%q, %v", body, err)
			}
		}
		f.end(t)
	})
}

// TestShutdownGivesUp checks that Shutdown returns its context's error and that Close then ends the request.
func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c := f.dial()
		io.WriteString(c, get)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := f.Server.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		<-f.served
		synctest.Wait()
	})
}

// TestStates checks that ConnState is called for every state of a connection.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var heard []string
		f := start(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodConnect {
				c, _, _ := http.NewResponseController(w).Hijack()
				c.Close()
			}
		}, func(s *http.Server) {
			s.ConnState = func(_ net.Conn, state http.ConnState) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, state.String())
			}
		})
		for _, tt := range []struct{ last, want string }{
			{"", "new active idle active idle closed"},
			{"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "new active idle active idle active hijacked"},
			{"POST / HTTP/1.1\r\nHost: a.test\r\n\r\n", "new active idle active idle active new active idle closed"}, // the http.Server starts with StateNew
		} {
			heard = nil
			c := f.dial()
			br := bufio.NewReader(c)
			ask(t, c, br, get)
			ask(t, c, br, get)
			if strings.HasPrefix(tt.last, "POST") {
				ask(t, c, br, tt.last)
			} else {
				io.WriteString(c, tt.last)
			}
			synctest.Wait()
			c.Close()
			synctest.Wait()
			if got := strings.Join(heard, " "); got != tt.want {
				t.Errorf("%q: states %s, want %s", tt.last, got, tt.want)
			}
		}
		f.end(t)
	})
}

// TestPanicIsLogged checks that a handler's panic is logged, unless it is http.ErrAbortHandler.
func TestPanicIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(func(w http.ResponseWriter, r *http.Request) {
			if pathOf(r) == "/abort" {
				panic(http.ErrAbortHandler)
			}
			panic("a fault of the handler's")
		})
		for _, path := range []string{"abort", "fault"} {
			c := f.dial()
			io.WriteString(c, strings.Replace(get, "a.test/", "a.test/"+path, 1))
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Error(err)
			}
			synctest.Wait()
			if said := strings.Contains(f.log.String(), "a fault of the handler's"); said != (path == "fault") {
				t.Errorf("%s: the log says %s", path, &f.log)
			}
		}
		f.end(t)
	})
}

// TestOtherConnections checks that connections of other types go to the http.Server unchanged.
func TestOtherConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(func(w http.ResponseWriter, r *http.Request) {
			if _, ok := w.(interface{ EnableFullDuplex() error }); !ok {
				t.Errorf("served by %T", w)
			}
		})
		client, server := net.Pipe()
		f.conns <- server
		ask(t, client, bufio.NewReader(client), get)
		f.end(t)
	})
}

// TestHijackClearsTheDeadline checks that the deadline of the head does not apply after a hijack.
func TestHijackClearsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(func(w http.ResponseWriter, r *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			late := make([]byte, 2)
			if _, err := io.ReadFull(rw, late); err != nil {
				t.Error(err)
			}
		})
		c := f.dial()
		io.WriteString(c, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n")
		<-time.After(time.Hour)
		io.WriteString(c, "ab")
		synctest.Wait()
		f.end(t)
	})
}

// TestHijackWhileWatched checks that bytes read to detect a disconnect are hijacked with the rest.
func TestHijackWhileWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead string
		f := start(func(w http.ResponseWriter, r *http.Request) {
			<-time.After(time.Second)
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			b, _ := rw.Reader.Peek(rw.Reader.Buffered())
			ahead = string(b)
			rest := make([]byte, 2)
			io.ReadFull(rw, rest[:])
			if string(rest) != "ab" {
				t.Errorf("read %q", rest)
			}
		})
		c := f.dial()
		io.WriteString(c, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n")
		<-time.After(100 * time.Millisecond)
		go io.WriteString(c, "ab")
		<-time.After(2 * time.Second)
		synctest.Wait()
		if ahead != "a" {
			t.Errorf("%q was buffered", ahead)
		}
		f.end(t)
	})
}
