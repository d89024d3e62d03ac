package config

import "testing"

// TestSharedSum: the sum differs if a key differs that must be the same in all replicas, and only then.
func TestSharedSum(t *testing.T) {
	const (
		client = "clients: [{name: a, password_hash: '" + hashed + "'}]\n"
		other  = "clients: [{name: a, password_hash: '$2y$05$/OK.fbVrR/bpIqNJ5ianF.CE5elHaaO4EbggVDjb8P19RukzXSM3e'}]\n"
	)
	for _, c := range []struct {
		name, one, two string
		same           bool
	}{
		{"addresses", "listen: 127.0.0.1:1\nadmin: {listen: 127.0.0.1:2, url: 'http://a/'}", "", true},
		{"files", "state_dir: /a\ntls: {ca_cert: /b, ca_key: /c}", "state_dir: /b", true},
		{"the name of the replica", "store: {replica: a}", "store: {replica: b}", true},
		{"the token", "admin: {token: 0123456789abcdef}", "", true},
		{"the password of the store", "store: {redis: 'redis://:one@a'}", "store: {redis: 'redis://:two@a'}", true},
		{"the store", "store: {redis: 'redis://:one@a'}", "store: {redis: 'redis://:one@b'}", false},
		{"the order of keys", "open: true\nmode: monitor", "mode: monitor\nopen: true", true},
		{"the pace", "pace: {requests_per_second: 2}", "pace: {requests_per_second: 3}", false},
		{"the password of a host's parent", "hosts: [{match: a, parent: 'http://a:one@b'}]", "hosts: [{match: a, parent: 'http://a:two@b'}]", true},
		{"a host's parent", "hosts: [{match: a, parent: 'http://b'}]", "hosts: [{match: a, parent: direct}]", false},
		{"an entry", "hosts: [{match: a.example, reason: a}]", "", false},
		{"a client's password", client, other, false},
	} {
		if one, two := parse(t, c.one).SharedSum(), parse(t, c.two).SharedSum(); (one == two) != c.same || len(one) != 12 {
			t.Errorf("%s: %s and %s", c.name, one, two)
		}
	}
}
