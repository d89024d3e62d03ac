package egress

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

func TestNewRefusesParents(t *testing.T) {
	for text, want := range map[string]string{
		"ftp://we:s3cr@h":       "scheme",
		"//we:s3cr@h":           "scheme",
		"http:we:s3cr@h":        "empty",
		"http://we:s3cr@":       "empty",
		"socks5://we:s3cr@":     "empty",
		"http://we:s3cr@127.1":  "number",
		"http://we:s3cr@h:0":    "port",
		"http://we:s3cr@h/path": "after the host",
		"http://we:s3cr@h?q":    "after the host",
		"http://:s3cr@h":        "name is empty",
		"http://w%3Ae:s3cr@h":   "colon",
		"socks5://we:" + strings.Repeat("s3cr", 64) + "@h": "longer",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(Options{Parent: u})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "egress: upstream proxy: ") {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
			continue
		}
		noSecret(t, err.Error())
	}
	for text, want := range map[string]string{
		"http://h": "http://h:80", "https://H.": "https://h:443", "socks5://h": "socks5://h:1080", "socks5h://[::1]/": "socks5h://[::1]:1080",
		"socks5://[::1]:9": "socks5://[::1]:9", "http://we:s3cr@h:3128/": "http://h:3128",
	} {
		u, _ := url.Parse(text)
		d, err := New(Options{Parent: u})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		d.Close()
		if d.parent.name != want {
			t.Errorf("%s is called %s, want %s", text, d.parent.name, want)
		}
	}
}

// No request goes to a destination that a name or an address alone forbids. Nothing is
// sent to the upstream proxy.
func TestParentGuard(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		d := behind(t, p, ca)
		for _, host := range []string{
			"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1", "fe80::1%lo",
			"localhost", "LOCALHOST", "localhost.", "a.localhost", "A.b.LocalHost.", "ip6-localhost", "localhost.localdomain",
			"metadata.google.internal", "Metadata.Google.Internal.", "metadata", "instance-data", "",
		} {
			if err := dialOnce(t, d, host, 443); !errors.Is(err, ErrForbiddenAddr) || errors.Is(err, ErrParent) {
				t.Errorf("Dial(%q) = %v", host, err)
			}
			if err := d.Check(host, 443); !errors.Is(err, ErrForbiddenAddr) {
				t.Errorf("Check(%q) = %v", host, err)
			}
			for _, scheme := range []string{"http", "https"} {
				if err := d.At(netip.Addr{}).Reach(t.Context(), robots.Origin{Scheme: scheme, Host: host, Port: 443}); !errors.Is(err, ErrForbiddenAddr) {
					t.Errorf("Reach(%s %q) = %v", scheme, host, err)
				}
				if host == "" || strings.Contains(host, "%") {
					continue
				}
				if _, _, err := get(t, d, scheme+"://"+net.JoinHostPort(host, "443")); !errors.Is(err, ErrForbiddenAddr) {
					t.Errorf("%s: RoundTrip(%q) = %v", scheme, host, err)
				}
			}
		}
		// Other spellings of addresses, and text that is not a name.
		for _, host := range []string{"127.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::1]", "a b", "a\r\nb", "a@b", "a/b", strings.Repeat("a.", 127) + "aa"} {
			if err := dialOnce(t, d, host, 443); err == nil || errors.Is(err, ErrParent) {
				t.Errorf("Dial(%q) = %v", host, err)
			}
		}
		if err := dialOnce(t, d, "origin.test", 25); !errors.Is(err, ErrForbiddenPort) {
			t.Errorf("a forbidden port: %v", err)
		}
		if _, _, err := get(t, d, "http://origin.test:25/"); !errors.Is(err, ErrForbiddenPort) {
			t.Errorf("a forbidden port: %v", err)
		}
		if n := p.accepted.Load(); n != 0 {
			t.Errorf("%d connections to the parent: %q", n, p.Requests())
		}
	})
}

// The Host field becomes part of the absolute form: the destination that is checked is
// the one that is sent.
func TestParentForeignHost(t *testing.T) {
	ca := newAuthority(t)
	p := startParent(t, "http", ca, false)
	d := behind(t, p, ca)
	body := &closing{closed: make(chan struct{})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://origin.test/", body)
	testkit.Must(t, err)
	r.Host = "127.0.0.1"
	if resp, err := d.RoundTrip(r); err == nil {
		t.Errorf("another host: %s", resp.Status)
	}
	<-body.closed
	r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://origin.test/", nil)
	testkit.Must(t, err)
	r.URL.Opaque = "//127.0.0.1/" // a path, not another host
	resp, err := d.RoundTrip(r)
	testkit.Must(t, err)
	resp.Body.Close()
	if got := p.Requests(); len(got) != 1 || got[0].Target != "http://origin.test//127.0.0.1/" {
		t.Errorf("the parent was asked %q", got)
	}
}

type closing struct {
	strings.Reader
	closed chan struct{}
}

func (c *closing) Close() error { close(c.closed); return nil }

// Destinations in allow_private may also be requested through the upstream proxy.
func TestParentAllowPrivate(t *testing.T) {
	d, err := New(Options{Parent: &url.URL{Scheme: "http", Host: "h"}, AllowPrivate: loopback})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for host, want := range map[string]bool{"localhost": true, "a.localhost": true, "127.0.0.1": true, "metadata.google.internal": false, "10.0.0.1": false} {
		if err := d.Check(host, 80); (err == nil) != want {
			t.Errorf("Check(%s) = %v", host, err)
		}
	}
}
