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

// An eventReader reads a stream event by event.
type eventReader struct {
	net.Conn
	r *http.Response
	b *bufio.Reader
}

// openStream opens a stream.
func openStream(t *testing.T, c net.Conn, target string, header ...string) *eventReader {
	t.Helper()
	sent := make(chan struct{})
	go func() { sendRequest(t, c, target, header...); close(sent) }()
	<-sent
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode == 200 && r.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v", r.Header)
	}
	l := &eventReader{c, r, bufio.NewReader(r.Body)}
	if r.StatusCode == 200 {
		if first := l.mustNext(t); first != ":" {
			t.Fatalf("it begins with %q", first)
		}
	}
	return l
}

// mustNext returns the text of the next event.
func (e *eventReader) mustNext(t *testing.T) string {
	t.Helper()
	event, err := e.next()
	if err != nil {
		t.Fatalf("%q and then %v", event, err)
	}
	return event
}

func (e *eventReader) next() (string, error) {
	var event strings.Builder
	for {
		line, err := e.b.ReadString('\n')
		if err != nil {
			return event.String(), err
		}
		if line == "\n" {
			return strings.TrimSuffix(event.String(), "\n"), nil
		}
		event.WriteString(line)
	}
}

func eventText(n uint64, line string) string { return fmt.Sprintf("id: %d\ndata: %s", n, line) }

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serveInMemory(t)
		f.record("before.test", "allow", "no-rule", "https://x/", "")
		l := openStream(t, dial(), "/api/v1/decisions/stream")
		start := time.Now()
		second := f.record("a.test", "allow", "no-rule", "https://x/", hostileText)
		third := f.record("b.test", "block", "rule", "https://x/", "")
		for i, want := range []string{eventText(2, second), eventText(3, third)} {
			if got := l.mustNext(t); got != want {
				t.Fatalf("%d: %q, want %q", i, got, want)
			}
		}
		if took := time.Since(start); took > pollInterval {
			t.Errorf("after %v", took)
		}
		if got := l.mustNext(t); got != ":" || time.Since(start) != heartbeatInterval { // longer than other responses may take
			t.Errorf("%q after %v", got, time.Since(start))
		}
		for time.Since(start) < time.Hour {
			if got := l.mustNext(t); got != ":" {
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

func TestStreamResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serveInMemory(t)
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
			{"behind what is no number", "?after=4", hostileText[:8], 5},
		} {
			l := openStream(t, dial(), "/api/v1/decisions/stream"+c.query, "Last-Event-ID", c.last)
			if got, want := l.mustNext(t), eventText(c.first, all[c.first-1]); got != want {
				t.Errorf("%s: %q, want %q", c.name, got, want)
			}
			l.Close()
		}
		for range 4000 {
			f.record("h.test", "allow", "no-rule", "https://x/", "")
		}
		l := openStream(t, dial(), "/api/v1/decisions/stream", "Last-Event-ID", "5")
		if got := l.mustNext(t); got != "event: missed\ndata: {\"missed\":2000}" {
			t.Errorf("%q", got)
		}
		for n := uint64(2006); n <= 4005; n++ { // more than one write holds
			if got := l.mustNext(t); !strings.HasPrefix(got, fmt.Sprintf("id: %d\n", n)) {
				t.Fatalf("%d: %q", n, got)
			}
		}
	})
}

// A stream that reconnects does not read again the lines that its filter dropped.
func TestStreamFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := openStream(t, f.serveInMemory(t)(), "/api/v1/decisions/stream?decision=block&host=b.test")
		f.record("b.test", "allow", "no-rule", "https://x/", "")
		f.record("a.test", "block", "rule", "https://x/", "")
		want := f.record("b.test", "block", "rule", "https://x/", "")
		if got := l.mustNext(t); got != eventText(3, want) {
			t.Errorf("%q", got)
		}
		f.record("a.test", "block", "rule", "https://x/", "")
		if got := l.mustNext(t); got != ":\nid: 4" {
			t.Errorf("%q", got)
		}
		if got := l.mustNext(t); got != ":" {
			t.Errorf("%q", got)
		}
	})
}

// A slow reader holds up nobody, is disconnected, and is told later how many lines it missed.
func TestStreamSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serveInMemory(t)
		l := openStream(t, dial(), "/api/v1/decisions/stream?after=0")
		start := time.Now()
		for range 3000 {
			f.record("a.test", "allow", "no-rule", "https://x/", "") // in no time
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v to tell", time.Since(start))
		}
		other := openStream(t, dial(), "/api/v1/decisions/stream")
		f.record("b.test", "allow", "no-rule", "https://x/", "")
		if got := other.mustNext(t); !strings.HasPrefix(got, "id: 3001\n") {
			t.Errorf("%q", got)
		}
		<-time.After(requestTimeout + time.Second)
		synctest.Wait()
		if n := len(f.streamSlots); n != 1 {
			t.Errorf("%d streams", n)
		}
		if rest, err := io.ReadAll(l.b); err == nil && len(rest) > 100_000 {
			t.Errorf("%d bytes, %v", len(rest), err)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dial := f.serveInMemory(t)
		var all []*eventReader
		for range maxStreams {
			all = append(all, openStream(t, dial(), "/api/v1/decisions/stream"))
		}
		if l := openStream(t, dial(), "/api/v1/decisions/stream"); l.r.StatusCode != 503 || l.r.Header.Get("Retry-After") == "" {
			t.Errorf("%v", l.r)
		}
		all[0].Close()
		<-time.After(pollInterval)
		synctest.Wait()
		if l := openStream(t, dial(), "/api/v1/decisions/stream"); l.r.StatusCode != 200 {
			t.Errorf("after one was left: %v", l.r)
		}
	})
}

// A stream ends when the token changes, or when the session that opened it ends.
func TestStreamEndsWithAuthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var token atomic.Value
		token.Store(secret)
		f := newFixture(t, func(o *Options) { o.Token = func() string { return token.Load().(string) } })
		dial := f.serveInMemory(t)
		_, cookie := f.login(secret, "/")
		by := func(header ...string) *eventReader {
			return openStream(t, dial(), "/api/v1/decisions/stream", header...)
		}
		ends := func(what string, l *eventReader, after time.Duration) {
			t.Helper()
			for start := time.Now(); ; {
				if got, err := l.next(); err != nil {
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
		f.do("POST", "/logout", "", "Cookie", cookie.String())
		ends("a logout", left, heartbeatInterval)
		old := by("Authorization", "Bearer "+secret)
		token.Store("another-token-of-some-length")
		ends("another token", old, heartbeatInterval)
	})
}

func TestShutdownEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := openStream(t, f.serveInMemory(t)(), "/api/v1/decisions/stream")
		start := time.Now()
		ended := make(chan error)
		go func() { ended <- f.Shutdown(context.Background()) }()
		if rest, err := l.next(); err != io.EOF || rest != "" {
			t.Errorf("%q %v", rest, err)
		}
		if err := <-ended; err != nil || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// Browsers open connections in advance. Shutdown neither waits for these nor fails because of
// them.
func TestShutdownWithAnUnusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.serveInMemory(t)()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := f.Shutdown(ctx); err != nil || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestStreamHEAD(t *testing.T) {
	f := newFixture(t)
	if w := f.do("HEAD", "/api/v1/decisions/stream", ""); w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() > 0 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if n := len(f.streamSlots); n != 0 {
		t.Errorf("%d streams", n)
	}
}
