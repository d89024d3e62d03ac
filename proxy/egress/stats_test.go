package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"robotsproxy/robots/testkit"
)

// wantDialed compares the counts since the Client was created with the wanted ones.
// Outcomes that are not named must be 0.
func wantDialed(t *testing.T, who string, p Peers, want map[DialResult]uint64) {
	t.Helper()
	if len(p.Dialed) != len(allOutcomes) {
		t.Errorf("%s: %d outcomes are told of, want all %d", who, len(p.Dialed), len(allOutcomes))
	}
	for how, n := range p.Dialed {
		if n != want[how] {
			t.Errorf("%s: %d times %s, want %d", who, n, how, want[how])
		}
	}
}

func TestDialsAreCounted(t *testing.T) {
	ca := newAuthority(t)
	plain := serve(t, hello)
	secure := serve(t, hello, ca.leaf(t, "127.0.0.1", later()))
	stranger := serve(t, hello, newAuthority(t).leaf(t, "127.0.0.1", later()))
	closed := deadEnd(t, "http")
	names := newNames(t, map[string][][]string{"inside.test.": {{"10.0.0.1"}}})
	fetch := func(url string) func(*Client) error {
		return func(d *Client) error {
			_, _, err := get(t, d, url)
			return err
		}
	}
	for _, c := range []struct {
		name string
		do   func(*Client) error
		want DialResult
	}{
		{"http", fetch(plain.String() + "/"), OutcomeOK},
		{"https", fetch(secure.String() + "/"), OutcomeOK},
		{"reached ahead, and then used", func(d *Client) error {
			return errors.Join(d.At(netip.Addr{}).Reach(t.Context(), secure.Origin), fetch(secure.String()+"/")(d))
		}, OutcomeOK},
		{"a tunnel", func(d *Client) error {
			c, err := d.At(netip.Addr{}).Dial(t.Context(), plain.Host, plain.Port)
			if err == nil {
				c.Close()
			}
			return err
		}, OutcomeOK},
		{"nobody listens", fetch(closed.String() + "/"), OutcomeRefused},
		{"no such host", fetch("http://nowhere.test/"), OutcomeDNS},
		{"a private address", fetch("http://inside.test/"), OutcomeForbidden},
		{"a port that is not allowed", fetch("http://127.0.0.1:22/"), OutcomeForbidden},
		{"a certificate that nobody trusts", fetch(stranger.String() + "/"), OutcomeTLS},
		{"no TLS", fetch("https://" + plain.Addr() + "/"), OutcomeTLS},
		{"the caller has left", func(d *Client) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := d.At(netip.Addr{}).Dial(ctx, plain.Host, plain.Port)
			return err
		}, OutcomeCanceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newClient(t, Options{AllowPrivate: loopback, Resolver: names.Addr(), Roots: ca.pool})
			err := c.do(d)
			if (err == nil) != (c.want == OutcomeOK) {
				t.Fatal(err)
			}
			wantDialed(t, "origins", d.Stats().Origins, map[DialResult]uint64{c.want: 1})
			wantDialed(t, "parent", d.Stats().Parent, nil)
		})
	}
}

func TestRememberedFailureIsNoDial(t *testing.T) {
	closed := deadEnd(t, "http")
	d := newClient(t, Options{AllowPrivate: loopback})
	for range 3 {
		if _, _, err := get(t, d, closed.String()+"/"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	wantDialed(t, "origins", d.Stats().Origins, map[DialResult]uint64{OutcomeRefused: 1})
}

// Outcomes that a test cannot cause.
func TestOutcomeOf(t *testing.T) {
	op := func(err error) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)} }
	for want, errs := range map[DialResult][]error{
		OutcomeTimeout:     {op(syscall.ETIMEDOUT), context.DeadlineExceeded, os.ErrDeadlineExceeded},
		OutcomeUnreachable: {op(syscall.EHOSTUNREACH), op(syscall.ENETUNREACH), fmt.Errorf("%w: host unreachable", ErrBeyondParent)},
		OutcomeDNS:         {&net.DNSError{IsTimeout: true}},
		OutcomeExhausted:   {fmt.Errorf("%w: %w", ErrExhausted, op(syscall.EMFILE)), fmt.Errorf("%w: %w", ErrExhausted, &net.DNSError{})},
		OutcomeParent:      {fmt.Errorf("%w: %w", ErrParent, op(syscall.ECONNREFUSED))},
		OutcomeForbidden:   {ErrOwnListener, ErrForbiddenPort},
		OutcomeCanceled:    {errClosed, op(context.Canceled)},
		OutcomeOther:       {errors.New("something else")},
	} {
		for _, err := range errs {
			if got := outcomeOf(fmt.Errorf("dial: %w", err)); got != want {
				t.Errorf("%v is %s, want %s", err, got, want)
			}
		}
	}
}

func TestOpenConnectionsAreCounted(t *testing.T) {
	ca := newAuthority(t)
	plain := serve(t, hello)
	secure := serveOver(t, hello, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}})
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	for i, url := range []string{plain.String() + "/", secure.String() + "/", plain.String() + "/again"} {
		if _, _, err := get(t, d, url); err != nil {
			t.Fatal(err)
		}
		if n := d.Stats().Origins.Open; n != min(i+1, 2) {
			t.Errorf("%d open after %d requests", n, i+1)
		}
	}
	d.CloseIdle()
	if n := d.Stats().Origins.Open; n != 0 {
		t.Errorf("%d open after all were closed", n)
	}
}

// With an upstream proxy, both hops are counted separately.
func TestDialsBehindAParent(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		o := serve(t, hello, ca.leaf(t, "origin.test", later()))
		d := behind(t, p, ca)
		if _, _, err := get(t, d, o.as("origin.test").String()+"/"); err != nil {
			t.Fatal(err)
		}
		wantDialed(t, "origins", d.Stats().Origins, map[DialResult]uint64{OutcomeOK: 1})
		wantDialed(t, "parent", d.Stats().Parent, map[DialResult]uint64{OutcomeOK: 1})
	})
}

// TestCountsGoOn: a Client continues the counts of the previous one, including its open
// connections.
func TestCountsGoOn(t *testing.T) {
	o := serve(t, hello)
	before := newClient(t, Options{AllowPrivate: loopback})
	if _, _, err := get(t, before, o.String()+"/"); err != nil {
		t.Fatal(err)
	}
	d := newClient(t, Options{AllowPrivate: loopback, Previous: before})
	if d.Pseudonym() != before.Pseudonym() {
		t.Error("it has another name")
	}
	s := d.Stats().Origins
	if wantDialed(t, "what was before", s, map[DialResult]uint64{OutcomeOK: 1}); s.Open != 1 {
		t.Errorf("%d are open, want 1", s.Open)
	}
	if _, _, err := get(t, d, o.String()+"/"); err != nil {
		t.Fatal(err)
	}
	before.Close()
	// net/http closes its own connections in the background
	testkit.Eventually(t, "that of the Client alone is open", func() bool { return d.Stats().Origins.Open == 1 })
	wantDialed(t, "both", d.Stats().Origins, map[DialResult]uint64{OutcomeOK: 2})
}
