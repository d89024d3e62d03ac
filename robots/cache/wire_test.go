package cache

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// patience is the timeout of the fetches of TestAnswers.
const patience = time.Second

// text is the robots.txt of the test servers.
const text = "User-agent: *\nDisallow: /private\n"

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// redirects leads to the file over the given number of redirects.
func redirects(hops int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		at, _ := strconv.Atoi(r.URL.Query().Get("hop"))
		if at == hops {
			_, _ = io.WriteString(w, text)
			return
		}
		w.Header().Set("Location", "/elsewhere?hop="+strconv.Itoa(at+1))
		w.WriteHeader(http.StatusMovedPermanently)
	}
}

// breaks writes its argument unchanged and closes the connection. If the argument is empty, it
// resets the connection.
func breaks(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		if text == "" {
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		_ = conn.Close()
	}
}

// resetting accepts connections and resets each before it reads the request.
type resetting struct {
	net.Listener
	taken *atomic.Int32
}

func (l resetting) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.taken.Add(1)
		_, _ = conn.Read(make([]byte, 1)) // the client is certain to be connected
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

const page = "<!doctype html>\n<html><head><title>Welcome</title></head><body><p>Disallow nothing</p></body></html>\n"

// answers are possible responses of origins, by the clause of RFC 9309 that defines their
// meaning.
var answers = []struct {
	name    string
	handler http.HandlerFunc // nil: each connection is reset
	asked   int32            // number of requests that arrive
	private bool             // whether Rules disallow /private
	letter  Meaning          // by RFC 9309 to the letter
}{
	{"2.3.1.1: 200", says(200, text), 1, false, rules},
	{"2.3.1.1: 204", says(204, ""), 1, true, rules},
	{"2.3.1.1: 206", says(206, text), 1, false, rules},
	{"2.2: HTML", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
	}, 1, true, rules},
	{"2.2: empty", says(200, ""), 1, true, rules},
	{"2.3.1.2: five redirects", redirects(5), 6, false, rules},
	{"2.3.1.2: six redirects", redirects(6), 6, false, none},
	{"2.3.1.3: 401", says(401, text), 1, false, none},
	{"2.3.1.3: 403", says(403, text), 1, false, none},
	{"2.3.1.3: 404", says(404, text), 1, false, none},
	{"2.3.1.3: 410", says(410, text), 1, false, none},
	{"2.3.1.3, or too busy: 429", says(429, text), 1, false, none},
	{"2.3.1.4: 500", says(500, text), 1, false, refused},
	{"2.3.1.4: 503", says(503, text), 1, false, refused},
	{"2.3.1.4: reset before the request is read", nil, 1, false, refused},
	{"2.3.1.4: reset after the request", breaks(""), 1, false, refused},
	{"2.3.1.4: timeout", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 1, false, refused},
	{"2.3.1.4: timeout in the body", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, 1, false, refused},
	{"2.3.1.4: bad chunking", breaks("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nUser-\r\nzz\r\n"), 1, false, refused},
	{"2.3.1.4: no HTTP", breaks("220 mail.example ESMTP\r\n"), 1, false, refused},
}

// TestAnswers fetches from a real server, once, for clients of all dialects at once.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range answers {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			asked := new(atomic.Int32)
			origin := serve(t, tc.handler, asked)
			c := newCache(t, Options{Fetcher: overHTTP(t, fetch.File{}, patience)})
			var wg sync.WaitGroup
			for _, d := range robots.Dialects() {
				wg.Go(func() {
					e, err := c.Lookup(t.Context(), Query{Origin: origin}, d)
					if err != nil {
						t.Errorf("%s: %v", d.Name, err)
						return
					}
					wantRuling(t, d, e.Under(d), wanted(d, tc.name, tc.letter), tc.private)
				})
			}
			wg.Wait()
			if n := asked.Load(); n != tc.asked {
				t.Errorf("%d requests arrived, want %d", n, tc.asked)
			}
		})
	}
}

// serve starts a server that counts its requests in asked.
func serve(t *testing.T, handler http.HandlerFunc, asked *atomic.Int32) robots.Origin {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		handler(w, r)
	}))
	if handler == nil {
		s.Listener = resetting{s.Listener, asked}
	}
	s.Start()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	o, err := robots.ParseOrigin(u.Scheme, u.Host)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// overHTTP returns a Fetcher over real connections, which are closed when the test ends.
func overHTTP(t *testing.T, file fetch.File, timeout time.Duration) *fetch.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	f, err := fetch.New(fetch.Options{File: file, Sender: fetch.Unpaced(tr), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wantRuling(t *testing.T, d robots.Dialect, r Ruling, want Meaning, private bool) {
	t.Helper()
	if r.Meaning != want || r.Stale {
		t.Errorf("%s: %v (stale: %v, %v), want %v", d.Name, r.Meaning, r.Stale, r.Err, want)
		return
	}
	if (r.Err != nil) != want.refuses() || r.Fetched().IsZero() != want.refuses() {
		t.Errorf("%s: Err %v, Fetched %v with %v", d.Name, r.Err, r.Fetched(), want)
	}
	g := r.File.For("FooBot")
	if got := g.Match("/private").Allow; got != (want == Rules && private) {
		t.Errorf("%s: /private is allowed: %v", d.Name, got)
	}
	if got := g.Match("/open").Allow; got != (want == Rules) {
		t.Errorf("%s: /open is allowed: %v", d.Name, got)
	}
}
