package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	const clients = "clients: [{name: lab-a, networks: [10.0.0.0/8], password_hash: \"$2y$10$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvw01234567\"}, {name: lab-b, networks: [10.0.0.0/8]}]\n"
	for name, c := range map[string]struct {
		from, to string
		want     []string
	}{
		"nothing":      {"pace: {max_wait: 60s}\n", "pace: {max_wait: 1m}\n", nil},
		"a value":      {"", "pace: {burst: 3}\n", []string{"pace.burst: changed from 1 to 3"}},
		"the order":    {"", "mode: monitor\nopen: true\n", []string{"open: changed from false to true", "mode: changed from enforce to monitor"}},
		"a list":       {"", "tls: {tunnel: [example.com]}\n", []string{"tls.tunnel: changed from [] to [example.com]"}},
		"a long value": {"", "audit: {file: /" + strings.Repeat("x", 100) + "}\n", []string{`audit.file: changed from "" to /` + strings.Repeat("x", 59) + "…: needs a restart"}},
		"entries":      {"", clients, []string{"clients: changed from 0 entries to 2 entries"}},
		"an entry":     {clients, strings.Replace(clients, "lab-b", "lab-c", 1), []string{"clients entry 2: name: changed from lab-b to lab-c"}},
		"a password":   {clients, strings.Replace(clients, "01234567", "01234568", 1), []string{"clients entry 1: password_hash: changed from (hidden) to (hidden)"}},
		"a token":      {"", "admin: {token: 0123456789abcdef}\n", []string{`admin.token: changed from "" to (hidden)`}},
		"a parent":     {"", "egress: {parent: \"http://u:secret@h:1\"}\n", []string{`egress.parent: changed from "" to (hidden)`}},
		"a host's":     {"hosts: [{match: a, parent: \"http://u:secret@h:1\"}]\n", "hosts: [{match: a, parent: direct}]\n", []string{"hosts entry 1: parent: changed from (hidden) to (hidden)"}},
		"restart":      {"", "listen: 127.0.0.1:1\nlog: {format: json}\n", []string{"listen: changed from 127.0.0.1:8080 to 127.0.0.1:1: needs a restart", "log.format: changed from text to json: needs a restart"}},
		"TLS on":       {"", "listen_tls: {cert: a, key: b}\n", []string{`listen_tls.cert: changed from "" to "a": needs a restart`, `listen_tls.key: changed from "" to "b": needs a restart`}},
		"TLS off":      {"listen_tls: {cert: aa, key: bb}\n", "", []string{`listen_tls.cert: changed from aa to "": needs a restart`, `listen_tls.key: changed from bb to "": needs a restart`}},
		"TLS anew":     {"listen_tls: {cert: aa, key: bb}\n", "listen_tls: {cert: cc, key: dd}\n", []string{"listen_tls.cert: changed from aa to cc", "listen_tls.key: changed from bb to dd"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, change := range Changes(parse(t, c.from), parse(t, c.to)) {
				got = append(got, change.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRestartTags: a tag of another name would count for nothing.
func TestRestartTags(t *testing.T) {
	c := Default()
	c.Hosts, c.Clients = make([]Host, 1), make([]Client, 1)
	for _, k := range everyField(reflect.ValueOf(&c).Elem(), "") {
		if tag, ok := k.tag.Lookup("restart"); ok && tag != restartAlways && tag != restartOnOff {
			t.Errorf("%s: restart:%q is not known", k.path, tag)
		}
	}
}
