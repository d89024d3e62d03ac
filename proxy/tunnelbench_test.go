package proxy_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// passThroughRig starts a proxy that passes all tunnels through, to origins without a robots.txt.
func passThroughRig(t testing.TB) *rig {
	return start(t, setup{change: func(o *proxy.Options) {
		o.PassThrough, o.Monitor = func(string) bool { return true }, true
		o.MaxConns, o.MaxConnsPerClient = 10_000, 10_000
	}})
}

// echo starts a server that sends back what it receives.
func echo(t testing.TB) (addr string) {
	return accepting(t, func(c *net.TCPConn) { io.Copy(c, c) })
}

// accepting serves each connection of a listener until the test ends.
func accepting(t testing.TB, serve func(*net.TCPConn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// copying starts the simplest possible tunnel: two connections with a copy in each direction.
func copying(t testing.TB, to string) (addr string) {
	return accepting(t, func(client *net.TCPConn) {
		origin, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer origin.Close()
		go func() {
			defer client.Close()
			io.Copy(client, origin)
		}()
		io.Copy(origin, client)
	})
}

// BenchmarkTunnel sends messages of 1 KiB back and forth, and 1 MiB in one direction, through 32 open
// passed-through tunnels, and for comparison through a plain copy. The times include origin and clients.
func BenchmarkTunnel(b *testing.B) {
	to := echo(b)
	r := passThroughRig(b)
	bare := copying(b, to)
	for _, route := range []struct {
		name string
		open func() net.Conn
	}{
		{"proxy", func() net.Conn { c, _ := r.plainTunnel(to); return c }},
		{"io.Copy", func() net.Conn {
			c, err := net.Dial("tcp", bare)
			testkit.Must(b, err)
			b.Cleanup(func() { c.Close() })
			return c
		}},
	} {
		for _, size := range []int{1 << 10, 1 << 20} {
			name := "ping-pong/"
			if size > 1<<10 {
				name = "bulk/"
			}
			b.Run(name+route.name, func(b *testing.B) { move(b, route.open, size) })
		}
	}
}

// move exchanges messages on 32 connections, one message at a time.
func move(b *testing.B, open func() net.Conn, size int) {
	message := make([]byte, size)
	b.SetBytes(int64(size))
	onConns(b, open, func(c net.Conn, pb *testing.PB) {
		back := make([]byte, size)
		for pb.Next() {
			sent := make(chan error, 1)
			if size > 1<<10 {
				go func() {
					_, err := c.Write(message)
					sent <- err
				}()
			} else {
				_, err := c.Write(message)
				sent <- err
			}
			_, err := io.ReadFull(c, back)
			if serr := <-sent; err != nil || serr != nil {
				b.Error(err, serr)
				return
			}
		}
	})
}

// BenchmarkNewTunnel measures a tunnel for one request: a connection, CONNECT, a TLS 1.3 handshake with the
// proxy, a page of 1 KiB, and the close. The origin connection is persistent. The time includes the client.
func BenchmarkNewTunnel(b *testing.B) {
	page := make([]byte, 1<<10)
	origin := routes[1].serve(b, rules, func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
	r := start(b, setup{origins: []*httptest.Server{origin.Server}})
	ours := &tls.Config{RootCAs: r.roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}}
	connect := "CONNECT " + origin.host() + " HTTP/1.1\r\nHost: " + origin.host() + "\r\n\r\n"
	request := "GET /page HTTP/1.1\r\nHost: " + origin.host() + "\r\nUser-Agent: FooBot/1.0\r\n\r\n"
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := askOnce(r.url.Host, connect, request, ours); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// askOnce opens a tunnel through proxy and requests one page in it.
func askOnce(proxy, connect, request string, ours *tls.Config) error {
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		return err
	}
	defer c.Close()
	io.WriteString(c, connect)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	secure := tls.Client(c, ours)
	io.WriteString(secure, request) // a failure shows in the response
	if resp, err = http.ReadResponse(bufio.NewReader(secure), nil); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
