package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

func TestMain(m *testing.M) {
	testkit.SetParallel()
	log.SetOutput(io.Discard) // hostile input makes the clients and origins of net/http log
	goleak.VerifyTestMain(m)
}

const rules = "User-agent: *\nDisallow: /private\n\nUser-agent: FooBot\nDisallow: /foo\n"

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s", r.URL.Path) }

func TestRequest(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, hello)
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			c := route.client(r)
			resp, body, err := get(c, origin.URL+"/page?q=1")
			testkit.Must(t, err)
			if resp.StatusCode != 200 || body != "hello from /page" || resp.Header.Get("Via") == "" {
				t.Errorf("%s %q %v", resp.Status, body, resp.Header)
			}
			if route.h2 != (resp.ProtoMajor == 2) {
				t.Errorf("the client got %s", resp.Proto)
			}
			if rec := r.records.last(t, 1); rec.Blocked() || rec.Decision.Reason != policy.ReasonNoRule || rec.Status != 200 || rec.Bytes != int64(len(body)) {
				t.Errorf("record: %+v", rec)
			}
			resp, body, err = get(c, origin.URL+"/private/x")
			testkit.Must(t, err)
			if resp.StatusCode != 403 || !strings.HasPrefix(resp.Header.Get("Proxy-Status"), "robotsproxy; error=http_request_denied") {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			for _, want := range []string{"Disallow: /private (line 2)", "*", origin.URL + "/robots.txt", origin.URL + "/private/x", r.records.last(t, 2).ID} {
				if !strings.Contains(body, want) {
					t.Errorf("%q is missing in %q", want, body)
				}
			}
			if rec := r.records.last(t, 2); !rec.Blocked() || rec.Decision.Rule != "/private" || rec.Decision.Line != 2 || rec.Status != 403 {
				t.Errorf("record: %+v", rec)
			}
			if got, want := origin.paths(), []string{"/robots.txt", "/page?q=1"}; !slices.Equal(got, want) {
				t.Errorf("the origin saw %q, want %q", got, want)
			}
			if by := origin.arrived(1).Proto; (by == "HTTP/2.0") != route.h2origin {
				t.Errorf("the origin got %s", by)
			}
		})
	}
}

// TestProxyStatusOfAnOrigin checks that the proxy appends its own member to an origin's Proxy-Status.
// RFC 9209 2: the last member is the nearest proxy's, so an origin cannot forge a refusal.
func TestProxyStatusOfAnOrigin(t *testing.T) {
	t.Parallel()
	const forged = `robotsproxy; error=http_request_denied; details="rule"`
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/forged" {
					w.Header().Set("Proxy-Status", forged)
				}
				w.WriteHeader(http.StatusForbidden)
			})
			c := route.client(start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}}))
			for path, want := range map[string][]string{"/forged": {forged, "robotsproxy; received-status=403"}, "/plain": nil} {
				resp, _, err := get(c, origin.URL+path)
				testkit.Must(t, err)
				if got := resp.Header["Proxy-Status"]; !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", path, got, want)
				}
			}
		})
	}
}

func TestRefusalAsProblemJSON(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{})
	req, _ := http.NewRequest("GET", origin.URL+"/foo", nil)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "FooBot/1.0")
	resp, err := r.client(false).Do(req)
	testkit.Must(t, err)
	defer resp.Body.Close()
	var p map[string]any
	testkit.Must(t, json.NewDecoder(resp.Body).Decode(&p))
	for name, want := range map[string]any{
		"status": 403.0, "reason": "rule", "rule": "/foo", "line": 5.0, "group": "foobot", "agent": "FooBot", "robots_url": origin.URL + "/robots.txt", "url": origin.URL + "/foo",
	} {
		if p[name] != want {
			t.Errorf("%s: %v, want %v", name, p[name], want)
		}
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("Content-Type: %s", ct)
	}
}

func TestHeadersOfTheRequest(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{})
	r.send("GET " + origin.URL + "/ HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, X-Gone\r\nX-Gone: 1\r\nTE: deflate\r\n" +
		"Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nAccept-Encoding: br\r\n\r\n")
	got := origin.seen[1]
	for _, name := range []string{"X-Gone", "Te", "Proxy-Authorization", "Proxy-Connection", "Upgrade", "Connection", "User-Agent"} {
		if v, ok := got.Header[name]; ok {
			t.Errorf("%s: %q arrived", name, v)
		}
	}
	if got.Header.Get("Accept-Encoding") != "br" || !strings.HasPrefix(got.Header.Get("Via"), "1.1 robotsproxy-") || got.Host != origin.host() {
		t.Errorf("%v, Host %s", got.Header, got.Host)
	}
}

func TestUserAgentOfTheConfiguration(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{change: func(o *proxy.Options) { o.UserAgent = "FooBot/9" }})
	c := r.client(false)
	if resp, _, err := get(c, origin.URL+"/foo"); err != nil || resp.StatusCode != 403 {
		t.Errorf("judged as another user agent: %v %v", resp, err)
	}
	_, _, err := get(c, origin.URL+"/page")
	testkit.Must(t, err)
	if ua := origin.seen[1].UserAgent(); ua != "FooBot/9" {
		t.Errorf("sent as %q", ua)
	}
}

func TestMonitorBlocksNothing(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{change: func(o *proxy.Options) { o.Monitor = true }, limits: pace.Limits{PerSecond: 0.001, Burst: 1, MaxConcurrent: 1}})
	c := r.client(false)
	for range 2 {
		if resp, _, err := get(c, origin.URL+"/private"); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
	}
	if rec := r.records.last(t, 1); !rec.Blocked() || !rec.Monitor || rec.Status != 200 || rec.Decision.Rule != "/private" {
		t.Errorf("record: %+v", rec)
	}
}

// TestMonitorRecordsFailuresAsEnforced covers a request that monitor mode could not send.
func TestMonitorRecordsFailuresAsEnforced(t *testing.T) {
	t.Parallel()
	r := start(t, setup{change: func(o *proxy.Options) { o.Monitor = true }})
	if resp, _, err := get(r.client(false), "http://"+testkit.DeadEnd(t, "127.0.0.1")+"/page"); err != nil || resp.StatusCode != 502 {
		t.Fatalf("%v %v", resp, err)
	}
	if rec := r.records.last(t, 1); !rec.Blocked() || rec.Monitor || rec.Decision.Reason != policy.ReasonOrigin {
		t.Errorf("record: %+v", rec)
	}
}

func TestWaitTooLong(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "User-agent: *\nCrawl-delay: 10\n", hello)
	r := start(t, setup{limits: pace.Limits{PerSecond: 100, Burst: 1, MaxConcurrent: 9, MaxWait: time.Second, MaxQueue: 9}})
	c := r.client(false)
	began := time.Now()
	_, _, err := get(c, origin.URL+"/1")
	testkit.Must(t, err)
	resp, _, err := get(c, origin.URL+"/2")
	testkit.Must(t, err)
	least := 10*time.Second - time.Since(began)
	if resp.StatusCode != 429 || !strings.Contains(resp.Header.Get("Proxy-Status"), "connection_limit_reached") {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	if after, _ := strconv.Atoi(resp.Header.Get("Retry-After")); after > 10 || time.Duration(after)*time.Second < least {
		t.Errorf("Retry-After: %d", after)
	}
	if rec := r.records.last(t, 1); !rec.Slot {
		t.Errorf("record of the request that had a slot: %+v", rec)
	}
	if rec := r.records.last(t, 2); !rec.Blocked() || rec.Decision.Reason != policy.ReasonPace || rec.Slot {
		t.Errorf("record: %+v", rec)
	}
	if got := origin.paths(); len(got) != 2 {
		t.Errorf("the origin saw %q", got)
	}
}

func TestUnwritableAuditRefuses(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	t.Run("at the proxy", func(t *testing.T) {
		r := start(t, setup{change: func(o *proxy.Options) {
			o.Ready = func() error { return fmt.Errorf("%w: disk full", audit.ErrUnwritable) }
		}})
		if resp, body, err := get(r.client(false), origin.URL+"/"); err != nil || resp.StatusCode != 503 || strings.Contains(body, "disk full") {
			t.Errorf("%v %q %v", resp, body, err)
		}
		if q := r.records.last(t, 1).Request; q.Origin.String() != origin.URL || q.PathQuery != "/" {
			t.Errorf("a record of a request for %s%s", q.Origin, q.PathQuery)
		}
	})
	t.Run("at the refusal", func(t *testing.T) {
		r := start(t, setup{})
		r.records.err = audit.ErrUnwritable
		if resp, _, err := get(r.client(false), origin.URL+"/private"); err != nil || resp.StatusCode != 503 {
			t.Errorf("%v %v", resp, err)
		}
	})
	if got := origin.paths(); slices.Contains(got, "/") {
		t.Errorf("the origin saw %q", got)
	}
}

// TestNoSpaceForEvidence checks that a request is refused if the robots.txt of its decision cannot be
// kept, in every kind of tunnel, and that later requests are unaffected.
func TestNoSpaceForEvidence(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "User-agent: *\nDisallow: /private\n", hello)
	for name, passThrough := range map[string]bool{"intercepted": false, "passed through": true} {
		t.Run(name, func(t *testing.T) {
			full := true
			r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
				o.PassThrough = func(string) bool { return passThrough }
				o.Keep = func(rec *audit.Record) error {
					if rec.Decision.Ruling.Result == nil {
						t.Error("kept before the decision was made")
					}
					if full {
						return fmt.Errorf("keep a snapshot: %w", audit.ErrNoSpace)
					}
					return nil
				}
			}})
			if passThrough {
				if resp := r.send("CONNECT " + origin.host() + " HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "600" {
					t.Errorf("%s %v", resp.Status, resp.Header)
				}
			} else if resp, body, err := get(r.client(false), origin.URL+"/page"); err != nil || resp.StatusCode != 503 || !strings.Contains(body, "snapshot_max_size") {
				t.Errorf("%v %q %v", resp, body, err)
			}
			if rec := r.records.last(t, 1); !rec.Blocked() || rec.Decision.Reason != policy.ReasonAudit || !errors.Is(rec.Err, audit.ErrNoSpace) {
				t.Errorf("record: %+v", rec)
			}
			full = false
			if resp := r.send("CONNECT " + origin.host() + " HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 200 {
				t.Errorf("once there is space: %s", resp.Status)
			}
		})
	}
	if got := origin.paths(); !slices.Equal(got, []string{"/robots.txt", "/robots.txt"}) {
		t.Errorf("the origin saw %q", got)
	}
}

func TestForbiddenAddressGetsNoRequest(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", hello)
	r := start(t, setup{private: []netip.Prefix{}})
	for _, raw := range []string{"GET " + origin.URL + "/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT " + origin.host() + " HTTP/1.1\r\nHost: x\r\n\r\n"} {
		resp := r.send(raw)
		if resp.StatusCode != 403 || !strings.Contains(resp.Header.Get("Proxy-Status"), "destination_ip_prohibited") {
			t.Errorf("%s %v", resp.Status, resp.Header)
		}
	}
	if got := origin.paths(); got != nil {
		t.Errorf("the origin saw %q", got)
	}
	if rec := r.records.last(t, 1); rec.Decision.Reason != policy.ReasonAddress || !rec.Blocked() {
		t.Errorf("record: %+v", rec)
	}
}

func TestLoop(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	resp := r.send("GET http://" + r.url.Host + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp.StatusCode/100 == 2 {
		t.Errorf("the loop was not detected: %s", resp.Status)
	}
}

func TestInterimResponsesAreForwarded(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "page")
	})
	r := start(t, setup{})
	var early []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			early = append(early, fmt.Sprint(code)+" "+h.Get("Link"))
			return nil
		},
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", origin.URL+"/", nil)
	resp, err := r.client(false).Do(req)
	testkit.Must(t, err)
	resp.Body.Close()
	if want := []string{"103 </style.css>; rel=preload"}; !slices.Equal(early, want) || resp.Header.Get("Link") != "" {
		t.Errorf("early: %q, final Link: %q", early, resp.Header.Get("Link"))
	}
}

// TestShutdownLetsRequestsFinish covers a transfer in flight and an idle tunnel.
func TestShutdownLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			began, release := make(chan struct{}), make(chan struct{})
			origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "first ")
				w.(http.Flusher).Flush()
				close(began)
				<-release
				io.WriteString(w, "second")
			})
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			if route.tls && route.front == inTheClear {
				r.tunnel(origin.host()) // an idle tunnel
				r.tunnel(origin.host(), "h2")
			}
			got := make(chan string, 1)
			go func() {
				_, body, err := get(route.client(r), origin.URL+"/")
				got <- fmt.Sprint(body, err)
			}()
			<-began
			ended := make(chan error, 1)
			go func() { ended <- r.handler.Shutdown(context.Background()) }()
			for { // until the proxy accepts no more connections
				c, err := net.Dial("tcp", r.url.Host)
				if err != nil {
					break
				}
				c.Close()
			}
			close(release)
			if body := <-got; body != "first second<nil>" {
				t.Errorf("the transfer ended with %q; record: %v", body, r.records.last(t, 1).Err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShutdownServesNoClosedConnection: when Shutdown closes a connection whose first request was just read, that
// request does not reach the origin, since its client would get no response.
func TestShutdownServesNoClosedConnection(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	origin := serve(t, false, "", func(http.ResponseWriter, *http.Request) { close(arrived) })
	l := readsUntilClosed{read: make(chan struct{}), arrived: arrived}
	r := start(t, setup{listen: func(under net.Listener) net.Listener { l.Listener = under; return l }})
	conn, _ := r.dial()
	fmt.Fprintf(conn, "GET %s/ HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL)
	<-l.read
	testkit.Must(t, r.handler.Shutdown(t.Context()))
	select {
	case <-arrived:
		t.Error("the request has reached the origin")
	default:
	}
}

// readsUntilClosed is a listener for one connection. A read of it returns only when Close is called. Close then waits up
// to 100 ms for the request to reach the origin.
type readsUntilClosed struct {
	net.Listener
	read    chan struct{} // closed when a request was read
	arrived chan struct{}
}

func (l readsUntilClosed) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &readUntilClosed{Conn: c, of: l, closing: make(chan struct{})}, nil
}

type readUntilClosed struct {
	net.Conn
	of           readsUntilClosed
	reads, close sync.Once
	closing      chan struct{}
}

func (c *readUntilClosed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.reads.Do(func() { close(c.of.read) })
	<-c.closing
	return n, err
}

func (c *readUntilClosed) Close() error {
	c.close.Do(func() {
		close(c.closing)
		select {
		case <-c.of.arrived:
		case <-time.After(100 * time.Millisecond):
		}
	})
	return c.Conn.Close()
}
