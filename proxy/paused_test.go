package proxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

const maintenance = `maintenance there ("ticket 9")`

// stopping is a table of stops, with a function that gives it to an engine.
func stopping() (*stops.Table, func(*policy.Options)) {
	table := stops.New()
	return table, func(o *policy.Options) { o.Stops = table }
}

// pauseFor pauses a host; "": all, and 0: without an end.
func pauseFor(t *testing.T, table *stops.Table, host string, d time.Duration) {
	t.Helper()
	s := stops.Stop{Kind: stops.Paused, Host: host, Reason: maintenance}
	if d > 0 {
		s.Until = time.Now().Add(d)
	}
	_, err := table.Put(s)
	testkit.Must(t, err)
}

// wantPaused checks the refusal of a request and its record.
func wantPaused(t *testing.T, r *rig, what string, resp *http.Response, body string, atLeast, atMost int) {
	t.Helper()
	var after int
	fmt.Sscan(resp.Header.Get("Retry-After"), &after)
	if resp.StatusCode != 503 || after < atLeast || after > atMost || !strings.Contains(body, maintenance) ||
		!strings.Contains(resp.Header.Get("Proxy-Status"), "details=\"paused: An operator") {
		t.Errorf("%s: %s, Retry-After %q, Proxy-Status %q\n%s", what, resp.Status, resp.Header.Get("Retry-After"), resp.Header.Get("Proxy-Status"), body)
	}
	rec := r.records.of(t, policy.ReasonPaused)
	if !rec.Blocked() || rec.Monitor || rec.Status != 503 || !rec.Sent.IsZero() {
		t.Errorf("%s: record %+v", what, rec)
	}
	r.records.forget()
}

// TestPausedHost: nothing reaches a paused host, whatever the way, in monitor mode neither, and after the end everything does.
func TestPausedHost(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, monitor := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, monitor %v", route.name, monitor), func(t *testing.T) {
				t.Parallel()
				origin, conns := watched(t, route)
				table, withStops := stopping()
				r := start(t, setup{
					front: route.front, origins: []*httptest.Server{origin.Server}, policyOptions: withStops,
					change: func(o *proxy.Options) { o.Monitor = monitor },
				})
				pauseFor(t, table, "127.0.0.1", time.Hour)
				pauseFor(t, table, "other.test", 0)
				for _, path := range []string{"/page", "/robots.txt"} {
					resp, body, err := get(route.client(r), origin.URL+path)
					if route.tls {
						// The CONNECT is refused.
						if err == nil {
							t.Errorf("%s: %s", path, resp.Status)
						}
						if rec := r.records.of(t, policy.ReasonPaused); rec.Request.Method != http.MethodConnect || rec.Status != 503 || rec.Monitor {
							t.Errorf("%s: record %+v", path, rec)
						}
						r.records.forget()
						continue
					}
					testkit.Must(t, err)
					wantPaused(t, r, path, resp, body, 3500, 3600)
				}
				if n := conns.Load(); n != 0 {
					t.Errorf("the origin saw %d connections and %q", n, origin.paths())
				}
				table.End(stops.Key{Kind: stops.Paused, Host: "127.0.0.1"}, "")
				c := route.client(r)
				if resp, body, err := get(c, origin.URL+"/page"); err != nil || resp.StatusCode != 200 {
					t.Fatalf("after the end: %v, %v\n%s", resp, err, body)
				}
				r.records.last(t, 1)
				r.records.forget()
				before := len(origin.paths())
				// The client keeps its connection, and its tunnel.
				pauseFor(t, table, "", 0)
				for _, path := range []string{"/page", "/robots.txt"} {
					resp, body, err := get(c, origin.URL+path)
					testkit.Must(t, err)
					wantPaused(t, r, "in a kept connection, "+path, resp, body, 300, 300)
				}
				if got := origin.paths(); len(got) != before {
					t.Errorf("the origin saw %q", got[before:])
				}
			})
		}
	}
}

// TestPauseInJSON: programs get the reason of the pause in the detail.
func TestPauseInJSON(t *testing.T) {
	t.Parallel()
	table, withStops := stopping()
	r := start(t, setup{policyOptions: withStops})
	pauseFor(t, table, "", time.Minute)
	resp := r.send("GET http://a.test/ HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n")
	var p struct {
		Status     int
		Detail     string
		Reason     string
		RetryAfter int `json:"retry_after_s"`
	}
	testkit.Must(t, json.NewDecoder(resp.Body).Decode(&p))
	if p.Status != 503 || p.Reason != "paused" || !strings.Contains(p.Detail, maintenance) || p.RetryAfter < 1 || p.RetryAfter > 60 {
		t.Errorf("%+v", p)
	}
}

// TestOrderOfDenyAndPause: a host that an entry denies stays denied.
func TestOrderOfDenyAndPause(t *testing.T) {
	t.Parallel()
	table, withStops := stopping()
	r := start(t, setup{policyOptions: func(o *policy.Options) {
		withStops(o)
		o.Hosts = []policy.Host{{Match: "a.test", Robots: policy.Deny, Reason: closed}}
	}})
	pauseFor(t, table, "", 0)
	for _, request := range []string{"GET http://a.test/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if resp := r.send(request); resp.StatusCode != 403 {
			t.Errorf("%.20q: %s", request, resp.Status)
		}
	}
	if resp := r.send("CONNECT b.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 503 {
		t.Errorf("another host: %s", resp.Status)
	}
}

// slowly are limits with a gap that is long enough for what a test does meanwhile.
func slowly(gap time.Duration) pace.Limits {
	return pace.Limits{PerSecond: 1 / gap.Seconds(), Burst: 1, MaxConcurrent: 9, MaxWait: time.Minute, MaxQueue: 99}
}

// waiting waits until requests wait for their slots.
func (r *rig) waiting(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d requests wait", n), func() bool { return r.pacer.Stats().Waiting == n })
}

// TestWaitingRequestIsNotSentAfterAPause: requests that wait for their slots when the pause begins are refused, and the
// origin sees neither them nor a connection for them.
func TestWaitingRequestIsNotSentAfterAPause(t *testing.T) {
	t.Parallel()
	for _, route := range []route{routes[0], routes[1]} {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			origin, conns := watched(t, route)
			table, withStops := stopping()
			r := start(t, setup{
				origins: []*httptest.Server{origin.Server}, limits: slowly(3 * time.Second),
				policyOptions: func(o *policy.Options) {
					withStops(o)
					o.Hosts = []policy.Host{{Match: "127.0.0.1", Robots: policy.Ignore, Reason: "a test"}}
				},
			})
			c := r.client(false)
			if resp, _, err := get(c, origin.URL+"/first"); err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			r.records.last(t, 1)
			r.records.forget()
			r.egress.CloseIdle()
			before := conns.Load()
			type answer struct {
				resp *http.Response
				body string
				err  error
			}
			got := make(chan answer, 1)
			go func() {
				resp, body, err := get(c, origin.URL+"/second")
				got <- answer{resp, body, err}
			}()
			r.waiting(t, 1)
			pauseFor(t, table, "127.0.0.1", time.Hour)
			a := <-got
			testkit.Must(t, a.err)
			wantPaused(t, r, "the request that waited", a.resp, a.body, 3500, 3600)
			if paths := origin.paths(); len(paths) != 1 || conns.Load() != before {
				t.Errorf("the origin saw %q, and %d more connections", paths, conns.Load()-before)
			}
		})
	}
}

// TestFetchOfRobotsTxtIsNotSentDuringAPause: a fetch that waits for its slot when the pause begins is not sent. That says nothing about
// the file: after the end, the next request fetches it at once.
func TestFetchOfRobotsTxtIsNotSentDuringAPause(t *testing.T) {
	t.Parallel()
	first, second := serve(t, false, rules, hello), serve(t, false, rules, hello)
	table, withStops := stopping()
	r := start(t, setup{limits: slowly(2 * time.Second), policyOptions: withStops})
	c := r.client(false)
	if resp, _, err := get(c, first.URL+"/page"); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	r.records.last(t, 1)
	r.records.forget()
	paused := make(chan struct{})
	go func() {
		defer close(paused)
		r.waiting(t, 1)
		pauseFor(t, table, "127.0.0.1", 0)
	}()
	resp, body, err := get(c, second.URL+"/page")
	testkit.Must(t, err)
	<-paused
	wantPaused(t, r, "the request for which the file is fetched", resp, body, 300, 300)
	if paths := second.paths(); len(paths) > 0 {
		t.Errorf("the origin saw %q", paths)
	}
	table.End(stops.Key{Kind: stops.Paused, Host: "127.0.0.1"}, "")
	if resp, body, err := get(c, second.URL+"/private"); err != nil || resp.StatusCode != 403 {
		t.Errorf("after the end: %v, %v\n%s", resp, err, body)
	}
}

// TestRobotsTxtAtAPausedHost: a robots.txt that redirects to a paused host is not known, whatever the dialect makes of a redirect that
// cannot be followed.
func TestRobotsTxtAtAPausedHost(t *testing.T) {
	t.Parallel()
	for _, monitor := range []bool{false, true} {
		rulesAt := serve(t, false, rules, hello)
		away := strings.Replace(rulesAt.URL, "127.0.0.1", "localhost", 1) + "/robots.txt"
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/robots.txt" {
				http.Redirect(w, r, away, http.StatusFound)
			}
		}))
		t.Cleanup(origin.Close)
		table, withStops := stopping()
		r := start(t, setup{policyOptions: withStops, change: func(o *proxy.Options) { o.Monitor = monitor }})
		c := r.client(false)
		pauseFor(t, table, "localhost", time.Hour)
		resp, body, err := get(c, origin.URL+"/page")
		testkit.Must(t, err)
		// In monitor mode an unknown robots.txt stops nothing, and this host is not paused.
		if monitor != (resp.StatusCode == 200) || !monitor && (resp.StatusCode != 503 || !strings.Contains(body, "robots.txt redirects to a host")) {
			t.Errorf("monitor %v: %s\n%s", monitor, resp.Status, body)
		}
		if paths := rulesAt.paths(); len(paths) > 0 {
			t.Errorf("the paused host saw %q", paths)
		}
		table.End(stops.Key{Kind: stops.Paused, Host: "localhost"}, "")
		if resp, _, err := get(c, origin.URL+"/private"); err != nil || monitor != (resp.StatusCode == 200) {
			t.Errorf("monitor %v, after the end: %v, %v", monitor, resp, err)
		}
	}
}

// TestPauseEndsTunnels: what goes through a tunnel that is passed through, or an upgraded connection, the proxy cannot refuse, so a pause
// closes them.
func TestPauseEndsTunnels(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(r *rig, origin string) (net.Conn, *bufio.Reader){
		"passed through": func(r *rig, origin string) (net.Conn, *bufio.Reader) { return r.plainTunnel(origin) },
		"WebSocket": func(r *rig, origin string) (net.Conn, *bufio.Reader) {
			c, br := r.dial()
			fmt.Fprintf(c, "GET http://%s/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", origin)
			if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				r.t.Fatal(resp, err)
			}
			return c, br
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var received atomic.Int64
			ended := make(chan struct{})
			origin := accepting(t, func(c *net.TCPConn) {
				br := bufio.NewReader(c)
				if name == "WebSocket" {
					if r, err := http.ReadRequest(br); err != nil || r.URL.Path != "/ws" {
						return
					}
					io.WriteString(c, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				}
				defer close(ended)
				for {
					b, err := br.ReadByte()
					if err != nil {
						return
					}
					received.Add(1)
					c.Write([]byte{b})
				}
			})
			table, withStops := stopping()
			r := start(t, setup{
				change: func(o *proxy.Options) { o.PassThrough, o.Monitor = func(string) bool { return true }, true },
				policyOptions: func(o *policy.Options) {
					withStops(o)
					o.Hosts = []policy.Host{{Match: "127.0.0.1", Robots: policy.Ignore, Reason: "a test"}}
				},
			})
			c, br := begin(r, origin)
			io.WriteString(c, "x")
			if b, err := br.ReadByte(); err != nil || b != 'x' {
				t.Fatal(b, err)
			}
			pauseFor(t, table, "other.test", 0)
			io.WriteString(c, "y")
			if b, err := br.ReadByte(); err != nil || b != 'y' {
				t.Fatalf("after the pause of another host: %q, %v", b, err)
			}
			pauseFor(t, table, "127.0.0.1", 0)
			testkit.Within(t, "the origin's connection ends", ended)
			if b, err := br.ReadByte(); err == nil {
				t.Errorf("the client still gets %q", b)
			}
			rec := r.records.last(t, 1)
			if rec.Err == nil || !strings.Contains(rec.Err.Error(), maintenance) || rec.Blocked() || received.Load() != 2 {
				t.Errorf("the origin got %d bytes; record %+v", received.Load(), rec)
			}
		})
	}
}

// TestDownloadMayFinish: a response that has begun before the pause is complete.
func TestDownloadMayFinish(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	origin := serve(t, false, rules, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "8")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		close(begun)
		<-finish
		io.WriteString(w, "rest")
	})
	table, withStops := stopping()
	r := start(t, setup{policyOptions: withStops})
	go func() {
		<-begun
		pauseFor(t, table, "", 0)
		close(finish)
	}()
	if resp, body, err := get(r.client(false), origin.URL+"/page"); err != nil || resp.StatusCode != 200 || body != "halfrest" {
		t.Errorf("%v, %v, %q", resp, err, body)
	}
}
