package egress

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

const restFor = 10 * time.Second

// putIdle adds a connection of the test to the pool.
func putIdle(p *idlePool, at endpoint) (k *persistConn, peer net.Conn) {
	near, far := net.Pipe()
	c := newTrackedConn(near)
	c.pooled = true
	k = &persistConn{conn: c, tracked: c, endpoint: at}
	p.put(k)
	return k, far
}

// idleConns returns the number of idle connections.
func idleConns(p *idlePool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

var poolTests = []struct {
	name string
	do   func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn)
}{
	{"taken once", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		if p.take(k.endpoint) != k || p.take(k.endpoint) != nil {
			t.Error("not taken, or twice")
		}
		if closedAtPeer(peer) {
			t.Error("closed")
		}
	}},
	{"taken when it is watched", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if k.idle.watch == nil || p.take(k.endpoint) != k {
			t.Fatal("not watched, or not taken")
		}
		go io.WriteString(peer, "x")
		var b [1]byte
		if _, err := io.ReadFull(k.conn, b[:]); err != nil || b[0] != 'x' {
			t.Errorf("read %q, %v", b, err)
		}
	}},
	{"another's is not taken", func(t *testing.T, p *idlePool, k *persistConn, _ net.Conn) {
		if p.take(anyAddr("b.test")) != nil || p.take(endpoint{k.endpoint.Origin, first}) != nil {
			t.Error("taken")
		}
	}},
	{"the one that rested last is taken first", func(t *testing.T, p *idlePool, k *persistConn, _ net.Conn) {
		second, _ := putIdle(p, k.endpoint)
		if p.take(k.endpoint) != second || p.take(k.endpoint) != k {
			t.Error("another")
		}
	}},
	{"the peer hangs up on it", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		peer.Close()
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if idleConns(p) != 0 || p.take(k.endpoint) != nil {
			t.Error("still kept")
		}
	}},
	{"the peer speaks out of turn", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		<-time.After(2*watchAfter + time.Millisecond)
		io.WriteString(peer, "x")
		if p.take(k.endpoint) != nil {
			t.Error("taken")
		}
		synctest.Wait()
		if !closedAtPeer(peer) {
			t.Error("left open")
		}
	}},
	{"closed when its time is over", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		<-time.After(restFor)
		synctest.Wait()
		if idleConns(p) != 1 {
			t.Fatal("closed too soon")
		}
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if !closedAtPeer(peer) || p.take(k.endpoint) != nil {
			t.Error("still kept")
		}
	}},
	{"the oldest of a endpoint makes room", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		for range maxIdlePerHost {
			putIdle(p, k.endpoint)
		}
		if idleConns(p) != maxIdlePerHost || !closedAtPeer(peer) {
			t.Errorf("%d kept", idleConns(p))
		}
	}},
	{"the oldest of all makes room", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		for i := range maxIdle {
			putIdle(p, anyAddr(strconv.Itoa(i)))
		}
		if idleConns(p) != maxIdle || !closedAtPeer(peer) {
			t.Errorf("%d kept", idleConns(p))
		}
	}},
	{"dropped, and what comes to rest then", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		p.closeIdle()
		_, late := putIdle(p, k.endpoint)
		if !closedAtPeer(peer) || !closedAtPeer(late) {
			t.Error("left open")
		}
		if p.take(k.endpoint) != nil { // another goroutine uses the connection
			t.Error("taken")
		}
		if putIdle(p, k.endpoint); p.take(k.endpoint) == nil {
			t.Error("closed although somebody goes on")
		}
	}},
	{"closed with the pool", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		<-time.After(2*watchAfter + time.Millisecond)
		p.close()
		_, late := putIdle(p, k.endpoint)
		if !closedAtPeer(peer) || !closedAtPeer(late) || p.take(k.endpoint) != nil {
			t.Error("still kept")
		}
	}},
	{"nothing is left of what is gone", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		p.take(k.endpoint)
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if len(p.conns) != 0 || p.timer != nil {
			t.Errorf("%d lists, timer %v", len(p.conns), p.timer)
		}
	}},
	{"at rest with the Transport", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		s := new(sending)
		p.setTransportIdle(k.tracked, k.endpoint, s, false)
		for range 2 {
			p.setTransportIdle(k.tracked, k.endpoint, s, true)
		}
		if !p.transportHasIdle(k.endpoint) || p.transportHasIdle(anyAddr("b.test")) {
			t.Error("not known, or of another")
		}
		p.setTransportIdle(k.tracked, k.endpoint, s, false)
		if p.transportHasIdle(k.endpoint) {
			t.Error("still there")
		}
		p.connClosed(k.tracked)
		if p.setTransportIdle(k.tracked, k.endpoint, s, true); len(p.transport) != 0 {
			t.Error("it is closed")
		}
	}},
	{"taken from the Transport before it is said to be at rest", func(t *testing.T, p *idlePool, k *persistConn, peer net.Conn) {
		one, next := new(sending), new(sending)
		p.setTransportIdle(k.tracked, k.endpoint, one, false)
		p.setTransportIdle(k.tracked, k.endpoint, next, false)
		if p.setTransportIdle(k.tracked, k.endpoint, one, true); p.transportHasIdle(k.endpoint) {
			t.Error("at rest although it is in use")
		}
		if p.setTransportIdle(k.tracked, k.endpoint, next, true); p.transport[k.endpoint] != 1 {
			t.Errorf("%d at rest, want 1", p.transport[k.endpoint])
		}
	}},
}

func TestPool(t *testing.T) {
	for _, tt := range poolTests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // fails if a watch does not end
				p := newIdlePool(restFor)
				defer p.close()
				k, peer := putIdle(p, anyAddr("a.test"))
				tt.do(t, p, k, peer)
			})
		})
	}
}

// TestHangUpIsNoticed: a closed connection that nobody uses is noticed soon.
func TestHangUpIsNoticed(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			s := newScript(t, scheme, fine)
			d := s.client(t, Options{})
			if _, err := s.ask(t, d, "GET", "/", nil); err != nil {
				t.Fatal(err)
			}
			s.unasked <- "x" // equivalent to closing the connection
			<-s.sent
			<-s.hung
			testkit.Eventually(t, "it is closed", func() bool { return d.Stats().Origins.Open == 0 })
		})
	}
}

// TestConnectionsAreShared: the Transport, which sends requests with a body, shares the
// connections. An origin never has more connections than there are requests at once.
func TestConnectionsAreShared(t *testing.T) {
	ca := newAuthority(t)
	for name, offered := range spoken {
		t.Run(name, func(t *testing.T) {
			var secure *tls.Config
			if offered != nil {
				secure = &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}, NextProtos: offered}
			}
			o := serveOver(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }, secure)
			d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
			for i, method := range []string{"GET", "POST", "POST", "GET", "DELETE", "HEAD", "GET"} {
				r, err := http.NewRequestWithContext(t.Context(), method, o.String(), nil)
				if method == "POST" {
					r, err = http.NewRequestWithContext(t.Context(), method, o.String(), strings.NewReader("x"))
				}
				if err != nil {
					t.Fatal(err)
				}
				resp, err := d.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(resp.Body); err != nil || len(body) != int(r.ContentLength) {
					t.Errorf("%d: %q, %v", i, body, err)
				}
				resp.Body.Close()
			}
			if n := o.accepted.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}

// TestChoiceOfProtocol: the protocol that an origin has chosen is remembered, until it
// chooses another one.
func TestChoiceOfProtocol(t *testing.T) {
	ca := newAuthority(t)
	var mu sync.Mutex
	offered := []string{"h2", "http/1.1"}
	cert := ca.leaf(t, "127.0.0.1", later())
	o, l := listen(t, "https", "127.0.0.1")
	serveOn(t, o, l, hello, &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: offered,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: offered}, nil
		},
	})
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	visit := func(proto string, direct bool) {
		t.Helper()
		kept := false
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { kept = tracked(got.Conn).pooled }}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", o.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := d.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Proto != proto || kept != direct {
			t.Errorf("%s, directly %t (%v), want %s, %t", resp.Proto, kept, err, proto, direct)
		}
	}
	visit("HTTP/2.0", false)
	visit("HTTP/2.0", false)
	if n := o.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	closeIdle := func() {
		t.Helper()
		testkit.Eventually(t, "the connection is closed", func() bool { d.CloseIdle(); return len(o.hung) > 0 })
		<-o.hung
	}
	mu.Lock()
	offered = []string{"http/1.1"}
	mu.Unlock()
	closeIdle()
	visit("HTTP/1.1", false) // the Transport notices the change
	closeIdle()
	visit("HTTP/1.1", true)
	mu.Lock()
	offered = []string{"h2"}
	mu.Unlock()
	d.CloseIdle()
	visit("HTTP/2.0", false)
	if n := o.accepted.Load(); n != 4 {
		t.Errorf("%d connections, want 4", n)
	}
}

// TestManyAtOnce: many requests share the connections, and each gets its own response.
func TestManyAtOnce(t *testing.T) {
	ca := newAuthority(t)
	for name, offered := range spoken {
		t.Run(name, func(t *testing.T) {
			var secure *tls.Config
			if offered != nil {
				secure = &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}, NextProtos: offered}
			}
			o := serveOver(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) }, secure)
			d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
			var asking sync.WaitGroup
			for i := range 16 {
				asking.Go(func() {
					for j := range testkit.Rounds(50) {
						path := fmt.Sprintf("/%d/%d", i, j)
						r, err := http.NewRequestWithContext(t.Context(), "GET", o.String()+path, nil)
						if err != nil {
							t.Error(err)
							return
						}
						resp, err := d.RoundTrip(r)
						if err != nil {
							t.Error(err)
							return
						}
						if body, err := io.ReadAll(resp.Body); string(body) != path || err != nil {
							t.Errorf("%s: %q, %v", path, body, err)
						}
						resp.Body.Close()
					}
				})
			}
			asking.Wait()
			if n := o.accepted.Load(); n > 32 {
				t.Errorf("%d connections", n)
			}
		})
	}
}
