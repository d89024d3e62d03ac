package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// A caller that leaves while the upstream proxy is waited for returns at once.
func TestParentCallerLeaves(t *testing.T) {
	for _, kind := range []string{"http", "socks5"} {
		asked := make(chan struct{}, 1)
		o, l := listen(t, "http", "127.0.0.1")
		eachConn(t, l, func(c net.Conn) {
			c.Read(make([]byte, 1024))
			asked <- struct{}{}
			io.Copy(io.Discard, c)
		})
		d := newClient(t, Options{Parent: &url.URL{Scheme: kind, Host: o.Addr()}})
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		go func() {
			<-asked
			leave(gone)
		}()
		if _, err := d.At(netip.Addr{}).Dial(ctx, "origin.test", 443); !errors.Is(err, gone) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

var errAny = errors.New("")

func socks(data ...byte) string { return string(data) }

// socksReply is an accepted greeting followed by a reply with this code (RFC 1928 3, 6).
func socksReply(code byte) string { return socks(5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0) }

// parentFailures are failing replies of an upstream proxy.
var parentFailures = []struct {
	name, scheme, says string
	want               error // ErrParent, os.ErrDeadlineExceeded, or errAny for any other
}{
	{"hangs up", "http", "", ErrParent},
	{"nonsense", "http", "SSH-2.0-x\r\n\r\n", ErrParent},
	{"an answer that breaks the ceiling", "http", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxConnectHead) + "\r\n\r\n", ErrParent},
	{"early hints without end", "http", strings.Repeat("HTTP/1.1 103 \r\n\r\n", maxConnectHead/16), ErrParent},
	{"101", "http", "HTTP/1.1 101 \r\n\r\n", ErrParent},
	{"302", "http", "HTTP/1.1 302 \r\nLocation: /\r\n\r\n", ErrParent},
	{"400", "http", "HTTP/1.1 400 \r\n\r\n", ErrParent},
	{"403", "http", "HTTP/1.1 403 \r\n\r\n", ErrParent},
	{"407", "http", "HTTP/1.1 407 \r\n\r\n", ErrParent},
	{"500", "http", "HTTP/1.1 500 \r\n\r\n", ErrParent},
	{"502", "http", "HTTP/1.1 502 \r\n\r\n", errAny},
	{"503", "http", "HTTP/1.1 503 \r\n\r\n", errAny},
	{"504", "http", "HTTP/1.1 504 \r\n\r\n", os.ErrDeadlineExceeded},
	{"no TLS", "https", "HTTP/1.1 200 OK\r\n\r\n", ErrParent},
	{"TLS that is hung up on", "https", "", ErrParent},
	{"hangs up", "socks5", "", ErrParent},
	{"another version", "socks5", socks(4, 0), ErrParent},
	{"no method of ours", "socks5", socks(5, 0xff), ErrParent},
	{"a method that was not offered", "socks5", socks(5, 1), ErrParent},
	{"the password is refused", "socks5", socks(5, 2, 1, 1), ErrParent},
	{"another version, later", "socks5", socks(5, 0, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0), ErrParent},
	{"an unknown type of address", "socks5", socks(5, 0, 5, 0, 0, 9, 0, 0, 0, 0, 0, 0), ErrParent},
	{"6: general failure", "socks5", socksReply(1), ErrParent},
	{"6: not allowed", "socks5", socksReply(2), ErrParent},
	{"6: network unreachable", "socks5", socksReply(3), errAny},
	{"6: host unreachable", "socks5", socksReply(4), errAny},
	{"6: refused", "socks5", socksReply(5), errAny},
	{"6: TTL expired", "socks5", socksReply(6), errAny},
	{"6: command not supported", "socks5", socksReply(7), ErrParent},
	{"6: address type not supported", "socks5", socksReply(8), ErrParent},
	{"6: unassigned", "socks5", socksReply(99), ErrParent},
}

// Whether the origin or the upstream proxy has failed decides what is remembered of the
// origin and what its client is told.
func TestParentFailures(t *testing.T) {
	for _, c := range parentFailures {
		t.Run(c.scheme+" "+c.name, func(t *testing.T) {
			d := newClient(t, Options{Parent: saying(t, c.scheme, c.says)})
			o := robots.Origin{Scheme: "https", Host: "origin.test", Port: 443}
			_, _, page := get(t, d, o.String())
			for name, err := range map[string]error{"Dial": dialOnce(t, d, o.Host, o.Port), "Reach": d.At(netip.Addr{}).Reach(t.Context(), o), "RoundTrip": page} {
				if err == nil || c.want != errAny && !errors.Is(err, c.want) || c.want != ErrParent && errors.Is(err, ErrParent) {
					t.Fatalf("%s = %v", name, err)
				}
				if timeout := errors.Is(err, os.ErrDeadlineExceeded); timeout != (c.want == os.ErrDeadlineExceeded) {
					t.Errorf("%s = %v: a time-out: %t", name, err, timeout)
				}
				noSecret(t, err.Error())
			}
			remembered := d.history.failure(o) != nil
			if remembered == (c.want == ErrParent) || d.history.wasReached(o) {
				t.Errorf("held against the origin: %t", remembered)
			}
		})
	}
}

// A silent upstream proxy probably waits for the origin, once it knows the origin. Before
// that, its silence is its own failure.
func TestParentSilent(t *testing.T) {
	for _, c := range []struct {
		scheme, says string
		want         error
	}{
		{"http", "HTTP/1.1 103 \r\n\r\n", os.ErrDeadlineExceeded},
		{"socks5", "\x05", ErrParent},
		{"socks5", "\x05\x00", os.ErrDeadlineExceeded},
	} {
		d := newClient(t, Options{Parent: saying(t, c.scheme, c.says), DialTimeout: 100 * time.Millisecond})
		err := dialOnce(t, d, "origin.test", 443)
		if !errors.Is(err, c.want) || c.want != ErrParent && errors.Is(err, ErrParent) {
			t.Errorf("%s, silent after %q: %v", c.scheme, c.says, err)
		}
	}
}

// While the upstream proxy is unavailable, or is another program, nothing is sent and no
// origin is blamed. Requests work again as soon as it is back.
func TestParentAway(t *testing.T) {
	ca := newAuthority(t)
	for _, kind := range parentKinds {
		t.Run(kind, func(t *testing.T) {
			away, l := listen(t, "http", "127.0.0.1")
			l.Close()
			p := newParentOf(kind, true)
			p.origin = away
			d := behind(t, p, ca)
			secure := serve(t, hello, ca.leaf(t, "origin.test", later())).as("origin.test")
			for _, o := range []robots.Origin{secure, serve(t, hello).as("origin.test")} {
				_, _, err := get(t, d, o.String())
				if !errors.Is(err, ErrParent) {
					t.Errorf("RoundTrip(%s) = %v", o, err)
				}
				noSecret(t, fmt.Sprint(err))
			}
			if err := d.At(netip.Addr{}).Reach(t.Context(), secure); !errors.Is(err, ErrParent) {
				t.Errorf("Reach = %v", err)
			}
			back, err := net.Listen("tcp", away.Addr())
			if err != nil {
				t.Fatal(err)
			}
			switch kind {
			case "socks5":
				eachConn(t, back, p.ServeSocks)
			default:
				s := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
				if kind == "https" {
					back = tls.NewListener(back, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}})
				}
				go s.Serve(back)
				t.Cleanup(func() { s.Close() })
			}
			if err := d.At(netip.Addr{}).Reach(t.Context(), secure); err != nil {
				t.Errorf("it is back: %v", err)
			}
			d.Close() // before the upstream proxy ends, which waits for its connections
		})
	}
}

// TestParentUntrusted: nothing is sent to an upstream proxy whose certificate is not
// trusted.
func TestParentUntrusted(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	p := startParent(t, "https", stranger, true)
	d := behind(t, p, ca)
	for _, scheme := range []string{"http", "https"} {
		var verification *tls.CertificateVerificationError
		_, _, err := get(t, d, scheme+"://origin.test:8443/")
		if !errors.Is(err, ErrParent) || !errors.As(err, &verification) {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	// The upstream proxy has an IP address. For origins with an IP address, Reach accepts
	// another name.
	other := startParent(t, "https", ca, true)
	other.origin = serve(t, other.ServeHTTP, ca.leaf(t, "other.test", later()))
	d = behind(t, other, ca)
	if err := d.At(netip.Addr{}).Reach(t.Context(), robots.Origin{Scheme: "https", Host: "8.8.8.8", Port: 443}); !errors.Is(err, ErrParent) {
		t.Errorf("Reach = %v", err)
	}
	if got := append(p.Requests(), other.Requests()...); len(got) != 0 {
		t.Errorf("it was asked %q", got)
	}
}

// RFC 9110 15.5.8: a 407 is about the proxy itself. It is not the response of an origin,
// and in particular not a missing robots.txt (RFC 9309 2.3.1.3).
func TestParentWantsCredentials(t *testing.T) {
	for _, kind := range parentKinds {
		t.Run(kind, func(t *testing.T) {
			ca := newAuthority(t)
			p := startParent(t, kind, ca, true)
			for name, user := range map[string]*url.Userinfo{"none": nil, "wrong": url.UserPassword(parentUser, "s3cret")} {
				u := p.url()
				u.User = user
				d := newClient(t, Options{Parent: u, Roots: ca.pool})
				client, err := fetch.New(fetch.Options{Sender: fetch.Unpaced(d), IsOwnFailure: func(err error) bool { return errors.Is(err, ErrParent) }})
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range []*origin{serve(t, hello), serve(t, hello, ca.leaf(t, "origin.test", later()))} {
					resp, _, err := get(t, d, o.as("origin.test").String())
					if !errors.Is(err, ErrParent) || resp != nil {
						t.Errorf("%s: %v, %v", name, resp, err)
					}
					noSecret(t, fmt.Sprint(err))
					a := client.Fetch(t.Context(), fetch.Request{Origin: o.as("origin.test"), UserAgent: ""})
					if !errors.Is(a.Err, ErrParent) || a.Status != 0 || !a.OwnFailure {
						t.Errorf("%s: robots.txt: %+v", name, a)
					}
					if n := o.accepted.Load(); n != 0 {
						t.Errorf("%s: %d connections to the origin", name, n)
					}
				}
			}
		})
	}
}

// Inside a tunnel, a 407 is the response of the origin.
func TestOriginSays407(t *testing.T) {
	ca := newAuthority(t)
	p := startParent(t, "http", ca, false)
	o := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(407) }, ca.leaf(t, "origin.test", later()))
	d := behind(t, p, ca)
	if resp, _, err := get(t, d, o.as("origin.test").String()); err != nil || resp.StatusCode != 407 {
		t.Errorf("%v, %v", resp, err)
	}
}
