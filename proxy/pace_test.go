package proxy_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// noPacing imposes no waits except back-off.
var noPacing = pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 9}

// TestRetryAfterBacksOff checks that the proxy honours the Retry-After of a host, records the
// back-off, and refuses requests whose wait would be too long.
func TestRetryAfterBacksOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, retryAfter string
		status           int
		least, most      time.Duration // of the back-off
	}{
		{"429, in seconds", "30", http.StatusTooManyRequests, 29 * time.Second, 30 * time.Second},
		{"503, a date", time.Now().Add(45 * time.Second).UTC().Format(http.TimeFormat), http.StatusServiceUnavailable, 20 * time.Second, 45 * time.Second},
		{"longer than the maximum", "86400", http.StatusTooManyRequests, 59 * time.Minute, time.Hour},
		{"no Retry-After", "", http.StatusServiceUnavailable, 59 * time.Second, 75 * time.Second},
		{"an unreadable Retry-After", "soon", http.StatusServiceUnavailable, 59 * time.Second, 75 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
			})
			r := start(t, setup{limits: noPacing, change: func(o *proxy.Options) { o.BackOff = true }})
			client := r.client(false)
			asked := time.Now()
			resp, _, err := get(client, origin.URL+"/1")
			if err != nil || resp.StatusCode != c.status || resp.Header.Get("Retry-After") != c.retryAfter {
				t.Fatalf("the origin's response is not forwarded: %v %v", resp, err)
			}
			cause := r.records.last(t, 1)
			if cause.BackOff < c.least || cause.BackOff > c.most || cause.BackOffBy != cause.ID {
				t.Errorf("the record says %v, by %q", cause.BackOff, cause.BackOffBy)
			}
			resp, body, err := get(client, origin.URL+"/2")
			testkit.Must(t, err)
			after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			left := c.least - time.Since(asked)
			if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "a back-off for another ") || !strings.Contains(body, "after a 429 or 503 to "+cause.ID+"\n") ||
				time.Duration(after)*time.Second < left || time.Duration(after)*time.Second > c.most+time.Second {
				t.Errorf("during the back-off: %s, Retry-After %d\n%s", resp.Status, after, body)
			}
			if rec := r.records.last(t, 2); !rec.Blocked() || rec.Decision.Reason != policy.ReasonPace || rec.BackOff < left || rec.BackOff > c.most || rec.BackOffBy != cause.ID {
				t.Errorf("its record: %+v", rec)
			}
			if got := origin.paths(); len(got) != 2 {
				t.Errorf("the origin saw %q", got)
			}
		})
	}
}

func TestBackOffCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	r := start(t, setup{limits: noPacing})
	client := r.client(false)
	for i := range 2 {
		if resp, _, err := get(client, origin.URL+"/"); err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Proxy-Status") != "" {
			t.Fatalf("%v %v", resp, err)
		}
		if rec := r.records.last(t, i+1); rec.BackOff != 0 {
			t.Errorf("the record says %v", rec.BackOff)
		}
	}
}

// TestSlowAnswersAreInTheRecord checks that a request slowed down by earlier slow responses is
// recorded as slowed. The time of an upload depends on the client and does not count.
func TestSlowAnswersAreInTheRecord(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	const slow = 2 * time.Second
	const least = 1200 * time.Millisecond // counted from the return of the write, which may lag behind the origin
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/2" {
			<-time.After(slow)
		}
		w.Header().Set("Content-Length", "0")
	})
	limits := noPacing
	limits.Adapt, limits.MaxWait = true, time.Minute
	r := start(t, setup{limits: limits})
	client := r.client(false)
	resp, err := client.Post(origin.URL+"/upload", "text/plain", strings.NewReader("x"))
	testkit.Must(t, err)
	resp.Body.Close()
	asked := time.Now()
	_, _, err = get(client, origin.URL+"/1")
	testkit.Must(t, err)
	most := time.Since(asked)
	_, _, err = get(client, origin.URL+"/2")
	testkit.Must(t, err)
	for n := 1; n <= 2; n++ {
		if rec := r.records.last(t, n); rec.Slowed != 0 {
			t.Errorf("request %d: slowed to %v, by an upload at most", n, rec.Slowed)
		}
	}
	if rec := r.records.last(t, 3); rec.Slowed < least || rec.Slowed > most {
		t.Errorf("the last request: slowed to %v, want %v to %v", rec.Slowed, least, most)
	}
}

// heldSecond starts an origin that calls hold for its second connection before serving it. It closes
// every connection after one request. arrived returns the requested paths.
func heldSecond(t *testing.T, hold func(*tls.Conn)) (s *httptest.Server, arrived func() []string) {
	t.Helper()
	var mu sync.Mutex
	var paths []string
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		w.Header().Set("Connection", "close")
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	var conns atomic.Int32
	s.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if conns.Add(1) == 2 {
			hold(conn.(*tls.Conn))
		}
		return ctx
	}
	testca.StartTLS(t, s)
	t.Cleanup(s.Close)
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(paths)
	}
}

// TestBackOffOfATunnel checks that a new tunnel to a host in back-off does not hide what
// robots.txt says: each request in it gets the answer that it would get without a tunnel.
func TestBackOffOfATunnel(t *testing.T) {
	t.Parallel()
	busy := serve(t, true, rules, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	r := start(t, setup{origins: []*httptest.Server{busy.Server}, limits: noPacing, change: func(o *proxy.Options) { o.BackOff = true }})
	for i, c := range []struct {
		path   string
		status int
		reason policy.Reason
	}{{"/page", 503, policy.ReasonNoRule}, {"/private", 403, policy.ReasonRule}, {"/page", 429, policy.ReasonPace}} {
		client := r.client(false) // with a tunnel of its own
		resp, _, err := get(client, busy.URL+c.path)
		if err != nil || resp.StatusCode != c.status {
			t.Fatalf("%s: %v %v, want %d", c.path, resp, err, c.status)
		}
		if rec := r.records.last(t, i+1); rec.Decision.Reason != c.reason || rec.Request.Method != http.MethodGet {
			t.Errorf("%s: %s, by %s", c.path, rec.Request.Method, rec.Decision.Reason)
		}
		if after := resp.Header.Get("Retry-After"); (after == "") != (c.status == 403) {
			t.Errorf("%s: Retry-After %q", c.path, after)
		}
	}
	if got := busy.paths(); !slices.Equal(got, []string{"/robots.txt", "/page"}) {
		t.Errorf("the origin saw %q", got)
	}
}

// TestBackOffDuringTheDial checks a request whose host goes into back-off while the request connects.
// It waits, and uses a new connection if the origin has closed the first; or it is refused, and then
// nothing has been sent, whatever net/http does with the connection.
func TestBackOffDuringTheDial(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pause string
		status      int
		reason      policy.Reason
		arrived     []string
	}{
		{"waited out", "2", http.StatusOK, policy.ReasonNoFile, []string{"/robots.txt", "/page"}},
		{"too long", "600", http.StatusTooManyRequests, policy.ReasonPace, []string{"/robots.txt"}},
	} {
		for range 5 { // it varies what net/http does with the connection
			t.Run(c.name, func(t *testing.T) {
				if c.status == http.StatusOK {
					testkit.Long(t, realClock)
				}
				t.Parallel()
				dialling, proceed := make(chan struct{}), make(chan struct{})
				busy := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) {
					<-dialling
					w.Header().Set("Retry-After", c.pause)
					w.WriteHeader(http.StatusTooManyRequests)
				})
				slow, arrived := heldSecond(t, func(conn *tls.Conn) {
					close(dialling)
					<-proceed
					if c.status == http.StatusOK {
						go func() { // the origin closes the connection during the wait
							conn.Handshake()
							conn.Close()
						}()
					}
				})
				limits := noPacing
				limits.MaxWait = 10 * time.Second
				r := start(t, setup{origins: []*httptest.Server{slow}, limits: limits, change: func(o *proxy.Options) { o.BackOff = true }})
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					get(r.client(false), busy.URL+"/busy")
				}()
				asked := make(chan *http.Response)
				go func() { asked <- r.send("GET " + slow.URL + "/page HTTP/1.1\r\nHost: x\r\n\r\n") }()
				<-answered
				r.records.last(t, 1) // of the busy request, so that the other record is the second
				close(proceed)
				if resp := <-asked; resp.StatusCode != c.status {
					t.Errorf("%s, want %d", resp.Status, c.status)
				}
				if rec := r.records.last(t, 2); rec.Decision.Reason != c.reason || rec.Blocked() != (c.reason == policy.ReasonPace) || rec.BackOff == 0 {
					t.Errorf("record: %v %s, back-off %v, %v", rec.Decision.Verdict, rec.Decision.Reason, rec.BackOff, rec.Err)
				}
				if got := arrived(); !slices.Equal(got, c.arrived) {
					t.Errorf("arrived: %q", got)
				}
			})
		}
	}
}
