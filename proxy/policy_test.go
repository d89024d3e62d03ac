package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// entries configures an engine with hosts entries.
func entries(h ...policy.Host) func(*policy.Options) {
	return func(o *policy.Options) { o.Hosts = h }
}

const closed = `they asked us to stay out ("ticket 7")`

// watched starts a site that counts its connections.
func watched(t *testing.T, route route) (*site, *atomic.Int64) {
	var conns atomic.Int64
	s := newSite(rules, hello)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.EnableHTTP2 = route.h2origin
	if route.tls {
		testca.StartTLS(t, s.Server)
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, &conns
}

// TestDeniedHost checks that no request reaches a denied host and that the client gets the reason.
func TestDeniedHost(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin, conns := watched(t, route)
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}, policyOptions: entries(policy.Host{Match: "127.0.0.1", Robots: policy.Deny, Reason: closed})})
			c := route.client(r)
			for i, path := range []string{"/page", "/robots.txt"} {
				resp, body, err := get(c, origin.URL+path)
				if route.tls {
					if err == nil {
						t.Errorf("%s: %s", path, resp.Status)
					}
				} else if testkit.Must(t, err); resp.StatusCode != 403 || !strings.Contains(body, closed) || !strings.Contains(body, "127.0.0.1") {
					t.Errorf("%s: %s %s", path, resp.Status, body)
				}
				rec := r.records.last(t, i+1)
				if d := rec.Decision; !rec.Blocked() || d.Reason != policy.ReasonDenied || d.Entry != "127.0.0.1" || d.EntryReason != closed || rec.Status != 403 || rec.Monitor {
					t.Errorf("%s: record: %+v", path, rec)
				}
				if connect := rec.Request.Method == http.MethodConnect; connect != route.tls {
					t.Errorf("refused at %s", rec.Request.Method)
				}
			}
			if n := conns.Load(); n != 0 {
				t.Errorf("%d connections to the denied host", n)
			}
		})
	}
}

// TestDeniedAddressInOtherSpellings checks that a denied IPv4 address is denied in its IPv6 forms.
func TestDeniedAddressInOtherSpellings(t *testing.T) {
	t.Parallel()
	origin, conns := watched(t, routes[0])
	_, port, _ := net.SplitHostPort(origin.host())
	r := start(t, setup{policyOptions: entries(policy.Host{Match: "127.0.0.1", Robots: policy.Deny, Reason: closed})})
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:FFFF:127.0.0.1]"} {
		for _, line := range []string{"GET http://" + host + ":" + port + "/page", "CONNECT " + host + ":" + port} {
			resp := r.send(line + " HTTP/1.1\r\nHost: " + host + ":" + port + "\r\n\r\n")
			if status := resp.Header.Get("Proxy-Status"); resp.StatusCode != 403 || !strings.Contains(status, "denied-host") {
				t.Errorf("%s: %s, %s", line, resp.Status, status)
			}
		}
	}
	if n := conns.Load(); n != 0 {
		t.Errorf("%d connections to the denied host", n)
	}
}

// TestDeniedNameIsNotLookedUp covers intercepted and passed-through tunnels.
func TestDeniedNameIsNotLookedUp(t *testing.T) {
	t.Parallel()
	for name, passThrough := range map[string]bool{"intercepted": false, "passed through": true} {
		r := start(t, setup{
			change:        func(o *proxy.Options) { o.PassThrough = func(string) bool { return passThrough } },
			policyOptions: entries(policy.Host{Match: "*.invalid", Robots: policy.Deny, Reason: closed}),
		})
		resp := r.send("CONNECT nowhere.invalid:443 HTTP/1.1\r\nHost: nowhere.invalid:443\r\nAccept: application/json\r\n\r\n")
		var p map[string]any
		testkit.Must(t, json.NewDecoder(resp.Body).Decode(&p))
		if resp.StatusCode != 403 || p["reason"] != "denied-host" || p["entry"] != "*.invalid" || p["entry_reason"] != closed {
			t.Errorf("%s: %s %v", name, resp.Status, p)
		}
		if status := resp.Header.Get("Proxy-Status"); !strings.Contains(status, `error=http_request_denied; details="denied-host: they asked us to stay out (\"ticket 7\")"`) {
			t.Errorf("%s: Proxy-Status: %s", name, status)
		}
	}
}

func TestDeniedHostInMonitorMode(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, hello)
			r := start(t, setup{
				front: route.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.Monitor = true },
				policyOptions: entries(policy.Host{Match: "*", Robots: policy.Deny, Reason: closed}),
			})
			resp, _, err := get(route.client(r), origin.URL+"/page")
			testkit.Must(t, err)
			if rec := r.records.last(t, 1); resp.StatusCode != 200 || !rec.Blocked() || !rec.Monitor || rec.Decision.Reason != policy.ReasonDenied || rec.Request.Method != "GET" {
				t.Errorf("%s, record: %+v", resp.Status, rec)
			}
		})
	}
}

// TestOverride checks that an override skips robots.txt but not pacing.
func TestOverride(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, "User-agent: *\nDisallow: /\nCrawl-delay: 5", hello)
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}, policyOptions: entries(policy.Host{
				Match: "*", Robots: policy.Ignore, Reason: "ticket 7", Pace: pace.Limits{PerSecond: 1e-3, Burst: 1, MaxWait: time.Millisecond},
			})})
			c := route.client(r)
			for i, status := range []int{200, 429} {
				resp, _, err := get(c, origin.URL+"/private")
				testkit.Must(t, err)
				if resp.StatusCode != status {
					t.Errorf("%s, want %d", resp.Status, status)
				}
				if rec := r.records.last(t, i+1); rec.Decision.Entry != "*" || rec.Decision.EntryReason != "ticket 7" || rec.Blocked() != (status == 429) || (rec.Decision.Reason == policy.ReasonOverride) == rec.Blocked() {
					t.Errorf("record: %+v", rec)
				}
			}
			if got := origin.paths(); len(got) != 1 || got[0] != "/private" {
				t.Errorf("the origin saw %q", got)
			}
		})
	}
}

// TestIdentityRequired checks that a client without an identity reaches no origin and is told what to send.
func TestIdentityRequired(t *testing.T) {
	t.Parallel()
	const contact = "Put a web or e-mail address into your User-Agent, as in: User-Agent: FooBot/1.0 (+https://foo.example/bot), or send one as From."
	for _, c := range []struct {
		name, header, from string // from is the configured contact
		status             int
		advice             string
	}{
		{"no identity", "", "", 403, "Send a User-Agent with a product token, as in: User-Agent: FooBot/1.0 (+https://foo.example/bot)"},
		{"a token alone", "User-Agent: FooBot/1.0\r\n", "", 403, contact},
		{"a contact in User-Agent", "User-Agent: FooBot/1.0 (+https://foo.example)\r\n", "", 200, ""},
		{"a contact in From", "User-Agent: FooBot/1.0\r\nFrom: me@foo.example\r\n", "", 200, ""},
		{"a contact that Connection names", "User-Agent: FooBot/1.0\r\nFrom: me@foo.example\r\nConnection: From\r\n", "", 200, ""},
		{"the configuration's contact", "User-Agent: FooBot/1.0\r\nFrom: nobody\r\n", "us@lab.example", 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin, tunnelled := serve(t, false, rules, hello), serve(t, true, rules, hello)
			r := start(t, setup{
				origins:       []*httptest.Server{tunnelled.Server},
				change:        func(o *proxy.Options) { o.From, o.PassThrough = c.from, func(string) bool { return true } },
				policyOptions: func(o *policy.Options) { o.Require, o.ProductToken = policy.RequireContact, "OwnBot" },
			})
			for i, line := range []string{"GET " + origin.URL + "/page", "GET " + origin.URL + "/robots.txt", "CONNECT " + tunnelled.host()} {
				status := c.status
				if i == 2 && c.from != "" {
					status = 403 // CONNECT does not carry it
				}
				resp := r.send(line + " HTTP/1.1\r\nHost: x\r\n" + c.header + "\r\n")
				if resp.StatusCode != status {
					t.Errorf("%s: %s, want %d", line, resp.Status, status)
				}
				if i < 2 { // the record of a tunnel comes when it ends
					r.records.last(t, i+1) // the record of an allowed request may follow its response
				}
				if status == 403 {
					body, err := io.ReadAll(resp.Body)
					testkit.Must(t, err)
					if !strings.Contains(string(body), "what to do:   "+c.advice+"\n") && c.advice != "" {
						t.Errorf("%s: %s", line, body)
					}
					if rec := r.records.last(t, i+1); rec.Decision.Reason != policy.ReasonIdentity || !rec.Blocked() || rec.Decision.Err == nil {
						t.Errorf("%s: record: %+v", line, rec)
					}
				}
			}
			want := 0
			if c.status == 200 {
				want = 2 // robots.txt, which also serves the client's request for it, and the page
			}
			if got := origin.paths(); len(got) != want {
				t.Errorf("the origin saw %q", got)
			}
			if strings.Contains(c.header, "From: me@") && origin.arrived(1).Header.Get("From") != "me@foo.example" {
				t.Errorf("the page was asked for without From")
			}
		})
	}
}

// TestIdentityInsideATunnel checks that requests in a tunnel need an identity but its CONNECT does not.
func TestIdentityInsideATunnel(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, rules, hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, policyOptions: func(o *policy.Options) { o.Require = policy.RequireToken }})
	c := r.tunnel(origin.host())
	for agent, status := range map[string]string{"FooBot/1.0": "200 OK", "Mozilla/5.0": "403 Forbidden"} {
		_, err := io.WriteString(c, "GET /page HTTP/1.1\r\nHost: "+origin.host()+"\r\nUser-Agent: "+agent+"\r\n\r\n")
		testkit.Must(t, err)
		if got := head(t, c); !strings.HasPrefix(got, "HTTP/1.1 "+status) {
			t.Errorf("%s: %s", agent, got)
		}
	}
}

// head reads a whole response and returns its first line.
func head(t *testing.T, c io.Reader) string {
	t.Helper()
	var line strings.Builder
	b := make([]byte, 1)
	for !strings.HasSuffix(line.String(), "\r\n\r\n") {
		_, err := io.ReadFull(c, b)
		testkit.Must(t, err)
		line.Write(b)
	}
	_, length, _ := strings.Cut(line.String(), "Content-Length: ")
	length, _, _ = strings.Cut(length, "\r\n")
	n, err := strconv.Atoi(length)
	testkit.Must(t, err)
	_, err = io.CopyN(io.Discard, c, int64(n))
	testkit.Must(t, err)
	return line.String()
}

// TestFrom checks that a configured From replaces the client's (RFC 9110 10.1.2).
func TestFrom(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, c := range []struct{ configured, sent, want string }{
			{"us@lab.example", "me@foo.example", "[us@lab.example]"}, {"us@lab.example", "", "[us@lab.example]"},
			{"", "me@foo.example", "[me@foo.example]"}, {"", "", "[]"},
		} {
			t.Run(fmt.Sprintf("%s/%s/%s", route.name, c.configured, c.sent), func(t *testing.T) {
				origin := route.serve(t, rules, hello)
				r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.From = c.configured }})
				req, err := http.NewRequest(http.MethodGet, origin.URL+"/page", nil)
				testkit.Must(t, err)
				if c.sent != "" {
					req.Header.Set("From", c.sent)
				}
				resp, err := route.client(r).Do(req)
				testkit.Must(t, err)
				resp.Body.Close()
				if got := fmt.Sprint(origin.arrived(1).Header["From"]); got != c.want {
					t.Errorf("From arrived as %s, want %s", got, c.want)
				}
			})
		}
	}
}

// TestQuota checks that exactly the requests sent to an origin count against the quota.
func TestQuota(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	origin, tunnelled := serve(t, false, rules, hello), serve(t, true, rules, hello)
	dead := testkit.DeadEnd(t, "127.0.0.1")
	r := start(t, setup{
		origins:       []*httptest.Server{tunnelled.Server},
		clients:       []policy.Client{{Name: "lab-a", Networks: here, Quota: policy.Quota{Requests: 3}}},
		change:        func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } },
		policyOptions: entries(policy.Host{Match: "localhost", Pace: pace.Limits{PerSecond: 1e-3, Burst: 1, MaxWait: time.Millisecond}}),
	})
	slow := strings.Replace(origin.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		name, line string
		status     int
	}{
		{"robots.txt from the copy", "GET " + origin.URL + "/robots.txt", 200},
		{"the first", "GET " + slow + "/page", 200},
		{"a rule refuses", "GET " + origin.URL + "/private", 403},
		{"the pace refuses", "GET " + slow + "/page", 429},
		{"unreachable origin", "GET http://" + dead + "/page", 502},
		{"tunnel to an unreachable origin", "CONNECT " + dead, 502},
		{"the second, a tunnel", "CONNECT " + tunnelled.host(), 200},
		{"the third", "POST " + origin.URL + "/page", 200},
		{"over the quota", "GET " + origin.URL + "/page", 429},
		{"robots.txt over the quota", "GET " + origin.URL + "/robots.txt", 200},
		{"a tunnel over the quota", "CONNECT " + tunnelled.host(), 429},
	} {
		resp := r.send(c.line + " HTTP/1.1\r\nHost: x\r\nUser-Agent: BarBot/1.0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		if resp.StatusCode != c.status {
			t.Fatalf("%s: %s", c.name, resp.Status)
		}
		if !strings.Contains(c.name, "too many") {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if midnight := time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)); err != nil || after < 1 || float64(after) > midnight.Seconds()+60 || float64(after) < midnight.Seconds()-60 {
			t.Errorf("%s: Retry-After: %s, midnight is in %s", c.name, resp.Header.Get("Retry-After"), midnight)
		}
		if !strings.Contains(resp.Header.Get("Proxy-Status"), `error=connection_limit_reached; details="quota"`) || !strings.Contains(string(body), "midnight UTC") {
			t.Errorf("%v %s", resp.Header, body)
		}
	}
	if rec := r.records.of(t, policy.ReasonQuota); !rec.Blocked() || rec.Status != 429 || rec.Request.Client != "lab-a" {
		t.Errorf("record: %+v", rec)
	}
	if n := strings.Count(strings.Join(origin.paths(), " "), "/page"); n != 2 {
		t.Errorf("the origin saw %q", origin.paths())
	}
}

// TestQuotaOfAClientThatLeaves checks that a request that leaves the queue does not count.
func TestQuotaOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	origin := serve(t, false, rules, hello)
	r := start(t, setup{
		clients:       []policy.Client{{Name: "lab-a", Networks: here, Quota: policy.Quota{Requests: 2}}},
		policyOptions: entries(policy.Host{Match: "localhost", Pace: pace.Limits{PerSecond: 1e-3, Burst: 1, MaxWait: time.Hour}}),
	})
	slow := strings.Replace(origin.URL, "127.0.0.1", "localhost", 1)
	c := r.client(false)
	_, _, err := get(c, slow+"/page")
	testkit.Must(t, err)
	conn, _ := r.dial()
	_, err = io.WriteString(conn, "GET "+slow+"/page HTTP/1.1\r\nHost: x\r\n\r\n")
	testkit.Must(t, err)
	conn.Close()
	r.records.of(t, policy.ReasonClient)
	for _, status := range []int{200, 429} {
		if resp, _, err := get(c, origin.URL+"/page"); err != nil || resp.StatusCode != status {
			t.Errorf("%v %v, want %d", resp, err, status)
		}
	}
}

// TestNoQuota checks that monitor mode and unknown clients have no quota.
func TestNoQuota(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"mode: monitor":     {clients: []policy.Client{{Name: "lab-a", Networks: here, Quota: policy.Quota{Requests: 1}}}, change: func(o *proxy.Options) { o.Monitor = true }},
		"an unknown client": {clients: []policy.Client{{Name: "lab-a", Networks: elsewhere, Quota: policy.Quota{Requests: 1}}}, open: true},
	} {
		origin := serve(t, false, rules, hello)
		r := start(t, s)
		c := r.client(false)
		for range 3 {
			if resp, _, err := get(c, origin.URL+"/page"); err != nil || resp.StatusCode != 200 {
				t.Errorf("%s: %v %v", name, resp, err)
			}
		}
	}
}

// TestAssetsOfAPage checks that Sec-Fetch-Dest selects the pace limits.
func TestAssetsOfAPage(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, hello)
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}, clients: []policy.Client{{Name: "lab-a", Networks: here, AssetBurst: 20}}})
			c := route.client(r)
			for i, dest := range []string{"document", "image", "", "style"} {
				req, err := http.NewRequest(http.MethodGet, origin.URL+"/page", nil)
				testkit.Must(t, err)
				if dest != "" {
					req.Header.Set("Sec-Fetch-Dest", dest)
				}
				resp, err := c.Do(req)
				testkit.Must(t, err)
				resp.Body.Close()
				want := 0
				if dest == "image" || dest == "style" {
					want = 20
				}
				var rec audit.Record
				if rec = r.records.last(t, i+1); rec.Decision.Pace.AssetBurst != want {
					t.Errorf("%q: a burst of %d, want %d", dest, rec.Decision.Pace.AssetBurst, want)
				}
				if got := origin.arrived(i + 1).Header.Get("Sec-Fetch-Dest"); got != dest {
					t.Errorf("%q arrived as %q", dest, got)
				}
			}
		})
	}
}
