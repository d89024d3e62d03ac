package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
)

var (
	a1 = netip.MustParseAddr("192.0.2.1")
	a2 = netip.MustParseAddr("192.0.2.2")
	a3 = netip.MustParseAddr("2001:db8::3")
)

func several(addrs ...netip.Addr) []netip.Addr { return addrs }

// Each step changes the binding of one host. After it the host is bound to at.
var bindingsTests = []struct {
	name  string
	steps []func(b *bindings) (at netip.Addr)
}{
	{"unknown", []func(*bindings) netip.Addr{
		func(*bindings) netip.Addr { return netip.Addr{} },
	}},
	{"the first", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2)) },
		func(*bindings) netip.Addr { return a1 },
	}},
	{"the one that answered", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { b.connected("h", several(a1, a2), a2); return a2 },
	}},
	{"who was first counts", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1)) },
		func(b *bindings) netip.Addr { return b.bind("h", several(a2)) },
		func(b *bindings) netip.Addr { b.connected("h", several(a2), a2); return a1 },
	}},
	{"until its time is over", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1)) },
		func(b *bindings) netip.Addr { <-time.After(b.keep - 1); return a1 },
		func(*bindings) netip.Addr { <-time.After(1); return netip.Addr{} },
	}},
	{"stays where it was, wherever that stands", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { b.connected("h", several(a1, a2), a2); return a2 },
		func(b *bindings) netip.Addr { <-time.After(b.keep); return b.bind("h", several(a1, a3, a2)) },
		func(*bindings) netip.Addr { return a2 },
	}},
	{"moves where its name does", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1)) },
		func(b *bindings) netip.Addr { <-time.After(b.keep); return b.bind("h", several(a2, a3)) },
		func(*bindings) netip.Addr { return a2 },
	}},
	{"another after a failure", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2, a3)) },
		func(b *bindings) netip.Addr { return unless(b.fail("h", a1), netip.Addr{}) },
		func(b *bindings) netip.Addr { return unless(b.fail("h", a1), netip.Addr{}) }, // another goroutine's dial failed first
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2, a3)) },
		func(b *bindings) netip.Addr { return unless(b.fail("h", a1), a2) }, // a dial that took long
		func(b *bindings) netip.Addr { return unless(b.fail("h", a2), netip.Addr{}) },
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2, a3)) },
		func(b *bindings) netip.Addr { return unless(!b.fail("h", a3), netip.Addr{}) }, // that was the last address
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2, a3)) },
		func(*bindings) netip.Addr { return a1 },
	}},
	{"the only one again", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1)) },
		func(b *bindings) netip.Addr { return unless(!b.fail("h", a1), netip.Addr{}) },
		func(b *bindings) netip.Addr { return b.bind("h", several(a1)) },
		func(*bindings) netip.Addr { return a1 },
	}},
	{"the only one left", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2)) },
		func(b *bindings) netip.Addr { return unless(b.fail("h", a1), netip.Addr{}) },
		func(b *bindings) netip.Addr { return b.bind("h", several(a1)) },
		func(*bindings) netip.Addr { return a1 },
	}},
	{"a failure is forgotten with the time", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2)) },
		func(b *bindings) netip.Addr { return unless(b.fail("h", a1), netip.Addr{}) },
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2)) },
		func(b *bindings) netip.Addr { <-time.After(b.keep); return b.bind("h", several(a1, a2)) },
		func(b *bindings) netip.Addr { return unless(b.fail("h", a2), netip.Addr{}) },
		func(b *bindings) netip.Addr { return b.bind("h", several(a1, a2)) },
		func(*bindings) netip.Addr { return a1 },
	}},
	{"of a host that is not known nothing fails", []func(*bindings) netip.Addr{
		func(b *bindings) netip.Addr { return unless(!b.fail("h", a1), netip.Addr{}) },
	}},
}

// unless returns an address to which no host is bound if the condition holds, otherwise
// at.
func unless(ok bool, at netip.Addr) netip.Addr {
	if ok {
		return at
	}
	return netip.IPv4Unspecified()
}

func TestBindings(t *testing.T) {
	for _, tt := range bindingsTests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBindings(5 * time.Minute)
				for i, step := range tt.steps {
					want := step(b)
					if got := b.lookup("h"); got != want {
						t.Fatalf("step %d: bound to %v, want %v", i, got, want)
					}
				}
			})
		})
	}
}

func TestBindingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBindings(time.Minute)
		for i := range maxBindings - 1 {
			b.bind(strconv.Itoa(i), several(a1))
		}
		<-time.After(time.Minute)
		b.bind("fresh", several(a1))
		b.bind("one more", several(a1)) // expired bindings are removed first
		if len(b.hosts) != 2 || b.lookup("fresh") != a1 {
			t.Errorf("%d kept", len(b.hosts))
		}
		for i := range maxBindings {
			b.bind(fmt.Sprint("again", i), several(a2))
		}
		if len(b.hosts) > maxBindings || b.lookup(fmt.Sprint("again", maxBindings-1)) != a2 {
			t.Errorf("%d kept", len(b.hosts))
		}
	})
}

func TestAddress(t *testing.T) {
	n := newNames(t, map[string][][]string{"site.test.": {{"::ffff:127.0.0.1"}}, "private.test.": {{"10.0.0.1"}}, "itself.test.": {{"127.0.0.1"}}})
	own := netip.MustParseAddrPort("127.0.0.1:8080")
	plain := Options{Resolver: n.Addr(), AllowPrivate: loopback, Own: []netip.AddrPort{own}}
	one := plain
	one.OneAddress = true
	through := one
	through.Parent = &url.URL{Scheme: "http", Host: "127.0.0.1:3128"}
	for _, c := range []struct {
		name   string
		o      Options
		origin string
		want   string // "": the zero Addr
		err    func(error) bool
	}{
		{"a name", one, "site.test", "127.0.0.1", nil},
		{"an address is itself", one, "192.0.43.8", "192.0.43.8", nil},
		{"IPv6", one, "[2606:2800:220:1::1]", "2606:2800:220:1::1", nil},
		{"any address will do", plain, "site.test", "", nil},
		{"a parent resolves", through, "site.test", "", nil},
		{"a forbidden address", one, "private.test", "", is(ErrForbiddenAddr)},
		{"a forbidden address, said", one, "10.0.0.1", "", is(ErrForbiddenAddr)},
		{"a forbidden port", one, "site.test:25", "", is(ErrForbiddenPort)},
		{"no such name", one, "unknown.test", "", isNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := robots.ParseOrigin("http", c.origin)
			if err != nil {
				t.Fatal(err)
			}
			at, err := newClient(t, c.o).Address(t.Context(), o)
			if (err != nil) != (c.err != nil) || err != nil && !c.err(err) {
				t.Errorf("%v", err)
			}
			if at.IsValid() != (c.want != "") || at.IsValid() && at.String() != c.want {
				t.Errorf("%v, want %q", at, c.want)
			}
		})
	}
	t.Run("our own listener", func(t *testing.T) {
		d := newClient(t, one)
		o := robots.Origin{Scheme: "http", Host: "itself.test", Port: own.Port()}
		if err := d.At(address(t, d, o)).Reach(t.Context(), o); !errors.Is(err, ErrOwnListener) {
			t.Errorf("Reach = %v", err)
		}
	})
}

// TestAddressNotFound: a name that does not exist is not resolved again at once.
func TestAddressNotFound(t *testing.T) {
	gone := newNames(t, nil)
	o := robots.Origin{Scheme: "http", Host: "gone.test", Port: 80}
	d := newClient(t, Options{OneAddress: true, Resolver: gone.Addr()})
	for range 2 {
		_, err := d.Address(t.Context(), o)
		if again, ok := errors.AsType[*RetryError](err); !ok || time.Until(again.At) <= 0 || !isNotFound(err) {
			t.Errorf("Address = %v", err)
		}
	}
	if n := gone.Asked("gone.test."); n != 1 {
		t.Errorf("asked for %d times", n)
	}
	if err := d.At(netip.Addr{}).Reach(t.Context(), o); !isNotFound(err) {
		t.Errorf("Reach = %v", err)
	}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
