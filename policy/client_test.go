package policy_test

import (
	"net/netip"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

func TestShareKey(t *testing.T) {
	for _, c := range []struct{ client, want string }{
		{"lab-a", "lab-a"},
		{"lab:a", "lab:a"},
		{"192.0.2.1", "192.0.2.1"},
		{"::ffff:192.0.2.1", "::ffff:192.0.2.1"},
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1::/56"},
		{"2001:db8:1:ff::ffff", "2001:db8:1::/56"},
		{"2001:db8:1:100::ffff", "2001:db8:1:100::/56"},
		{"fe80::1%eth0", "fe80::/56"},
		{"127.0.0.1", "127.0.0.0/8"},
		{"127.255.255.254", "127.0.0.0/8"},
		{"::1", "127.0.0.0/8"},
		{"::1%lo", "127.0.0.0/8"},
		{"::ffff:127.0.0.1", "127.0.0.0/8"},
		{"127.lab", "127.lab"},
		{"128.0.0.1", "128.0.0.1"},
		{"", ""},
	} {
		if got := policy.ShareKey(c.client); got != c.want {
			t.Errorf("ShareKey(%q) = %q, want %q", c.client, got, c.want)
		}
	}
}

func TestAddressShare(t *testing.T) {
	hash, err := policy.HashPassword("secret")
	testkit.Must(t, err)
	in := func(networks ...string) (all []netip.Prefix) {
		for _, n := range networks {
			all = append(all, netip.MustParsePrefix(n))
		}
		return all
	}
	engine, err := policy.New(policy.Options{Cache: &cache.Cache{}, Open: true, Clients: []policy.Client{
		{Name: "roaming", PasswordHash: hash},
		{Name: "office", PasswordHash: hash, Networks: in("127.0.0.2/31", "10.0.0.0/8")},
		{Name: "lab", Networks: in("127.0.0.3/32", "2001:db8::/64")},
	}})
	testkit.Must(t, err)
	for _, c := range []struct{ name, a, b string }{
		{"a client has one share", "127.0.0.3", "2001:db8::1"},
		{"all loopback addresses have one share", "127.0.0.1", "127.9.9.9"},
		{"and so does each protocol's", "127.0.0.1", "::1"},
		{"IPv4-mapped addresses too", "::ffff:127.0.0.3", "127.0.0.3"},
	} {
		if a, b := engine.AddressShare(c.a), engine.AddressShare(c.b); a != b {
			t.Errorf("%s: %q and %q", c.name, a, b)
		}
	}
	apart := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "10.0.0.1", "10.0.0.2", "192.0.2.1", "2001:db8:0:1::1", "unix"}
	known := map[string]string{}
	for _, address := range apart {
		share := engine.AddressShare(address)
		if before, ok := known[share]; ok {
			t.Errorf("%s and %s have one share, %q", before, address, share)
		}
		known[share] = address
	}
}
