//go:build linux && !race

package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// Sites are many origins behind one listener, each with its own loopback address. They write
// prepared responses, to leave the processor to the proxy.
type Sites struct {
	Port int

	// size of a site's robots.txt in bytes.
	robots func(i int) int

	// robots.txt requests by site.
	fetched []atomic.Uint32
	Pages   atomic.Int64
}

// FirstSite is the address of the first site; the others follow it.
var FirstSite = netip.AddrFrom4([4]byte{127, 64, 0, 0})

// siteRules has no rule that matches a requested page. A site sends as much of it as its
// robots.txt is long.
var siteRules = func() []byte {
	rules := []byte("User-agent: *\n")
	for i := 0; len(rules) < 500<<10; i++ {
		rules = fmt.Appendf(rules, "Disallow: /archive/%06d/*?session=\n", i)
	}
	return rules
}()

var sitePage = append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1024\r\n\r\n"), make([]byte, 1024)...)

// NewSites starts n plain HTTP sites.
func NewSites(t testing.TB, n int, robots func(i int) int) *Sites {
	t.Helper()
	return NewSecureSites(t, n, robots, nil)
}

// NewSecureSites starts n sites behind TLS, or without TLS if secure is nil.
func NewSecureSites(t testing.TB, n int, robots func(i int) int, secure *tls.Config) *Sites {
	t.Helper()
	// Connections from other networks are closed.
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	s := &Sites{Port: l.Addr().(*net.TCPAddr).Port, robots: robots, fetched: make([]atomic.Uint32, n)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				s.serve(c)
			})
		}
	})
	// The proxy, started later, has closed its connections by now.
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return s
}

// serve answers the requests on a connection until it closes.
func (s *Sites) serve(c net.Conn) {
	a := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	low, high := FirstSite.As4(), a.As4()
	i := int(high[1]-low[1])<<16 | int(high[2])<<8 | int(high[3])
	if !a.IsLoopback() || i >= len(s.fetched) {
		return
	}
	br := bufio.NewReaderSize(c, 2<<10)
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return
		}
		robots := bytes.HasPrefix(line, []byte("GET /robots.txt "))
		if _, err := readFields(br); err != nil {
			return
		}
		if robots {
			s.fetched[i].Add(1)
			err = s.sendRobots(c, i)
		} else {
			s.Pages.Add(1)
			_, err = c.Write(sitePage)
		}
		if err != nil {
			return
		}
	}
}

// sendRobots sends a robots.txt that differs by site, because the proxy stores equal files once.
func (s *Sites) sendRobots(c net.Conn, i int) error {
	size := s.robots(i)
	own := fmt.Sprintf("# site %d\n", i)
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", size, own)
	rest := siteRules[:size-len(own)]
	// A rule cut short would be a different rule.
	rest = rest[:bytes.LastIndexByte(rest, '\n')+1]
	answer := net.Buffers{[]byte(head), rest, bytes.Repeat([]byte("#"), size-len(own)-len(rest))}
	_, err := answer.WriteTo(c)
	return err
}

// request returns the bytes of a request for a site's page.
func (s *Sites) request(i int) []byte {
	a := FirstSite.As4()
	host := fmt.Sprintf("127.%d.%d.%d:%d", int(a[1])+i>>16, i>>8&0xff, i&0xff, s.Port)
	return []byte("GET http://" + host + "/page HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: FooBot/1.0\r\n\r\n")
}

// WantEach checks that each site got n requests for its robots.txt.
func (s *Sites) WantEach(t testing.TB, n uint32) {
	t.Helper()
	var wrong int
	for i := range s.fetched {
		if got := s.fetched[i].Load(); got != n {
			if wrong++; wrong == 1 {
				t.Errorf("robots.txt of site %d was asked for %d times, want %d", i, got, n)
			}
		}
	}
	if wrong > 1 {
		t.Errorf("and of %d more", wrong-1)
	}
}

// readFields reads all header fields and returns the Content-Length, or -1 without that field.
func readFields(br *bufio.Reader) (length int, err error) {
	length = -1
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			return length, nil
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, err
			}
		}
	}
}

// A Connection is a client's connection to the proxy.
type Connection struct {
	net.Conn
	br *bufio.Reader
}

// Connections opens n connections from several addresses and closes them when the test ends.
func (p *Proxy) Connections(t testing.TB, n int) []Connection {
	t.Helper()
	all := make([]Connection, n)
	for i := range all {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 3, byte(1+i%8))}}
		c, err := d.Dial("tcp", p.Listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all[i] = Connection{c, bufio.NewReaderSize(c, 1<<10)}
	}
	return all
}

// answer reads a response, which must be a site's page.
func (c Connection) answer() error {
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return err
	}
	status := string(line)
	length, err := readFields(c.br)
	switch {
	case err != nil:
		return err
	case !strings.HasPrefix(status, "HTTP/1.1 200 "):
		why, _ := io.ReadAll(io.LimitReader(c.br, int64(max(length, 0))))
		return fmt.Errorf("%s: %s", status, why)
	case length != 1024:
		return fmt.Errorf("a page of %d bytes", length)
	}
	_, err = c.br.Discard(length)
	return err
}

// maxLoaders limits the goroutines that send requests.
const maxLoaders = 64

// AskAll sends `each` requests on every connection. A goroutine that owns several writes to all
// of them before it reads the responses.
func AskAll(t testing.TB, conns []Connection, each int, next func() []byte) {
	t.Helper()
	var all sync.WaitGroup
	loaders := min(len(conns), maxLoaders)
	for k := range loaders {
		own := conns[k*len(conns)/loaders : (k+1)*len(conns)/loaders]
		all.Go(func() {
			for range each {
				if err := AskOnce(own, next); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// AskOnce requests one page on each connection, then reads the responses.
func AskOnce(conns []Connection, next func() []byte) error {
	deadline := time.Now().Add(testkit.Patience)
	for _, c := range conns {
		c.SetDeadline(deadline)
		if _, err := c.Write(next()); err != nil {
			return err
		}
	}
	for _, c := range conns {
		if err := c.answer(); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the proxy closed a connection: %w", err)
			}
			return err
		}
	}
	return nil
}

// AnyOf returns requests for random sites.
func (s *Sites) AnyOf() func() []byte {
	return func() []byte { return s.request(rand.IntN(len(s.fetched))) }
}

// InTurn returns requests for one site after another.
func (s *Sites) InTurn() func() []byte {
	var n atomic.Int64
	return func() []byte { return s.request(int(n.Add(1)-1) % len(s.fetched)) }
}

// KiB formats a size.
func KiB(n int) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/1024), ".0") + "KiB"
}

// NeedFiles skips the benchmark if a process may not open n files.
func NeedFiles(b *testing.B, n uint64) {
	b.Helper()
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < n {
		b.Skipf("a process may open %d files here, and this needs %d: ulimit -Hn", files.Max, n)
	}
}
