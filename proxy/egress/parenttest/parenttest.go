// Package parenttest is an upstream proxy for tests. It connects only to loopback,
// resolves the names that the test gives it, can require credentials and refuse requests,
// and records the requests.
//
// Set the exported fields of a Parent before it serves and do not change them later.
package parenttest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Request is one request to a Parent.
type Request struct {
	// Form is the method and the version; for SOCKS5 it is "name" or "address".
	Form   string
	Target string

	// Auth is Proxy-Authorization; for SOCKS5 it is user:password.
	Auth string
}

// A Parent is an upstream proxy. Serve it as an http.Handler, or each connection with
// ServeSocks.
type Parent struct {
	// User and Password are the required credentials; User "": none.
	User, Password string

	// Names has the addresses of origins by name.
	Names map[string]string

	// Status is the status that refuses CONNECT, or the reply of SOCKS5; 0: none.
	Status int

	mu     sync.Mutex
	asked  []Request
	heads  []http.Header
	dialed int
}

// Requests returns the requests so far.
func (p *Parent) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// Heads returns the heads of the CONNECT requests so far, without credentials.
func (p *Parent) Heads() []http.Header {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.heads)
}

// Dialed returns the number of attempts to connect to an origin.
func (p *Parent) Dialed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialed
}

func (p *Parent) note(r Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r)
}

func (p *Parent) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(p.User+":"+p.Password))
}

// dial connects to an origin, by its name or address.
func (p *Parent) dial(hostport string) (net.Conn, error) {
	p.mu.Lock()
	p.dialed++
	p.mu.Unlock()
	host, port, _ := net.SplitHostPort(hostport)
	if addr := p.Names[host]; addr != "" {
		host = addr
	}
	if addr, err := netip.ParseAddr(host); err != nil || !addr.IsLoopback() {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return net.Dial("tcp", net.JoinHostPort(host, port))
}

// ServeHTTP serves CONNECT and requests in absolute form (RFC 9110 9.3.6, RFC 9112 3.2.2).
func (p *Parent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.note(Request{r.Method + " " + r.Proto, r.RequestURI, r.Header.Get("Proxy-Authorization")})
	if p.User != "" && r.Header.Get("Proxy-Authorization") != p.basic() {
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
	if p.Status != 0 {
		w.WriteHeader(p.Status)
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

func (p *Parent) forward(w http.ResponseWriter, r *http.Request) {
	dial := func(_ context.Context, _, addr string) (net.Conn, error) { return p.dial(addr) }
	out := http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: dial}
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
	closeWrite := func(c net.Conn) {
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	}
	var up sync.WaitGroup
	up.Go(func() {
		io.Copy(b, a)
		closeWrite(b)
	})
	io.Copy(a, b)
	closeWrite(a)
	up.Wait()
}

// ServeSocks serves SOCKS5 on one connection (RFC 1928 and 1929, as far as tests need them).
func (p *Parent) ServeSocks(c net.Conn) {
	in := bufio.NewReader(c)
	// field reads a length byte and that many bytes.
	field := func() string {
		n, _ := in.ReadByte()
		b := make([]byte, n)
		io.ReadFull(in, b)
		return string(b)
	}
	if v, err := in.ReadByte(); err != nil || v != 5 {
		return
	}
	methods, auth := field(), ""
	if p.User != "" {
		if !strings.Contains(methods, "\x02") {
			c.Write([]byte{5, 0xff})
			return
		}
		c.Write([]byte{5, 2})
		in.ReadByte()
		auth = field() + ":" + field()
		if auth != p.User+":"+p.Password {
			c.Write([]byte{1, 1})
			return
		}
		c.Write([]byte{1, 0})
	} else {
		c.Write([]byte{5, 0})
	}
	form, target, err := socksTarget(in, field)
	if err != nil {
		return
	}
	p.note(Request{form, target, auth})
	reply := []byte{5, byte(p.Status), 0, 1, 127, 0, 0, 1, 0, 80}
	if p.Status != 0 {
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

// socksTarget reads a request of SOCKS5, and returns the form of its destination and host:port. field reads a name.
func socksTarget(in io.Reader, field func() string) (form, target string, err error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return "", "", err
	}
	form = "address"
	var host string
	switch size := map[byte]int{1: 4, 4: 16}[head[3]]; {
	case head[3] == 3:
		form, host = "name", field()
	case size > 0:
		b := make([]byte, size)
		io.ReadFull(in, b)
		addr, _ := netip.AddrFromSlice(b)
		host = addr.String()
	}
	var port [2]byte
	io.ReadFull(in, port[:])
	return form, net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), nil
}
