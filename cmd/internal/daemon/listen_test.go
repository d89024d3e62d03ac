package daemon

import "testing"

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
