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
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// hostile is what strangers put wherever they can.
const hostile = "<script>alert(1)</script>\"'\\\u202e\x1b[31m\u009b\r\nSet-Cookie: a=b\x00\xff"

// A fixture is a Server with all that it shows, but nobody who decides.
type fixture struct {
	*Server
	feed  *live.Feed
	book  *cache.Cache
	pacer *pace.Pacer
	sites *sites
	lines uint64
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{pacer: pace.New(pace.Options{}), sites: &sites{texts: map[string]string{}}}
	var err error
	if f.feed, err = live.New(live.Options{MaxBytes: trail.MaxLine, Waiting: func() int { return 0 }}); err != nil {
		t.Fatal(err)
	}
	if f.book, err = cache.New(cache.Options{Fetcher: f.sites}); err != nil {
		t.Fatal(err)
	}
	well := func() error { return nil }
	o := Options{
		Healthy: well, Ready: well, Log: slog.New(slog.DiscardHandler),
		Live: f.feed, Cache: f.book, Pacer: f.pacer, Dialect: robots.Standard,
		Explain: func(context.Context, policy.Request) policy.Decision {
			return policy.Decision{Reason: policy.ReasonDenied}
		},
		Query:   func(r policy.Request) cache.Query { return cache.Query{Origin: r.Origin, Token: r.UserAgent} },
		CAPEM:   func() []byte { return []byte("-----BEGIN CERTIFICATE-----\n") },
		Clients: func() []string { return []string{"lab"} },
		Proxy:   &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080},
		Version: "v1.2.3",
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

// sites are origins that answer for their robots.txt: 404 where there is no text.
type sites struct {
	mu      sync.Mutex // guards what follows
	texts   map[string]string
	fetched []string // "origin agent"
	silent  bool     // nobody answers before the end of the context
}

func (s *sites) Fetch(ctx context.Context, r fetch.Request) *fetch.Result {
	o := r.Origin
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched = append(s.fetched, o.String()+" "+r.UserAgent)
	if s.silent {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return &fetch.Result{URL: o.RobotsURL(), Err: ctx.Err(), Fetched: time.Now()}
	}
	text, ok := s.texts[o.String()]
	a := &fetch.Result{URL: o.RobotsURL(), Status: http.StatusNotFound, MaxAge: -1, Connected: true, Fetched: time.Now()}
	if ok {
		sum := sha256.Sum256([]byte(text))
		a.Status, a.Body, a.SHA256 = http.StatusOK, []byte(text), hex.EncodeToString(sum[:])
		a.Headers = &fetch.Headers{ContentType: hostile}
	}
	return a
}

// know has the book hold what an origin says.
func (f *fixture) know(t testing.TB, origin, text string) robots.Origin {
	t.Helper()
	scheme, host, _ := strings.Cut(origin, "://")
	o, err := robots.ParseOrigin(scheme, host)
	if err != nil {
		t.Fatal(err)
	}
	f.sites.mu.Lock()
	f.sites.texts[o.String()] = text
	f.sites.mu.Unlock()
	if _, err := f.book.Lookup(t.Context(), cache.Query{Origin: o}, robots.Standard()); err != nil {
		t.Fatal(err)
	}
	return o
}

// record has the feed be told of a request, and gives the line of it.
func (f *fixture) record(host, decision, reason, address, agent string) string {
	f.lines++
	line, _ := json.Marshal(map[string]any{
		"seq": f.lines, "host": host, "decision": decision, "reason": reason, "url": address, "user_agent": agent, "agent": "Bot", "client": "lab",
	})
	line = audit.EscapeJSON(line) // as the audit does
	f.feed.Tap(f.lines, append(line, '\n'))
	r := &audit.Record{Time: time.Now(), Request: policy.Request{Origin: robots.Origin{Scheme: "https", Host: host, Port: 443}}}
	r.Decision.Reason = policy.Reason(reason)
	if decision == "allow" {
		r.Decision.Verdict = policy.Allow
	}
	f.feed.Write(r)
	return string(line)
}

// newAsk is a request that has come to loopback.
func newAsk(method, target, body string, header ...string) *http.Request {
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

// ask gives the answer to a request.
func (f *fixture) ask(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.http.Handler.ServeHTTP(w, newAsk(method, target, body, header...))
	return w
}

// decode reads an answer that has to have a status and to be JSON of its kind.
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

// serve answers on connections of memory alone, so that time can be made to pass;
// dial opens one.
func (f *fixture) serve(t testing.TB) (dial func() net.Conn) {
	l := pipes{make(chan net.Conn), make(chan struct{})}
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
		l.conns <- loopback{theirs}
		t.Cleanup(func() { ours.Close() })
		return ours
	}
}

type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l pipes) Close() error   { close(l.done); return nil }
func (l pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081} }

// A loopback is a connection that has come from this machine.
type loopback struct{ net.Conn }

func (loopback) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081} }

// send writes the head of a request.
func send(t testing.TB, c io.Writer, target string, header ...string) {
	t.Helper()
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n", target)
	for i := 0; i < len(header); i += 2 {
		head += header[i] + ": " + header[i+1] + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		t.Fatal(err)
	}
}
