package hostile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A trap is a port on all addresses of this host where nothing may arrive.
type trap struct {
	port    string
	arrived atomic.Int64
}

func newTrap(t testing.TB) *trap {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	tr := &trap{port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tr.arrived.Add(1)
			c.Close()
		}
	}()
	return tr
}

func (tr *trap) wantNobody(t testing.TB) {
	t.Helper()
	if n := tr.arrived.Load(); n != 0 {
		t.Errorf("%d connections arrived where none may", n)
	}
}

const (
	prohibited = "destination_ip_prohibited"
	malformed  = "http_request_error"
)

// disguises are spellings of a non-public address that a client may send: HOST in the
// target of a GET and a CONNECT, or a whole target.
var disguises = []struct {
	host   string
	status int
	token  string
}{
	{"127.0.0.1", 403, prohibited},
	{"127.0.0.1.", 403, prohibited},
	{"127.255.255.254", 403, prohibited},
	{"0.0.0.0", 403, prohibited},
	{"localhost", 502, "dns_error"},
	{"localhost.", 502, "dns_error"},
	{"LOCALHOST", 502, "dns_error"},
	{"169.254.169.254", 403, prohibited},
	{"100.100.100.200", 403, prohibited},
	{"[::1]", 403, prohibited},
	{"[::]", 403, prohibited},
	{"[0:0:0:0:0:0:0:1]", 403, prohibited},
	{"[::ffff:127.0.0.1]", 403, prohibited},
	{"[::ffff:7f00:1]", 403, prohibited},
	{"[::FFFF:7F00:1]", 403, prohibited},
	{"[::127.0.0.1]", 403, prohibited},
	{"[fd00:ec2::254]", 403, prohibited},
	{"[fe80::1]", 403, prohibited},
	{"[64:ff9b::7f00:1]", 403, prohibited},
	{"[64:ff9b::169.254.169.254]", 403, prohibited},
	{"[64:ff9b:1::7f00:1]", 403, prohibited},
	{"[2002:7f00:1::]", 403, prohibited},
	{"[2001:0:4136:e378:8000:63bf:3fff:fdd2]", 403, prohibited},
	{"１２７.０.０.１", 403, prohibited}, // UTS 46: fullwidth digits count as digits
	{"127。0。0。1", 403, prohibited}, // and these characters as dots
	{"127．0．0．1", 403, prohibited},
	{"①②⑦.⓪.⓪.①", 403, prohibited},
	{"ｌｏｃａｌｈｏｓｔ", 502, "dns_error"},
	{"127.1", 400, malformed},
	{"127.0.1", 400, malformed},
	{"127.0.0.1..", 400, malformed},
	{"2130706433", 400, malformed},
	{"4294967297", 400, malformed},
	{"0", 400, malformed},
	{"0x7f.1", 400, malformed},
	{"0x7f000001", 400, malformed},
	{"0x7f.0x0.0x0.0x1", 400, malformed},
	{"0177.0.0.1", 400, malformed},
	{"017700000001", 400, malformed},
	{"127.0.0.01", 400, malformed},
	{"127.0.0.1.1", 400, malformed},
	{"256.256.256.256", 400, malformed},
	{"[127.0.0.1]", 400, malformed},
	{"[::1%25lo]", 400, malformed},
	{"%31%32%37.0.0.1", 403, prohibited},
	{"127.0.0.1%00", 400, malformed},
	{"127.0.0.1\\", 400, malformed},
	{"example.com@127.0.0.1", 400, malformed},
	{"example.com:80@127.0.0.1", 400, malformed},
	{"@127.0.0.1", 400, malformed},
	{"127.0.0.1#@example.com", 400, malformed},
	{"127.0.0.1\\@example.com", 400, malformed},
	{"example.com\\@127.0.0.1", 400, malformed},
	{"", 400, malformed},
}

// wantDisguisesRefused sends each spelling and checks the response.
func wantDisguisesRefused(t *testing.T, p *e2e.Proxy, port string) {
	t.Helper()
	for _, d := range disguises {
		for _, lines := range [][]string{
			{"GET http://" + d.host + ":" + port + "/a HTTP/1.1", "Host: x", "Connection: close"},
			{"GET https://" + d.host + ":" + port + "/robots.txt HTTP/1.1", "Host: x", "Connection: close"},
			{"CONNECT " + d.host + ":" + port + " HTTP/1.1", "Host: x", "Connection: close"},
		} {
			w := p.Dial(t)
			w.Send(t, lines...)
			got := w.Receive(t, http.MethodGet)
			w.Close()
			token, _ := e2e.ProxyStatus(t, got.Header)
			if got.Status != d.status || token != d.token {
				t.Errorf("%s: %d %q, want %d %q\n%s", lines[0], got.Status, token, d.status, d.token, got.Body)
			}
		}
	}
}

func TestDisguisedAddresses(t *testing.T) {
	t.Parallel()
	tr := newTrap(t)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": nil}))
	wantDisguisesRefused(t, p, tr.port)
	tr.wantNobody(t)
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		if r.Decision != "block" || r.Reason != "address" && r.Reason != "malformed" {
			t.Errorf("record %+v", r)
		}
	}
}

// The address to which a name resolves when it is dialled is checked, not an earlier one.
func TestNamesThatAreNotWhatTheySeem(t *testing.T) {
	t.Parallel()
	tr := newTrap(t)
	o := e2e.NewOrigin(t, "rebound", "")
	port, err := strconv.Atoi(tr.port)
	if err != nil {
		t.Fatal(err)
	}
	o.Handle("/a", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": []string{o.Addr() + "/32"}}))
	client := p.Client(t, false)
	private := netip.MustParseAddr("127.0.0.3")
	inTheWay, err := net.Listen("tcp", netip.AddrPortFrom(private, uint16(o.Ports["http"])).String())
	if err != nil {
		t.Skip("the port is taken at 127.0.0.3: ", err)
	}
	defer inTheWay.Close()
	var arrived atomic.Int64
	go func() {
		for c, err := inTheWay.Accept(); err == nil; c, err = inTheWay.Accept() {
			arrived.Add(1)
			c.Close()
		}
	}()

	e2e.Names.Point(o.Name, private, netip.MustParseAddr("10.1.2.3"), o.Ip, netip.MustParseAddr("::1"))
	if got := e2e.Get(t, client, o.URL("http", "/a?both")); got.Status != http.StatusOK {
		t.Errorf("a public and private addresses: %v", got)
	}
	e2e.Names.Point(o.Name, private)
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/a?rebound")), http.StatusBadGateway, "dns_error")
	e2e.WantOwn(t, e2e.Get(t, client, "http://"+o.Name+":"+strconv.Itoa(port)+"/a"), http.StatusBadGateway, "dns_error")
	if n := arrived.Load(); n != 0 {
		t.Errorf("%d connections arrived at the private address", n)
	}
	if n := len(o.Pages("http")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
	tr.wantNobody(t)
	e2e.WantBlocked(t, e2e.OnlyRecord(t, p.Audit, o.URL("http", "/a?rebound")), "address", http.StatusBadGateway)
}

// The guard also applies to redirects of robots.txt. Such a site counts as reached
// without a usable file, as does one that redirects to another scheme.
func TestRobotsRedirectedInside(t *testing.T) {
	t.Parallel()
	tr := newTrap(t)
	metadata, _ := e2e.NewName("metadata")
	e2e.Names.Point(metadata, netip.MustParseAddr("169.254.169.254"))
	o := e2e.NewOrigin(t, "redirects", "")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": []string{"127.1.0.0/16"}}))
	for _, location := range []string{
		"http://127.0.0.3:" + tr.port + "/",
		"http://localhost:" + tr.port + "/robots.txt",
		"http://[::1]:" + tr.port + "/robots.txt",
		"http://[::ffff:127.0.0.3]:" + tr.port + "/robots.txt",
		"http://0.0.0.0:" + tr.port + "/robots.txt",
		"http://2130706435:" + tr.port + "/robots.txt",
		"//127.0.0.3:" + tr.port + "/robots.txt",
		"http://example.com@127.0.0.3:" + tr.port + "/robots.txt",
		"https://127.0.0.3:" + tr.port + "/robots.txt",
		"http://169.254.169.254/latest/meta-data/",
		"http://" + metadata + "/latest/meta-data/",
		"http://" + o.Addr() + ":22/robots.txt", // a port that must not be dialled
		"http://" + p.Listen + "/robots.txt",
		"ftp://127.0.0.3:" + tr.port + "/robots.txt",
		"file:///etc/passwd",
		"gopher://127.0.0.3:" + tr.port + "/",
	} {
		from := e2e.NewOrigin(t, "from", "")
		from.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusFound)
		})
		from.Handle("/a", e2e.TextPage("text/plain", "a"))
		got := e2e.Get(t, p.Client(t, false), from.URL("http", "/a"))
		r := e2e.AwaitRecord(t, p.Audit, from.URL("http", "/a"))
		if r.Reason != "unreachable" {
			t.Errorf("%s: record %+v", location, r)
		}
		e2e.WantOwn(t, got, http.StatusForbidden, "http_request_denied")
		if n := len(from.Pages("http")); n != 0 {
			t.Errorf("%s: %d pages arrived", location, n)
		}
	}
	tr.wantNobody(t)
}

// bomb is 10 MiB of gzip that decompress to 10 GiB of zeros (RFC 1952 2.2: members follow
// each other).
func bomb(t testing.TB) []byte {
	t.Helper()
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	z.Write(make([]byte, 1<<20))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(member.Bytes(), 10<<10)
}

// mostGrowth is the maximum growth of the process, in bytes, whatever is sent to it.
const mostGrowth = 32 << 20

// Of a robots.txt that decompresses endlessly, 500 KiB are read. A page is not
// decompressed at all.
func TestGzipBombs(t *testing.T) {
	t.Parallel()
	packed := bomb(t)
	o := e2e.NewOrigin(t, "bomb", "")
	o.Handle("/robots.txt", e2e.ZippedPage(packed))
	o.Handle("/page", e2e.ZippedPage(packed))
	p := e2e.StartProxy(t, e2e.Unpaced)
	before := p.Usage(t)
	for _, h2 := range []bool{false, true} {
		for _, scheme := range e2e.Schemes {
			url := o.URL(scheme, "/page?h2="+strconv.FormatBool(h2))
			got := e2e.Get(t, p.Client(t, h2), url, "Accept-Encoding", "gzip")
			if got.Status != http.StatusOK || e2e.Digest(got.Body) != e2e.Digest(packed) || got.Header.Get("Content-Encoding") != "gzip" {
				t.Errorf("%s h2=%v: %d with %d bytes, %v", scheme, h2, got.Status, len(got.Body), got.Header)
			}
			if r := e2e.AwaitRecord(t, p.Audit, url); r.Reason != "no-rule" || r.RobotsSHA256 != e2e.Digest(make([]byte, 500<<10)) {
				t.Errorf("%s: record %+v", scheme, r)
			}
		}
	}
	if grown := p.Usage(t).Peak - before.Peak; grown > mostGrowth {
		t.Errorf("the process grew by %d MiB", grown>>20)
	}
}

// garbage is typical data on a port that the whole Internet can reach, one connection
// each.
var garbage = []string{
	"", "\r\n", "\x00", "GET", "GET http://", "GET / HTTP/1.1\r\n\r\n", "GET http://ORIGIN/ HTTP/1.1\r\nHost: ORIGIN\r\nX: ",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // TLS to a port without TLS
	"\x05\x01\x00", // SOCKS
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"POST http://ORIGIN/a HTTP/1.1\r\nHost: ORIGIN\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
	"POST http://ORIGIN/a HTTP/1.1\r\nHost: ORIGIN\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"POST http://ORIGIN/a HTTP/1.1\r\nHost: ORIGIN\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
	"GET http://ORIGIN/a HTTP/1.1\r\nHost: ORIGIN\r\nX: " + strings.Repeat("x", 1<<20),
	"GET http://ORIGIN/" + strings.Repeat("%2e", 1<<18) + " HTTP/1.1\r\nHost: ORIGIN\r\n\r\n",
	"CONNECT ORIGIN HTTP/1.1\r\nHost: ORIGIN\r\n\r\n", "CONNECT ORIGIN HTTP/1.1\r\nHost: ORIGIN\r\n\r\n\x16\x03\x01\x02\x00\x01",
	"CONNECT ORIGIN HTTP/1.1\r\nHost: ORIGIN\r\n\r\n" + strings.Repeat("\x00", 1<<16),
	strings.Repeat("GET http://ORIGIN/private HTTP/1.1\r\nHost: ORIGIN\r\n\r\n", 200),
}

// After all this, the process uses no more resources than before.
func TestProcessOutlivesHostility(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	tr := newTrap(t)
	packed := bomb(t)
	o := e2e.NewOrigin(t, "outlives", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	bombs := e2e.NewOrigin(t, "bombs", "")
	bombs.Handle("/robots.txt", e2e.ZippedPage(packed))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"egress.allow_private": []string{"127.1.0.0/16"}}))
	ordinary := func() {
		t.Helper()
		for _, scheme := range e2e.Schemes {
			for _, h2 := range []bool{false, true} {
				client := p.Client(t, h2)
				if got := e2e.Get(t, client, o.URL(scheme, "/a")); got.Status != http.StatusOK || string(got.Body) != "a" {
					t.Errorf("%s h2=%v: %v", scheme, h2, got)
				}
				e2e.WantOwn(t, e2e.Get(t, client, o.URL(scheme, "/private")), http.StatusForbidden, "http_request_denied")
				client.CloseIdleConnections()
			}
		}
	}
	ordinary()
	before := p.Usage(t)
	for range 3 {
		wantDisguisesRefused(t, p, tr.port)
		for _, sent := range garbage {
			for _, scheme := range e2e.Schemes {
				w := p.Dial(t)
				w.Write([]byte(strings.ReplaceAll(sent, "ORIGIN", o.Hostport(scheme)))) // the client may have been disconnected before the end
				w.Close()
			}
		}
		e2e.Get(t, p.Client(t, false), bombs.URL("http", "/page"))
	}
	ordinary()
	tr.wantNobody(t)
	for _, scheme := range e2e.Schemes {
		for _, h := range o.Arrivals(scheme) {
			if h.Path != "/a" && h.Path != "/robots.txt" && h.Path != "/" {
				t.Errorf("%s %s arrived", h.Method, h.Path)
			}
		}
	}
	const mostDescriptors = 24 // connections to origins that are kept for a while
	testkit.Eventually(t, "its descriptors are closed", func() bool { return p.Usage(t).Descriptors <= before.Descriptors+mostDescriptors })
	if grown := p.Usage(t).Resident - before.Resident; grown > mostGrowth {
		t.Errorf("the process grew by %d MiB", grown>>20)
	}
}

// A refusal names a private address that the client itself gave, for http and for https. It says the same of a name that has
// such an address as of one that does not exist.
func TestRefusalsNameTheAddressOfTheClient(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "inside", "")
	p := e2e.StartProxy(t, e2e.Unpaced)
	e2e.Names.Point(o.Name, netip.MustParseAddr("10.0.0.7"))
	body := func(lines ...string) string {
		w := p.Dial(t)
		w.Send(t, append(lines, "Host: x", "Connection: close")...)
		return string(w.Receive(t, http.MethodGet).Body)
	}
	for _, first := range []string{"GET http://10.0.0.7/ HTTP/1.1", "CONNECT 10.0.0.7:443 HTTP/1.1"} {
		if got := body(first); !strings.Contains(got, "does not connect to 10.0.0.7, which is a private address (egress.allow_private)") {
			t.Errorf("%s:\n%s", first, got)
		}
	}
	id := regexp.MustCompile(`(?m)^id: .*\n`)
	for _, form := range []string{"GET http://%s/ HTTP/1.1", "CONNECT %s:443 HTTP/1.1"} {
		inside, nowhere := body(fmt.Sprintf(form, o.Name)), body(fmt.Sprintf(form, "nowhere.test"))
		if a, b := id.ReplaceAllString(inside, ""), id.ReplaceAllString(strings.ReplaceAll(nowhere, "nowhere.test", o.Name), ""); a != b || strings.Contains(a, "10.0.0.7") {
			t.Errorf("of a name with a private address:\n%s\nand of one that does not exist:\n%s", a, b)
		}
	}
}
