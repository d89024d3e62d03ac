package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// The credentials of the tests, with what has to be escaped; no message may
// have any form of the password.
const (
	parentUser     = "we"
	parentPassword = "s3cr:t/@%"
)

var basicCredentials = "Basic " + base64.StdEncoding.EncodeToString([]byte(parentUser+":"+parentPassword))

// An ask is one thing that a parent was asked for.
type ask struct{ Form, Target, Auth string }

// A fakeParent is a proxy of the test's own that resolves the test's names.
type fakeParent struct {
	*origin
	scheme string
	locked bool              // asks for the credentials
	status int               // that CONNECT is refused with, or the reply of SOCKS5; 0: none
	names  map[string]string // addresses by name

	mu    sync.Mutex
	asked []ask
	heads []http.Header // of CONNECT
}

var parentKinds = []string{"http", "https", "socks5"}

// startParent starts a parent of a kind. ca signs its certificate.
func startParent(t testing.TB, kind string, ca *authority, locked bool) *fakeParent {
	t.Helper()
	p := &fakeParent{scheme: kind, locked: locked, names: map[string]string{"origin.test": "127.0.0.1"}}
	switch kind {
	case "http":
		p.origin = serve(t, p.serveHTTP)
	case "https":
		p.origin = serve(t, p.serveHTTP, ca.leaf(t, "127.0.0.1", later()))
	case "socks5":
		o, l := listen(t, "http", "127.0.0.1")
		p.origin = o
		eachConn(t, l, p.serveSocks)
	}
	return p
}

// eachConn serves every connection on a goroutine of its own.
func eachConn(t testing.TB, l net.Listener, f func(net.Conn)) {
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
}

// url is where the parent is, with the credentials if it asks for them.
func (p *fakeParent) url() *url.URL {
	u := &url.URL{Scheme: p.scheme, Host: p.Addr()}
	if p.locked {
		u.User = url.UserPassword(parentUser, parentPassword)
	}
	return u
}

func (p *fakeParent) note(a ask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, a)
}

// log is what was asked so far.
func (p *fakeParent) log() []ask {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]ask(nil), p.asked...)
}

// dial goes to an origin, by its name or address.
func (p *fakeParent) dial(hostport string) (net.Conn, error) {
	host, port, _ := net.SplitHostPort(hostport)
	if addr := p.names[host]; addr != "" {
		host = addr
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return net.Dial("tcp", net.JoinHostPort(host, port))
}

func (p *fakeParent) serveHTTP(w http.ResponseWriter, r *http.Request) {
	p.note(ask{r.Method + " " + r.Proto, r.RequestURI, r.Header.Get("Proxy-Authorization")})
	if p.locked && r.Header.Get("Proxy-Authorization") != basicCredentials {
		w.Header().Set("Proxy-Authenticate", `Basic realm="parent"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	r.Header.Del("Proxy-Authorization")
	if r.Method != http.MethodConnect {
		p.forward(w, r)
		return
	}
	p.mu.Lock()
	p.heads = append(p.heads, r.Header)
	p.mu.Unlock()
	if p.status != 0 {
		w.WriteHeader(p.status)
		return
	}
	conn, err := p.dial(r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer client.Close()
	io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	splice(client, conn)
}

func (p *fakeParent) forward(w http.ResponseWriter, r *http.Request) {
	out := http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		return p.dial(addr)
	}}
	resp, err := out.RoundTrip(r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

// splice joins two connections until both directions have ended.
func splice(a, b net.Conn) {
	defer b.Close()
	var up sync.WaitGroup
	up.Go(func() {
		io.Copy(b, a)
		closeWrite(b)
	})
	io.Copy(a, b)
	closeWrite(a)
	up.Wait()
}

// serveSocks is RFC 1928 and 1929, as far as the tests go.
func (p *fakeParent) serveSocks(c net.Conn) {
	in := bufio.NewReader(c)
	field := func() string { // an octet of length, and as many
		n, _ := in.ReadByte()
		b := make([]byte, n)
		io.ReadFull(in, b)
		return string(b)
	}
	if v, err := in.ReadByte(); err != nil || v != 5 {
		return
	}
	methods, auth := field(), ""
	if p.locked {
		if !strings.Contains(methods, "\x02") {
			c.Write([]byte{5, 0xff})
			return
		}
		c.Write([]byte{5, 2})
		in.ReadByte()
		auth = field() + ":" + field()
		if auth != parentUser+":"+parentPassword {
			c.Write([]byte{1, 1})
			return
		}
		c.Write([]byte{1, 0})
	} else {
		c.Write([]byte{5, 0})
	}
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return
	}
	var host string
	switch size := map[byte]int{1: 4, 4: 16}[head[3]]; {
	case head[3] == 3:
		host = field()
	case size > 0:
		b := make([]byte, size)
		io.ReadFull(in, b)
		addr, _ := netip.AddrFromSlice(b)
		host = addr.String()
	}
	var port [2]byte
	io.ReadFull(in, port[:])
	target := net.JoinHostPort(host, itoa(binary.BigEndian.Uint16(port[:])))
	p.note(ask{[]string{"", "address", "", "name", "address"}[head[3]], target, auth})
	reply := []byte{5, byte(p.status), 0, 1, 127, 0, 0, 1, 0, 80}
	if p.status != 0 {
		c.Write(reply)
		return
	}
	conn, err := p.dial(target)
	if err != nil {
		reply[1] = 4
		c.Write(reply)
		return
	}
	c.Write(reply)
	splice(c, conn)
}
