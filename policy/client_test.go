package policy_test

import (
	"testing"

	"robotsproxy/policy"
)

func TestShareKey(t *testing.T) {
	for _, c := range []struct{ client, want string }{
		{"lab-a", "lab-a"},
		{"lab:a", "lab:a"},
		{"192.0.2.1", "192.0.2.1"},
		{"::ffff:192.0.2.1", "::ffff:192.0.2.1"},
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"2001:db8:1:2::ffff", "2001:db8:1:2::/64"},
		{"2001:db8:1:3::ffff", "2001:db8:1:3::/64"},
		{"fe80::1%eth0", "fe80::/64"},
		{"", ""},
	} {
		if got := policy.ShareKey(c.client); got != c.want {
			t.Errorf("ShareKey(%q) = %q, want %q", c.client, got, c.want)
		}
	}
}
