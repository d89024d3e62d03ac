package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// A targetOrigin keeps the request targets that arrive, byte for byte. net/http would not hand over all of
// them. It answers "ok", and its robots.txt is rules.
type targetOrigin struct {
	t       testing.TB
	l       net.Listener
	trusted *httptest.Server // its certificate is used; nil: the origin is in the clear
	rules   string
	serving sync.WaitGroup

	// fail may end a request over HTTP/2 without a response, and then returns true; nil: it does not.
	fail func(f *http2.Framer, c net.Conn, stream uint32, method string) bool

	mu      sync.Mutex // guards arrived
	arrived []string   // method, target and protocol
}

// listenTargets starts an origin, with TLS if it offers protocols.
func listenTargets(t testing.TB, rules string, offers ...string) *targetOrigin {
	t.Helper()
	o := &targetOrigin{t: t, rules: rules}
	var err error
	o.l, err = net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	if len(offers) > 0 {
		o.trusted = testca.NewTLSServer(t, nil)
		o.trusted.Close()
		o.l = tls.NewListener(o.l, &tls.Config{Certificates: o.trusted.TLS.Certificates, NextProtos: offers})
	}
	o.serving.Go(func() {
		for {
			c, err := o.l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the proxy's connection
				defer c.Close()
				if secure, ok := c.(*tls.Conn); ok && secure.Handshake() == nil && secure.ConnectionState().NegotiatedProtocol == "h2" {
					o.serveHTTP2(c)
				} else {
					o.serveHTTP1(c)
				}
			}()
		}
	})
	t.Cleanup(func() {
		o.l.Close()
		o.serving.Wait()
	})
	return o
}

func (o *targetOrigin) host() string { return o.l.Addr().String() }

// body returns the body of the response to a request, and keeps the request.
func (o *targetOrigin) body(method, target, protocol string) string {
	if method == "GET" && (target == "/robots.txt" || target == behindParent+"/robots.txt") {
		return o.rules
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.arrived = append(o.arrived, method+" "+target+" "+protocol)
	return "ok"
}

// take returns the requests since the last call.
func (o *targetOrigin) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.arrived
	o.arrived = nil
	return all
}

// serveHTTP1 answers one request. The connection then ends, since the reader of the fields may have read ahead.
func (o *targetOrigin) serveHTTP1(c net.Conn) {
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	if err != nil {
		return
	}
	method, rest, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), " ")
	target, _ := strings.CutSuffix(rest, " HTTP/1.1")
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader("POST / HTTP/1.1\r\n"), br)))
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	body := o.body(method, target, "HTTP/1.1")
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}

func (o *targetOrigin) serveHTTP2(c net.Conn) {
	io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	var block bytes.Buffer
	pack := hpack.NewEncoder(&block)
	heads := map[uint32]*http2.MetaHeadersFrame{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			heads[frame.StreamID], ended = frame, frame.StreamEnded()
		case *http2.DataFrame:
			ended = frame.StreamEnded()
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			f.WritePing(true, frame.Data)
		}
		if id := frame.Header().StreamID; ended {
			if o.fail != nil && o.fail(f, c, id, heads[id].PseudoValue("method")) {
				continue
			}
			body := o.body(heads[id].PseudoValue("method"), heads[id].PseudoValue("path"), "HTTP/2")
			block.Reset()
			pack.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			pack.WriteField(hpack.HeaderField{Name: "content-length", Value: fmt.Sprint(len(body))})
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
			f.WriteData(id, true, []byte(body))
		}
	}
}

// A way is how a request goes from a client to its origin.
type way struct {
	name   string
	origin *targetOrigin
	send   func(method, target, body string) (status string)
	sees   func(target string) string // what the origin sees of a target
	via    string                     // protocol at the origin
}

// http1 returns a function that sends requests on a connection of dial, and makes another one if the last
// one has ended. It returns the status, or an error. front is what precedes the path.
func http1(front, host string, dial func() (net.Conn, *bufio.Reader)) func(method, target, body string) string {
	var c net.Conn
	var br *bufio.Reader
	return func(method, target, body string) string {
		if c == nil {
			c, br = dial()
		}
		c.SetDeadline(time.Now().Add(testkit.Patience))
		framing := ""
		if body != "" {
			framing = fmt.Sprintf("Content-Length: %d\r\n", len(body))
		}
		fmt.Fprintf(c, "%s %s%s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s", method, front, target, host, framing, body)
		resp, err := http.ReadResponse(br, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if err != nil {
			return err.Error()
		}
		if resp.Close {
			c.Close()
			c = nil
		}
		return fmt.Sprint(resp.StatusCode)
	}
}

// behindParent is an origin that only an upstream proxy knows.
const behindParent = "http://a.example:8000"

// ways starts proxies and origins with rules, and returns the ways through them.
func ways(t *testing.T, rules string, change func(*policy.Options)) []way {
	plain, secure, second := listenTargets(t, rules), listenTargets(t, rules, "http/1.1"), listenTargets(t, rules, "h2")
	with := setup{origins: []*httptest.Server{secure.trusted, second.trusted}, policyOptions: change}
	with.change = func(o *proxy.Options) { o.MaxURL = 64 << 10 }
	r := start(t, with)
	same := func(target string) string { return target }
	inTunnel := func(o *targetOrigin) func() (net.Conn, *bufio.Reader) {
		return func() (net.Conn, *bufio.Reader) {
			c := r.tunnel(o.host(), "http/1.1")
			return c, bufio.NewReader(c)
		}
	}
	overHTTP2 := func(f *h2Client, scheme string, o *targetOrigin) func(method, target, body string) string {
		return func(method, target, body string) string {
			f.conn.SetDeadline(time.Now().Add(testkit.Patience))
			return f.outcome(f.open(body, ":method", method, ":scheme", scheme, ":authority", o.host(), ":path", target))
		}
	}
	all := []way{
		{"own port", plain, http1("http://"+plain.host(), "x", r.dial), same, "HTTP/1.1"},
		{"tunnel", secure, http1("", secure.host(), inTunnel(secure)), same, "HTTP/1.1"},
		{"absolute form in a tunnel", secure, http1("https://"+secure.host(), secure.host(), inTunnel(secure)), same, "HTTP/1.1"},
		{"tunnel in the clear", plain, http1("", plain.host(), func() (net.Conn, *bufio.Reader) { return r.plainTunnel(plain.host()) }), same, "HTTP/1.1"},
		{"HTTP/2 in a tunnel", secure, overHTTP2(r.http2InTunnel(t, secure.host()), "https", secure), same, "HTTP/1.1"},
		{"HTTP/2 at both ends", second, overHTTP2(r.http2InTunnel(t, second.host()), "https", second), same, "HTTP/2"},
		{"HTTP/1.1 to HTTP/2", second, http1("", second.host(), inTunnel(second)), same, "HTTP/2"},
		{"HTTP/2 by prior knowledge", plain, overHTTP2(r.http2ByPriorKnowledge(t), "http", plain), same, "HTTP/1.1"},
	}
	if send := r.redirected(t, plain.host()); send != nil {
		all = append(all, way{"redirected", plain, send, same, "HTTP/1.1"})
	}
	parent := listenTargets(t, rules)
	through := setup{policyOptions: change, change: func(o *proxy.Options) {
		o.MaxURL = 64 << 10
		out, err := egress.New(egress.Options{Parent: &url.URL{Scheme: "http", Host: parent.host()}})
		testkit.Must(t, err)
		t.Cleanup(out.Close)
		o.Egress = out
	}}
	behind := start(t, through)
	return append(all, way{"upstream proxy", parent, http1(behindParent, "x", behind.dial), func(target string) string {
		if target == "*" {
			return behindParent
		}
		return behindParent + target
	}, "HTTP/1.1"})
}

// TestTargetIsForwardedByteForByte (RFC 9110 7.7): the origin gets the target that the client has sent,
// whether or not it is valid.
func TestTargetIsForwardedByteForByte(t *testing.T) {
	t.Parallel()
	targets := testkit.Targets()
	if testing.Short() {
		targets = targets[:40]
	}
	for _, w := range ways(t, "", nil) {
		t.Run(w.name, func(t *testing.T) {
			check := func(method, target, body string) {
				t.Helper()
				status := w.send(method, target, body)
				want := method + " " + w.sees(target) + " "
				if !strings.HasPrefix(target, "//") { // which goes over HTTP/1.1: see egress
					want += w.via
				}
				if got := w.origin.take(); status != "200" || len(got) != 1 || !strings.HasPrefix(got[0], want) {
					t.Errorf("%s %.80q: status %s, the origin got %.80q", method, target, status, got)
				}
			}
			for _, target := range targets {
				check("GET", target, "")
			}
			for _, target := range targets[:40] {
				check("POST", target, "a body")
			}
			if !strings.Contains(w.name, "absolute") && w.name != "own port" && w.name != "upstream proxy" {
				check("OPTIONS", "*", "") // RFC 9112 3.2.4
			}
		})
	}
}

// TestOptionsWithoutAPath (RFC 9112 3.2.4): OPTIONS for a URL without a path is about the whole origin.
func TestOptionsWithoutAPath(t *testing.T) {
	t.Parallel()
	for _, w := range ways(t, "User-agent: *\nDisallow: /a", nil) {
		switch w.name {
		case "own port", "absolute form in a tunnel", "upstream proxy":
			status := w.send("OPTIONS", "", "")
			if got := w.origin.take(); status != "200" || !slices.Equal(got, []string{"OPTIONS " + w.sees("*") + " HTTP/1.1"}) {
				t.Errorf("%s: status %s, the origin got %q", w.name, status, got)
			}
		}
	}
}

// variedRules are rules that some of testkit.Targets circumvent if their bytes are changed.
const variedRules = "User-agent: *\nDisallow: /se%2Fcret\nDisallow: /x|y\nDisallow: /private/\nDisallow: /*%zz\nDisallow: /*%7C\nDisallow: /\u00fc\nAllow: /*;\nDisallow: /*^"

// TestVerdictsOfAllWays: the verdict does not depend on how a request arrives.
func TestVerdictsOfAllWays(t *testing.T) {
	t.Parallel()
	group := robots.Parse([]byte(variedRules), robots.Standard()).For()
	for _, w := range ways(t, variedRules, func(p *policy.Options) { p.Readings = policy.LiteralReadings }) {
		for _, target := range testkit.Targets() {
			want := "403"
			if policy.MatchLiteral(group, robots.Target{PathQuery: target}).Allow {
				want = "200"
			}
			if status := w.send("GET", target, ""); status != want || len(w.origin.take()) != map[string]int{"200": 1}[status] {
				t.Errorf("%s: %.80q: status %s, want %s", w.name, target, status, want)
			}
		}
	}
}

// TestVerdictsAreEqual: for the same bytes, the proxy gives the verdict of the matcher under
// robots.readings: literal, and Explain gives that of the proxy under any readings.
func TestVerdictsAreEqual(t *testing.T) {
	t.Parallel()
	for _, dialect := range robots.Dialects() {
		for name, readings := range map[string]policy.Readings{"literal": policy.LiteralReadings, "all": policy.AllReadings} {
			t.Run(dialect.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				o := listenTargets(t, variedRules)
				r := start(t, setup{
					policyOptions: func(p *policy.Options) { p.Dialect, p.Readings = dialect, readings },
					change:        func(o *proxy.Options) { o.MaxURL = 64 << 10 },
				})
				group := robots.Parse([]byte(variedRules), dialect).For()
				send := http1("http://"+o.host(), "x", r.dial)
				for _, target := range testkit.Targets() {
					status := send("GET", target, "")
					if len(o.take()) != map[string]int{"200": 1, "403": 0}[status] {
						t.Errorf("%.80q: status %s, and the origin saw it", target, status)
					}
					if want := policy.MatchLiteral(group, robots.Target{PathQuery: target}).Allow; readings == policy.LiteralReadings && !robots.IsRobotsTxt(target) && want != (status == "200") {
						t.Errorf("%.80q: status %s, the matcher allows it: %t", target, status, want)
					}
					q := policy.Request{Client: "127.0.0.1", Method: "GET"}
					var err error
					q.Target, err = robots.ParseTarget("GET", "http://"+o.host()+target)
					testkit.Must(t, err)
					if d, _ := r.handler.Explain(t.Context(), q); (d.Verdict == policy.Allow) != (status == "200") {
						t.Errorf("%.80q: status %s, explained as %v", target, status, d.Verdict)
					}
				}
			})
		}
	}
}

// TestHolesInTheTarget: rules that a change of the target circumvented, and one that it applied wrongly.
func TestHolesInTheTarget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dialect, rule, target, status string
	}{
		{"RFC 9309 2.2.2: an escaped slash is none", "standard", "/se%2Fcret", "/se%2Fcret|", "403"},
		{"Google: a rule is compared as written", "google", "/x|y", "/x|y", "403"},
		{"RFC 9309 2.2.2: a slash is no escaped one", "rfc9309", "/private/", "/private%2Fx|", "200"},
	} {
		dialect, err := robots.DialectByName(c.dialect)
		testkit.Must(t, err)
		o := listenTargets(t, "User-agent: *\nDisallow: "+c.rule)
		r := start(t, setup{policyOptions: func(p *policy.Options) { p.Dialect = dialect }})
		if got := http1("http://"+o.host(), "x", r.dial)("GET", c.target, ""); got != c.status {
			t.Errorf("%s: %s for %s: status %s, want %s", c.name, c.rule, c.target, got, c.status)
		}
	}
}

// TestMalformedTarget: a target that cannot be forwarded (RFC 9112 3.2) is refused, over every way.
func TestMalformedTarget(t *testing.T) {
	t.Parallel()
	for _, w := range ways(t, "", nil) {
		for _, target := range []string{"/a b", "/a?b c", "/a\x01", "/a\x7f", "/a#b", "/100% b" + strings.Repeat("x", 9000)} {
			for method, body := range map[string]string{"GET": "", "POST": "a body"} {
				status := w.send(method, target, body)
				if got := w.origin.take(); status != "400" || got != nil {
					t.Errorf("%s: %s %.20q: status %s, the origin got %q", w.name, method, target, status, got)
				}
			}
		}
	}
}

// TestMalformedRequestsAreRecorded: each malformed head is answered and recorded with what was read of it.
func TestMalformedRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	o := listenTargets(t, "")
	r := start(t, setup{})
	url := "http://" + o.host()
	n := 0
	check := func(name, method, target, cause, status, body string) {
		t.Helper()
		n++
		rec := r.records.last(t, n)
		if rec.Request.Method != method || !strings.HasPrefix(rec.Target, target) || rec.Err == nil || !strings.Contains(rec.Err.Error(), cause) || fmt.Sprint(rec.Status) != status || rec.Request.Client != "127.0.0.1" {
			t.Errorf("%s: record of %s %.80q (status %d, client %s): %v", name, rec.Request.Method, rec.Target, rec.Status, rec.Request.Client, rec.Err)
		}
		if body != "" && (!strings.Contains(body, cause) || !strings.Contains(body, target)) {
			t.Errorf("%s: the client gets %s", name, body)
		}
	}
	for _, c := range []struct{ name, raw, method, target, cause, status string }{
		{"a blank", "GET " + url + "/a b HTTP/1.1\r\nHost: x\r\n\r\n", "GET", url + "/a b", "the path contains a blank", "400"},
		{"a fragment", "GET " + url + "/a#b HTTP/1.1\r\nHost: x\r\n\r\n", "GET", url + "/a#b", "the path contains a fragment", "400"},
		{"no version", "GET " + url + "/a\r\n", "GET", url + "/a", "the request line does not end with an HTTP version", "400"},
		{"no method", "G@T " + url + "/a HTTP/1.1\r\nHost: x\r\n\r\n", "G@T", url + "/a", "the method is not a token", "400"},
		{"no target", "GET  HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "", "the request line has no target", "400"},
		{"credentials", "GET http://u:p@a.test/100% HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "http://a.test/100%", "credentials in the URL", "400"},
		{"no Host", "GET " + url + "/a% HTTP/1.1\r\n\r\n", "GET", url + "/a%", "missing required Host header", "400"},
		{"a field without a colon", "GET " + url + "/a HTTP/1.1\r\nHost: x\r\nA\r\n\r\n", "GET", url + "/a", "has a line that is not NAME: VALUE", "400"},
		{"another version", "GET " + url + "/a HTTP/3.0\r\nHost: x\r\n\r\n", "GET", url + "/a", "its HTTP version is not supported", "505"},
		{"a long URL without an end", "GET " + url + "/" + strings.Repeat("a", 70<<10), "GET", url + "/aaa", "longer than 64 KiB", "431"},
	} {
		conn, br := r.dial()
		_, err := io.WriteString(conn, c.raw)
		testkit.Must(t, err)
		resp, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
		body, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		check(c.name, c.method, c.target, c.cause, c.status, string(body))
	}
	f := r.http2ByPriorKnowledge(t)
	defer f.conn.Close()
	for _, c := range []struct{ name, fields, target, cause, status string }{
		{"a blank", ":method GET :scheme http :authority " + o.host() + " :path /a_b", o.host() + "/a b", "the path contains a blank", "400"},
		{"a connection field", ":method GET :scheme http :authority " + o.host() + " :path /a connection close", url + "/a", "the field connection is not allowed in HTTP/2", "400"},
		{"no path", ":method GET :scheme http :authority " + o.host(), url, "it has no :path pseudo-header", "400"},
		{"two paths", ":method GET :scheme http :authority " + o.host() + " :path /a :path /b", url + "/a", "it has two :path pseudo-headers", "400"},
		{"upper case", ":method GET :scheme http :authority " + o.host() + " :path /a A b", url + "/a", "a field name is not a token in lower case", "400"},
		{"a long head", ":method GET :scheme http :authority " + o.host() + " :path /a x " + strings.Repeat("y", 66_000), url + "/a", "longer than 64 KiB", "431"},
	} {
		fields := strings.Split(c.fields, " ")
		for i := range fields {
			fields[i] = strings.ReplaceAll(fields[i], "_", " ")
		}
		if got := f.outcome(f.open("", fields...)); got != c.status {
			t.Errorf("HTTP/2, %s: %s", c.name, got)
		}
		check("HTTP/2, "+c.name, "GET", c.target, c.cause, c.status, "")
	}
	if got := o.take(); got != nil {
		t.Errorf("the origin got %q", got)
	}
}

// TestNoClientSendsAStandIn: a path that looks like a stand-in is a path like others.
func TestNoClientSendsAStandIn(t *testing.T) {
	t.Parallel()
	const forged = "/#A#200#x#y#GET#http://a.test/"
	for _, w := range ways(t, "", nil) {
		if status := w.send("GET", forged, ""); status != "400" {
			t.Errorf("%s: status %s", w.name, status)
		}
	}
	o := listenTargets(t, "")
	r := start(t, setup{})
	url := "http://" + o.host()
	c, br := r.dial()
	for _, raw := range []string{ // what follows a request for another protocol is not read as a head
		"GET " + url + "/a HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\nGET " + url + "/b HTTP/1.1\r\nHost: x\r\n\r\n", "",
		"GET " + url + forged + " HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		_, err := io.WriteString(c, raw)
		testkit.Must(t, err)
		resp, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		testkit.Must(t, err)
		if want := map[bool]int{true: 400, false: 200}[strings.Contains(raw, forged)]; resp.StatusCode != want {
			t.Errorf("%q: %s", raw, resp.Status)
		}
	}
	f := r.http2ByPriorKnowledge(t) // the reserved bit of a stream is not part of its number (RFC 9113 4.1)
	defer f.conn.Close()
	f.next = 1<<31 + 1
	testkit.Must(t, f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1<<31+1, f.pairs(":method", "GET", ":scheme", "http", ":authority", o.host(), ":path", "/a")))
	f.outcome(1)
	f.next = 3
	if got := f.outcome(f.open("", ":method", "GET", ":scheme", "http", ":authority", o.host(), ":path", forged)); got != "400" {
		t.Errorf("HTTP/2 after a stream with the reserved bit: %s", got)
	}
	if got, want := o.take(), []string{"GET /a HTTP/1.1", "GET /b HTTP/1.1", "GET /a HTTP/1.1"}; !slices.Equal(got, want) {
		t.Errorf("the origin got %q, want %q", got, want)
	}
}

// FuzzTargetIsForwarded sends a target through a proxy. It arrives as it was sent, or the record says why not.
func FuzzTargetIsForwarded(f *testing.F) {
	for _, target := range testkit.Targets()[:40] {
		f.Add(target)
	}
	o := listenTargets(f, "")
	var last audit.Record
	r := start(f, setup{change: func(o *proxy.Options) {
		o.Audit, o.MaxURL = sink(func(rec *audit.Record) { last = *rec }), 64<<10
	}})
	send := http1("http://"+o.host(), "x", func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", r.url.Host)
		if err != nil {
			panic(err)
		}
		return c, bufio.NewReader(c)
	})
	f.Fuzz(func(t *testing.T, target string) {
		if !strings.HasPrefix(target, "/") || strings.Contains(target, "\n") || len(target) > 16<<10 || robots.IsRobotsTxt(target) {
			return // another head, or another host
		}
		status := send("GET", target, "")
		got := o.take()
		_, err := robots.NewTarget("GET", robots.Origin{}, target)
		switch {
		case err == nil && (status != "200" || !slices.Equal(got, []string{"GET " + target + " HTTP/1.1"})):
			t.Errorf("%q: status %s, the origin got %q", target, status, got)
		case err != nil && (status != "400" || got != nil || last.Err == nil || !strings.Contains(last.Err.Error(), err.Error())):
			t.Errorf("%q: status %s, the origin got %q, record: %v; want %v", target, status, got, last.Err, err)
		}
	})
}

// A sink is an audit.Sink that calls a function.
type sink func(*audit.Record)

func (s sink) Write(r *audit.Record) error {
	s(r)
	return nil
}
