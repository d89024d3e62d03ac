package egress

import (
	"io"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
)

func named(name string) robots.Origin {
	return robots.Origin{Scheme: "http", Host: name, Port: 80}
}

func anyAddr(name string) endpoint { return endpoint{Origin: named(name)} }

// closedAtPeer reports whether the other end of a pipe is closed.
func closedAtPeer(c net.Conn) bool {
	c.SetReadDeadline(time.Now())
	_, err := c.Read(make([]byte, 1))
	return err == io.EOF
}

var unusedPoolTests = []struct {
	name string
	do   func(t *testing.T, p *unusedPool, near, peer net.Conn)
}{
	{"taken once, and usable", func(t *testing.T, p *unusedPool, near, peer net.Conn) {
		if got := p.take(anyAddr("a.test"), nil); got != near {
			t.Fatalf("took %v", got)
		}
		if p.take(anyAddr("a.test"), nil) != nil {
			t.Error("taken twice")
		}
		go io.WriteString(peer, "x")
		var b [1]byte
		if _, err := io.ReadFull(near, b[:]); err != nil || b[0] != 'x' {
			t.Errorf("read %q, %v", b, err)
		}
	}},
	{"another origin's is not taken", func(t *testing.T, p *unusedPool, _, _ net.Conn) {
		if p.take(anyAddr("b.test"), nil) != nil {
			t.Error("taken")
		}
	}},
	{"closed when its time is over", func(t *testing.T, p *unusedPool, _, peer net.Conn) {
		<-time.After(unusedFor - time.Nanosecond)
		synctest.Wait()
		if closedAtPeer(peer) {
			t.Fatal("closed too soon")
		}
		<-time.After(time.Nanosecond)
		synctest.Wait()
		if !closedAtPeer(peer) || p.take(anyAddr("a.test"), nil) != nil {
			t.Error("still kept")
		}
	}},
	{"closed by the peer", func(t *testing.T, p *unusedPool, _, peer net.Conn) {
		peer.Close()
		synctest.Wait()
		if len(p.conns) != 0 || p.take(anyAddr("a.test"), nil) != nil {
			t.Error("still kept")
		}
	}},
	{"closed by the peer as it is taken", func(t *testing.T, p *unusedPool, _, peer net.Conn) {
		peer.Close()
		if p.take(anyAddr("a.test"), nil) != nil {
			t.Error("taken")
		}
	}},
	{"a peer that speaks first", func(t *testing.T, p *unusedPool, _, peer net.Conn) {
		io.WriteString(peer, "x")
		if p.take(anyAddr("a.test"), nil) != nil || !closedAtPeer(peer) {
			t.Error("taken, or left open")
		}
	}},
	{"a newer one takes its place", func(t *testing.T, p *unusedPool, _, peer net.Conn) {
		near, _ := net.Pipe()
		p.put(anyAddr("a.test"), near)
		if !closedAtPeer(peer) || p.take(anyAddr("a.test"), nil) != near {
			t.Error("the older one stayed")
		}
	}},
	{"the oldest makes room", func(t *testing.T, p *unusedPool, _, peer net.Conn) {
		for i := range maxUnused {
			<-time.After(time.Millisecond)
			near, _ := net.Pipe()
			p.put(anyAddr(strconv.Itoa(i)), near)
		}
		if len(p.conns) != maxUnused || !closedAtPeer(peer) {
			t.Errorf("%d kept, want %d", len(p.conns), maxUnused)
		}
	}},
	{"closed with the pool", func(t *testing.T, p *unusedPool, _, peer net.Conn) {
		p.close()
		if !closedAtPeer(peer) || p.take(anyAddr("a.test"), nil) != nil {
			t.Error("still kept")
		}
		near, far := net.Pipe()
		p.put(anyAddr("a.test"), near)
		if !closedAtPeer(far) {
			t.Error("kept after close")
		}
	}},
}

func TestUnusedPool(t *testing.T) {
	for _, tt := range unusedPoolTests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // fails if a watch does not end
				p := newUnusedPool()
				defer p.close()
				near, peer := net.Pipe()
				p.put(anyAddr("a.test"), near)
				tt.do(t, p, near, peer)
			})
		})
	}
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := newHistory(time.Second), named("a.test")
		check := func(when string, want bool) {
			t.Helper()
			if got := c.wasReached(o); got != want {
				t.Errorf("%s: recent = %t", when, got)
			}
		}
		check("never seen", false)
		c.setReached(o)
		check("just reached", true)
		<-time.After(recentFor)
		check("a while ago", false)
		c.opened(o)
		c.opened(o)
		<-time.After(recentFor)
		check("two connections stand", true)
		c.closed(o)
		check("one stands", true)
		c.closed(o)
		check("none stands", false)
		if len(c.open) != 0 {
			t.Error("a count of zero is kept")
		}

		c.setPlaintext(o, true)
		if !c.isPlaintext(o) {
			t.Error("plain is forgotten")
		}
		c.setPlaintext(o, false)
		if c.isPlaintext(o) {
			t.Error("plain although it spoke TLS")
		}
		c.setPlaintext(o, true)
		<-time.After(plaintextFor)
		if c.isPlaintext(o) {
			t.Error("plain for ever")
		}
	})
}

func TestExpiringSetIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newExpiringSet(time.Minute, 10)
		for i := range 9 {
			m.add(named(strconv.Itoa(i)))
		}
		<-time.After(time.Minute)
		m.add(named("fresh"))
		m.add(named("one more")) // the stale connections are removed first
		if !m.has(named("fresh")) || len(m.added) != 2 {
			t.Errorf("%d held", len(m.added))
		}
		for i := range 100 {
			m.add(named(strconv.Itoa(i)))
			if len(m.added) > 10 || !m.has(named(strconv.Itoa(i))) {
				t.Fatalf("%d held", len(m.added))
			}
		}
	})
}
