package daemon

import (
	"net"
	"testing"
)

// TestListenNetwork: an IPv4 address does not stand for IPv6 addresses too, as 0.0.0.0 would.
func TestListenNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:80": "tcp4", "127.0.0.1:0": "tcp4", "[::]:80": "tcp", "[::1]:80": "tcp", ":80": "tcp", "localhost:80": "tcp",
	} {
		if got := listenNetwork(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestOwnURLs: a listener on all addresses has none that a browser could open, so its URL has localhost.
func TestOwnURLs(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:0": "https://127.0.0.1:", "0.0.0.0:0": "https://localhost:"} {
		l, err := net.Listen("tcp4", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if got := ownURL("https", l); got != want+port+"/" {
			t.Errorf("%s: %s, want %s%s/", listen, got, want, port)
		}
	}
}
