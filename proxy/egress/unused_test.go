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

func anyAddr(name string) key { return key{endpoint: endpoint{Origin: named(name)}} }

// closedAtPeer reports whether the other end of a pipe is closed.
func closedAtPeer(c net.Conn) bool {
	c.SetReadDeadline(time.Now())
	_, err := c.Read(make([]byte, 1))
	return err == io.EOF
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
		c.reach(o, 0)
		check("just reached", true)
		<-time.After(recentFor)
		check("a while ago", false)
		c.reach(o, 1)
		c.reach(o, 1)
		<-time.After(recentFor)
		check("two connections stand", true)
		c.closed(o)
		check("one stands", true)
		c.closed(o)
		check("none stands", false)
		if len(c.open) != 0 {
			t.Error("a count of zero is kept")
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
