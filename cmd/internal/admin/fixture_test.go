package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// hostileText has what an attacker would put into every field.
const hostileText = "<script>alert(1)</script>\"'\\\u202e\x1b[31m\u009b\r\nSet-Cookie: a=b\x00\xff"

// A fixture is a Server with a real feed, cache and pacer. It has no engine, and its
// robots.txt files are fake.
type fixture struct {
	*Server
	feed    *live.Feed
	cache   *cache.Cache
	pacer   *pace.Pacer
	fetcher *fakeFetcher
	lines   uint64

	ended    []string // hosts whose back-offs were ended
	auditErr error    // of the event about that

	stops   *stops.Table
	saveErr error

	// paused are the pauses that were recorded, and their ends.
	paused []stops.Stop
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{pacer: pace.New(pace.Options{}), stops: stops.New(), fetcher: &fakeFetcher{texts: map[string]string{}}}
	var err error
	if f.feed, err = live.New(live.Options{MaxBytes: trail.MaxLine, Waiting: func() int { return 0 }}); err != nil {
		t.Fatal(err)
	}
	if f.cache, err = cache.New(cache.Options{Fetcher: f.fetcher}); err != nil {
		t.Fatal(err)
	}
	engine, err := policy.New(policy.Options{
		Cache: f.cache, Stops: f.stops, CoolDown: policy.CoolDown{After: 20, Within: time.Minute, Statuses: []int{403}, Pause: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	healthy := func() error { return nil }
	o := Options{
		Healthy: healthy, Ready: healthy, Log: slog.New(slog.DiscardHandler),
		Live: f.feed, Cache: f.cache, Pacer: f.pacer, Dialect: robots.Standard,
		Explain: func(context.Context, policy.Request) (policy.Decision, time.Duration) {
			return policy.Decision{Reason: policy.ReasonDenied}, 0
		},
		Query:   func(r policy.Request) cache.Query { return cache.Query{Origin: r.Origin, Token: r.UserAgent} },
		CAPEM:   func() []byte { return []byte("-----BEGIN CERTIFICATE-----\n") },
		Engine:  func() *policy.Engine { return engine },
		Clients: func() []string { return []string{"lab"} },
		Proxy:   &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080},
		Version: "v1.2.3",

		BackOffEnded: func(host string) error { f.ended = append(f.ended, host); return f.auditErr },
		Stops:        f.stops,
		SaveStops:    func(context.Context) error { return f.saveErr },
		Paused:       func(s stops.Stop) error { f.paused = append(f.paused, s); return f.auditErr },
	}
	for _, c := range change {
		c(&o)
	}
	if f.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	return f
}

func withToken(token string) func(*Options) {
	return func(o *Options) { o.Token = func() string { return token } }
}

// A fakeFetcher returns robots.txt files from memory, and 404 for other origins.
type fakeFetcher struct {
	mu      sync.Mutex // guards the fields below
	texts   map[string]string
	fetched []string // "origin agent"
	hang    bool     // fetches end only with their context
}

func (f *fakeFetcher) Fetch(ctx context.Context, r fetch.Request) *fetch.Result {
	o := r.Origin
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fetched = append(f.fetched, o.String()+" "+r.UserAgent)
	if f.hang {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return &fetch.Result{URL: o.RobotsURL(), Err: ctx.Err(), Fetched: time.Now()}
	}
	text, ok := f.texts[o.String()]
	a := &fetch.Result{URL: o.RobotsURL(), Status: http.StatusNotFound, MaxAge: -1, Connected: true, Fetched: time.Now()}
	if ok {
		sum := sha256.Sum256([]byte(text))
		a.Status, a.Body, a.SHA256 = http.StatusOK, []byte(text), hex.EncodeToString(sum[:])
		a.Headers = &fetch.Headers{ContentType: hostileText}
	}
	return a
}

// cacheRobots makes the cache hold a robots.txt for an origin.
func (f *fixture) cacheRobots(t testing.TB, origin, text string) robots.Origin {
	t.Helper()
	scheme, host, _ := strings.Cut(origin, "://")
	o, err := robots.ParseOrigin(scheme, host)
	if err != nil {
		t.Fatal(err)
	}
	f.fetcher.mu.Lock()
	f.fetcher.texts[o.String()] = text
	f.fetcher.mu.Unlock()
	if _, err := f.cache.Lookup(t.Context(), cache.Query{Origin: o}, robots.Standard()); err != nil {
		t.Fatal(err)
	}
	return o
}

// record writes a request to the feed and returns its audit line.
func (f *fixture) record(host, decision, reason, address, agent string) string {
	f.lines++
	line, _ := json.Marshal(map[string]any{
		"seq": f.lines, "host": host, "decision": decision, "reason": reason, "url": address, "user_agent": agent, "agent": "Bot", "client": "lab",
	})
	line = audit.EscapeJSON(line) // as the audit trail does
	f.feed.Tap(f.lines, append(line, '\n'))
	r := &audit.Record{Time: time.Now(), Request: policy.Request{Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: host, Port: 443}}}}
	r.Decision.Reason = policy.Reason(reason)
	if decision == "allow" {
		r.Decision.Verdict = policy.Allow
	}
	f.feed.Write(r)
	return string(line)
}

// newLoopbackRequest returns a request from a loopback connection.
func newLoopbackRequest(method, target, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if strings.HasPrefix(target, "/") {
		r.Host = "127.0.0.1:8081"
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081}
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at))
}

// do returns the response to a request.
func (f *fixture) do(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.http.Handler.ServeHTTP(w, newLoopbackRequest(method, target, body, header...))
	return w
}

// decode decodes a JSON response. It fails the test if the status or the media type differs,
// or if control characters are not escaped.
func decode[T any](t testing.TB, w *httptest.ResponseRecorder, status int) (v T) {
	t.Helper()
	kind := "application/json"
	if status >= 400 {
		kind = "application/problem+json"
	}
	if w.Code != status || w.Header().Get("Content-Type") != kind {
		t.Fatalf("%d %s, want %d %s:\n%s", w.Code, w.Header().Get("Content-Type"), status, kind, w.Body)
	}
	for _, r := range w.Body.String() {
		if r != '\n' && (r < ' ' || r == '\u202e' || r == '\u009b' || r == 0x7f) {
			t.Errorf("%q stands in it as it is:\n%.2000q", r, w.Body)
			break
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v:\n%s", err, w.Body)
	}
	return v
}

// serveInMemory serves on in-memory connections, as synctest requires. dial opens one.
func (f *fixture) serveInMemory(t testing.TB) (dial func() net.Conn) {
	l := memoryListener{make(chan net.Conn), make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	t.Cleanup(func() {
		f.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func() net.Conn {
		ours, theirs := net.Pipe()
		l.conns <- loopbackConn{theirs}
		t.Cleanup(func() { ours.Close() })
		return ours
	}
}

type memoryListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l memoryListener) Close() error   { close(l.done); return nil }
func (l memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081} }

// A loopbackConn is a connection from this machine.
type loopbackConn struct{ net.Conn }

func (loopbackConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081} }

// sendRequest writes the head of a request.
func sendRequest(t testing.TB, c io.Writer, target string, header ...string) {
	t.Helper()
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n", target)
	for i := 0; i < len(header); i += 2 {
		head += header[i] + ": " + header[i+1] + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		t.Fatal(err)
	}
}
