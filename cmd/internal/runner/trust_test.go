package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPrintUntrusted: each host is named once, with what helps the client.
func TestPrintUntrusted(t *testing.T) {
	many := make([]string, maxSummary+5)
	for i := range many {
		many[i] = fmt.Sprintf("h%d.test", i)
	}
	for _, c := range []struct {
		command          string
		rejected, closed []string
		want             []string // in the lines, in order; nil: nothing is printed
	}{
		{"curl https://a.test/", nil, nil, nil},
		{"curl https://a.test/", []string{"a.test"}, nil, []string{"robotsproxy: curl connected to a.test through the proxy but did not trust the proxy's certificate", "--cacert"}},
		{"sh -c (curl https://a.test/)", []string{"a.test"}, nil, []string{"robotsproxy: curl connected to a.test", "--cacert"}},
		{"/usr/bin/node24 x.js", nil, []string{"a.test"}, []string{"robotsproxy: node connected to a.test through the proxy and closed the connection during the TLS handshake, probably", "NODE_EXTRA_CA_CERTS"}},
		{"mytool", []string{"a.test"}, []string{"b.test"}, []string{"mytool connected to a.test", "mytool connected to b.test", "robotsproxy ca install"}},
		{"a\x1b[2J", []string{"\x1b[2J"}, nil, []string{`"a\x1b[2J" connected to "\x1b[2J" through`, "robotsproxy ca install"}},
		{"curl x", many, nil, append(slices.Repeat([]string{"curl connected"}, maxSummary), "robotsproxy: and to 5 more hosts", "--cacert")},
	} {
		var b strings.Builder
		printed := printUntrusted(&b, strings.Split(c.command, " "), c.rejected, c.closed)
		var lines []string
		for line := range strings.Lines(b.String()) {
			lines = append(lines, line)
		}
		if printed != (len(c.want) > 0) || len(lines) != len(c.want) {
			t.Errorf("%s: %v, %q", c.command, printed, lines)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: line %q, want %q", c.command, lines[i], want)
			}
		}
	}
}
