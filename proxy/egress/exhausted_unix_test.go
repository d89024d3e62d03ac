//go:build unix

package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

// noMoreFiles prevents the process from opening files until the returned function is
// called.
func noMoreFiles(t *testing.T) (enough func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	enough = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(enough)
	return enough
}

// A process that cannot open files blames no origin, and recovers when it can open them
// again.
func TestOutOfFiles(t *testing.T) {
	o := serve(t, hello)
	resolver := newNames(t, map[string][][]string{"site.test.": {{"127.0.0.1"}}})
	d := newClient(t, Options{AllowPrivate: loopback, Resolver: resolver.Addr()})
	enough := noMoreFiles(t)
	for _, host := range []string{"127.0.0.1", "site.test"} {
		if _, err := d.At(netip.Addr{}).Dial(t.Context(), host, o.Port); !errors.Is(err, ErrExhausted) || !LocalError(err) {
			t.Errorf("dial %s: %v", host, err)
		}
		err := d.At(netip.Addr{}).Reach(t.Context(), o.as(host))
		if _, held := errors.AsType[*RetryError](err); !errors.Is(err, ErrExhausted) || held {
			t.Errorf("reach %s: %v", host, err)
		}
	}
	enough()
	for _, host := range []string{"127.0.0.1", "site.test"} {
		if err := d.At(netip.Addr{}).Reach(t.Context(), o.as(host)); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestExhaustedResolver: the text of the resolver's error says that a resource was missing, though there may be one again.
func TestExhaustedResolver(t *testing.T) {
	for text, want := range map[string]bool{
		"dial udp 127.0.0.1:53: socket: " + syscall.EMFILE.Error(): true, "read udp 127.0.0.1:53: " + syscall.ENOBUFS.Error(): true,
		"dial udp 127.0.0.1:53: connect: " + syscall.ECONNREFUSED.Error(): false, "server misbehaving": false,
	} {
		if got := exhausted(fmt.Errorf("dial: %w", &net.DNSError{Err: text})); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
