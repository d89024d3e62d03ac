package egress

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

const keepFor = 10 * time.Second

// putIdle adds a connection of the test to the pool.
func putIdle(p *pool, at key) (k *persistConn, peer net.Conn) { return putConn(p, at, true) }

// putUnused adds a connection that no request has used.
func putUnused(p *pool, at key) (k *persistConn, peer net.Conn) { return putConn(p, at, false) }

func putConn(p *pool, at key, used bool) (k *persistConn, peer net.Conn) {
	near, far := net.Pipe()
	k = newPersistConn(&trackedConn{Conn: near}, at.endpoint, p, time.Minute)
	k.key, k.used = at, used
	p.put(k)
	return k, far
}

// idleConns returns the number of idle connections.
func idleConns(p *pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byAge)
}

var poolTests = []struct {
	name string
	do   func(t *testing.T, p *pool, k *persistConn, peer net.Conn)
}{
	{"taken once", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		if p.take(k.key, false) != k || p.take(k.key, false) != nil {
			t.Error("not taken, or twice")
		}
		if closedAtPeer(peer) {
			t.Error("closed")
		}
	}},
	{"taken when it is watched", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if k.watch == nil || p.take(k.key, false) != k {
			t.Fatal("not watched, or not taken")
		}
		go io.WriteString(peer, "x")
		var b [1]byte
		if _, err := io.ReadFull(k.conn, b[:]); err != nil || b[0] != 'x' {
			t.Errorf("read %q, %v", b, err)
		}
	}},
	{"another's is not taken", func(t *testing.T, p *pool, k *persistConn, _ net.Conn) {
		if p.take(anyAddr("b.test"), false) != nil || p.take(key{endpoint: endpoint{k.endpoint.Origin, first}}, false) != nil {
			t.Error("taken")
		}
	}},
	{"the last one is taken first", func(t *testing.T, p *pool, k *persistConn, _ net.Conn) {
		second, _ := putIdle(p, k.key)
		if p.take(k.key, false) != second || p.take(k.key, false) != k {
			t.Error("another")
		}
	}},
	{"the peer hangs up on it", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		peer.Close()
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if idleConns(p) != 0 || p.take(k.key, false) != nil {
			t.Error("still kept")
		}
	}},
	{"the peer sends without a request", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		<-time.After(2*watchAfter + time.Millisecond)
		io.WriteString(peer, "x")
		if p.take(k.key, false) != nil {
			t.Error("taken")
		}
		synctest.Wait()
		if !closedAtPeer(peer) {
			t.Error("left open")
		}
	}},
	{"closed when its time is over", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		<-time.After(keepFor - time.Millisecond)
		synctest.Wait()
		if idleConns(p) != 1 {
			t.Fatal("closed too soon")
		}
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if !closedAtPeer(peer) || p.take(k.key, false) != nil {
			t.Error("still kept")
		}
	}},
	{"the oldest of an endpoint is evicted", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		for range maxIdlePerHost {
			putIdle(p, k.key)
		}
		if idleConns(p) != maxIdlePerHost || !closedAtPeer(peer) {
			t.Errorf("%d kept", idleConns(p))
		}
	}},
	{"the oldest of all is evicted", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		for i := range maxIdle {
			putIdle(p, anyAddr(strconv.Itoa(i)))
		}
		if idleConns(p) != maxIdle || !closedAtPeer(peer) {
			t.Errorf("%d kept", idleConns(p))
		}
	}},
	{"closeIdle, and a connection that becomes idle after it", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		p.closeIdle()
		_, late := putIdle(p, k.key)
		if !closedAtPeer(peer) || !closedAtPeer(late) {
			t.Error("left open")
		}
		if p.take(k.key, false) != nil { // another goroutine uses the connection
			t.Error("taken")
		}
		if putIdle(p, k.key); p.take(k.key, false) == nil {
			t.Error("closed although take was called since")
		}
	}},
	{"closed with the pool", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		<-time.After(2*watchAfter + time.Millisecond)
		p.close()
		_, late := putIdle(p, k.key)
		if !closedAtPeer(peer) || !closedAtPeer(late) || p.take(k.key, false) != nil {
			t.Error("still kept")
		}
	}},
	{"empty lists and the timer are removed", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		p.take(k.key, false)
		<-time.After(2*watchAfter + time.Millisecond)
		synctest.Wait()
		if len(p.idle) != 0 || p.timer != nil {
			t.Errorf("%d lists, timer %v", len(p.idle), p.timer)
		}
	}},
	{"one that no request has used waits shorter", func(t *testing.T, p *pool, _ *persistConn, _ net.Conn) {
		_, peer := putUnused(p, anyAddr("a.test"))
		<-time.After(unusedFor)
		synctest.Wait()
		if !closedAtPeer(peer) {
			t.Error("still kept")
		}
	}},
	{"the oldest that no request has used is evicted", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		_, oldest := putUnused(p, anyAddr("a.test"))
		for i := range maxUnused {
			putUnused(p, anyAddr(strconv.Itoa(i)))
		}
		unused := p.matching(func(c *persistConn) bool { return !c.used })
		if len(unused) != maxUnused || !closedAtPeer(oldest) || closedAtPeer(peer) {
			t.Errorf("%d kept", len(unused))
		}
	}},
	{"a fresh one", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		if p.take(k.key, true) != nil {
			t.Error("taken although it was used")
		}
		unused, _ := putUnused(p, k.key)
		putIdle(p, k.key)
		if p.take(k.key, true) != unused {
			t.Error("another, or none")
		}
	}},
	{"an owner's", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		p.take(k.key, false)
		o := new(Owner)
		k.requester = o
		k.bind()
		p.put(k)
		if p.take(anyAddr("a.test"), false) != nil || p.take(key{k.endpoint, new(Owner)}, false) != nil {
			t.Error("another took it")
		}
		if p.take(key{k.endpoint, o}, false) != k {
			t.Error("not the owner's")
		}
		p.put(k)
		if o.End(); !closedAtPeer(peer) {
			t.Error("left open when the owner had ended")
		}
		if _, late := putIdle(p, key{k.endpoint, o}); !closedAtPeer(late) {
			t.Error("kept after the owner has ended")
		}
	}},
	{"the oldest of an owner is evicted", func(t *testing.T, p *pool, k *persistConn, peer net.Conn) {
		o := new(Owner)
		_, oldest := putIdle(p, key{k.endpoint, o})
		for i := range maxOwned {
			putIdle(p, key{anyAddr(strconv.Itoa(i)).endpoint, o})
		}
		if idleConns(p) != maxOwned+1 || !closedAtPeer(oldest) || closedAtPeer(peer) {
			t.Errorf("%d kept", idleConns(p))
		}
	}},
}

func TestPool(t *testing.T) {
	for _, tt := range poolTests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // fails if a watch does not end
				p := newPool(keepFor)
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
			if _, err := s.ask(t, d, "GET", "/"); err != nil {
				t.Fatal(err)
			}
			s.unasked <- "x" // equivalent to closing the connection
			<-s.sent
			<-s.hung
			testkit.Eventually(t, "it is closed", func() bool { return d.Stats().Origins.Open == 0 })
		})
	}
}

// TestConnectionsAreShared checks that requests with and without a body use the same connections: an origin never
// has more of them than there are requests at once.
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
	visit := func(proto string, conns int64) {
		t.Helper()
		resp, _, err := get(t, d, o.String())
		if err != nil || resp.Proto != proto || o.accepted.Load() != conns {
			t.Errorf("%v, %v, by %d connections, want %s by %d", resp, err, o.accepted.Load(), proto, conns)
		}
	}
	visit("HTTP/2.0", 1)
	visit("HTTP/2.0", 1)
	mu.Lock()
	offered = []string{"http/1.1"}
	mu.Unlock()
	d.CloseIdle()
	visit("HTTP/1.1", 2)
	mu.Lock()
	offered = []string{"h2"}
	mu.Unlock()
	d.CloseIdle()
	visit("HTTP/2.0", 3)
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

// TestClosedHTTP2ConnectionIsForgotten: a connection of HTTP/2 leaves the pool when it is closed, by either end.
func TestClosedHTTP2ConnectionIsForgotten(t *testing.T) {
	ca := newAuthority(t)
	for name, end := range map[string]func(d *Client, conn net.Conn){
		"by the origin": func(_ *Client, conn net.Conn) { conn.Close() },
		"by the Client": func(d *Client, _ net.Conn) { d.CloseIdle() },
	} {
		t.Run(name, func(t *testing.T) {
			conns := make(chan net.Conn, 2)
			o, l := listen(t, "https", "127.0.0.1")
			serveOn(t, o, l, hello, &tls.Config{
				Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}, NextProtos: []string{"h2"},
				GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { conns <- hello.Conn; return nil, nil },
			})
			d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
			if _, _, err := get(t, d, o.String()); err != nil {
				t.Fatal(err)
			}
			end(d, <-conns)
			testkit.Eventually(t, "the connection is forgotten", func() bool {
				d.pool.mu.Lock()
				defer d.pool.mu.Unlock()
				return len(d.pool.shared) == 0 && d.Stats().Origins.Open == 0
			})
		})
	}
}

// TestHTTP2ConnectionIsIdleAfterItsRequests checks that a stream that waits for its request keeps the connection
// usable, however long it waits, and that the connection is closed some time after the last request.
func TestHTTP2ConnectionIsIdleAfterItsRequests(t *testing.T) {
	ca := newAuthority(t)
	const keep = 50 * time.Millisecond
	o := serve(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }, ca.leaf(t, "127.0.0.1", later()))
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool, IdleTimeout: keep})
	for _, released := range []bool{false, true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.String(), io.NopCloser(strings.NewReader("body")))
		testkit.Must(t, err)
		conn, err := d.At(netip.Addr{}).Acquire(t.Context(), r, nil)
		testkit.Must(t, err)
		<-time.After(4 * keep)
		if n := d.Stats().Origins.Open; n != 1 {
			t.Errorf("%d connections are open", n)
		}
		if released {
			conn.Release()
		} else {
			_, err = conn.Send(r, nil)
			testkit.Must(t, err)
			resp, err := conn.Receive()
			testkit.Must(t, err)
			resp.Body.Close()
		}
		testkit.Eventually(t, "the connection is closed", func() bool { return d.Stats().Origins.Open == 0 })
	}
}

// TestAllConnectionsDie checks that a request succeeds after the origin has closed all kept connections at once.
func TestAllConnectionsDie(t *testing.T) {
	const n = 2 * MaxTries
	var together sync.WaitGroup
	together.Add(n)
	var mu sync.Mutex
	var conns []net.Conn
	o, l := listen(t, "http", "127.0.0.1")
	s := &http.Server{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/together" {
				together.Done()
				together.Wait()
			}
		}),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, c)
			}
		},
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-served })
	d := newClient(t, Options{AllowPrivate: loopback})
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, _, err := get(t, d, o.String()+"/together"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	testkit.Eventually(t, "all connections are idle", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(conns) == n
	})
	for _, c := range conns {
		c.Close()
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.String(), io.NopCloser(strings.NewReader("body")))
	testkit.Must(t, err)
	resp, err := d.RoundTrip(r)
	testkit.Must(t, err)
	resp.Body.Close()
}
