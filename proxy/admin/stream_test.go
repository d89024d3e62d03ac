package admin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A listener reads a stream, event by event.
type listener struct {
	net.Conn
	r *http.Response
	b *bufio.Reader
}

// listen opens a stream.
func listen(t *testing.T, c net.Conn, target string, header ...string) *listener {
	t.Helper()
	sent := make(chan struct{})
	go func() { send(t, c, target, header...); close(sent) }()
	<-sent
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode == 200 && r.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v", r.Header)
	}
	l := &listener{c, r, bufio.NewReader(r.Body)}
	if r.StatusCode == 200 {
		if first := l.next(t); first != ":" {
			t.Fatalf("it begins with %q", first)
		}
	}
	return l
}

// next is what stands before an empty line.
func (l *listener) next(t *testing.T) string {
	t.Helper()
	event, err := l.event()
	if err != nil {
		t.Fatalf("%q and then %v", event, err)
	}
	return event
}

func (l *listener) event() (string, error) {
	var event strings.Builder
	for {
		line, err := l.b.ReadString('\n')
		if err != nil {
			return event.String(), err
		}
		if line == "\n" {
			return strings.TrimSuffix(event.String(), "\n"), nil
		}
		event.WriteString(line)
	}
}

func eventOf(n uint64, line string) string { return fmt.Sprintf("id: %d\ndata: %s", n, line) }

func TestAStreamTellsWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serve(t)
		f.record("before.test", "allow", "no-rule", "https://x/", "")
		l := listen(t, dial(), "/api/v1/decisions/stream")
		start := time.Now()
		second := f.record("a.test", "allow", "no-rule", "https://x/", hostile)
		third := f.record("b.test", "block", "rule", "https://x/", "")
		for i, want := range []string{eventOf(2, second), eventOf(3, third)} {
			if got := l.next(t); got != want {
				t.Fatalf("%d: %q, want %q", i, got, want)
			}
		}
		if took := time.Since(start); took > pollInterval {
			t.Errorf("after %v", took)
		}
		if got := l.next(t); got != ":" || time.Since(start) != heartbeatInterval { // long past what other answers may take
			t.Errorf("%q after %v", got, time.Since(start))
		}
		for time.Since(start) < time.Hour {
			if got := l.next(t); got != ":" {
				t.Fatalf("after %v: %q", time.Since(start), got)
			}
		}
		l.Close()
		synctest.Wait()
		<-time.After(pollInterval)
		synctest.Wait()
		if n := len(f.streamSlots); n != 0 {
			t.Errorf("%d streams after it was left", n)
		}
	})
}

func TestAStreamGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serve(t)
		var all []string
		for i := range 5 {
			all = append(all, f.record(fmt.Sprintf("h%d.test", i), "allow", "no-rule", "https://x/", ""))
		}
		for _, c := range []struct {
			name, query, last string
			first             uint64
		}{
			{"behind a line", "?after=3", "", 4},
			{"behind the one that came last", "", "2", 3},
			{"which is newer than the one of the address", "?after=1", "4", 5},
			{"from the first on", "?after=0", "", 1},
			{"behind one of another audit", "", "7000", 1},
			{"behind what is no number", "?after=4", hostile[:8], 5},
		} {
			l := listen(t, dial(), "/api/v1/decisions/stream"+c.query, "Last-Event-ID", c.last)
			if got, want := l.next(t), eventOf(c.first, all[c.first-1]); got != want {
				t.Errorf("%s: %q, want %q", c.name, got, want)
			}
			l.Close()
		}
		for range 4000 {
			f.record("h.test", "allow", "no-rule", "https://x/", "")
		}
		l := listen(t, dial(), "/api/v1/decisions/stream", "Last-Event-ID", "5")
		if got := l.next(t); got != "event: missed\ndata: {\"missed\":2000}" {
			t.Errorf("%q", got)
		}
		for n := uint64(2006); n <= 4005; n++ { // more than are written at once
			if got := l.next(t); !strings.HasPrefix(got, fmt.Sprintf("id: %d\n", n)) {
				t.Fatalf("%d: %q", n, got)
			}
		}
	})
}

// What a filter leaves out is not asked for again after the stream was broken off.
func TestAStreamIsFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := listen(t, f.serve(t)(), "/api/v1/decisions/stream?decision=block&host=b.test")
		f.record("b.test", "allow", "no-rule", "https://x/", "")
		f.record("a.test", "block", "rule", "https://x/", "")
		want := f.record("b.test", "block", "rule", "https://x/", "")
		if got := l.next(t); got != eventOf(3, want) {
			t.Errorf("%q", got)
		}
		f.record("a.test", "block", "rule", "https://x/", "")
		if got := l.next(t); got != ":\nid: 4" {
			t.Errorf("%q", got)
		}
		if got := l.next(t); got != ":" {
			t.Errorf("%q", got)
		}
	})
}

// Who does not read holds up nobody, is given up, and is told later what was missed.
func TestAStreamThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serve(t)
		l := listen(t, dial(), "/api/v1/decisions/stream?after=0")
		start := time.Now()
		for range 3000 {
			f.record("a.test", "allow", "no-rule", "https://x/", "") // at once
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v to tell", time.Since(start))
		}
		other := listen(t, dial(), "/api/v1/decisions/stream")
		f.record("b.test", "allow", "no-rule", "https://x/", "")
		if got := other.next(t); !strings.HasPrefix(got, "id: 3001\n") {
			t.Errorf("%q", got)
		}
		<-time.After(requestTimeout + time.Second)
		synctest.Wait()
		if n := len(f.streamSlots); n != 1 {
			t.Errorf("%d streams", n)
		}
		if rest, err := io.ReadAll(l.b); err == nil && len(rest) > 100_000 {
			t.Errorf("%d octets, %v", len(rest), err)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serve(t)
		var all []*listener
		for range maxStreams {
			all = append(all, listen(t, dial(), "/api/v1/decisions/stream"))
		}
		if l := listen(t, dial(), "/api/v1/decisions/stream"); l.r.StatusCode != 503 || l.r.Header.Get("Retry-After") == "" {
			t.Errorf("%v", l.r)
		}
		all[0].Close()
		<-time.After(pollInterval)
		synctest.Wait()
		if l := listen(t, dial(), "/api/v1/decisions/stream"); l.r.StatusCode != 200 {
			t.Errorf("after one was left: %v", l.r)
		}
	})
}

// A stream is not for who may not ask any more: the token is another, or its login over.
func TestAStreamEndsWithWhatOpenedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var token atomic.Value
		token.Store(secret)
		f := newFixture(t, func(o *Options) { o.Token = func() string { return token.Load().(string) } })
		dial := f.serve(t)
		_, cookie := f.login(secret, "/")
		by := func(header ...string) *listener { return listen(t, dial(), "/api/v1/decisions/stream", header...) }
		ends := func(what string, l *listener, after time.Duration) {
			t.Helper()
			for start := time.Now(); ; {
				if got, err := l.event(); err != nil {
					return
				} else if time.Since(start) > after+pollInterval {
					t.Fatalf("%s: still open, %q", what, got)
				}
			}
		}
		<-time.After(sessionLifetime - time.Minute)
		ends("its time", by("Cookie", cookie.String()), time.Minute+heartbeatInterval)
		_, cookie = f.login(secret, "/")
		left := by("Cookie", cookie.String())
		f.ask("POST", "/logout", "", "Cookie", cookie.String())
		ends("a logout", left, heartbeatInterval)
		old := by("Authorization", "Bearer "+secret)
		token.Store("another-token-of-some-length")
		ends("another token", old, heartbeatInterval)
	})
}

func TestShutdownEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := listen(t, f.serve(t)(), "/api/v1/decisions/stream")
		start := time.Now()
		ended := make(chan error)
		go func() { ended <- f.Shutdown(context.Background()) }()
		if rest, err := l.event(); err != io.EOF || rest != "" {
			t.Errorf("%q %v", rest, err)
		}
		if err := <-ended; err != nil || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A browser makes connections ahead of need: no end waits for these, nor fails for them.
func TestShutdownWithAnUnusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.serve(t)()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := f.Shutdown(ctx); err != nil || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestAStreamsHead(t *testing.T) {
	f := newFixture(t)
	if w := f.ask("HEAD", "/api/v1/decisions/stream", ""); w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() > 0 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if n := len(f.streamSlots); n != 0 {
		t.Errorf("%d streams", n)
	}
}
