package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/robots"
)

// TestPrintUntrusted: each host is named once, with what helps the client.
func TestPrintUntrusted(t *testing.T) {
	many := make([]string, maxSummary+5)
	for i := range many {
		many[i] = fmt.Sprintf("h%d.test", i)
	}
	for _, c := range []struct {
		command                  string
		rejected, closed, unused []string
		want                     []string // in the lines, in order; nil: nothing is printed
	}{
		{"curl https://a.test/", nil, nil, nil, nil},
		{"curl https://a.test/", []string{"a.test"}, nil, nil, []string{"robotsproxy: curl connected to a.test through the proxy but did not trust the proxy's certificate", "--cacert"}},
		{"sh -c (curl https://a.test/)", []string{"a.test"}, nil, nil, []string{"robotsproxy: curl connected to a.test", "--cacert"}},
		{"/usr/bin/node24 x.js", nil, []string{"a.test"}, nil, []string{"robotsproxy: node connected to a.test through the proxy and closed the connection during the TLS handshake, probably", "NODE_EXTRA_CA_CERTS (a browser that it starts: robotsproxy ca install --browsers)"}},
		{"wget https://a.test/", nil, nil, []string{"a.test:8443"}, []string{"robotsproxy: wget opened a tunnel to a.test:8443 through the proxy and closed it without a request, perhaps", "--ca-certificate"}},
		{"chromium x", []string{"a.test"}, nil, nil, []string{"chromium connected to a.test", "robotsproxy ca install --browsers"}},
		{"mytool", []string{"a.test"}, []string{"b.test"}, nil, []string{"mytool connected to a.test", "mytool connected to b.test", "robotsproxy ca install"}},
		{"a\x1b[2J", []string{"\x1b[2J"}, nil, nil, []string{`"a\x1b[2J" connected to "\x1b[2J" through`, "robotsproxy ca install"}},
		{"curl x", many, nil, nil, append(slices.Repeat([]string{"curl connected"}, maxSummary), "robotsproxy: and to 5 more hosts", "--cacert")},
	} {
		var b strings.Builder
		printed := printUntrusted(&b, strings.Split(c.command, " "), daemon.Untrusted{Rejected: c.rejected, Closed: c.closed, Unused: c.unused})
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

// TestUntrusted: a client that sent a host a request over HTTPS trusts the certificate. CONNECT and
// HTTP do not show that.
func TestUntrusted(t *testing.T) {
	var c counter
	for _, r := range []struct{ method, scheme, host string }{
		{"GET", "https", "used.test"}, {"GET", "https", "::1"}, {"GET", "http", "plain.test"}, {"CONNECT", "https", "failed.test"},
	} {
		c.Write(&audit.Record{Request: policy.Request{Method: r.method, Target: robots.Target{Origin: robots.Origin{Scheme: r.scheme, Host: r.host}}}})
	}
	s := c.summary()
	got := s.untrusted([]string{"used.test", "used.test:8443", "::1", "plain.test", "failed.test", "other.test:8443"})
	if want := []string{"plain.test", "failed.test", "other.test:8443"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
