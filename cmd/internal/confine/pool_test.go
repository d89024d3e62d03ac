package confine

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// A testClock is a clock that a test moves.
type testClock struct{ t time.Time }

func (c *testClock) now() time.Time { return c.t }

func (c *testClock) pass(d time.Duration) { c.t = c.t.Add(d) }

// assigned returns the IPv4 address of a name, which has to have one.
func assigned(t *testing.T, p *pool, name string) netip.Addr {
	t.Helper()
	v4, _, ok := p.assign(name)
	if !ok {
		t.Fatalf("no address for %s", name)
	}
	return v4
}

func TestPoolKnowsItsNames(t *testing.T) {
	t.Parallel()
	p := newPool(4, time.Now)
	for _, name := range []string{"a.example", "b.example"} {
		v4, v6, ok := p.assign(name)
		if !ok || !pool4.Contains(v4) || !pool6.Contains(v6) {
			t.Fatalf("%s: %v, %v, %v", name, v4, v6, ok)
		}
		for _, addr := range []netip.Addr{v4, v6, netip.AddrFrom16(v4.As16())} {
			if got, ok := p.lookup(addr); got != name || !ok {
				t.Errorf("%v: %q, %v; want %s", addr, got, ok, name)
			}
		}
		if again, _, _ := p.assign(name); again != v4 {
			t.Errorf("%s: first %v, then %v", name, v4, again)
		}
	}
	for _, addr := range []string{"198.18.0.0", "198.18.0.53", "198.18.1.2", "198.17.255.255", "198.20.0.0", "fd72:6f62:6f74::35", "fd72:6f62:6f74::1:0", "fd72:6f62:6f74::ffff:ffff", "127.0.0.1", "::"} {
		if name, ok := p.lookup(netip.MustParseAddr(addr)); ok {
			t.Errorf("%s: %q, want no name", addr, name)
		}
	}
}

// All indexes have addresses within the pool, and their index back.
func TestPoolAddresses(t *testing.T) {
	t.Parallel()
	for _, i := range []int{0, 1, 255, 256, poolSize - 1} {
		v4, v6 := poolAddrs(i)
		if !pool4.Contains(v4) || !pool6.Contains(v6) || poolIndex(v4) != i || poolIndex(v6) != i {
			t.Errorf("%d: %v (%d), %v (%d)", i, v4, poolIndex(v4), v6, poolIndex(v6))
		}
	}
	if poolIndex(resolver4) >= 0 {
		t.Error("the resolver's address may be given to a name")
	}
}

// A flood of names replaces only those that are not in use.
func TestPoolReplacesUnusedNamesOnly(t *testing.T) {
	t.Parallel()
	clock := &testClock{time.Now()}
	p := newPool(3, clock.now)
	held := assigned(t, p, "held.example")
	_, release := p.hold(held)
	_, release2 := p.hold(held)
	old, recent := assigned(t, p, "old.example"), assigned(t, p, "recent.example")
	if _, _, ok := p.assign("early.example"); ok {
		t.Fatal("a name has lost its address before its answer expired")
	}
	clock.pass(poolGrace)
	p.lookup(recent) // a connection to it began
	if got := assigned(t, p, "new.example"); got != old {
		t.Errorf("the new name has %v, want the least recently used %v", got, old)
	}
	if name, _ := p.lookup(old); name != "new.example" {
		t.Errorf("%v: %q, want the new name", old, name)
	}
	for i := range 100 {
		p.assign(fmt.Sprintf("flood-%d.example", i))
		clock.pass(poolGrace)
	}
	if name, _ := p.lookup(held); name != "held.example" {
		t.Errorf("%v: %q, though a connection to held.example is open", held, name)
	}
	release()
	if p.assign("x.example"); p.names["held.example"] == nil {
		t.Error("the name has lost its address with one connection still open")
	}
	release2()
	clock.pass(poolGrace)
	for i := range 3 {
		assigned(t, p, fmt.Sprintf("after-%d.example", i))
	}
	if p.names["held.example"] != nil {
		t.Error("the name keeps its address without connections")
	}
	if len(p.names) != 3 || len(p.slots) != 3 {
		t.Errorf("%d names, %d addresses; want 3", len(p.names), len(p.slots))
	}
}

// If all names have connections, there is no address for another one.
func TestPoolFullOfOpenConnections(t *testing.T) {
	t.Parallel()
	clock := &testClock{time.Now()}
	p := newPool(2, clock.now)
	for _, name := range []string{"a.example", "b.example"} {
		p.hold(assigned(t, p, name))
	}
	clock.pass(time.Hour)
	if addr, _, ok := p.assign("c.example"); ok {
		t.Errorf("c.example has %v", addr)
	}
}

// The race detector looks on.
func TestPoolConcurrently(t *testing.T) {
	t.Parallel()
	p := newPool(8, func() time.Time { return time.Now().Add(time.Hour) })
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 500 {
				v4, _, ok := p.assign(fmt.Sprintf("n%d.example", (g+i)%16))
				if ok {
					_, release := p.hold(v4)
					p.lookup(v4)
					release()
				}
			}
		})
	}
	all.Wait()
}
